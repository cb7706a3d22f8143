from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

import pytest
from doubles import FaultyFiles, ManualOffload

from trimq.clock import ManualTime
from trimq.storage.group_commit.flusher import AsyncFlusher, Dirty, Flusher, LoopTurns, SyncFlusher
from trimq.storage.io.files import File
from trimq.storage.io.memory_files import MemoryFiles

THRESHOLD = 4
INTERVAL_MS = 100


class Bench:
    """A disk that records its syncs, and the other dependencies of a flusher."""

    def __init__(self) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.files.make_folder("folder")
        self.synced: list[str] = []
        self.files.before = self._note
        self.offload = ManualOffload()
        self.time = ManualTime(0)
        self.durable: list[int] = []
        self.failures: list[BaseException] = []
        self.soon: deque[Callable[[], None]] = deque()
        self.is_collecting = False

    def turn(self) -> None:
        """Runs the callbacks scheduled for the next turn."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def _note(self, operation: str, name: str) -> None:
        if operation.startswith("sync"):
            self.synced.append(name or operation)

    def sync_flusher(self) -> SyncFlusher:
        turns = LoopTurns(self.soon.append, lambda: self.is_collecting)
        durable, failed = self.durable.append, self.failures.append
        return SyncFlusher(self.files, self.offload, THRESHOLD, durable, failed, turns, self.time)

    def async_flusher(self) -> AsyncFlusher:
        return AsyncFlusher(
            self.files,
            self.offload,
            THRESHOLD,
            self.durable.append,
            self.failures.append,
            self.time,
            INTERVAL_MS,
        )

    def flush(self, flusher: Flusher, number: int, *names: str, folders: tuple[str, ...] = ()) -> None:
        """Passes on a pass that wrote a byte to each of these files."""
        flusher.dirty.size_bytes += len(names)
        flusher.dirty.files.update(self.files.open(name, create=True) for name in names)
        flusher.dirty.folders.update(folders)
        flusher.flush(number)

    def failing_sync(self) -> None:
        def before(operation: str, name: str) -> None:
            if operation == "sync":
                raise OSError(errno.EIO, "input/output error")

        self.files.before = before


# -- synchronous: a pass is durable when its bytes are on disk


def test_a_pass_is_durable_after_its_files_and_folders_are_synced() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    bench.flush(flusher, 1, "a", "b", folders=("folder",))
    assert (bench.synced, bench.durable) == ([], [])
    bench.offload.run_one()
    assert sorted(bench.synced[:2]) == ["a", "b"]
    assert bench.synced[2:] == ["folder"], "folders must be synced after their files"
    assert bench.durable == [1]


def test_only_one_sync_round_runs_at_a_time() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    for number, name in enumerate("abcd", 1):
        bench.flush(flusher, number, name)
        assert len(bench.offload) == 1
    bench.offload.run_one()
    bench.turn()
    assert (bench.durable, bench.synced, len(bench.offload)) == ([1], ["a"], 1)
    bench.offload.run_one()
    assert (bench.durable, sorted(bench.synced), len(bench.offload)) == ([1, 4], ["a", "b", "c", "d"], 0)


def test_numbers_are_published_in_order() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    for number in range(1, 20):
        bench.flush(flusher, number, "a")
        bench.turn()
        if number % 3 == 0:
            bench.offload.run_one()
    while not flusher.is_idle:
        bench.turn()
        bench.offload.run_one()
    assert bench.durable == sorted(set(bench.durable))
    assert bench.durable[-1] == 19


def test_files_written_during_a_round_are_synced_in_the_next() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    bench.flush(flusher, 1, "a")
    bench.flush(flusher, 2, "a")
    bench.offload.run_one()
    assert (bench.durable, bench.synced) == ([1], ["a"])
    bench.turn()
    bench.offload.run_one()
    assert (bench.durable, bench.synced) == ([1, 2], ["a", "a"])


def with_concurrent_pass(bench: Bench) -> SyncFlusher:
    """Finishes one round, during which another pass was written."""
    flusher = bench.sync_flusher()
    bench.flush(flusher, 1, "a")
    bench.flush(flusher, 2, "a")
    bench.offload.run_one()
    return flusher


def test_a_single_pass_is_synced_at_once() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    for number in range(1, 5):
        bench.flush(flusher, number, "a")
        bench.offload.run_one()
        assert (bench.durable[-1], len(bench.soon)) == (number, 0)


def test_a_round_waits_while_each_turn_brings_another_pass() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    bench.is_collecting = True  # another pass is collecting
    bench.turn()
    bench.is_collecting = False
    bench.flush(flusher, 3, "b")  # and is written
    bench.turn()
    assert (len(bench.offload), flusher.is_idle) == (0, False)
    bench.turn()
    assert len(bench.offload) == 1
    bench.offload.run_one()
    assert (bench.durable, flusher.is_idle) == ([1, 3], True)


def test_a_round_waits_for_a_bounded_number_of_turns() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    turns = 0
    while not len(bench.offload):
        bench.flush(flusher, 3 + turns, "a")
        bench.turn()
        turns += 1
    assert turns == 5
    bench.offload.run_one()
    assert bench.durable == [1, 7]


def test_a_round_does_not_wait_for_long_turns() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    bench.flush(flusher, 3, "a")
    bench.time.step(200)
    bench.turn()
    assert len(bench.offload) == 1


def test_a_round_does_not_wait_for_passes_without_files() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    bench.flush(flusher, 3)
    bench.turn()
    assert len(bench.offload) == 1


def test_after_a_round_of_several_passes_the_next_one_waits() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    bench.flush(flusher, 3, "a")
    bench.turn()
    bench.turn()
    bench.offload.run_one()
    assert bench.durable == [1, 3]
    bench.flush(flusher, 4, "a")
    assert (len(bench.offload), len(bench.soon)) == (0, 1)


def test_a_round_with_much_to_sync_does_not_wait() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    bench.is_collecting = True
    bench.turn()
    assert len(bench.offload) == 0
    flusher.dirty.size_bytes += 1 << 20
    bench.flush(flusher, 3, "a")
    bench.turn()
    assert len(bench.offload) == 1
    flusher.dirty.size_bytes += 1 << 20
    bench.flush(flusher, 4, "a")
    bench.offload.run_one()
    assert len(bench.offload) == 1
    assert (len(bench.soon), flusher.dirty.size_bytes) == (0, 0)


def test_a_single_pass_after_concurrent_ones_does_not_wait() -> None:
    bench = Bench()
    flusher = with_concurrent_pass(bench)
    bench.turn()
    bench.offload.run_one()
    bench.flush(flusher, 3, "a")
    assert len(bench.offload) == 1


def test_a_pass_that_wrote_nothing_is_published_too() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    flusher.flush(1)
    bench.offload.run_all()
    assert bench.durable == [1]
    assert flusher.is_idle


def test_a_flusher_is_idle_between_rounds() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    assert flusher.is_idle
    bench.flush(flusher, 1, "a")
    flusher.flush_now()
    assert not flusher.is_idle
    bench.offload.run_one()
    assert flusher.is_idle


@pytest.mark.parametrize(("files", "synced"), [("abcd", ["a", "b", "c", "d"]), ("abcde", ["sync_all"])])
def test_many_files_are_synced_with_the_whole_file_system(files: str, synced: list[str]) -> None:
    bench = Bench()
    bench.flush(bench.sync_flusher(), 1, *files)
    bench.offload.run_one()
    assert sorted(bench.synced) == synced
    assert bench.durable == [1]


def test_folders_count_for_the_threshold() -> None:
    bench = Bench()
    bench.flush(bench.sync_flusher(), 1, "a", "b", folders=("", "folder", "other"))
    bench.offload.run_one()
    assert bench.synced == ["sync_all"]


class Gone:
    """A file that was removed since it was written."""

    name = "gone"

    def begin_sync(self) -> Callable[[], None]:
        raise FileNotFoundError(errno.ENOENT, "no such file")


class Unopenable:
    name = "unopenable"

    def __init__(self, number: int) -> None:
        self._number = number

    def begin_sync(self) -> Callable[[], None]:
        raise OSError(self._number, "cannot be opened")


def add_dirty(flusher: Flusher, file: object) -> None:
    files: set[object] = flusher.dirty.files  # type: ignore[assignment]
    files.add(file)


def test_a_file_that_was_removed_needs_no_sync() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    add_dirty(flusher, Gone())
    bench.flush(flusher, 1, "a", folders=("no longer there", "folder"))
    bench.offload.run_one()
    assert sorted(bench.synced) == ["a", "folder", "no longer there"]
    assert (bench.durable, bench.failures) == ([1], [])


def test_a_sync_that_fails_publishes_nothing_and_is_reported() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    bench.failing_sync()
    bench.flush(flusher, 1, "a")
    bench.offload.run_one()
    assert bench.durable == []
    (failure,) = bench.failures
    assert isinstance(failure, OSError)


def test_after_a_failed_sync_nothing_is_ever_published() -> None:
    """The kernel reports a lost page once: a later successful sync says nothing about the earlier bytes."""
    bench = Bench()
    flusher = bench.sync_flusher()
    bench.failing_sync()
    bench.flush(flusher, 1, "a")
    bench.flush(flusher, 2, "a")
    bench.offload.run_all()
    bench.files.before = lambda operation, name: None
    bench.flush(flusher, 3, "a")
    bench.offload.run_all()
    assert bench.durable == []


def test_a_sync_that_cannot_begin_is_reported() -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    add_dirty(flusher, Unopenable(errno.EIO))
    flusher.flush(1)
    bench.offload.run_all()
    assert bench.durable == []
    assert len(bench.failures) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_free_descriptors_the_whole_file_system_is_synced(number: int) -> None:
    bench = Bench()
    flusher = bench.sync_flusher()
    add_dirty(flusher, Unopenable(number))
    bench.flush(flusher, 1, "a")
    bench.offload.run_all()
    assert bench.synced == ["a", "sync_all"], "a sync that was begun was not ended and holds a descriptor"
    assert (bench.durable, bench.failures) == ([1], [])


# -- asynchronous: a pass is acknowledged at once and synced within the interval


def test_a_pass_is_acknowledged_at_once() -> None:
    bench = Bench()
    flusher = bench.async_flusher()
    bench.flush(flusher, 1, "a")
    bench.flush(flusher, 2, "b")
    assert bench.durable == [1, 2]
    assert len(bench.offload) == 0
    assert not flusher.is_idle


def test_dirty_files_are_synced_after_the_interval() -> None:
    bench = Bench()
    flusher = bench.async_flusher()
    bench.flush(flusher, 1, "a")
    bench.time.step(INTERVAL_MS - 1)
    bench.flush(flusher, 2, "b")
    assert len(bench.offload) == 0
    bench.time.step(INTERVAL_MS)
    bench.offload.run_all()
    assert sorted(bench.synced) == ["a", "b"]
    assert flusher.is_idle
    assert bench.time.next_due_ms() is None


def test_files_that_become_dirty_during_a_round_are_synced_an_interval_later() -> None:
    bench = Bench()
    flusher = bench.async_flusher()
    bench.flush(flusher, 1, "a")
    bench.time.step(INTERVAL_MS)
    bench.flush(flusher, 2, "b")
    assert (len(bench.offload), bench.time.next_due_ms()) == (1, None)
    bench.offload.run_one()
    assert bench.synced == ["a"]
    assert not flusher.is_idle
    bench.time.step(2 * INTERVAL_MS)
    bench.offload.run_one()
    assert bench.synced == ["a", "b"]
    assert flusher.is_idle


def test_a_pass_that_wrote_nothing_starts_no_round() -> None:
    bench = Bench()
    flusher = bench.async_flusher()
    flusher.flush(1)
    assert bench.durable == [1]
    assert bench.time.next_due_ms() is None
    assert flusher.is_idle


def test_flush_now_syncs_before_the_interval_ends() -> None:
    bench = Bench()
    flusher = bench.async_flusher()
    flusher.flush_now()
    assert len(bench.offload) == 0
    bench.flush(flusher, 1, "a")
    flusher.flush_now()
    bench.offload.run_all()
    assert bench.synced == ["a"]
    assert flusher.is_idle
    assert bench.time.next_due_ms() is None


def test_a_failed_sync_is_reported_by_an_asynchronous_flusher_too() -> None:
    bench = Bench()
    flusher = bench.async_flusher()
    bench.failing_sync()
    bench.flush(flusher, 1, "a")
    bench.time.step(INTERVAL_MS)
    bench.offload.run_all()
    assert len(bench.failures) == 1


# -- dirty files


def test_dirty_sets_are_merged_without_duplicates() -> None:
    bench = Bench()
    file: File = bench.files.open("a", create=True)
    one, two = Dirty(), Dirty()
    one.files.add(file)
    two.files.add(file)
    two.folders.add("folder")
    one.merge(two)
    assert (len(one), len(Dirty())) == (2, 0)
