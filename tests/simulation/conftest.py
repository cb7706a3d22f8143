"""Puts the modules of the simulation on the path, distributes the seeds over the tests, and sums up their coverage."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

SEEDS_PER_TEST = 20
DEFAULT_SEEDS = 300


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with `seeds` runs all of them, in several parts, and one with `some_seeds` a third; `--seed` replays one,
    `--seeds` sets the number."""
    for name, divisor in (("seeds", 1), ("some_seeds", 3)):
        if name in metafunc.fixturenames:
            shares = _shares(metafunc.config, divisor)
            metafunc.parametrize(name, shares, ids=[f"seeds-{share.start}-to-{share.stop - 1}" for share in shares])


def _shares(config: pytest.Config, divisor: int) -> list[range]:
    one = config.getoption("--seed", default=None)
    if one is not None:
        return [range(int(one), int(one) + 1)]
    count = int(config.getoption("--seeds", default=None) or DEFAULT_SEEDS) // divisor
    return [range(first, min(first + SEEDS_PER_TEST, count)) for first in range(0, count, SEEDS_PER_TEST)]


class Coverage:
    """Coverage of all simulations of this run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.totals: dict[str, list[float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name.startswith("simulation ") and isinstance(value, list):
                seconds = [report.duration, *value]
                totals = self.totals.setdefault(name, [0.0] * len(seconds))
                self.totals[name] = [old + new for old, new in zip(totals, seconds, strict=True)]
            elif name == "planted bug":
                self.lines.append(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, (real, seeds, hours, crashes) in sorted(self.totals.items()):
            minutes = max(real / 60, 1e-9)
            terminalreporter.write_line(
                f"{name}: {seeds:.0f} seeds, {hours:.1f} simulated hours and {crashes:.0f} crashes in {real:.1f} s"
                f" ({hours / minutes:.0f} hours and {crashes / minutes:.0f} crashes per minute)"
            )
        for line in sorted(self.lines):
            terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Coverage(), "simulation-coverage")
