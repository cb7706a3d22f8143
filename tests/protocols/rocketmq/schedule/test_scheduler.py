"""Delayed messages: storage, delivery, durability and recall."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from errno import EMFILE
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of, units_of

from trimq.core.commit_log.stream import MessageQueue, QueueEntry
from trimq.errors import DamagedSegment
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.schedule import WHEEL_TOPIC
from trimq.formats.rocketmq_unit.unit import Unit


def delayed(desk: Desk, properties: str, body: bytes = b"late", **fields: Any) -> Any:
    return desk.broker.send("t", body, 1, properties, **fields)


def found(desk: Desk) -> list[bytes]:
    return bodies_of(desk.broker.pull("t", queue=1))


@pytest.mark.parametrize(
    ("properties", "wait_ms"),
    [
        ("DELAY\x011\x02", 1000),
        ("DELAY\x015\x02", 60_000),
        ("DELAY\x0199\x02", 7_200_000),
        ("TIMER_DELAY_SEC\x0110\x02", 10_000),
        ("TIMER_DELAY_MS\x011500\x02", 1500),
        (f"TIMER_DELIVER_MS\x01{NOW_MS + 2500}\x02", 2500),
        ("DELAY\x011\x02TIMER_DELAY_SEC\x0110\x02", 1000),
        (f"TIMER_DELAY_SEC\x013\x02TIMER_DELIVER_MS\x01{NOW_MS + 2500}\x02", 3000),
    ],
)
def test_a_delayed_message_enters_its_topic_when_it_is_due(properties: str, wait_ms: int) -> None:
    desk = Desk()
    answer = delayed(desk, properties + "TAGS\x01A\x02", h=7, j=2)
    assert (answer.code, answer.fields["queueId"]) == (0, "1")
    desk.advance(wait_ms - 1)
    assert desk.broker.pull("t", queue=1).code == 19
    desk.advance(1)
    (unit,) = units_of(desk.broker.pull("t", queue=1, subscription="A"))
    kept = read_properties(unit.properties)
    assert (unit.body, unit.flag, unit.reconsume_times, unit.born_ms) == (b"late", 7, 2, 77)
    assert (kept["REAL_TOPIC"], kept["REAL_QID"], unit.store_ms) == ("t", "1", NOW_MS + wait_ms)
    assert ("TIMER_OUT_MS" in kept) == (not properties.startswith("DELAY"))


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x010\x02",
        "DELAY\x01-1\x02",
        "TIMER_DELAY_SEC\x010\x02",
        "TIMER_DELAY_SEC\x01-5\x02",
        "TIMER_DELIVER_MS\x015\x02",
    ],
)
def test_a_message_that_is_already_due_is_delivered_at_once(properties: str) -> None:
    desk = Desk()
    assert "recallHandle" not in delayed(desk, properties).fields
    assert found(desk) == [b"late"]


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ("DELAY\x01x\x02", 1),
        ("TIMER_DELAY_SEC\x01259201\x02", 13),
        ("TIMER_DELIVER_MS\x01x\x02", 13),
        (f"TIMER_DELIVER_MS\x01{NOW_MS + 259_200_001}\x02", 13),
    ],
)
def test_an_unreachable_due_time_is_refused(properties: str, code: int) -> None:
    assert delayed(Desk(), properties).code == code


def test_delay_levels_are_configurable() -> None:
    desk = Desk(delay_levels="2s 1d")
    delayed(desk, "DELAY\x011\x02", b"first")
    delayed(desk, "DELAY\x0118\x02", b"second")
    desk.advance(2000)
    assert found(desk) == [b"first"]
    desk.advance(86_398_000)
    assert found(desk) == [b"first", b"second"]
    more = Desk(desk.files, desk.message_time.now_ms(), delay_levels="2s 1d 3s")
    assert delayed(more, "DELAY\x013\x02", b"third").code == 0


@pytest.mark.parametrize("ends", ["restart", "kill"])
@pytest.mark.parametrize("properties", ["DELAY\x012\x02", "TIMER_DELAY_SEC\x015\x02"])
def test_delayed_messages_survive_a_stop_and_are_delivered_once(ends: str, properties: str) -> None:
    desk = Desk()
    delayed(desk, properties + "UNIQ_KEY\x01one\x02", b"one")
    desk.advance(3000)
    delayed(desk, properties + "UNIQ_KEY\x01two\x02", b"two")
    desk = getattr(desk, ends)()
    desk.advance(2000)
    assert found(desk) == [b"one"]
    desk = getattr(desk, ends)()
    desk.advance(10_000)
    assert found(desk) == [b"one", b"two"]
    assert found(getattr(desk, ends)()) == [b"one", b"two"]


def test_a_message_that_is_due_behind_a_later_one_is_not_repeated() -> None:
    desk = Desk()
    delayed(desk, "TIMER_DELAY_SEC\x011000\x02UNIQ_KEY\x01late\x02", b"late")
    for number in range(3):
        delayed(desk, f"TIMER_DELAY_SEC\x011\x02UNIQ_KEY\x01U{number}\x02", b"%d" % number)
    desk.advance(1000)
    assert found(desk) == [b"0", b"1", b"2"]
    desk = desk.restart()
    desk.advance(998_999)
    assert found(desk) == [b"0", b"1", b"2"]
    desk.advance(1)
    assert found(desk) == [b"0", b"1", b"2", b"late"]


def test_a_delivery_that_cannot_be_written_is_tried_again() -> None:
    desk = Desk()
    delayed(desk, "DELAY\x011\x02")
    desk.fail_writes()
    desk.advance(1500)
    desk.files.before = lambda operation, name: None
    assert found(desk) == []
    desk.advance(2000)
    assert found(desk) == [b"late"]


def test_a_message_that_was_refused_does_not_come() -> None:
    desk = Desk()
    delayed(desk, "DELAY\x011\x02", b"first")
    desk.fail_writes()
    assert delayed(desk, "DELAY\x011\x02", b"refused").code == 1
    desk.files.before = lambda operation, name: None
    delayed(desk, "DELAY\x012\x02", b"second")
    desk.advance(10_000)
    assert found(desk) == [b"first", b"second"]


def test_a_message_of_a_topic_that_is_gone_is_dropped() -> None:
    desk = Desk()
    delayed(desk, "DELAY\x011\x02")
    desk.broker.ask(215, {"topic": "t"})
    desk.advance(5000)
    desk.broker.send("t", b"new", 1)
    assert found(desk) == [b"new"]


# -- schedule queues that cannot be read


def fail_looking(patch: pytest.MonkeyPatch, times: int, error: Exception) -> list[int]:
    """Makes the next reads fail, `times` times; the list holds the number of failures that are left."""
    whole, left = MessageQueue.entries, [times]

    def fails(stream: MessageQueue, offset: int, count: int) -> Iterator[QueueEntry]:
        if left[0] and stream.queue.topic == WHEEL_TOPIC:
            left[0] -= 1
            raise error
        return whole(stream, offset, count)

    patch.setattr(MessageQueue, "entries", fails)
    return left


@pytest.mark.parametrize("error", [OSError(EMFILE, "too many open files"), DamagedSegment("f", 0)])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_new_delayed_message_gets_a_timer_although_its_queue_could_not_be_read(
    monkeypatch: pytest.MonkeyPatch, times: int, error: Exception
) -> None:
    desk = Desk()
    left = fail_looking(monkeypatch, times, error)
    delayed(desk, "TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01U0\x02", b"0")
    delayed(desk, "TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01U1\x02", b"1")
    desk.advance(9999)
    assert left == [0]
    assert desk.broker.pull("t", queue=1).code == 19
    desk.advance(1)
    assert found(desk) == [b"0", b"1"]


def test_after_an_unexpected_failure_new_and_old_messages_get_timers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    fail_looking(monkeypatch, 1, KeyError("a bug"))
    for name in ("0", "1"):
        delayed(desk, f"TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01{name}\x02", name.encode())
    desk.advance(10_000)
    assert found(desk) == [b"0", b"1"]


def test_one_look_is_under_way_however_often_it_fails_and_none_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    left = fail_looking(monkeypatch, 100, OSError(EMFILE, "too many open files"))
    for number in range(10):
        delayed(desk, f"TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01{number}\x02")
    assert left == [90]
    desk.advance(1000)
    assert left == [89]
    desk.doors._services.sending.scheduler.stop()
    desk.advance(10_000)
    assert left == [89]


# -- recalling


def test_a_recalled_message_does_not_come() -> None:
    desk = Desk()
    handle = delayed(desk, "TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01U1\x02").fields["recallHandle"]
    assert base64.urlsafe_b64decode(handle).decode() == f"v1 t broker-a {NOW_MS + 10_000} U1"
    delayed(desk, "TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01U2\x02", b"other")
    answer = desk.broker.ask(370, {"producerGroup": "pg", "topic": "t", "recallHandle": handle})
    assert (answer.code, answer.fields) == (0, {"MSG_REGION": "DefaultRegion", "msgId": "U1"})
    desk = desk.kill()
    desk.advance(20_000)
    assert found(desk) == [b"other"]
    assert desk.broker.ask(370, {"topic": "t", "recallHandle": handle}).code == 604


def fail_reading(patch: pytest.MonkeyPatch, *offsets: int) -> None:
    """Makes reads of the delayed messages at these offsets fail, as if too many files were open."""
    whole = MessageQueue.unit

    def fails(stream: MessageQueue, offset: int) -> Unit:
        if offset in offsets and stream.queue.topic == WHEEL_TOPIC:
            raise OSError(EMFILE, "too many open files")
        return whole(stream, offset)

    patch.setattr(MessageQueue, "unit", fails)


@pytest.mark.parametrize("unreadable", [(0,), (0, 1), (0, 2), (3,)])
@pytest.mark.parametrize("ends", [True, False])
def test_a_recalled_message_that_cannot_be_read_when_it_is_due_does_not_come_later(
    monkeypatch: pytest.MonkeyPatch, unreadable: tuple[int, ...], ends: bool
) -> None:
    desk = Desk()
    for name in ("U1", "U2"):
        handle = delayed(desk, f"TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01{name}\x02").fields["recallHandle"]
        assert desk.broker.ask(370, {"producerGroup": "pg", "topic": "t", "recallHandle": handle}).code == 0
    delayed(desk, "TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01U1\x02", b"again")
    with monkeypatch.context() as patch:
        fail_reading(patch, *unreadable)
        desk.advance(12_000)
    if ends:
        desk = desk.kill()
    desk.advance(5000)
    assert found(desk) == [b"again"]
    assert desk.doors._services.sending.scheduler.count_waiting() == 0


def test_recall_markers_are_forgotten_when_nothing_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    recalled = desk.doors._services.sending.scheduler._recalled

    def recall(name: str) -> None:
        handle = delayed(desk, f"TIMER_DELAY_SEC\x0110\x02UNIQ_KEY\x01{name}\x02").fields["recallHandle"]
        assert desk.broker.ask(370, {"producerGroup": "pg", "topic": "t", "recallHandle": handle}).code == 0

    recall("U1")
    with monkeypatch.context() as patch:
        fail_reading(patch, 0)
        desk.advance(12_000)
    assert list(recalled.markers) == ["t+U1"]
    recall("U2")
    desk.advance(12_000)
    assert recalled.markers == {}


@pytest.mark.parametrize("text", ["", "garbage", "v2 t broker-a 9999999999999 U", "v1 u broker-a 9999999999999 U"])
def test_a_handle_of_nothing_is_refused(text: str) -> None:
    desk = Desk()
    desk.broker.send("t")
    for handle in (text, base64.urlsafe_b64encode(text.encode()).decode()):
        answer = desk.broker.ask(370, {"topic": "t", "recallHandle": handle})
        assert (answer.code, answer.fields) == (604, {"MSG_REGION": "DefaultRegion"})
    assert desk.broker.ask(370, {"topic": "none", "recallHandle": ""}).code == 17
