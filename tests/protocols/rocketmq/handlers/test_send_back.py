"""Retries of messages that consumers send back: number, delay, and the dead-letter topic."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of, units_of

from trimq.core.failures.ledger import Failure, Reason
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.model import SYSTEM


def sent_back(desk: Desk, topic: str = "t", level: int = 0, version: int = 479, **fields: Any) -> Any:
    """Sends back the first message of a queue."""
    (unit, *_) = units_of(desk.broker.pull(topic))
    asked = {"offset": unit.position, "group": "g", "delayLevel": level, **fields}
    return desk.broker.ask(36, asked, version=version)


def failures(desk: Desk) -> list[Failure]:
    return list(desk.core.broker.failures.all(SYSTEM))


@pytest.mark.parametrize(("tries", "level", "wait_ms"), [(0, 0, 10_000), (2, 0, 60_000), (5, 1, 1000)])
def test_a_message_comes_back_later_each_time(tries: int, level: int, wait_ms: int) -> None:
    desk = Desk()
    desk.broker.send("t", b"hard", properties="TAGS\x01A\x02UNIQ_KEY\x01U\x02", h=3, j=tries)
    assert sent_back(desk, level=level).code == 0
    desk.advance(wait_ms - 1)
    assert bodies_of(desk.broker.pull("%RETRY%g")) == []
    desk.advance(1)
    (unit,) = units_of(desk.broker.pull("%RETRY%g"))
    kept = read_properties(unit.properties)
    assert (unit.body, unit.flag, unit.reconsume_times, unit.born_ms) == (b"hard", 3, tries + 1, 77)
    assert (kept["RETRY_TOPIC"], kept["UNIQ_KEY"], kept["WAIT"], kept["TAGS"]) == ("t", "U", "false", "A")
    assert kept["ORIGIN_MESSAGE_ID"] == f"7F00000100002A9F{0:016X}"


def test_it_keeps_its_origin_when_it_comes_back_again() -> None:
    desk = Desk()
    desk.broker.send("t", b"hard")
    sent_back(desk, level=1)
    desk.advance(1000)
    sent_back(desk, "%RETRY%g", level=2)
    desk.advance(5000)
    first, second = units_of(desk.broker.pull("%RETRY%g"))
    before, after = read_properties(first.properties), read_properties(second.properties)
    assert (second.reconsume_times, second.store_ms) == (2, NOW_MS + 6000)
    assert before["ORIGIN_MESSAGE_ID"] == after["ORIGIN_MESSAGE_ID"]
    assert after["RETRY_TOPIC"] == "t"


@pytest.mark.parametrize(
    ("tries", "fields"),
    [(0, {"level": -1}), (16, {}), (3, {"maxReconsumeTimes": 3}), (16, {"maxReconsumeTimes": 20, "version": 120})],
)
def test_at_the_end_of_the_road_are_the_dead_letters(tries: int, fields: dict[str, Any]) -> None:
    desk = Desk()
    desk.broker.send("t", b"hard", j=tries)
    assert sent_back(desk, **fields).code == 0
    (unit,) = units_of(desk.broker.pull("%DLQ%g"))
    assert (unit.body, unit.reconsume_times) == (b"hard", tries + 1)
    assert read_properties(unit.properties)["DELAY"] == "0"


def test_a_group_may_want_nothing_back() -> None:
    desk = Desk()
    desk.broker.ask(200, body={"groupName": "g", "retryQueueNums": 0})
    desk.broker.send("t")
    assert sent_back(desk).code == 0
    desk.advance(100_000)
    assert desk.broker.pull("%RETRY%g").code == 17


@pytest.mark.parametrize(
    ("fields", "code"), [({"offset": 5}, 1), ({"offset": 10**12}, 1), ({"group": None}, 1), ({"delayLevel": "x"}, 1)]
)
def test_an_invalid_send_back_is_refused(fields: dict[str, Any], code: int) -> None:
    desk = Desk()
    desk.broker.send("t")
    asked = {"offset": 0, "group": "g", "delayLevel": 0, **fields}
    assert desk.broker.ask(36, {name: value for name, value in asked.items() if value is not None}).code == code


def test_a_message_that_is_not_there_creates_the_topic_for_retries_all_the_same() -> None:
    desk = Desk()
    desk.broker.send("t")
    assert desk.broker.ask(36, {"offset": 10**12, "group": "g", "delayLevel": -1}).code == 1
    assert desk.broker.ask(351, {"topic": "%RETRY%g"}).code == 0


def test_a_client_that_retries_by_itself_ends_there_too() -> None:
    desk = Desk()
    assert desk.broker.send("%RETRY%g", b"again", properties="DELAY\x011\x02", j=16).code == 0
    desk.advance(1000)
    assert bodies_of(desk.broker.pull("%RETRY%g")) == [b"again"]
    assert desk.broker.send("%RETRY%g", b"over", properties="DELAY\x011\x02", j=17).code == 0
    assert desk.broker.send("%RETRY%g", b"asked", j=3, l=2).code == 0
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"over", b"asked"]


def test_a_group_that_consumes_in_order_retries_nothing_later() -> None:
    desk = Desk()
    queue = {"topic": "t", "brokerName": "broker-a", "queueId": 0}
    desk.broker.ask(41, body={"consumerGroup": "g", "clientId": "c", "mqSet": [queue]})
    desk.broker.send("%RETRY%g", b"again", j=1)
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"again"]
    desk.let_pass(60_001)
    desk.broker.send("%RETRY%g", b"later", j=1)
    assert bodies_of(desk.broker.pull("%RETRY%g")) == [b"later"]


def test_a_retry_outlives_a_crash_in_every_phase() -> None:
    desk = Desk()
    desk.broker.send("t", b"hard", properties="UNIQ_KEY\x01U\x02")
    desk = desk.kill()
    sent_back(desk, level=1)
    desk = desk.kill()
    desk.advance(1000)
    desk = desk.kill()
    desk.advance(1000)
    assert bodies_of(desk.broker.pull("%RETRY%g")) == [b"hard"]
    sent_back(desk, "%RETRY%g", level=-1)
    assert bodies_of(desk.kill().broker.pull("%DLQ%g")) == [b"hard"]


# -- dead letters in the ledger, and redrive


def test_a_dead_letter_is_in_the_ledger_with_its_history_and_is_redriven_to_its_group() -> None:
    desk = Desk()
    desk.broker.send("t", b"other")
    desk.broker.send("t", b"hard", queue=2, properties="TAGS\x01A\x02")
    (unit,) = units_of(desk.broker.pull("t", queue=2))
    for level in (1, -1):
        desk.broker.ask(36, {"offset": unit.position, "group": "g", "delayLevel": level})
        desk.advance(1000)
        (unit,) = units_of(desk.broker.pull("%RETRY%g"))
    desk = desk.restart()
    (failure,) = failures(desk)
    entry = failure.entry
    assert (entry.record.body, entry.reason, entry.attempts) == (b"hard", Reason.REJECTED, 2)
    assert (entry.origin.topic.name, entry.origin.stream.number, entry.origin.offset) == ("t", 2, 0)
    assert entry.origin.group == "g"
    desk.core.broker.failures.redrive(SYSTEM, failure.id)
    desk.runner.settle()
    again = units_of(desk.broker.pull("%RETRY%g", queue=0))[-1]
    kept = read_properties(again.properties)
    assert (bytes(again.body), again.reconsume_times, kept["RETRY_TOPIC"]) == (b"hard", 0, "t")
    assert "DELAY" not in kept
    assert [failure.is_redriven for failure in failures(desk)] == [True]


def test_a_message_that_a_client_gives_up_is_in_the_ledger_too() -> None:
    desk = Desk()
    desk.broker.send("%RETRY%g", b"over", properties="RETRY_TOPIC\x01t\x02ORIGIN_MESSAGE_ID\x01rubbish\x02", j=17)
    (failure,) = failures(desk)
    entry = failure.entry
    assert (entry.record.body, entry.reason, entry.attempts) == (b"over", Reason.DELIVERY_LIMIT, 17)
    assert (entry.origin.topic.name, entry.origin.offset) == ("t", -1)


def test_a_plain_send_to_a_dead_letter_topic_is_not_in_the_ledger() -> None:
    desk = Desk()
    assert desk.broker.send("%DLQ%g", b"mail").code == 0
    assert failures(desk) == []
    assert failures(desk.kill()) == []
