"""Committed offsets of groups, and offsets of queues by time."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk

ASKED = {"consumerGroup": "g", "topic": "t", "queueId": 0}


def young() -> Desk:
    desk = Desk()
    for _ in range(5):
        desk.broker.send("t")
        desk.message_time.step(desk.message_time.now_ms() + 100)
    return desk


@pytest.mark.parametrize(
    ("fields", "code", "offset"),
    [
        ({}, 0, "0"),
        ({"setZeroIfNotFound": True}, 0, "0"),
        ({"setZeroIfNotFound": False}, 22, None),
        ({"queueId": 1}, 22, None),
        ({"queueId": 99}, 22, None),
        ({"topic": "none"}, 22, None),
    ],
)
def test_a_new_group_reads_a_young_queue_from_its_beginning(fields: dict[str, Any], code: int, offset: Any) -> None:
    answer = young().broker.ask(14, {**ASKED, **fields})
    assert (answer.code, answer.fields.get("offset")) == (code, offset)


def test_offsets_are_kept_and_may_go_back() -> None:
    desk = young()
    desk.broker.heartbeat("c", "g", "t")
    for offset in (3, 1):
        assert desk.broker.ask(15, {**ASKED, "commitOffset": offset}).code == 0
        assert desk.broker.ask(14, ASKED).fields == {"offset": str(offset)}
    assert desk.restart().broker.ask(14, ASKED).fields == {"offset": "1"}


def test_a_negative_offset_reads_as_none() -> None:
    desk = young()
    desk.broker.heartbeat("c", "g", "t")
    assert desk.broker.ask(15, {**ASKED, "commitOffset": -1}).code == 0
    assert desk.broker.ask(14, {**ASKED, "setZeroIfNotFound": False}).code == 22


@pytest.mark.parametrize(
    ("fields", "code"), [({"topic": "none"}, 17), ({"consumerGroup": "nobody"}, 26), ({"commitOffset": ""}, 29)]
)
def test_a_commit_that_cannot_be_is_refused(fields: dict[str, Any], code: int) -> None:
    desk = young()
    desk.broker.heartbeat("c", "g", "t")
    assert desk.broker.ask(15, {**ASKED, "commitOffset": 1, **fields}).code == code


@pytest.mark.parametrize(
    ("topic", "queue", "ends"),
    [("t", 0, ("5", "0")), ("t", 1, ("0", "0")), ("t", 9, ("0", "0")), ("none", 0, ("0", "0"))],
)
def test_the_ends_of_a_queue(topic: str, queue: int, ends: tuple[str, str]) -> None:
    desk = young()
    asked = {"topic": topic, "queueId": queue}
    assert (desk.broker.ask(30, asked).fields["offset"], desk.broker.ask(31, asked).fields["offset"]) == ends


def test_the_earliest_time() -> None:
    desk = young()
    assert desk.broker.ask(32, {"topic": "t", "queueId": 0}).fields == {"timestamp": str(NOW_MS)}
    assert desk.broker.ask(32, {"topic": "t", "queueId": 1}).fields == {"timestamp": "-1"}


@pytest.mark.parametrize(
    ("time_ms", "bound", "offset"),
    [
        (0, "LOWER", "0"),
        (NOW_MS, "lower", "0"),
        (NOW_MS + 150, "LOWER", "2"),
        (NOW_MS + 10_000, "LOWER", "5"),
        (NOW_MS + 150, "UPPER", "1"),
        (NOW_MS + 10_000, "upper", "4"),
    ],
)
def test_a_queue_is_searched_by_time(time_ms: int, bound: str, offset: str) -> None:
    desk = young()
    fields = {"topic": "t", "queueId": 0, "timestamp": time_ms, "boundaryType": bound}
    assert desk.broker.ask(29, fields).fields == {"offset": offset}
