"""The power is cut at every single operation on files while a log is compacted: whatever is left of what was not
synced, the log opens, and says of every key what it said before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest
from doubles import FaultyFiles, PassRunner, PowerCut, TornTails
from storage.keyed_logs import DAY_MS, FOLDER, SETTINGS, AsyncPassRunner, Kept, KeyedLog, with_settings

from trimq.storage.compaction import Effort
from trimq.storage.files import Files
from trimq.storage.memory_files import MemoryFiles, NameChange, Survivors
from trimq.storage.partition_log import LogSettings

SMALL = with_settings(segment_bytes=420)
EFFORT = Effort(step_records=4)
EARLY = Effort(acknowledges_early=True, step_records=4)


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
    **{f"some, {seed}": lambda seed=seed: SomeNames(seed) for seed in range(8)},  # type: ignore[misc]
}


class Told(NamedTuple):
    """What readers have been told, and must be told again."""

    records: list[Kept]
    table: dict[bytes, bytes]


def write_first(keyed: KeyedLog) -> None:
    """Keys that change, that are deleted and come back, and transactions, over several segments."""
    for number in range(18):
        keyed.append([(b"%d" % (number % 5), b"first %d" % number), (b"once %d" % (number % 9), b"x" * 9)])
        if number % 3 == 2:
            keyed.put(b"%d" % (number % 4), None)
        if number % 4 == 3:
            keyed.append(
                [(b"0", b"from a transaction")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number // 4,
                transactional=True,
            )
            keyed.end_transaction(7, commit=number % 8 == 3)
        if number % 6 == 5:
            keyed.roll()


def write_second(keyed: KeyedLog) -> None:
    for number in range(6):
        keyed.append([(b"%d" % (number % 3), b"second %d" % number)])
    keyed.put(b"4", None)
    keyed.roll()


class World:
    """One log on a disk whose power fails at a chosen operation."""

    def __init__(
        self, settings: LogSettings, effort: Effort, make_runner: Callable[[Files], PassRunner] = PassRunner
    ) -> None:
        self.disk = MemoryFiles()
        self.files = FaultyFiles(self.disk)
        self.keyed = KeyedLog(self.files, settings, effort, make_runner)

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


def first_round(settings: LogSettings, effort: Effort, make_runner: Callable[[Files], PassRunner]) -> World:
    world = World(settings, effort, make_runner)
    write_first(world.keyed)
    world.sync()
    return world


def round_without_tombstones(
    settings: LogSettings, effort: Effort, make_runner: Callable[[Files], PassRunner]
) -> World:
    """The second round, in which the tombstones of the first go."""
    world = first_round(settings, effort, make_runner)
    world.keyed.compact()
    write_second(world.keyed)
    world.sync()
    world.keyed.now_ms += DAY_MS
    return world


ROUNDS = [first_round, round_without_tombstones]
MODES = [
    pytest.param(EFFORT, PassRunner, id="sync"),
    pytest.param(EARLY, AsyncPassRunner, id="async"),
]


def cuts(make_world: Callable[[], World], action: Callable[[World], object]) -> Iterator[World]:
    """A world for every operation of `action`, in which the power has just failed at it."""
    operations = 0
    while True:
        world = make_world()
        if not world.cut_in(operations, lambda world=world: action(world)):  # type: ignore[misc]
            assert operations > 10, "it hardly did anything"
            return
        yield world
        operations += 1


@pytest.mark.parametrize("survivors", SURVIVORS)
@pytest.mark.parametrize("make_world", ROUNDS)
@pytest.mark.parametrize(("effort", "make_runner"), MODES)
@pytest.mark.parametrize("settings", [SMALL, SETTINGS], ids=["many groups", "one group"])
def test_a_power_cut_at_any_operation_changes_nothing_for_readers(
    settings: LogSettings,
    effort: Effort,
    make_runner: Callable[[Files], PassRunner],
    make_world: Callable[..., World],
    survivors: str,
) -> None:
    told = make_world(settings, effort, make_runner).told()
    for world in cuts(lambda: make_world(settings, effort, make_runner), lambda world: world.keyed.compact()):
        world.disk.crash(SURVIVORS[survivors]())
        world.keyed.open()
        world.require(told)
        world.sync()
        world.keyed.now_ms += DAY_MS
        world.keyed.compact()
        world.require(told)
        world.keyed.restart()
        world.require(told)


def interrupted(settings: LogSettings, operations: int) -> World | None:
    """A process that was killed at an operation, whose names and bytes are in the page cache alone."""
    world = round_without_tombstones(settings, EFFORT, PassRunner)
    return world if world.cut_in(operations, lambda: world.keyed.compact()) else None


@pytest.mark.parametrize("survivors", ["nothing", "everything", "some, 0", "some, 1", "some, 2"])
def test_a_power_cut_while_a_swap_is_finished_at_the_start_changes_nothing(survivors: str) -> None:
    told = round_without_tombstones(SETTINGS, EFFORT, PassRunner).told()
    swaps = operations = 0
    while (world := interrupted(SETTINGS, operations)) is not None:
        if any(name.endswith(".swap") for name in world.files.names(FOLDER)):
            swaps += 1
            for opening in range(1000):
                again = interrupted(SETTINGS, operations)
                assert again is not None
                was_cut = again.cut_in(opening, again.keyed.open)
                again.disk.crash(SURVIVORS[survivors]())
                again.keyed.open()
                again.require(told)
                if not was_cut:
                    break
        operations += 1
    assert swaps > 5


@pytest.mark.parametrize("make_world", ROUNDS)
def test_a_process_that_is_killed_at_any_operation_changes_nothing_for_readers(
    make_world: Callable[..., World],
) -> None:
    told = make_world(SMALL, EFFORT, PassRunner).told()
    for world in cuts(lambda: make_world(SMALL, EFFORT, PassRunner), lambda world: world.keyed.compact()):
        world.keyed.open()
        world.require(told)
        world.disk.crash()
        world.keyed.open()
        world.require(told)


def test_what_is_appended_while_a_crash_is_survived_is_kept() -> None:
    """A compaction that a crash cut short does not come back over what was written after it."""
    told = first_round(SMALL, EFFORT, PassRunner).told()
    for world in cuts(lambda: first_round(SMALL, EFFORT, PassRunner), lambda world: world.keyed.compact()):
        world.disk.crash(TornTails(100, keeps_names=True))
        world.keyed.open()
        world.keyed.put(b"0", b"after the crash")
        world.keyed.roll()
        world.keyed.compact()
        world.disk.crash()
        world.keyed.open()
        assert world.keyed.table() == {**told.table, b"0": b"after the crash"}
