"""CPU time of an append in addition to the write itself: batches of 16 KB, and small batches in passes of 64. Nothing
is synced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, at_most_times_floor
from bench.sizes import Sizes
from bench.storage_setup import Batch, batch_of, batch_of_records, storage_in
from bench.work_cost import Cost, Work, Workload, min_costs
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal

LARGE = 16 * 1024
SMALL = 200
SMALL_PER_PASS = 64


def measure_large(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    for per_pass in (1, 16):
        batches = [batch_of(LARGE) for _ in range(per_pass)]
        passes = sizes.append_bytes // LARGE // per_pass
        cost, floor = min_costs([_log(folder, batches, passes), _floor(folder, batches, passes)], sizes.rounds)
        yield _figure(f"append 16 KB batches, {per_pass} per pass", cost, floor, passes * per_pass, 1.6)


def measure_small(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Measures the records as parts of a journal, as one batch of a partition log, and as one batch each."""
    apart = [batch_of(SMALL) for _ in range(SMALL_PER_PASS)]
    together = [batch_of_records(SMALL_PER_PASS, SMALL)]
    passes = sizes.small_passes
    workloads = [_journal(folder, apart, passes), _log(folder, together, passes), _log(folder, apart, passes)]
    *costs, floor = min_costs([*workloads, _floor(folder, apart, passes)], sizes.rounds)
    kinds = ("64 parts of a journal", "1 batch of a log", "64 batches of a log")
    for kind, cost in zip(kinds, costs, strict=True):
        yield _figure(f"append 64 records of 200 B per pass: {kind}", cost, floor, passes * SMALL_PER_PASS, 3)


def _figure(name: str, cost: Cost, floor: Cost, appends: int, bound: float) -> Figure:
    wall = f"by wall {cost.wall_s / appends * 1e6:.3g} us, {cost.wall_s / floor.wall_s:.2f} x floor"
    return Figure(
        name,
        cost.cpu_s / appends * 1e6,
        "us CPU",
        floor.cpu_s / appends * 1e6,
        at_most_times_floor(bound),
        f"CPU of the process is judged; {wall}",
    )


def _floor(folder: Path, batches: list[Batch], passes: int) -> Workload:
    """One pwritev of the same parts per pass."""

    @contextmanager
    def prepare() -> Iterator[Work]:
        parts = [batch for batch, _ in batches]
        path = folder / "floor"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

        def work() -> None:
            position = 0
            for _ in range(passes):
                position += os.pwritev(fd, parts, position)

        try:
            yield work
        finally:
            os.close(fd)
            path.unlink()

    return prepare


def _log(folder: Path, batches: list[Batch], passes: int) -> Workload:
    @contextmanager
    def prepare() -> Iterator[Work]:
        with storage_in(folder / "log") as storage:
            log, finish = storage.open_log(), storage.passes.finish

            def work() -> None:
                append = log.append
                for _ in range(passes):
                    for batch, header in batches:
                        append(batch, header, 0)
                    finish()

            yield work

    return prepare


class _NoOwner:
    """Stands in for the layout that owns the journal."""

    def pass_written(self, number: int, dirty: Dirty) -> None: ...

    def pass_undone(self) -> None: ...

    def pass_durable(self, number: int) -> None: ...


def _journal(folder: Path, batches: list[Batch], passes: int) -> Workload:
    """The journal alone, which all layouts use."""

    @contextmanager
    def prepare() -> Iterator[Work]:
        parts = [batch for batch, _ in batches]
        with storage_in(folder / "journal") as storage:
            storage.files.make_folder("journal")
            journal = Journal(storage.files, "journal", ".log", storage.passes, _NoOwner())
            journal.roll(0)
            finish = storage.passes.finish
            finish()

            def work() -> None:
                append = journal.append
                for _ in range(passes):
                    for part in parts:
                        append(part, SMALL)
                    finish()

            yield work

    return prepare
