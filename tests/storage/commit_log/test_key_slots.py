"""Slots of the key index: any positions, any number of changes, and failed writes."""

from __future__ import annotations

import errno
import random

import pytest
from doubles import FaultyFiles

from trimq.storage.commit_log.key_slots import SLOT, KeySlots
from trimq.storage.io.files import File
from trimq.storage.io.memory_files import MemoryFiles

AT = 40


def file_of(files: FaultyFiles | MemoryFiles, slots: int) -> File:
    file = files.open("index", create=True)
    file.resize(AT + slots * SLOT.size)
    return file


def stored(slots: KeySlots, file: File) -> dict[int, int]:
    table = slots.stored(file)
    numbers = [number for (number,) in SLOT.iter_unpack(table)]
    return {slot: number for slot, number in enumerate(numbers) if number}


@pytest.mark.parametrize("count", [1, 7, 64, 65, 5000, 200_000])
def test_changed_slots_are_in_memory_until_they_are_written(count: int) -> None:
    file, slots, rng = file_of(MemoryFiles(), count), KeySlots(AT, count), random.Random(count)
    expected: dict[int, int] = {}
    for share in (1, 3, 3000):  # few slots of a block are written one by one, many together
        heads = {rng.randrange(count): rng.randrange(1, 1 << 31) for _ in range(share)}
        slots.change(heads)
        assert all(slots.unwritten(slot) == number for slot, number in heads.items())
        slots.write(file)
        expected |= heads
        assert (len(slots), slots.unwritten(min(heads))) == (0, None)
        assert stored(slots, file) == expected
        assert slots.read(file, min(heads)) == expected[min(heads)]


def test_all_changed_slots_are_written_in_turn() -> None:
    file, slots = file_of(MemoryFiles(), 6400), KeySlots(AT, 6400)
    heads = {slot: slot + 1 for slot in range(0, 6400, 3)}
    slots.change(heads)
    left = len(slots)
    while left:
        slots.write_some(file)
        assert left - 100 < len(slots) < left
        left = len(slots)
    assert stored(slots, file) == heads


def test_slots_whose_write_failed_stay_in_memory() -> None:
    files = FaultyFiles(MemoryFiles())
    file, slots = file_of(files, 6400), KeySlots(AT, 6400)
    slots.change({1: 11, 2: 12, 6399: 13})

    def refuse(operation: str, name: str) -> None:
        if operation == "write":
            raise OSError(errno.EIO, "the disk takes nothing")

    files.before = refuse
    with pytest.raises(OSError, match="takes nothing"):
        slots.write(file)
    assert (len(slots), slots.unwritten(2)) == (3, 12)
    files.before = lambda operation, name: None
    slots.write(file)
    assert stored(slots, file) == {1: 11, 2: 12, 6399: 13}
