"""POP over remoting: delivery, long polls and peeking; a revived message looks as at its first delivery."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, Peer, bodies_of, units_of

from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.protocols.contract import Reply
from trimq.wire.remoting import Command

POP, PEEK, NOTIFY, POLLING = 200050, 200052, 200054, 200055
SECOND = 1000


def made(queues: int = 1, bodies: tuple[bytes, ...] = (), **settings: Any) -> Desk:
    desk = Desk(**settings)
    given = {"topic": "t", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    assert desk.broker.ask(17, given).code == 0
    for body in bodies:
        desk.broker.send("t", body)
    return desk


def fields(**changes: Any) -> dict[str, Any]:
    given = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 10 * SECOND}
    return {**given, "pollTime": 0, "bornTime": 1, "initMode": 0, **changes}


def pop(peer: Peer, **changes: Any) -> Command:
    return peer.ask(POP, fields(**changes))


def begin(peer: Peer, code: int = POP, **changes: Any) -> Reply:
    reply = peer.begin(code, fields(pollTime=15 * SECOND, **changes))
    assert reply is not None
    return reply


def test_an_answer_holds_all_that_clients_make_receipts_of() -> None:
    desk = made(2, (b"0", b"1"))
    desk.broker.send("t", b"2", queue=1)
    popped = pop(desk.broker)
    assert (popped.code, sorted(bodies_of(popped))) == (0, [b"0", b"1", b"2"])
    given = popped.fields
    assert sorted(given["startOffsetInfo"].split(";")) == ["0 0 0", "0 1 0"]
    assert sorted(given["msgOffsetInfo"].split(";")) == ["0 0 0,1", "0 1 0"]
    assert given["popTime"] == str(desk.message_time.now_ms())
    assert (given["invisibleTime"], given["reviveQid"], given["restNum"]) == ("10000", "0", "0")
    assert "orderCountInfo" not in given


def test_each_message_is_delivered_once_and_an_empty_queue_is_reported() -> None:
    desk = made(1, (b"0", b"1"))
    first = pop(desk.broker, maxMsgNums=1)
    assert (bodies_of(first), first.fields["restNum"]) == ([b"0"], "1")
    assert bodies_of(pop(desk.connect())) == [b"1"]
    assert pop(desk.broker).code == 210


def test_a_redelivered_message_has_the_requested_topic_and_its_receipt() -> None:
    desk = made(1, (b"0",))
    first_ms = desk.message_time.now_ms()
    pop(desk.broker)
    desk.advance(10 * SECOND)
    again = pop(desk.broker)
    (unit,) = units_of(again)
    properties = read_properties(unit.properties)
    assert (unit.topic, unit.reconsume_times) == (b"t", 1)
    now_ms = desk.message_time.now_ms()
    assert properties["POP_CK"] == f"0 {now_ms} 10000 0 1 broker-a 0 0"
    assert (properties["1ST_POP_TIME"], properties["ORIGIN_GROUP"]) == (str(first_ms), "g")
    assert again.fields["startOffsetInfo"] == "1 0 0"


def test_a_long_poll_is_answered_by_a_matching_message() -> None:
    desk = made()
    reply = begin(desk.broker, exp="A", expType="TAG")
    assert desk.broker.ask(POLLING, fields()).fields["pollingNum"] == "1"
    desk.broker.send("t", b"no", properties="TAGS\x01B\x02")
    assert not desk.is_ready(reply)
    desk.broker.send("t", b"yes", properties="TAGS\x01A\x02")
    assert bodies_of(desk.take(reply)) == [b"yes"]
    assert desk.broker.ask(POLLING, fields()).fields["pollingNum"] == "0"


def test_of_two_long_polls_one_gets_the_message_and_the_other_keeps_waiting() -> None:
    desk = made()
    first, second = begin(desk.broker), begin(desk.connect())
    desk.broker.send("t", b"0")
    assert bodies_of(desk.take(first)) == [b"0"]
    assert not desk.is_ready(second)
    desk.advance(10 * SECOND)
    assert bodies_of(desk.take(second)) == [b"0"]


def test_a_long_poll_is_answered_at_its_deadline() -> None:
    desk = made()
    reply = begin(desk.broker)
    desk.let_pass(14 * SECOND)
    assert not desk.is_ready(reply)
    desk.let_pass(SECOND)
    answered = desk.take(reply)
    assert (answered.code, answered.fields["msgOffsetInfo"]) == (210, "")


def test_a_long_poll_whose_connection_is_closed_takes_nothing() -> None:
    desk = made()
    reply = begin(desk.broker)
    assert reply.on_abandon is not None
    reply.on_abandon()
    desk.broker.send("t", b"0")
    assert bodies_of(pop(desk.broker)) == [b"0"]
    assert desk.broker.ask(POLLING, fields()).fields["pollingNum"] == "0"


def test_in_an_ordered_queue_retries_are_counted_and_the_next_message_waits() -> None:
    desk = made(1, (b"0", b"1", b"2"))
    first = pop(desk.broker, maxMsgNums=2, order=True, attemptId="a1")
    assert (first.fields["reviveQid"], first.fields["orderCountInfo"]) == ("999", "0 0 0")
    blocked = pop(desk.broker, maxMsgNums=2, order=True, attemptId="a2")
    assert (blocked.code, blocked.fields["orderCountInfo"]) == (210, "")
    desk.advance(10 * SECOND)
    again = pop(desk.broker, maxMsgNums=2, order=True, attemptId="a3")
    assert bodies_of(again) == [b"0", b"1"]
    assert again.fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 1"


def test_peeking_takes_nothing() -> None:
    desk = made(1, (b"0", b"1", b"2"))
    assert desk.broker.ask(PEEK, fields(maxMsgNums=0, queueId=0)).code == 19
    seen = desk.broker.ask(PEEK, fields(maxMsgNums=2, queueId=0))
    assert (bodies_of(seen), seen.fields["restNum"]) == ([b"0", b"1"], "3")
    assert bodies_of(pop(desk.broker)) == [b"0", b"1", b"2"]
    assert desk.broker.ask(PEEK, fields(queueId=0)).code == 19


def test_one_may_ask_whether_there_is_anything_and_wait_for_it() -> None:
    desk = made()
    assert desk.broker.ask(NOTIFY, fields()).fields["hasMsg"] == "false"
    reply = begin(desk.broker, NOTIFY)
    assert not desk.is_ready(reply)
    desk.broker.send("t", b"0")
    assert desk.take(reply).fields["hasMsg"] == "true"
    assert desk.broker.ask(NOTIFY, fields()).fields["hasMsg"] == "true"
    pop(desk.broker)
    late = begin(desk.broker, NOTIFY)
    desk.let_pass(15 * SECOND)
    assert desk.take(late).fields["hasMsg"] == "false"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"maxMsgNums": 33}, 29),
        ({"queueId": 7}, 29),
        ({"invisibleTime": -1}, 29),
        ({"invisibleTime": 13 * 3600 * SECOND}, 29),
        ({"topic": "nowhere"}, 17),
        ({"exp": "a > > 1", "expType": "SQL92"}, 23),
        ({"consumerGroup": "off"}, 16),
        ({"consumerGroup": "a b"}, 26),
        ({"consumerGroup": ""}, 26),
        ({"topic": "unread"}, 16),
    ],
)
def test_an_invalid_pop_is_refused_with_its_code(changes: dict[str, Any], code: int) -> None:
    desk = made(1, (b"0",))
    desk.broker.ask(200, body={"groupName": "off", "consumeEnable": False})
    desk.broker.ask(17, {"topic": "unread", "readQueueNums": 1, "writeQueueNums": 1, "perm": 2})
    refused = pop(desk.broker, **changes)
    assert refused.code == code
    assert {"popTime", "invisibleTime", "restNum", "reviveQid"} <= refused.fields.keys()
    assert bodies_of(pop(desk.broker)) == [b"0"]


def test_a_lease_that_cannot_be_written_is_not_delivered() -> None:
    desk = made(1, (b"0",))
    desk.fail_writes()
    refused = pop(desk.broker)
    assert (refused.code, refused.body) == (1, b"")


def test_a_message_that_always_fails_is_dead_lettered() -> None:
    desk = made(1, (b"0",))
    desk.broker.ask(200, body={"groupName": "g", "retryMaxTimes": 1})
    for _ in range(2):
        assert bodies_of(pop(desk.broker)) == [b"0"]
        desk.advance(10 * SECOND)
    assert pop(desk.broker).code == 210
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"0"]


def test_popped_messages_are_counted_for_their_group() -> None:
    desk = made(bodies=(b"one", b"two"))
    pop(desk.broker)
    counted = json.loads(desk.broker.ask(315, {"statsName": "GROUP_GET_NUMS", "statsKey": "t@g"}).body)
    assert counted["statsMinute"]["sum"] == 2


def test_a_long_poll_is_answered_at_once_when_its_topic_is_deleted() -> None:
    desk = made()
    popping, asking = begin(desk.broker), begin(desk.broker, NOTIFY)
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    assert (desk.take(popping).code, desk.take(asking).code) == (17, 17)
    assert desk.broker.ask(POLLING, fields()).fields["pollingNum"] == "0"


def test_a_long_poll_over_the_limit_is_refused() -> None:
    desk = made()
    popping, asking = begin(desk.broker), begin(desk.broker, NOTIFY)
    for reply in (popping, asking):
        assert reply.on_reject_over_limit is not None
        reply.on_reject_over_limit()
    answered, given = desk.take(popping), desk.take(asking)
    assert (answered.code, answered.remark, answered.body) == (209, "POLLING_FULL", b"")
    assert (given.code, given.fields["hasMsg"], given.fields["pollingFull"]) == (0, "false", "true")


def test_pending_redeliveries_are_deleted_with_their_topic() -> None:
    desk = made(bodies=(b"old",))
    for group in ("g", "h"):
        pop(desk.broker, consumerGroup=group)
    desk.broker.ask(17, {"topic": "h_t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
    desk.broker.send("h_t", b"other")
    pop(desk.broker, topic="h_t")
    desk.advance(10 * SECOND)
    assert bodies_of(pop(desk.broker)) == [b"old"]
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    desk = desk.restart()
    names = json.loads(desk.broker.ask(21).body)["topicConfigTable"]
    assert [name for name in names if name.startswith("%RETRY%")] == ["%RETRY%g_h_t"]
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
    desk.advance(10 * SECOND)
    assert (pop(desk.broker).code, pop(desk.broker, consumerGroup="h").code) == (210, 210)
    assert bodies_of(pop(desk.broker, topic="h_t")) == [b"other"]


def test_an_offset_reset_takes_effect_with_the_next_pop() -> None:
    desk = made(bodies=(b"0", b"1"))
    assert len(bodies_of(pop(desk.broker, invisibleTime=1000))) == 2
    assert desk.broker.ask(222, {"topic": "t", "group": "g", "timestamp": 0, "isForce": True}).code == 0
    desk.advance(SECOND)
    commit = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 2}
    assert desk.broker.ask(15, commit).remark == "Offset has been previously reset"
    assert set(bodies_of(pop(desk.broker))) == {b"0", b"1"}
    assert desk.broker.ask(15, commit).remark is None


def test_an_offset_reset_in_order_delivers_from_the_new_offset_at_once() -> None:
    desk = made(bodies=tuple(b"%d" % number for number in range(10)))
    desk.broker.ask(200, body={"groupName": "g"})
    assert len(bodies_of(pop(desk.broker, maxMsgNums=3, order=True))) == 3
    waiting = begin(desk.broker, maxMsgNums=3, order=True)
    assert not desk.is_ready(waiting)
    given = {"topic": "t", "group": "g", "timestamp": 0, "isForce": True, "queueId": 0, "offset": 5}
    assert desk.broker.ask(222, given).code == 0
    assert bodies_of(desk.take(waiting)) == [b"5", b"6", b"7"]


def test_a_pop_of_no_messages_takes_none() -> None:
    desk = made(1, (b"a",))
    assert (pop(desk.broker, maxMsgNums=0).code, bodies_of(pop(desk.broker))) == (210, [b"a"])


def test_a_refused_pop_creates_no_group() -> None:
    desk = made(1)
    reset = {"topic": "t", "group": "new", "timestamp": 0}
    assert pop(desk.broker, consumerGroup="new", queueId=9).code == 29
    assert desk.broker.ask(222, reset).code == 26
    assert pop(desk.broker, consumerGroup="new").code == 210
    assert desk.broker.ask(222, reset).code == 0


def test_the_first_pop_of_a_queue_commits_the_offset_from_which_it_reads() -> None:
    desk = made(1)
    pop(desk.broker)
    asked = {"consumerGroup": "g", "topic": "t", "queueId": 0, "setZeroIfNotFound": False}
    assert desk.broker.ask(14, asked).fields == {"offset": "0"}
    assert desk.restart().broker.ask(14, asked).fields == {"offset": "0"}


@pytest.mark.parametrize(
    ("changes", "code"), [({"topic": "none"}, 17), ({"queueId": 9}, 29), ({"consumerGroup": "a b"}, 26)]
)
def test_polls_of_a_topic_or_queue_that_is_not_there_are_not_counted(changes: dict[str, Any], code: int) -> None:
    answer = made(2).broker.ask(POLLING, {**fields(), **changes})
    assert (answer.code, answer.fields) == (code, {"pollingNum": "0"})
