from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles import FaultyFiles, PassRunner

from trimq.errors import WriteFailed
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.memory_files import MemoryFiles

FOLDER = "orders-0"


class Owner:
    """The layout above the journal; records its notifications."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def pass_written(self, number: int, dirty: Dirty) -> None:
        self.notes.append(f"written {number}")

    def pass_undone(self) -> None:
        self.notes.append("undone")

    def pass_durable(self, number: int) -> None:
        self.notes.append(f"settled {number}")


class Bench:
    def __init__(self, inner: Files) -> None:
        self.files = FaultyFiles(inner)
        self.files.make_folder(FOLDER)
        self.files.sync_folder("")
        self.runner = PassRunner(self.files)
        self.owner = Owner()
        self.journal = Journal(self.files, FOLDER, ".log", self.runner.passes, self.owner)

    def append(self, data: bytes) -> Ticket:
        return self.journal.append(data, len(data))

    def contents(self) -> dict[int, bytes]:
        """Returns the contents of the segments, and checks that the journal agrees with the disk."""
        for segment in self.journal.segments:
            assert segment.file.size() == segment.size
            assert not segment.size or bytes(segment.view(0, segment.size)) == segment.read(0, 1 << 20)
        return {segment.base: segment.read(0, 1 << 20) for segment in self.journal.segments}


@pytest.fixture(params=["disk", "memory"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "memory":
        yield Bench(MemoryFiles())
        return
    files = DiskFiles(str(tmp_path))
    yield Bench(files)
    files.close()


def begun(bench: Bench, *pieces: bytes) -> None:
    """Fills the journal with one durable segment per piece."""
    base = 0
    for piece in pieces:
        bench.journal.roll(base)
        bench.append(piece)
        base += len(piece)
    bench.runner.settle()
    bench.owner.notes.clear()


def reloaded(files: Files) -> Journal:
    journal = Journal(files, FOLDER, ".log", PassRunner(files).passes, Owner())
    journal.load()
    return journal


# -- appending


def test_an_append_counts_at_once_and_is_written_when_the_pass_ends(bench: Bench) -> None:
    begun(bench, b"abc")
    ticket = bench.append(b"de")
    assert bench.append(b"f") is ticket
    segment = bench.journal.active
    assert (segment.size, segment.file.size()) == (6, 3)
    bench.runner.end_pass()
    assert bench.contents() == {0: b"abcdef"}
    assert bench.owner.notes == ["written 2"]
    bench.runner.settle()
    assert bench.owner.notes == ["written 2", "settled 2"]


def test_a_pass_is_one_write_per_segment(bench: Bench) -> None:
    begun(bench, b"abc")
    writes: list[str] = []
    bench.files.before = lambda operation, name: writes.append(name) if operation == "write" else None
    for _ in range(100):
        bench.append(b"x")
    bench.journal.roll(103)
    for _ in range(100):
        bench.append(b"y")
    bench.runner.end_pass()
    assert writes == [f"{FOLDER}/{base:020}.log" for base in (0, 103)]
    assert bench.contents() == {0: b"abc" + b"x" * 100, 103: b"y" * 100}


def test_appends_after_a_roll_are_in_the_new_segment(bench: Bench) -> None:
    begun(bench, b"abc")
    bench.append(b"d")
    assert bench.journal.roll(4) is bench.journal.active
    bench.append(b"e")
    bench.journal.roll(5)
    bench.runner.settle()
    bench.append(b"f")
    bench.runner.settle()
    assert bench.contents() == {0: b"abcd", 4: b"e", 5: b"f"}


def test_the_latest_ticket_is_that_of_the_last_append(bench: Bench) -> None:
    begun(bench, b"abc")
    assert bench.journal.latest_ticket().number == 1
    assert bench.append(b"d") is bench.journal.latest_ticket()
    bench.runner.end_pass()
    assert bench.journal.latest_ticket().number == 2


def test_a_journal_may_take_part_in_a_pass_without_appending(bench: Bench) -> None:
    begun(bench, b"abc")
    assert bench.journal.join_pass() is bench.journal.join_pass()
    bench.runner.settle()
    assert bench.owner.notes == ["written 2", "settled 2"]
    assert bench.contents() == {0: b"abc"}


def test_durable_appends_survive_a_power_cut_with_their_file_name() -> None:
    memory = MemoryFiles()
    bench = Bench(memory)
    begun(bench, b"abc", b"de")
    bench.append(b"lost")
    bench.journal.roll(9)
    bench.append(b"lost")
    bench.runner.end_pass()
    memory.crash()
    assert {segment.base: segment.read(0, 100) for segment in reloaded(memory).segments} == {0: b"abc", 3: b"de"}


# -- a pass that fails


@pytest.mark.parametrize("room_bytes", range(9))
def test_a_pass_that_does_not_fit_is_undone(bench: Bench, room_bytes: int) -> None:
    begun(bench, b"abc")
    bench.files.room_bytes = room_bytes
    ticket = bench.append(b"def")
    bench.journal.roll(6)
    bench.append(b"ghi")
    bench.journal.roll(9)
    bench.append(b"jkl")
    bench.runner.settle()
    assert isinstance(ticket.refusal, WriteFailed)
    assert bench.owner.notes == ["undone"]
    assert bench.runner.failures == []
    assert bench.contents() == {0: b"abc"}
    assert bench.files.names(FOLDER) == [f"{0:020}.log"]
    bench.files.room_bytes = None
    assert bench.append(b"DEF").refusal is None
    bench.runner.settle()
    assert bench.contents() == {0: b"abcDEF"}
    assert bench.owner.notes == ["undone", "written 3", "settled 3"]


def test_the_first_segment_of_a_journal_is_kept_when_its_pass_is_undone(bench: Bench) -> None:
    bench.journal.roll(0)
    bench.append(b"abc")
    bench.files.room_bytes = 1
    bench.runner.settle()
    bench.files.room_bytes = None
    assert (bench.owner.notes, bench.journal.active.size, bench.journal.active.file.size()) == (["undone"], 0, 0)
    bench.append(b"def")
    bench.runner.settle()
    assert bench.contents() == {0: b"def"}


def test_a_segment_that_is_kept_after_an_undone_pass_gets_a_durable_name() -> None:
    memory = MemoryFiles()
    bench = Bench(memory)
    bench.journal.roll(0)
    bench.append(b"abc")
    bench.files.room_bytes = 1
    bench.runner.settle()
    bench.files.room_bytes = None
    bench.append(b"def")
    bench.runner.settle()
    memory.crash()
    assert [segment.read(0, 100) for segment in reloaded(memory).segments] == [b"def"]


def test_a_roll_that_fails_is_refused_and_leaves_the_journal_as_it_was(bench: Bench) -> None:
    begun(bench, b"abc")

    def before(operation: str, name: str) -> None:
        if operation == "create":
            raise OSError(errno.EMFILE, "too many open files")

    bench.files.before = before
    bench.append(b"d")
    with pytest.raises(WriteFailed, match="too many open files"):
        bench.journal.roll(4)
    bench.append(b"e")
    bench.runner.settle()
    assert bench.contents() == {0: b"abcde"}


def test_a_pass_that_cannot_be_undone_stops_the_broker(bench: Bench) -> None:
    begun(bench, b"abc")

    def before(operation: str, name: str) -> None:
        if operation in ("write", "resize"):
            raise OSError(errno.EIO, "input/output error")

    bench.files.before = before
    bench.append(b"d")
    bench.runner.end_pass()
    assert len(bench.runner.failures) == 1


# -- lookup


def test_a_journal_is_loaded_again(bench: Bench) -> None:
    begun(bench, b"abc", b"de", b"f")
    for name in ("notes.txt", "1.log", f"{7:020}.index", f"{7:020}.log.deleted"):
        bench.files.open(f"{FOLDER}/{name}", create=True)
    journal = Journal(bench.files, FOLDER, ".log", bench.runner.passes, Owner())
    assert journal.load() == bench.files.names(FOLDER)
    assert [(segment.base, segment.size) for segment in journal.segments] == [(0, 3), (3, 2), (5, 1)]


@pytest.mark.parametrize(("number", "place"), [(0, -1), (9, -1), (10, 0), (12, 0), (13, 1), (14, 1), (15, 2), (999, 2)])
def test_a_number_is_found_in_the_segment_that_begins_before_it(number: int, place: int) -> None:
    bench = Bench(MemoryFiles())
    for base in (10, 13, 15):
        bench.journal.roll(base)
    assert bench.journal.find(number) == place


# -- removing


@pytest.mark.parametrize("place", [0, 1])
def test_any_sealed_segment_can_be_removed(bench: Bench, place: int) -> None:
    begun(bench, b"abc", b"de", b"f")
    segment = bench.journal.segments[place]
    bench.files.open(f"{FOLDER}/{segment.base:020}.index", create=True)
    view = segment.view(0, segment.size)
    expected = bytes(view)
    bench.journal.remove(segment, (".index", ".timeindex"))
    bench.runner.settle()
    left = {0: b"abc", 3: b"de", 5: b"f"}
    del left[segment.base]
    assert bench.contents() == left
    assert bench.files.names(FOLDER) == [f"{base:020}.log" for base in left]
    assert bytes(view) == expected, "a view of the removed segment must stay valid"


def test_a_removal_survives_a_power_cut_once_it_is_durable() -> None:
    memory = MemoryFiles()
    bench = Bench(memory)
    begun(bench, b"abc", b"de")
    bench.journal.remove(bench.journal.segments[0], ())
    bench.runner.settle()
    memory.crash()
    assert [segment.base for segment in reloaded(memory).segments] == [3]


def test_a_segment_can_be_removed_in_the_pass_that_wrote_and_sealed_it(bench: Bench) -> None:
    begun(bench, b"abc")
    bench.append(b"def")
    sealed = bench.journal.active
    bench.journal.roll(6)
    ticket = bench.append(b"ghi")
    bench.journal.remove(sealed, ())
    bench.runner.settle()
    assert (ticket.refusal, bench.runner.failures) == (None, [])
    assert bench.contents() == {6: b"ghi"}
    assert bench.owner.notes == ["written 2", "settled 2"]


def test_a_pass_that_removed_its_own_segment_can_still_be_undone(bench: Bench) -> None:
    begun(bench, b"abc")
    bench.journal.roll(3)
    bench.append(b"def")
    sealed = bench.journal.active
    bench.journal.roll(6)
    ticket = bench.append(b"ghi")
    bench.journal.remove(sealed, ())
    bench.files.room_bytes = 1
    bench.runner.settle()
    assert isinstance(ticket.refusal, WriteFailed)
    assert bench.runner.failures == []
    assert bench.contents() == {0: b"abc"}


# -- recovery


@pytest.mark.parametrize(
    ("place", "size", "left"), [(0, 2, {0: b"ab"}), (1, 2, {0: b"abc", 3: b"de"}), (1, 0, {0: b"abc", 3: b""})]
)
def test_the_tail_can_be_truncated(bench: Bench, place: int, size: int, left: dict[int, bytes]) -> None:
    begun(bench, b"abc", b"de", b"f")
    bench.files.open(f"{FOLDER}/{5:020}.index", create=True)
    bench.journal.truncate(bench.journal.segments[place], size, (".index",))
    bench.append(b"xyz")
    bench.runner.settle()
    base = bench.journal.active.base
    assert bench.contents() == left | {base: left[base] + b"xyz"}
    assert bench.files.names(FOLDER) == [f"{base:020}.log" for base in left]


def test_a_truncation_survives_a_power_cut_once_it_is_durable() -> None:
    memory = MemoryFiles()
    bench = Bench(memory)
    begun(bench, b"abc", b"de")
    bench.journal.truncate(bench.journal.segments[0], 1, ())
    bench.runner.settle()
    memory.crash()
    assert [(segment.base, segment.size) for segment in reloaded(memory).segments] == [(0, 1)]


def test_resync_makes_unsynced_appends_durable() -> None:
    memory = MemoryFiles()
    bench = Bench(memory)
    begun(bench, b"abc")
    bench.append(b"d")
    bench.journal.roll(4)
    bench.append(b"e")
    bench.runner.end_pass()  # killed here
    runner = PassRunner(memory)
    journal = Journal(memory, FOLDER, ".log", runner.passes, Owner())
    journal.load()
    journal.resync(journal.segments[0])
    journal.append(b"f", 1)
    runner.settle()
    memory.crash()
    assert {segment.base: segment.read(0, 100) for segment in reloaded(memory).segments} == {0: b"abcd", 4: b"ef"}


def test_a_closed_journal_reopens_its_files_when_they_are_used(bench: Bench) -> None:
    begun(bench, b"abc", b"de")
    bench.journal.close()
    assert bench.contents() == {0: b"abc", 3: b"de"}


@pytest.mark.parametrize(("size", "is_much"), [(200, False), (300_000, True)])
def test_a_sync_waits_for_more_passes_after_short_writes_and_not_after_long_ones(
    bench: Bench, size: int, is_much: bool
) -> None:
    begun(bench, b"")
    bench.append(b"first")
    bench.runner.end_pass()
    bench.append(b"x" * size)
    bench.runner.end_pass()
    bench.runner.offload.run_one()
    assert (len(bench.runner.offload) == 1) is is_much
    bench.runner.settle()
