"""The power is cut at every single operation on files while a log is compacted: whatever is left of what was not
synced, the log opens, and says of every key what it said before."""

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
    """Any of the changes of names, and the first part of what was written."""

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


class Told(NamedTuple):
    """What readers have been told, and must be told again."""

    records: list[Kept]
    table: dict[bytes, bytes]


def write_first(keyed: KeyedLog) -> None:
    """Keys that change, that are deleted and come back, and transactions, over several segments."""
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
    """One log on a disk whose power fails at a chosen operation."""

    def __init__(self, settings: LogSettings, mode: Mode, disk: MemoryFiles, now_ms: int = START_MS) -> None:
        self.disk = disk
        self.files = FaultyFiles(disk)
        self.keyed = KeyedLog(self.files, settings, mode.effort, mode.make_runner, now_ms)
        self._mode = mode

    def copied(self) -> World:
        """The same once more, all of it synced."""
        disk = MemoryFiles()
        _copy(self.disk, disk, "")
        disk.sync_all()
        return World(self.keyed.settings, self._mode, disk, self.keyed.now_ms)

    def told(self) -> Told:
        return Told(self.keyed.records(), self.keyed.table())

    def sync(self) -> None:
        self.keyed.settle()
        if isinstance(self.keyed.runner, AsyncPassRunner):
            self.keyed.runner.sync()

    def cut_in(self, operations: int, action: Callable[[], object]) -> bool:
        """Do something with the power failing at its n-th operation. False: it needs fewer."""
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

    def require(self, told: Told) -> None:
        """Everything that stood for a key still does, at its offset; what is there was there before."""
        found = self.told()
        assert found.table == told.table
        before = set(told.records)
        assert set(found.records) <= before
        last = {key: (offset, value) for offset, key, value in told.records}
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
    """The second round, in which the tombstones of the first go."""
    world = first_round(settings, mode)
    world.keyed.compact()
    write_second(world.keyed)
    world.sync()
    world.keyed.now_ms += DAY_MS
    return world


ROUNDS = [first_round, round_without_tombstones]


def cuts(world: World) -> Iterator[World]:
    """A world for every operation of a round in this one, in which the power has just failed at it."""
    for operations in range(10_000):
        copied = world.copied()
        if not copied.cut_in(operations, copied.keyed.compact):
            assert operations > 10, "it hardly did anything"
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
    told = before.told()
    for world in cuts(before):
        world.disk.crash(SURVIVORS[survivors]())
        world.keyed.open()
        world.require(told)
        world.sync()
        world.keyed.now_ms += DAY_MS
        world.keyed.compact()
        world.require(told)


@pytest.mark.parametrize("survivors", ["nothing", "some, 0", "some, 3", "some, 4"])
def test_a_power_cut_while_a_start_finishes_a_swap_changes_nothing(survivors: str) -> None:
    before = first_round(SETTINGS, SYNC)
    told = before.told()
    swaps = 0
    for operations, killed in enumerate(cuts(before)):
        if not any(name.endswith(".swap") for name in killed.files.names(FOLDER)):
            continue
        swaps += 1
        for opening in range(1000):
            # The process was killed: names and bytes may be in the page cache alone.
            world = before.copied()
            world.cut_in(operations, world.keyed.compact)
            was_truncated = world.cut_in(opening, world.keyed.open)
            world.disk.crash(SURVIVORS[survivors]())
            world.keyed.open()
            world.require(told)
            if not was_truncated:
                break
    assert swaps > 5


@pytest.mark.parametrize("make_world", ROUNDS)
def test_a_process_that_is_killed_at_any_operation_changes_nothing_for_readers(
    make_world: Callable[[LogSettings, Mode], World],
) -> None:
    before = make_world(SMALL, SYNC)
    told = before.told()
    for world in cuts(before):
        world.keyed.open()
        world.require(told)
        world.disk.crash()
        world.keyed.open()
        world.require(told)


def test_what_is_written_after_a_crash_outlives_the_compaction_that_it_cut_short() -> None:
    before = first_round(SMALL, SYNC)
    told = before.told()
    for world in cuts(before):
        world.disk.crash(TornTails(100, keeps_names=True))
        world.keyed.open()
        world.keyed.put(b"0", b"after the crash")
        world.keyed.roll()
        world.keyed.compact()
        world.disk.crash()
        world.keyed.open()
        assert world.keyed.table() == {**told.table, b"0": b"after the crash"}
