from __future__ import annotations

from uuid import UUID

import pytest
from doubles import FaultyFiles, PassRunner

from trimq.clock import ManualTime
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.model import StreamId
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

TOPIC, OTHER = UUID(int=1), UUID(int=2)
FIRST, SECOND, ELSEWHERE = StreamId(TOPIC, 0), StreamId(TOPIC, 1), StreamId(OTHER, 0)


def open_cursors(files: Files, runner: PassRunner, time: ManualTime) -> Cursors:
    return Cursors(open_table(files, "meta", "cursors", runner.passes, Cursor, runner.offload), time)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def runner(files: FaultyFiles) -> PassRunner:
    return PassRunner(files)


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(1_000)


@pytest.fixture
def cursors(files: FaultyFiles, runner: PassRunner, time: ManualTime) -> Cursors:
    return open_cursors(files, runner, time)


def test_a_commit_is_seen_at_once_and_after_a_restart(
    files: FaultyFiles, runner: PassRunner, time: ManualTime, cursors: Cursors
) -> None:
    cursors.commit("g", FIRST, 42, "note", 3)
    cursors.commit("g", SECOND, 7)
    assert cursors.fetch("g", FIRST) == Cursor(42, 1_000, 3, "note")
    runner.settle()
    again = open_cursors(files, PassRunner(files), time)
    assert again.all("g") == {FIRST: Cursor(42, 1_000, 3, "note"), SECOND: Cursor(7, 1_000)}
    assert again.groups() == ["g"]


@pytest.mark.parametrize("group", ["", "a/b", "/", "ключ", "a\x00b", "0/1"])
def test_a_group_may_have_any_name(files: FaultyFiles, runner: PassRunner, time: ManualTime, group: str) -> None:
    open_cursors(files, runner, time).commit(group, FIRST, 1)
    runner.settle()
    again = open_cursors(files, PassRunner(files), time)
    assert again.groups() == [group]
    assert again.fetch(group, FIRST) == Cursor(1, 1_000)


def test_a_missing_cursor_is_none(cursors: Cursors) -> None:
    cursors.commit("g", FIRST, 1)
    assert cursors.fetch("g", SECOND) is None
    assert cursors.fetch("other", FIRST) is None
    assert cursors.all("other") == {}


def test_a_group_may_commit_a_lower_offset(cursors: Cursors) -> None:
    cursors.commit("g", FIRST, 10)
    cursors.commit("g", FIRST, 3)
    assert cursors.fetch("g", FIRST) == Cursor(3, 1_000)


def test_deleting_a_topic_deletes_the_cursors_of_every_group(
    files: FaultyFiles, runner: PassRunner, time: ManualTime, cursors: Cursors
) -> None:
    for group in ("g", "h"):
        cursors.commit(group, FIRST, 1)
        cursors.commit(group, SECOND, 1)
    cursors.commit("g", ELSEWHERE, 1)
    assert cursors.delete_topic(TOPIC) is not None
    runner.settle()
    for each in (cursors, open_cursors(files, PassRunner(files), time)):
        assert each.groups() == ["g"]
        assert list(each.all("g")) == [ELSEWHERE]
    assert cursors.delete_topic(TOPIC) is None


def test_a_group_is_deleted_whole_by_topic_or_by_stream(cursors: Cursors) -> None:
    for stream in (FIRST, SECOND, ELSEWHERE):
        cursors.commit("g", stream, 1)
        cursors.commit("h", stream, 1)
    assert cursors.delete_stream("g", FIRST) is not None
    assert set(cursors.all("g")) == {SECOND, ELSEWHERE}
    assert cursors.delete("g", OTHER) is not None
    assert set(cursors.all("g")) == {SECOND}
    assert cursors.delete("g") is not None
    assert cursors.groups() == ["h"]
    assert len(cursors.all("h")) == 3
    assert cursors.delete("g") is None
    assert cursors.delete_stream("g", FIRST) is None


def test_commits_of_a_failed_pass_are_undone(files: FaultyFiles, runner: PassRunner, cursors: Cursors) -> None:
    cursors.commit("g", FIRST, 1)
    cursors.commit("h", FIRST, 1)
    runner.settle()
    files.room_bytes = 0
    ticket = cursors.commit("g", FIRST, 2)
    cursors.commit("new", SECOND, 9)
    cursors.delete("h")
    runner.settle()
    assert ticket.refusal is not None
    assert cursors.fetch("g", FIRST) == Cursor(1, 1_000)
    assert cursors.fetch("h", FIRST) == Cursor(1, 1_000)
    assert sorted(cursors.groups()) == ["g", "h"]


def test_a_cursor_is_unstable_while_any_transaction_holds_it(cursors: Cursors) -> None:
    cursors.hold("one", {("g", FIRST)})
    cursors.hold("two", {("g", FIRST), ("g", SECOND)})
    assert cursors.is_unstable("g", FIRST)
    assert not cursors.is_unstable("other", FIRST)
    cursors.hold("two", {("g", ELSEWHERE)})
    assert cursors.is_unstable("g", FIRST)
    assert not cursors.is_unstable("g", SECOND)
    assert sorted(cursors.unstable("g")) == sorted([FIRST, ELSEWHERE])
    cursors.hold("one", ())
    assert not cursors.is_unstable("g", FIRST)
