"""Properties near the maximum length of a unit: the broker's additions to a copy must fit, otherwise the message is
refused or dead-lettered. None of them harms the broker or other messages."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of, units_of

from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.core.failures.ledger import Failure, Reason
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.schedule import WHEEL_TOPIC
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES, UnitDraft
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.state.system_topics import HALF_TOPIC

HOST = pack_host("127.0.0.1", 10911)
SECOND = 1000


def filled(size: int, properties: str = "") -> str:
    """Extends these properties by one more to this length."""
    return f"{properties}k\x01{'x' * (size - len(properties) - 3)}\x02"


def commit_log_of(desk: Desk) -> CommitLogApi:
    assert desk.core.commit_log_service is not None
    return desk.core.commit_log_service.commit_log


def topic_of(desk: Desk, name: str) -> CommitLogTopic:
    commit_log = commit_log_of(desk)
    topic = (
        commit_log.topics.find(SYSTEM, name)
        or commit_log.topics.create(SYSTEM, CommitLogTopicDefinition("", name, 2, 2))[0]
    )
    desk.runner.settle()
    return topic


def store(desk: Desk, name: str, properties: str, body: bytes = b"long", code: int = 0) -> int:
    """Stores a message as another broker, or an earlier version, may have stored it. Returns its position."""
    topic = topic_of(desk, name)
    draft = UnitDraft(topic.raw_name, 0, body, properties.encode(), 0, 0, 77, HOST)
    placed = commit_log_of(desk).messages.append(SYSTEM, topic, topic.stream(0), draft, code, HOST)
    desk.runner.settle()
    return placed.position


def failures(desk: Desk) -> list[Failure]:
    return list(desk.core.broker.failures.all(SYSTEM))


def pop(desk: Desk, **changes: Any) -> Any:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 10 * SECOND}
    return desk.broker.ask(200050, {**fields, "pollTime": 0, "bornTime": 1, "initMode": 0, **changes})


def send_back(desk: Desk, position: int, level: int) -> Any:
    return desk.broker.ask(36, {"offset": position, "group": "g", "delayLevel": level})


def half(desk: Desk, body: bytes, unique: str) -> None:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01{unique}\x02"
    assert desk.broker.send("t", body, 0, properties, f=4).code == 0


def questions(desk: Desk) -> list[str]:
    return [sent.fields["transactionId"] for sent in desk.broker.way.sent if sent.code == 39]


# -- messages from clients


@pytest.mark.parametrize("more", ["", "UNIQ_KEY\x01U\x02", "TIMER_DELAY_MS\x011500\x02", "TRAN_MSG\x01true\x02"])
def test_properties_without_room_for_the_brokers_additions_are_refused(more: str) -> None:
    desk = Desk()
    assert desk.broker.send("t", b"x", 0, filled(32_000, more)).code == 0
    assert desk.broker.send("t", b"x", 0, filled(32_400, more)).code == 13


def test_a_copy_that_a_client_sends_to_a_retry_topic_may_be_as_long_as_any() -> None:
    desk = Desk()
    assert desk.broker.send("%RETRY%g", b"x", 0, filled(32_600)).code == 0
    assert desk.broker.send("%RETRY%g", b"x", 0, filled(32_760)).code == 13


def test_the_longest_that_may_be_sent_goes_all_the_ways_of_a_message() -> None:
    desk = Desk()
    size = 32_100
    desk.broker.send("t", b"x", 0, filled(size, "UNIQ_KEY\x01U\x02TIMER_DELAY_MS\x011500\x02"))
    desk.advance(1500)
    (unit,) = units_of(desk.broker.pull("t"))
    assert send_back(desk, unit.position, 1).code == 0
    desk.advance(SECOND)
    (again,) = units_of(desk.broker.pull("%RETRY%g"))
    assert send_back(desk, again.position, -1).code == 0
    (dead,) = units_of(desk.broker.pull("%DLQ%g"))
    assert read_properties(dead.properties)["RETRY_TOPIC"] == "t"
    assert bodies_of(pop(desk)) == [b"x"]
    desk.advance(10 * SECOND)
    (back,) = units_of(pop(desk))
    assert "POP_CK" in read_properties(back.properties)


# -- stored messages with longer properties


@pytest.mark.parametrize("size", [32_700, LONGEST_PROPERTIES])
def test_a_popped_message_without_room_for_its_receipt_goes_to_the_dead_letters(size: int) -> None:
    desk = Desk()
    store(desk, "t", filled(size, "UNIQ_KEY\x01U\x02"))
    store(desk, "t", "UNIQ_KEY\x01V\x02", b"short")
    assert sorted(bodies_of(pop(desk))) == [b"long", b"short"]
    desk.advance(11 * SECOND)
    assert bodies_of(pop(desk)) == [b"short"]
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"long"]
    assert [failure.entry.reason for failure in failures(desk)] == [Reason.DELIVERY_LIMIT]
    desk = desk.kill()
    desk.advance(100 * SECOND)
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"long"]


def test_a_retried_message_that_cannot_be_shown_is_skipped_and_dead_lettered() -> None:
    desk = Desk()
    topic_of(desk, "t")
    store(desk, "%RETRY%g_t", filled(LONGEST_PROPERTIES, "UNIQ_KEY\x01U\x02"))
    store(desk, "%RETRY%g_t", "UNIQ_KEY\x01V\x02", b"short")
    shown = pop(desk)
    assert (bodies_of(shown), shown.fields["msgOffsetInfo"]) == ([b"short"], "1 0 1")
    desk.advance(11 * SECOND)
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"long"]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_message_that_cannot_be_stored_again_is_not_sent_back(is_there: bool) -> None:
    desk = Desk()
    if is_there:
        topic_of(desk, "%RETRY%g")
    position = store(desk, "t", filled(LONGEST_PROPERTIES, "UNIQ_KEY\x01U\x02"))
    assert send_back(desk, position, 1).code == 13
    assert desk.broker.send("t", b"alive").code == 0


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("size", [32_600, 32_740, LONGEST_PROPERTIES])
def test_a_dead_letter_has_room_for_any_properties_of_its_message(size: int, is_there: bool) -> None:
    desk = Desk()
    if is_there:
        topic_of(desk, "%DLQ%g")
    position = store(desk, "t", filled(size, "UNIQ_KEY\x01U\x02"))
    assert send_back(desk, position, -1).code == 0
    assert bodies_of(desk.broker.pull("%DLQ%g")) == [b"long"]
    assert [failure.entry.reason for failure in failures(desk)] == [Reason.REJECTED]


def test_a_delayed_message_comes_though_its_times_do_not_fit() -> None:
    desk = Desk()
    topic_of(desk, "t")
    properties = f"UNIQ_KEY\x01U\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02TIMER_OUT_MS\x01{NOW_MS + 1500}\x02"
    store(desk, WHEEL_TOPIC, filled(LONGEST_PROPERTIES, properties), code=NOW_MS + 1500)
    desk.advance(1500)
    (unit,) = units_of(desk.broker.pull("t"))
    assert unit.body == b"long"
    assert "TIMER_DEQUEUE_MS" not in read_properties(unit.properties)


def test_a_half_message_that_cannot_be_checked_back_is_set_aside_and_the_others_are_checked() -> None:
    desk = Desk()
    desk.broker.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "pg"}]})
    topic_of(desk, "t")
    marks = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02UNIQ_KEY\x01"
    store(desk, HALF_TOPIC, filled(LONGEST_PROPERTIES, f"{marks}LONG\x02"))
    half(desk, b"other", "OTHER")
    desk.advance(61 * SECOND)
    assert questions(desk) == ["OTHER", "OTHER"]
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"long"]
    assert [failure.entry.reason for failure in failures(desk)] == [Reason.UNDECIDED]
