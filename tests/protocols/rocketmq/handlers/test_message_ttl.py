"""Message TTL: an expired message is never delivered, by pull, by POP or as a retry."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of, units_of

from trimq.formats.rocketmq_unit.properties import find_property, read_properties
from trimq.formats.rocketmq_unit.ttl import EXPIRES_MS, TTL_MS
from trimq.model import SYSTEM
from trimq.wire.remoting import Command

TTL = f"{TTL_MS}\x01100\x02"


def send(desk: Desk, body: bytes, properties: str = "", **fields: Any) -> Command:
    answer = desk.broker.send("t", body, 0, f"UNIQ_KEY\x01{body.decode()}\x02{properties}", **fields)
    assert answer.code == 0
    return answer


def pop(desk: Desk, **fields: Any) -> Command:
    asked = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 8, "invisibleTime": 1000, "pollTime": 0}
    return desk.broker.ask(200050, {**asked, **fields})


def test_an_expired_message_is_skipped_and_reading_continues_behind_it() -> None:
    desk = Desk()
    for body, properties in ((b"a", ""), (b"b", TTL), (b"c", ""), (b"d", TTL)):
        send(desk, body, properties)
    desk.advance(99)
    assert bodies_of(desk.broker.pull("t")) == [b"a", b"b", b"c", b"d"]
    desk.advance(1)
    assert bodies_of(desk.broker.pull("t")) == [b"a", b"c"]
    behind = desk.broker.pull("t", 3)
    assert (behind.code, behind.fields["nextBeginOffset"]) == (20, "4")
    assert bodies_of(desk.broker.pull("t", subscription="*", consumerGroup="other")) == [b"a", b"c"]
    assert desk.broker.ask(30, {"topic": "t", "queueId": 0}).fields["offset"] == "4"


def test_each_time_is_counted() -> None:
    desk = Desk()
    send(desk, b"a", TTL)
    desk.advance(100)
    for _ in range(2):
        desk.broker.pull("t")
    assert b"trimq_passed_over_messages_total 2" in desk.metrics.render()


def test_a_restart_changes_nothing() -> None:
    desk = Desk()
    send(desk, b"a", TTL)
    send(desk, b"b")
    desk = desk.cut_power()
    assert bodies_of(desk.broker.pull("t")) == [b"a", b"b"]
    desk.advance(100)
    assert bodies_of(desk.broker.pull("t")) == [b"b"]


def test_a_ttl_is_still_applied_after_the_topic_definition_changed() -> None:
    desk = Desk()
    send(desk, b"a", TTL)
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 5, "writeQueueNums": 5, "perm": 6})
    desk.advance(100)
    assert desk.broker.pull("t").code == 20


def test_a_moment_may_be_named_instead_of_a_time() -> None:
    desk = Desk()
    send(desk, b"a", f"{EXPIRES_MS}\x01{NOW_MS + 50}\x02{TTL}")
    desk.advance(50)
    assert desk.broker.pull("t").code == 20


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5", "9" * 19])
@pytest.mark.parametrize("name", [TTL_MS, EXPIRES_MS])
def test_an_invalid_ttl_is_refused(name: str, value: str) -> None:
    answer = Desk().broker.send("t", properties=f"UNIQ_KEY\x01U\x02{name}\x01{value}\x02")
    assert (answer.code, name in (answer.remark or "")) == (13, True)


def test_each_message_of_a_batch_has_its_own_time() -> None:
    desk = Desk()
    batch = b""
    for body, properties in ((b"a", b""), (b"b", TTL.encode())):
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
        batch += size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big") + body
        batch += len(properties).to_bytes(2, "big") + properties
    assert desk.broker.send("t", batch, m=True).code == 0
    desk.advance(100)
    assert bodies_of(desk.broker.pull("t")) == [b"a"]


def test_a_long_poll_gets_a_message_within_its_ttl() -> None:
    desk = Desk()
    send(desk, b"a", TTL)
    desk.advance(100)
    held = desk.connect().begin(11, desk.broker.pull_fields("t", 1, sysFlag=6, suspendTimeoutMillis=10_000))
    assert held is not None
    assert not desk.is_ready(held)
    send(desk, b"b", TTL)
    assert bodies_of(desk.take(held)) == [b"b"]


# -- TTL of a topic


def make_topic(desk: Desk, attributes: str) -> int:
    given = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "attributes": attributes}
    return desk.broker.ask(17, given).code


def test_a_topic_may_have_a_default_ttl() -> None:
    desk = Desk()
    assert make_topic(desk, "+trimq.ttl.ms=1000") == 0
    send(desk, b"a")
    send(desk, b"b", TTL)
    desk.advance(100)
    assert bodies_of(desk.broker.pull("t")) == [b"a"]
    desk.advance(900)
    assert desk.broker.pull("t").code == 20
    assert make_topic(desk, "-trimq.ttl.ms") == 0
    send(desk, b"c")
    desk.advance(10_000)
    assert bodies_of(desk.broker.pull("t")) == [b"c"]


@pytest.mark.parametrize("value", ["", "0", "-5", "long"])
def test_a_topic_takes_no_other_time(value: str) -> None:
    assert make_topic(Desk(), f"+trimq.ttl.ms={value}") == 29


# -- POP


def test_an_expired_message_is_not_popped_either() -> None:
    desk = Desk()
    send(desk, b"a", TTL)
    send(desk, b"b")
    desk.advance(100)
    assert bodies_of(desk.broker.ask(200052, {"consumerGroup": "g", "topic": "t", "queueId": 0, "maxMsgNums": 8})) == [
        b"b"
    ]
    assert bodies_of(pop(desk)) == [b"b"]


def test_a_message_that_expires_while_popped_is_not_redelivered() -> None:
    desk = Desk()
    send(desk, b"a", f"{TTL_MS}\x012500\x02")
    assert bodies_of(pop(desk)) == [b"a"]
    desk.advance(1000)
    (again,) = units_of(pop(desk))
    assert find_property(again.properties, EXPIRES_MS) == str(NOW_MS + 2500)
    desk.advance(1500)
    assert pop(desk).code == 210
    desk = desk.restart()
    assert pop(desk).code == 210


def test_in_an_ordered_queue_an_expired_redelivery_is_skipped_and_the_next_message_delivered() -> None:
    desk = Desk()
    send(desk, b"a", f"{TTL_MS}\x01500\x02")
    send(desk, b"b")
    asked = {"order": True, "queueId": 0, "maxMsgNums": 1}
    assert bodies_of(pop(desk, **asked, attemptId="x")) == [b"a"]
    desk.advance(400)
    assert bodies_of(pop(desk, **asked, attemptId="x")) == [b"a"]
    desk.advance(100)
    assert pop(desk, **asked, attemptId="x").code == 210
    desk.advance(1000)
    assert bodies_of(pop(desk, **asked)) == [b"b"]
    assert desk.broker.ask(14, {"consumerGroup": "g", "topic": "t", "queueId": 0}).fields["offset"] == "1"


# -- retries, delayed messages and transactions


def send_back(desk: Desk, level: int = 1) -> None:
    (unit,) = units_of(desk.broker.pull("t"))
    asked = {"offset": unit.position, "group": "g", "delayLevel": level, "originTopic": "t", "maxReconsumeTimes": 3}
    assert desk.broker.ask(36, asked).code == 0


def test_a_try_that_comes_too_late_is_not_made() -> None:
    desk = Desk()
    send(desk, b"a", f"{TTL_MS}\x011500\x02")
    send_back(desk)
    desk.advance(1000)
    assert bodies_of(desk.broker.pull("%RETRY%g")) == [b"a"]
    desk.advance(500)
    assert desk.broker.pull("%RETRY%g").code == 20


def test_dead_letters_are_there_however_old_and_have_no_limit_when_they_are_sent_again() -> None:
    desk = Desk()
    send(desk, b"a", TTL)
    send_back(desk, -1)
    desk.advance(1000)
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"a"]
    (failure,) = desk.core.broker.failures.all(SYSTEM)
    desk.core.broker.failures.redrive(SYSTEM, failure.id)
    desk.runner.settle()
    desk.advance(1000)
    assert bodies_of(desk.broker.pull("%RETRY%g")) == [b"a"]


def test_the_time_of_a_delayed_message_begins_when_it_comes() -> None:
    desk = Desk()
    send(desk, b"a", f"{TTL}DELAY\x011\x02")
    desk.advance(1099)
    assert bodies_of(desk.broker.pull("t")) == [b"a"]
    desk.advance(1)
    assert desk.broker.pull("t").code == 20


def test_the_ttl_of_a_half_message_begins_at_its_commit() -> None:
    desk = Desk()
    answer = send(desk, b"a", f"{TTL}TRAN_MSG\x01true\x02PGROUP\x01pg\x02", f=4)
    desk.advance(1000)
    asked = {"producerGroup": "pg", "tranStateTableOffset": answer.fields["queueOffset"], "commitOrRollback": 8}
    assert desk.broker.ask(37, {**asked, "commitLogOffset": int(answer.fields["msgId"][16:], 16)}).code == 0
    assert bodies_of(desk.broker.pull("t")) == [b"a"]
    desk.advance(100)
    assert desk.broker.pull("t").code == 20


def test_others_are_stored_as_they_came() -> None:
    desk = Desk()
    send(desk, b"a")
    (unit,) = units_of(desk.broker.pull("t"))
    assert not {TTL_MS, EXPIRES_MS} & read_properties(unit.properties).keys()
