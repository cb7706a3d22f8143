"""`make differential`: compares one protocol, or each in turn, for a given time. Shows its progress; ends with 1 if a
difference has no explanation."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from differential.protocols import NAMES, ComparedProtocol, load
from differential.runs import Comparison, Report
from differential.sequences import Step


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("protocols", nargs="*", metavar="PROTOCOL", help=f"of {', '.join(NAMES)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=60, help="time for each protocol")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--sequences", type=int, help="most sequences for each protocol")
    parser.add_argument("--replay", help="steps as JSON, as a report shows them")
    given = parser.parse_args(arguments)
    if unknown := set(given.protocols) - set(NAMES):
        parser.error(f"unknown protocol {', '.join(sorted(unknown))}: choose from {', '.join(NAMES)}")
    if given.replay and len(given.protocols) != 1:
        parser.error("--replay needs exactly one protocol")
    outcomes = [_compare(name, load(name), given) for name in given.protocols or NAMES]
    return 0 if all(outcomes) else 1


def _compare(name: str, protocol: ComparedProtocol, given: argparse.Namespace) -> bool:
    print(f"{name}: starting both brokers", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, protocol.brokers(Path(folder)) as (ours, theirs):
        comparison = Comparison(ours, theirs, protocol.explained)
        try:
            if given.replay:
                return _replay([Step(**each) for each in json.loads(given.replay)], comparison)
            progress = _Progress(name, given.seconds)
            report = comparison.run(protocol.generate, given.seed, given.seconds, given.sequences, progress.show)
        finally:
            comparison.close()
    print(f"\r\033[K{name}:\n{report}")
    return not report.findings


def _replay(steps: list[Step], comparison: Comparison) -> bool:
    difference = comparison.compare(steps)
    print("no unexplained difference" if difference is None else f"step {difference.position}: {difference.signature}")
    return difference is None


class _Progress:
    """One line at a terminal, renewed twice a second at most."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._began = self._shown = time.monotonic()

    def show(self, report: Report) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown < 0.5:
            return
        self._shown = now
        passed = min(now - self._began, self._seconds)
        bar = "#" * int(30 * passed / self._seconds)
        found = f"{report.sequences} sequences, {len(report.findings)} differences"
        print(f"\r{self._name} [{bar:<30}] {passed:.0f}/{self._seconds:.0f} s, {found}", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
