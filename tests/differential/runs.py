"""Runs of generated sequences on two brokers, for a given time, and their report."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from differential.sequences import (
    Difference,
    Driver,
    Explained,
    Step,
    differences,
    first_unexplained,
    shrink,
    until_last,
)

Generator = Callable[[random.Random], list[Step]]


@dataclass
class Finding:
    """One unexplained difference, with the shortest sequence that shows it."""

    seed: int
    difference: Difference
    steps: list[Step]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.difference.signature}"]
        lines += [f"  {step}" for step in self.steps]
        replay = json.dumps([asdict(step) for step in self.steps], sort_keys=True)
        return "\n".join([*lines, f"  replay: --replay '{replay}'"])


@dataclass
class Report:
    """`repeated`: differences found again, by signature; they are shrunk only once. `unsteady`: number of differences
    that did not occur again with the same steps. `seen`: names of explained differences that occurred."""

    sequences: int = 0
    steps: int = 0
    findings: list[Finding] = field(default_factory=list)
    repeated: dict[str, int] = field(default_factory=dict)
    unsteady: int = 0
    seen: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        total = f"{self.sequences} sequences, {self.steps} steps, {len(self.findings)} kinds of unexplained differences"
        total += f", {self.unsteady} that did not occur again"
        return "\n".join([*map(str, self.findings), total, f"explained differences seen: {sorted(self.seen)}"])


class Comparison:
    """Two brokers under comparison."""

    def __init__(self, ours: Driver, theirs: Driver, explained: Sequence[Explained]) -> None:
        self._ours = ours
        self._theirs = theirs
        self._explained = explained
        self._pool = ThreadPoolExecutor(2)

    def close(self) -> None:
        self._pool.shutdown()

    def compare(self, steps: Sequence[Step], seen: set[str] | None = None) -> Difference | None:
        """Runs the steps on both brokers at the same time. Returns the first unexplained difference."""
        ours = self._pool.submit(self._ours.run, steps)
        theirs = self._pool.submit(self._theirs.run, steps)
        found = list(differences(steps, ours.result(), theirs.result()))
        if seen is not None:
            seen.update(reason.name for reason in self._explained if any(map(reason.applies, found)))
        return first_unexplained(iter(until_last(found, self._explained)), self._explained)

    def run(
        self,
        generate: Generator,
        first_seed: int,
        seconds: float,
        max_sequences: int | None = None,
        show: Callable[[Report], None] = lambda report: None,
    ) -> Report:
        """Runs one sequence per seed until the time is over. A difference counts only if it occurs again."""
        report = Report()
        until = time.monotonic() + seconds
        seed = first_seed
        while time.monotonic() < until and report.sequences != max_sequences:
            steps = generate(random.Random(seed))
            difference = self.compare(steps, report.seen)
            report.sequences += 1
            report.steps += len(steps)
            if difference is not None:
                self._take(report, seed, steps, difference)
            seed += 1
            show(report)
        return report

    def _take(self, report: Report, seed: int, steps: list[Step], difference: Difference) -> None:
        signature = difference.signature
        if signature in report.repeated:
            report.repeated[signature] += 1
            return
        again = self.compare(steps)
        if again is None or again.signature != signature:
            report.unsteady += 1
            return
        report.repeated[signature] = 1
        shortest = shrink(steps[: difference.position + 1], self.compare, signature)
        report.findings.append(Finding(seed, difference, shortest))
