"""`make fuzz`: sends mutated streams to one port, or to each in turn, for a given time. Ends with 1 after a fault."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.frames import FORMATS
from fuzz.runs import Report, run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("ports", nargs="*", metavar="PORT", help=f"of {', '.join(FORMATS)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=60, help="time for each port")
    parser.add_argument("--seed", type=int, default=0, help="the same seed sends the same streams")
    given = parser.parse_args(arguments)
    if unknown := set(given.ports) - FORMATS.keys():
        parser.error(f"unknown port {', '.join(sorted(unknown))}: choose from {', '.join(FORMATS)}")
    has_failed = False
    for port in given.ports or FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            report = run(port, Path(folder), given.seed, given.seconds, _Progress(given.seconds).show)
        print(f"\r\033[K{report}" if sys.stderr.isatty() else report, flush=True)
        has_failed |= bool(report.faults)
    return 1 if has_failed else 0


class _Progress:
    """One line at a terminal, renewed twice a second at most."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = self._shown = time.monotonic()

    def show(self, report: Report) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown < 0.5:
            return
        self._shown = now
        passed = min(now - self._began, self._seconds)
        bar = "#" * int(30 * passed / self._seconds)
        line = f"\r{report.port} [{bar:<30}] {passed:.0f}/{self._seconds:.0f} s, {report.streams} streams"
        print(line, end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
