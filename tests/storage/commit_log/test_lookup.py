"""Searches by key in steps, while the log and its index grow and expire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from storage.commit_bench import START_MS, CommitBench

from trimq.formats.rocketmq_unit.unit import Unit
from trimq.storage.commit_log import key_index, lookup
from trimq.storage.commit_log.lookup import search_key


def search(bench: CommitBench, key: str, begin_ms: int = 0, end_ms: int = 2 * START_MS) -> Iterator[Unit | None]:
    return search_key(bench.store.log, bench.store.keys, "a", key, begin_ms, end_ms)


def filled(count: int, **changes: int) -> CommitBench:
    """Returns a store with messages of one key, a second apart, in several index files."""
    bench = CommitBench(**{"checkpoint_bytes": 2048, **changes})
    for number in range(count):
        bench.put("a", number % 3, b"%d" % number, keys="k")
        bench.now_ms += 1000
    assert len(bench.store.keys.states()) > 2
    return bench


def test_a_step_of_a_search_reads_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = filled(60)
    reads: list[int] = []
    read = key_index._IndexFile._read
    monkeypatch.setattr(key_index, "MAX_ENTRIES_PER_STEP", 5)
    monkeypatch.setattr(
        key_index._IndexFile, "_read", lambda index, number: reads.append(number) or read(index, number)
    )
    steps = 0
    for unit in search(bench, "k", 0, START_MS - 1000):
        assert unit is None, "found entries newer than the end of the search"
        assert len(reads) <= 5
        reads.clear()
        steps += 1
    assert steps == 0, "read a file outside the time range"
    for unit in search(bench, "k", START_MS, START_MS + 2000):
        if unit is None:
            assert len(reads) == 5
            reads.clear()
            steps += 1
    assert steps > 0


def test_units_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_UNITS_AT_ONCE", 4)
    found = list(search(filled(20), "k"))
    assert [each is None for each in found[:10]] == [False, False, False, False, True] * 2
    monkeypatch.setattr(lookup, "_BYTES_AT_ONCE", 1)
    found = list(search(filled(20), "k"))
    assert [each is None for each in found[:6]] == [False, True] * 3


def test_a_search_finds_the_units_that_existed_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MAX_ENTRIES_PER_STEP", 3)
    bench = filled(40, checkpoint_bytes=1500)
    expected = bench.find("a", "k")
    assert len(expected) == 40
    found, steps = [], 0
    for unit in search(bench, "k"):
        if unit is None:
            steps += 1
            bench.put("a", 0, b"meanwhile %d" % steps, keys="k")
        else:
            found.append(bytes(unit.body))
    assert found == expected
    assert steps > 5
    assert len(bench.find("a", "k")) == 40 + steps


def test_files_may_be_deleted_during_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MAX_ENTRIES_PER_STEP", 3)
    bench = filled(60, file_bytes=1024)
    steps = search(bench, "k")
    found = [unit for unit in (next(steps) for _ in range(30)) if unit is not None]
    kept = [bytes(unit.body) for unit in found]
    oldest = bench.store.keys.states()[0].name
    bench.store.checkpoint()
    bench.settle()
    assert bench.store.remove_head(bench.store.log.journal.active.base) is not None
    bench.settle()
    assert oldest not in bench.files.names("store/index")
    rest = [bytes(unit.body) for unit in steps if unit is not None]
    assert [bytes(unit.body) for unit in found] == kept, "a unit that was found before the deletion changed"
    assert set(rest) <= set(bench.find("a", "k"))
    assert oldest not in bench.files.names("store/index")
    bench.put("a", 0, b"next", keys="k")
    assert bench.find("a", "k")[0] == b"next"
