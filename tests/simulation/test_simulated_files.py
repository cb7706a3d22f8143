"""The simulated disk fails in the intended ways, and in no others."""

from __future__ import annotations

import errno
from random import Random

import pytest
from simulated_files import SimulatedFiles
from simulated_trace import Trace

SEEDS = range(200)


def make_files(seed: int = 0) -> SimulatedFiles:
    return SimulatedFiles(Random(seed), Trace())


def found(files: SimulatedFiles, name: str) -> bytes:
    file = files.open(name)
    return file.read(0, file.size())


def test_synced_bytes_and_names_survive_with_every_seed() -> None:
    for seed in SEEDS:
        files = make_files(seed)
        files.open("a", create=True).write(0, [b"s" * 3000])
        files.sync_all()
        files.open("a").write(3000, [b"u" * 3000])
        files.lose_power()
        assert found(files, "a").startswith(b"s" * 3000)


def test_unsynced_bytes_survive_wholly_partly_with_holes_or_not_at_all() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files(seed)
        files.open("a", create=True)
        files.sync_all()
        files.open("a").write(0, [b"u" * 10_000])
        files.lose_power()
        left = found(files, "a")
        kind = "holes" if b"\0" in left else {0: "nothing", 10_000: "all"}.get(len(left), "prefix")
        seen.add(kind)
    assert seen == {"holes", "nothing", "all", "prefix"}


def test_names_survive_independently() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files(seed)
        for name in ("a", "b"):
            files.open(name, create=True)
        files.lose_power()
        seen.add(tuple(files.names("")))
    assert seen == {(), ("a",), ("b",), ("a", "b")}


def test_a_rename_happens_or_does_not() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files(seed)
        for name in ("new", "current"):
            files.open(name, create=True).write(0, [name.encode()])
        files.sync_all()
        files.rename("new", "current")
        files.lose_power()
        seen.add((found(files, "current"), *files.names("")))
    assert seen == {(b"current", "current", "new"), (b"new", "current")}


def test_an_unsynced_truncation_may_be_lost() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files(seed)
        files.open("a", create=True).write(0, [b"old" * 1000])
        files.sync_all()
        files.open("a").resize(300)
        files.lose_power()
        seen.add(len(found(files, "a")))
    assert seen == {300, 3000}


def test_a_killed_process_loses_nothing_but_can_write_no_more() -> None:
    files = make_files()
    file = files.open("a", create=True)
    file.write(0, [b"abc"])
    files.die()
    assert found(files, "a") == b"abc"
    with pytest.raises(OSError, match="dead"):
        file.write(3, [b"def"])


def test_a_full_disk_writes_a_part_and_overwrites_still_work() -> None:
    files = make_files()
    file = files.open("a", create=True)
    file.write(0, [b"abc"])
    files.is_full = True
    assert files.space().free_bytes == 0
    with pytest.raises(OSError, match="No space") as caught:
        file.write(3, [b"x" * 100])
    assert caught.value.errno == errno.ENOSPC
    assert 3 <= file.size() < 103
    file.write(0, [b"ABC"])
    files.heal()
    file.write(3, [b"x" * 100])
    assert file.size() == 103


def test_a_failed_sync_makes_nothing_durable_nor_does_a_later_one() -> None:
    kept = set()
    for seed in SEEDS:
        files = make_files(seed)
        file = files.open("a", create=True)
        files.sync_all()
        file.write(0, [b"abc"])
        files.fails_next_sync = True
        with pytest.raises(OSError, match="Input/output"):
            file.begin_sync()()
        file.begin_sync()()
        files.lose_power()
        kept.add(len(found(files, "a")))
    assert 0 in kept


def test_a_flipped_bit_survives_every_crash() -> None:
    files = make_files()
    files.open("a", create=True).write(0, [b"abc"])
    files.sync_all()
    files.flip_bit("a", 1, 0)
    files.lose_power()
    assert found(files, "a") == b"acc"


def test_files_are_hashed_alike_in_every_run() -> None:
    runs = [[hash(files.open(name, create=True)) for name in ("a", "b")] for files in (make_files(), make_files())]
    assert runs[0] == runs[1]
