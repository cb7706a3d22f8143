from __future__ import annotations

from doubles import PassRunner

from trimq.storage.checkpoints.leader_epochs import EpochStart
from trimq.storage.checkpoints.log_checkpoints import (
    Checkpoints,
    CleanerCheckpoint,
    IndexSums,
    RecoveryPoint,
    SealedMark,
)
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

POINT = RecoveryPoint(offset=12, base=5, position=300, start=2, producers=1, sums=IndexSums(1, 2, 3, 4, 5, 6, 7))
MARK = SealedMark(size=700, crc=None, sums=IndexSums(1, 2, 3, 4, 5, 6, 7))


class Bench:
    def __init__(self, files: MemoryFiles) -> None:
        self.runner = PassRunner(files)
        table = open_table(files, "tables", "checkpoints", self.runner.passes, list, self.runner.offload)
        self.checkpoints = Checkpoints(table)


def reopened(files: MemoryFiles, bench: Bench) -> Checkpoints:
    bench.runner.settle()
    files.crash()
    return Bench(files).checkpoints


def test_a_new_log_has_no_checkpoint() -> None:
    checkpoints = Bench(MemoryFiles()).checkpoints
    assert checkpoints.point("t-0") is None
    assert checkpoints.epochs("t-0") is None
    assert checkpoints.sealed("t-0", 0) is None
    assert checkpoints.marked("t-0") == []
    assert checkpoints.cleaned("t-0") == CleanerCheckpoint(0, -1)
    assert not checkpoints.knows("t-0")


def test_saved_checkpoints_are_restored() -> None:
    files = MemoryFiles()
    bench = Bench(files)
    bench.checkpoints.save("t-0", POINT)
    bench.checkpoints.save("t-1", POINT._replace(sums=None))
    bench.checkpoints.save_epochs("t-0", [EpochStart(0, 0), EpochStart(3, 9)])
    bench.checkpoints.seal("t-0", 5, MARK)
    bench.checkpoints.seal("t-0", 0, SealedMark(10, 77))
    bench.checkpoints.save_cleaned("t-0", CleanerCheckpoint(5, 99))
    found = reopened(files, bench)
    assert found.point("t-0") == POINT
    assert found.point("t-1") == POINT._replace(sums=None)
    assert found.epochs("t-0") == [(0, 0), (3, 9)]
    assert found.sealed("t-0", 5) == MARK
    assert found.sealed("t-0", 0) == SealedMark(10, 77)
    assert found.marked("t-0") == [0, 5]
    assert found.cleaned("t-0") == CleanerCheckpoint(5, 99)
    assert found.knows("t-0")


def test_forgetting_a_log_keeps_the_others() -> None:
    files = MemoryFiles()
    bench = Bench(files)
    for folder in ("t-1", "t-11"):
        bench.checkpoints.save(folder, POINT)
        bench.checkpoints.save_epochs(folder, [EpochStart(0, 0)])
        bench.checkpoints.seal(folder, 5, MARK)
        bench.checkpoints.save_cleaned(folder, CleanerCheckpoint(5, 99))
    bench.checkpoints.forget("t-1")
    found = reopened(files, bench)
    assert not found.knows("t-1")
    assert found.marked("t-1") == []
    assert found.point("t-11") == POINT
    assert found.marked("t-11") == [5]


def test_forgotten_segment_marks_are_removed() -> None:
    files = MemoryFiles()
    bench = Bench(files)
    for base in (0, 5, 9):
        bench.checkpoints.seal("t-0", base, MARK)
    bench.checkpoints.forget_sealed("t-0", 0)
    ticket = bench.checkpoints.forget_marks("t-0", [5])
    assert bench.checkpoints.marked("t-0") == [9]
    assert reopened(files, bench).marked("t-0") == [9]
    assert ticket.refusal is None
