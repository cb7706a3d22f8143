"""Pull: every status with its offsets, filters, and long polls."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of

from trimq.core.commit_log.stream import MessageQueue
from trimq.protocols.contract import Reply

WAITS = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


def desk_with(*tags: str, **settings: Any) -> Desk:
    desk = Desk(**settings)
    for number, tag in enumerate(tags):
        desk.broker.send("t", b"b%d" % number, properties=f"TAGS\x01{tag}\x02" if tag else "")
    return desk


def ends(command: Any) -> tuple[int, str, str, str]:
    fields = command.fields
    return command.code, fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, (0, "3", "0", "3")),
        (2, (0, "3", "0", "3")),
        (3, (19, "3", "0", "3")),
        (9, (21, "3", "0", "3")),
        (-1, (21, "0", "0", "3")),
    ],
)
def test_every_status_has_the_offsets_of_the_queue(offset: int, expected: tuple[int, str, str, str]) -> None:
    assert ends(desk_with("", "", "").broker.pull("t", offset)) == expected


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
def test_a_queue_that_was_never_written_to(offset: int, code: int) -> None:
    assert ends(desk_with("").broker.pull("t", offset, queue=1)) == (code, "0", "0", "0")


def test_messages_are_limited_by_count_and_size() -> None:
    desk = Desk()
    for _ in range(40):
        desk.broker.send("t", b"x" * 10)
    assert len(bodies_of(desk.broker.pull("t"))) == 32
    assert len(bodies_of(desk.broker.pull("t", maxMsgNums=3))) == 3
    assert len(bodies_of(desk.broker.pull("t", maxMsgNums=0))) == 1
    for _ in range(4):
        desk.broker.send("t", b"x" * 100_000, queue=1)
    assert len(bodies_of(desk.broker.pull("t", queue=1))) == 2
    desk.broker.send("t", b"x" * 1_000_000, queue=2)
    assert len(bodies_of(desk.broker.pull("t", queue=2))) == 1


@pytest.mark.parametrize(
    ("expression", "found"),
    [("*", "b0 b1 b2 b3"), ("", "b0 b1 b2 b3"), ("A", "b0 b2"), ("A || B", "b0 b1 b2"), ("A||*", "b0 b2")],
)
def test_messages_are_filtered_by_tag(expression: str, found: str) -> None:
    answer = desk_with("A", "B", "A", "").broker.pull("t", subscription=expression)
    assert b" ".join(bodies_of(answer)).decode() == found
    assert answer.fields["nextBeginOffset"] == "4"


def test_where_nothing_matches_the_client_goes_on_behind_it() -> None:
    desk = desk_with(*["A"] * 801)
    assert ends(desk.broker.pull("t", subscription="B")) == (20, "800", "0", "801")
    assert ends(desk.broker.pull("t", 800, subscription="B", **WAITS)) == (20, "801", "0", "801")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none"}, 17),
        ({"queueId": 4}, 29),
        ({"queueId": -1}, 29),
        ({"consumerGroup": "bad group$"}, 26),
        ({"consumerGroup": ""}, 26),
        ({"expressionType": "SQL92"}, 23),
        ({"expressionType": "nonsense"}, 23),
        ({"sysFlag": 0}, 24),
        ({"queueOffset": "x"}, 1),
    ],
)
def test_an_invalid_pull_is_refused_with_its_code(fields: dict[str, Any], code: int) -> None:
    desk = desk_with("")
    assert desk.broker.ask(11, {**desk.broker.pull_fields("t"), **fields}).code == code


def test_a_topic_that_may_not_be_read_is_not() -> None:
    desk = desk_with("")
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 2})
    answer = desk.broker.pull("t")
    assert (answer.code, answer.fields) == (16, {"forbiddenType": "3"})


def test_without_a_subscription_that_of_the_heartbeat_counts() -> None:
    desk = desk_with("", "")
    desk.broker.heartbeat("c", "g", "t", version=5)
    assert len(bodies_of(desk.broker.pull("t", sysFlag=0, subVersion=5))) == 2
    assert desk.broker.pull("t", sysFlag=0, subVersion=6).code == 25
    assert desk.broker.ask(11, {**desk.broker.pull_fields("TBW102"), "sysFlag": 0}).code == 24


# -- long polls


def held(desk: Desk, **fields: Any) -> Reply:
    reply = desk.broker.begin(11, desk.broker.pull_fields("t", **{"offset": 1, **WAITS, **fields}))
    assert reply is not None
    assert not desk.is_ready(reply)
    return reply


def test_a_pull_that_waits_is_woken_by_arrival() -> None:
    desk = desk_with("")
    reply = held(desk)
    desk.connect().send("t", b"new")
    answer = desk.take(reply)
    assert (bodies_of(answer), ends(answer)) == ([b"new"], (0, "2", "0", "2"))


def test_it_is_not_woken_by_messages_that_do_not_match() -> None:
    desk = desk_with("")
    reply = held(desk, subscription="A")
    desk.broker.send("t", b"other", properties="TAGS\x01B\x02")
    assert not desk.is_ready(reply)
    desk.broker.send("t", b"wanted", properties="TAGS\x01A\x02")
    assert bodies_of(desk.take(reply)) == [b"wanted"]


def test_it_is_answered_when_its_time_is_over() -> None:
    desk = desk_with("")
    reply = held(desk)
    desk.let_pass(14_999)
    assert not desk.is_ready(reply)
    desk.let_pass(1)
    assert ends(desk.take(reply)) == (19, "1", "0", "1")


def test_it_is_answered_when_the_broker_stops() -> None:
    desk = desk_with("")
    reply = held(desk)
    assert reply.on_resolve_now is not None
    reply.on_resolve_now()
    assert desk.take(reply).code == 19


def test_a_closed_connection_leaves_nothing_of_its_pull() -> None:
    desk = desk_with("")
    reply = held(desk)
    assert reply.on_abandon is not None
    reply.on_abandon()
    desk.broker.send("t")
    desk.let_pass(20_000)
    assert not desk.is_ready(reply)


def test_a_pull_without_leave_to_wait_does_not() -> None:
    desk = desk_with("")
    for fields in ({"sysFlag": 4}, {"suspendTimeoutMillis": 0}):
        assert desk.broker.pull("t", 1, **{**WAITS, **fields}).code == 19


# -- offsets committed with a pull


def test_a_pull_may_commit() -> None:
    desk = desk_with("", "")
    desk.broker.pull("t", sysFlag=5, commitOffset=2)
    asked = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    assert desk.broker.ask(14, asked).fields == {"offset": "2"}
    desk.broker.pull("t", sysFlag=4, commitOffset=1)
    assert desk.broker.ask(14, asked).fields == {"offset": "2"}


def waiting_pull(desk: Desk, offset: int = 0, **fields: Any) -> Reply:
    reply = desk.broker.begin(11, desk.broker.pull_fields("t", offset, **WAITS, **fields))
    assert reply is not None
    assert not desk.is_ready(reply)
    return reply


def test_a_long_poll_is_answered_with_the_reset_offset() -> None:
    desk = desk_with("", "", "")
    reply = waiting_pull(desk, 3)
    assert desk.broker.ask(222, {"topic": "t", "group": "g", "timestamp": 0, "isForce": True}).code == 0
    desk.broker.send("t", b"new")
    assert ends(desk.take(reply)) == (21, "0", "0", "4")
    assert desk.broker.ask(15, {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1}).remark is None


def test_a_long_poll_at_its_deadline_gets_the_reset_offset_too() -> None:
    desk = desk_with("", "")
    reply = waiting_pull(desk, 2)
    desk.broker.ask(222, {"topic": "t", "group": "g", "timestamp": 0, "isForce": True})
    desk.let_pass(15_000)
    assert ends(desk.take(reply)) == (21, "0", "0", "2")


def test_a_long_poll_is_answered_at_once_when_its_topic_is_deleted() -> None:
    desk = desk_with("")
    replies = [waiting_pull(desk, 1), waiting_pull(desk, 1, subscription="A"), waiting_pull(desk, queue=1)]
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    assert [desk.take(reply).code for reply in replies] == [17, 17, 17]


def test_a_long_poll_over_the_limit_gets_an_empty_answer() -> None:
    desk = desk_with("")
    reply = waiting_pull(desk, 1)
    assert reply.on_reject_over_limit is not None
    reply.on_reject_over_limit()
    assert ends(desk.take(reply)) == (19, "1", "0", "1")


@pytest.mark.parametrize("subscription", ["*", "B"])
def test_a_pull_that_waits_and_cannot_be_answered_does_not_wait_for_ever(
    subscription: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking the answer raises the error."""
    desk = desk_with("A")
    reply = desk.broker.begin(11, desk.broker.pull_fields("t", 1, subscription=subscription, **WAITS))
    assert reply is not None

    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(MessageQueue, "read", fails)
    monkeypatch.setattr(MessageQueue, "has_match", fails)
    desk.broker.send("t", b"new", properties="TAGS\x01B\x02")
    assert desk.is_ready(reply)
    with pytest.raises(OSError, match="Too many open files"):
        reply.take()


def test_a_pop_that_waits_and_cannot_be_answered_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = desk_with("A")
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 1, "maxMsgNums": 1, "invisibleTime": 60_000}
    reply = desk.broker.begin(200050, {**fields, "pollTime": 15_000})
    assert reply is not None
    assert reply.is_open

    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(MessageQueue, "entries", fails)
    desk.broker.send("t", b"new", queue=1)
    assert desk.is_ready(reply)
    with pytest.raises(OSError, match="Too many open files"):
        reply.take()
