"""Power cuts at every file operation of a compaction: with every combination of unsynced data kept or lost, the log
opens and has the same value for every key."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest
from doubles import FaultyFiles, PassRunner, PowerCut, TornTails
from storage.keyed_logs import DAY_MS, FOLDER, SETTINGS, START_MS, AsyncPassRunner, Kept, KeyedLog, with_settings

from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles, NameChange, Survivors
from trimq.storage.partition_log.compaction import CompactionLimits
from trimq.storage.partition_log.settings import LogSettings

SMALL = with_settings(segment_bytes=700)


class SomeNames:
    """Survivors with a random subset of name changes, and a prefix of unsynced bytes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return [change for change in changes if self._random.random() < 0.5]

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return self._random.choice(versions)


SURVIVORS: dict[str, Callable[[], Survivors | None]] = {
    "nothing": lambda: None,
    "everything": lambda: TornTails(100, keeps_names=True),
    "names without contents": lambda: TornTails(0, keeps_names=True),
    **{f"some, {seed}": lambda seed=seed: SomeNames(seed) for seed in range(5)},  # type: ignore[misc]
}


class Observed(NamedTuple):
    """The records and the table that readers saw before, and must see again."""

    records: list[Kept]
    table: dict[bytes, bytes]


def write_first(keyed: KeyedLog) -> None:
    """Writes keys that change, are deleted and written again, and transactions, over several segments."""
    for number in range(8):
        keyed.append([(b"%d" % (number % 5), b"first %d" % number), (b"once %d" % (number % 3), b"x" * 9)])
        if number % 3 == 2:
            keyed.put(b"%d" % (number % 4), None)
        if number in (1, 5):
            sequence = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 4}
            keyed.append([(b"0", b"from a transaction")], transactional=True, **sequence)
            keyed.end_transaction(7, commit=number == 1)
        if number % 2:
            keyed.roll()


def write_second(keyed: KeyedLog) -> None:
    keyed.append([(b"%d" % key, b"second") for key in range(2)])
    keyed.put(b"4", None)
    keyed.roll()


class Mode(NamedTuple):
    effort: CompactionLimits
    make_runner: Callable[[Files], PassRunner]


SYNC = Mode(CompactionLimits(step_records=4), PassRunner)
ASYNC = Mode(CompactionLimits(step_records=4), AsyncPassRunner)


class World:
    """One log on a disk that loses power at a chosen operation."""

    def __init__(self, settings: LogSettings, mode: Mode, disk: MemoryFiles, now_ms: int = START_MS) -> None:
        self.disk = disk
        self.files = FaultyFiles(disk)
        self.keyed = KeyedLog(self.files, settings, mode.effort, mode.make_runner, now_ms)
        self._mode = mode

    def copied(self) -> World:
        """Returns a copy of this world, all of it synced."""
        disk = MemoryFiles()
        _copy(self.disk, disk, "")
        disk.sync_all()
        return World(self.keyed.settings, self._mode, disk, self.keyed.now_ms)

    def observed(self) -> Observed:
        return Observed(self.keyed.records(), self.keyed.table())

    def sync(self) -> None:
        self.keyed.settle()
        if isinstance(self.keyed.runner, AsyncPassRunner):
            self.keyed.runner.sync()

    def cut_in(self, operations: int, action: Callable[[], object]) -> bool:
        """Runs an action while the power fails at the n-th operation. Returns False if the action needs fewer
        operations."""
        left = operations

        def count(operation: str, name: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerCut(operation, name)
            left -= 1

        self.files.before = count
        try:
            action()
        except PowerCut:
            return True
        finally:
            self.files.before = lambda operation, name: None
        return False

    def require(self, observed: Observed) -> None:
        """Checks that every value of a key is unchanged at its offset, and that no record is new."""
        found = self.observed()
        assert found.table == observed.table
        before = set(observed.records)
        assert set(found.records) <= before
        last = {key: (offset, value) for offset, key, value in observed.records}
        for key, (offset, value) in last.items():
            assert value is None or Kept(offset, key, value) in found.records
        assert not [name for name in self.files.names(FOLDER) if name.endswith((".cleaned", ".swap"))]


def _copy(source: MemoryFiles, target: MemoryFiles, folder: str) -> None:
    for short in source.names(folder):
        name = f"{folder}/{short}" if folder else short
        try:
            file = source.open(name)
        except IsADirectoryError:
            target.make_folder(name)
            _copy(source, target, name)
        else:
            target.open(name, create=True).write(0, [file.read(0, file.size())])


def first_round(settings: LogSettings, mode: Mode) -> World:
    world = World(settings, mode, MemoryFiles())
    write_first(world.keyed)
    world.sync()
    return world


def round_without_tombstones(settings: LogSettings, mode: Mode) -> World:
    """Returns a world before the second round, which removes the tombstones of the first."""
    world = first_round(settings, mode)
    world.keyed.compact()
    write_second(world.keyed)
    world.sync()
    world.keyed.now_ms += DAY_MS
    return world


ROUNDS = [first_round, round_without_tombstones]


def cuts(world: World) -> Iterator[World]:
    """Yields a world for every operation of a round, in which the power has just failed at it."""
    for operations in range(10_000):
        copied = world.copied()
        if not copied.cut_in(operations, copied.keyed.compact):
            assert operations > 10, "the round had too few operations"
            return
        yield copied


@pytest.mark.parametrize("survivors", SURVIVORS)
@pytest.mark.parametrize("make_world", ROUNDS)
@pytest.mark.parametrize(
    ("settings", "mode"),
    [(SMALL, SYNC), (SETTINGS, SYNC), (SMALL, ASYNC)],
    ids=["several groups", "one group", "acknowledged early"],
)
def test_a_power_cut_at_any_operation_changes_nothing_for_readers(
    settings: LogSettings, mode: Mode, make_world: Callable[[LogSettings, Mode], World], survivors: str
) -> None:
    before = make_world(settings, mode)
    observed = before.observed()
    for world in cuts(before):
        world.disk.crash(SURVIVORS[survivors]())
        world.keyed.open()
        world.require(observed)
        world.sync()
        world.keyed.now_ms += DAY_MS
        world.keyed.compact()
        world.require(observed)


@pytest.mark.parametrize("survivors", ["nothing", "some, 0", "some, 3", "some, 4"])
def test_a_power_cut_while_a_start_finishes_a_swap_changes_nothing(survivors: str) -> None:
    before = first_round(SETTINGS, SYNC)
    observed = before.observed()
    swaps = 0
    for operations, killed in enumerate(cuts(before)):
        if not any(name.endswith(".swap") for name in killed.files.names(FOLDER)):
            continue
        swaps += 1
        for opening in range(1000):
            # The process was killed: names and bytes may exist in the page cache alone.
            world = before.copied()
            world.cut_in(operations, world.keyed.compact)
            was_truncated = world.cut_in(opening, world.keyed.open)
            world.disk.crash(SURVIVORS[survivors]())
            world.keyed.open()
            world.require(observed)
            if not was_truncated:
                break
    assert swaps > 5


@pytest.mark.parametrize("make_world", ROUNDS)
def test_a_process_that_is_killed_at_any_operation_changes_nothing_for_readers(
    make_world: Callable[[LogSettings, Mode], World],
) -> None:
    before = make_world(SMALL, SYNC)
    observed = before.observed()
    for world in cuts(before):
        world.keyed.open()
        world.require(observed)
        world.disk.crash()
        world.keyed.open()
        world.require(observed)


def test_records_written_after_a_crash_survive_the_completion_of_the_interrupted_compaction() -> None:
    before = first_round(SMALL, SYNC)
    observed = before.observed()
    for world in cuts(before):
        world.disk.crash(TornTails(100, keeps_names=True))
        world.keyed.open()
        world.keyed.put(b"0", b"after the crash")
        world.keyed.roll()
        world.keyed.compact()
        world.disk.crash()
        world.keyed.open()
        assert world.keyed.table() == {**observed.table, b"0": b"after the crash"}
