"""Queries by message key: a long search does not block other clients."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, Peer, bodies_of

from trimq.core.commit_log import tag_search
from trimq.protocols.contract import Reply
from trimq.storage.commit_log import key_index

ASKED = {"topic": "t", "key": "k", "maxNum": 32, "beginTimestamp": NOW_MS, "endTimestamp": NOW_MS + 4000}


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Desk with sixty messages of one key, one second apart, with their index in a file."""
    desk = Desk()
    for number in range(60):
        desk.broker.send("t", b"%d" % number, properties="KEYS\x01k\x02")
        desk.advance(1000)
    monkeypatch.setattr(key_index, "MAX_ENTRIES_PER_STEP", 5)
    return desk.restart()


def begun(peer: Peer, **changes: int | str) -> Reply:
    reply = peer.begin(12, {**ASKED, **changes})
    assert reply is not None
    return reply


def turns(desk: Desk, *replies: Reply) -> int:
    """Number of loop turns until all queries are answered."""
    for count in range(1000):
        if all(map(desk.is_ready, replies)):
            return count
        assert desk.liveness.step(desk.liveness.now_ms())
    raise AssertionError("the search does not end")


def test_a_long_search_goes_on_in_turns(desk: Desk) -> None:
    reply = begun(desk.broker)
    assert not desk.is_ready(reply)
    assert desk.connect().ask(30, {"topic": "t", "queueId": 0}).code == 0
    assert turns(desk, reply) == 60 // 5 - 1
    assert bodies_of(desk.take(reply)) == [b"0", b"1", b"2", b"3", b"4"]
    assert desk.liveness.next_due_ms() is None or desk.liveness.next_due_ms() > desk.liveness.now_ms()


def test_results_of_the_first_step_are_returned_at_once(desk: Desk) -> None:
    answer = desk.broker.ask(12, {**ASKED, "maxNum": 3, "endTimestamp": 2 * NOW_MS})
    assert bodies_of(answer) == [b"57", b"58", b"59"]
    assert answer.fields["indexLastUpdateTimestamp"] == str(NOW_MS + 59_000)


def test_many_searches_take_one_step_in_each_turn(desk: Desk) -> None:
    alone = turns(desk, begun(desk.broker))
    replies = [begun(desk.broker) for _ in range(10)]
    last = begun(desk.connect(), beginTimestamp=NOW_MS + 40_000, endTimestamp=NOW_MS + 45_000, maxNum=1)
    assert turns(desk, last) <= 3 * 11, "the search waited for the others"
    assert turns(desk, *replies) > 5 * alone
    assert {desk.take(reply).body for reply in replies} == {desk.take(begun_and_done(desk)).body}


def begun_and_done(desk: Desk) -> Reply:
    reply = begun(desk.broker)
    turns(desk, reply)
    return reply


def test_a_search_without_results_is_answered_as_such(desk: Desk) -> None:
    reply = begun(desk.broker, beginTimestamp=NOW_MS + 100, endTimestamp=NOW_MS + 200)
    assert turns(desk, reply) > 5
    assert desk.take(reply).code == 22


def test_a_search_ends_with_its_connection(desk: Desk) -> None:
    searches = desk.doors._services.consuming.searches
    reply, other = begun(desk.broker), begun(desk.connect())
    assert len(searches) == 2
    assert reply.on_abandon is not None
    reply.on_abandon()
    assert len(searches) == 1
    turns(desk, other)
    assert len(searches) == 0
    assert desk.broker.begin(12, ASKED, flag=2) is None
    assert len(searches) == 0, "a search runs for a one-way request"


def test_a_stop_refuses_running_searches(desk: Desk) -> None:
    reply = begun(desk.broker)
    assert not reply.waits_for_event, "a stop or a half-closed connection would abandon the search"
    desk.core.stop_writes()
    assert desk.take(reply).code == 14
    assert desk.broker.ask(12, ASKED).code == 14


def test_a_topic_may_go_while_its_messages_are_searched_for(desk: Desk) -> None:
    reply = begun(desk.broker)
    desk.broker.ask(215, {"topic": "t"})
    turns(desk, reply)
    assert len(bodies_of(desk.take(reply))) == 5, "the messages stay in the log until its file is deleted"


def test_a_query_for_no_messages_finds_none() -> None:
    desk = Desk()
    desk.broker.send("t", properties="KEYS\x01k\x02")
    fields = {"topic": "t", "key": "k", "beginTimestamp": 0, "endTimestamp": 1 << 60}
    assert desk.broker.ask(12, {**fields, "maxNum": 0}).code == 22
    assert desk.broker.ask(12, {**fields, "maxNum": 1}).code == 0


@pytest.mark.parametrize(("flag", "code"), [("true", 0), ("True", 22), ("false", 22)])
def test_a_query_by_unique_key_finds_messages_whatever_number_it_asks_for(flag: str, code: int) -> None:
    desk = Desk()
    desk.broker.send("t", properties="KEYS\x01k\x02")
    fields = {"topic": "t", "key": "k", "beginTimestamp": 0, "endTimestamp": 1 << 60, "maxNum": 0}
    assert desk.broker.ask(12, {**fields, "_UNIQUE_KEY_QUERY": flag}).code == code


def tagged(desk: Desk, count: int = 12) -> None:
    desk.broker.ask(17, {"topic": "tags", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6})
    for number in range(count):
        tag = "red" if number % 2 else "blue"
        desk.broker.send("tags", b"%d" % number, queue=number % 3, properties=f"TAGS\x01{tag}\x02KEYS\x01red\x02")
        desk.advance(1000)


BY_TAG = {"topic": "tags", "key": "red", "indexType": "T", "endTimestamp": 2 * NOW_MS}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, [1, 3, 5, 7, 9, 11]),
        ({"maxNum": 2}, [9, 11]),
        ({"beginTimestamp": NOW_MS + 4000, "endTimestamp": NOW_MS + 7000}, [5, 7]),
    ],
)
def test_messages_are_found_by_tag_in_all_queues(changes: dict[str, int], wanted: list[int]) -> None:
    desk = Desk()
    tagged(desk)
    reply = begun(desk.broker, **{**BY_TAG, **changes})
    turns(desk, reply)
    assert bodies_of(desk.take(reply)) == [b"%d" % number for number in wanted]


def test_a_search_by_tag_goes_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    tagged(desk, 30)
    monkeypatch.setattr(tag_search, "ENTRIES_PER_STEP", 2)
    reply = begun(desk.broker, **{**BY_TAG, "key": "green"})
    assert turns(desk, reply) >= 15
    assert desk.take(reply).code == 22


def test_a_tag_with_the_same_hash_is_not_found() -> None:
    desk = Desk()
    desk.broker.ask(17, {"topic": "tags", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
    for tag in ("Aa", "BB"):
        desk.broker.send("tags", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    reply = begun(desk.broker, **{**BY_TAG, "key": "BB"})
    turns(desk, reply)
    assert bodies_of(desk.take(reply)) == [b"BB"]


def test_a_topic_that_is_not_there_has_no_tags() -> None:
    assert Desk().broker.ask(12, {**ASKED, **BY_TAG}).code == 22
