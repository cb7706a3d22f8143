"""Topics: created, changed, shrunk, deleted and described; messages found by position and key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import AsyncPassRunner
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of

TOPIC = {"topic": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}


def shown(desk: Desk, topic: str = "t") -> Any:
    return json.loads(desk.broker.ask(351, {"topic": topic}).body)


def test_a_topic_is_made_and_changed() -> None:
    desk = Desk()
    assert desk.broker.ask(17, {**TOPIC, "attributes": "+message.type=FIFO", "order": True}).code == 0
    assert (shown(desk)["attributes"], shown(desk)["order"]) == ({"message.type": "FIFO"}, True)
    assert desk.broker.ask(17, {**TOPIC, "attributes": "-message.type", "perm": 4}).code == 0
    again = desk.restart()
    assert (shown(again)["attributes"], shown(again)["perm"]) == ({}, 4)
    listed = again.broker.ask(21)
    table = json.loads(listed.body)["topicConfigTable"]
    assert table["t"] == shown(again)
    assert listed.fields["totalTopicNum"] == str(len(table))


def test_a_topic_shrinks_without_losing_anything() -> None:
    desk = Desk()
    desk.broker.ask(17, TOPIC)
    desk.broker.send("t", b"kept", queue=3)
    desk.broker.ask(17, {**TOPIC, "writeQueueNums": 1})
    assert bodies_of(desk.broker.pull("t", queue=3)) == [b"kept"]
    assert {desk.broker.send("t", queue=-1).fields["queueId"] for _ in range(20)} == {"0"}
    desk.broker.ask(17, {**TOPIC, "writeQueueNums": 1, "readQueueNums": 1})
    assert desk.broker.pull("t", queue=3).code == 29
    desk.broker.ask(17, TOPIC)
    assert bodies_of(desk.restart().broker.pull("t", queue=3)) == [b"kept"]


def test_a_deleted_topic_is_gone_and_may_be_made_again() -> None:
    desk = Desk()
    desk.broker.send("t", b"old")
    desk.broker.pull("t", sysFlag=5, commitOffset=1)
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    assert (desk.broker.pull("t").code, desk.names.ask(105, {"topic": "t"}).code) == (17, 17)
    assert desk.broker.send("t", b"new").fields["queueOffset"] == "0"
    again = desk.restart()
    assert bodies_of(again.broker.pull("t")) == [b"new"]
    assert again.broker.ask(14, {"consumerGroup": "g", "topic": "t", "queueId": 0}).fields == {"offset": "0"}


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a b"},
        {"topic": ""},
        {"topic": "L" * 128},
        {"readQueueNums": -1},
        {"attributes": "+message.type=MIXED"},
    ],
)
def test_an_invalid_topic_is_refused(changes: dict[str, Any]) -> None:
    answer = Desk().broker.ask(17, {**TOPIC, **changes})
    assert (answer.code, answer.fields) == (29, {})


@pytest.mark.parametrize(("kind", "code"), [("SINGLE_TAG", 0), ("MULTI_TAG", 0), ("odd", 1), ("7", 1)])
def test_a_topic_has_a_known_kind_of_filter(kind: str, code: int) -> None:
    assert Desk().broker.ask(17, {**TOPIC, "topicFilterType": kind}).code == code


def test_a_change_that_is_not_durable_is_taken_back() -> None:
    desk = Desk()
    desk.broker.ask(17, TOPIC)
    desk.fail_writes()
    assert desk.broker.ask(17, {**TOPIC, "perm": 2}).code == 1
    assert desk.broker.ask(17, {**TOPIC, "topic": "other"}).code == 1
    assert shown(desk)["perm"] == 6
    assert desk.broker.ask(351, {"topic": "other"}).code == 17


# -- queries


def test_a_message_is_found_by_its_place() -> None:
    desk = Desk()
    desk.broker.send("t", b"one")
    (unit,) = [desk.broker.ask(33, {"offset": 0})]
    assert bodies_of(unit) == [b"one"]
    assert unit.body == desk.broker.pull("t").body
    for offset in (1, 100_000, -1):
        assert desk.broker.ask(33, {"offset": offset}).code == 1


def test_messages_are_found_by_key() -> None:
    desk = Desk()
    for number in range(3):
        desk.broker.send("t", b"%d" % number, properties=f"KEYS\x01k other{number}\x02UNIQ_KEY\x01U{number}\x02")
    asked = {"topic": "t", "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2 * NOW_MS}
    assert bodies_of(desk.broker.ask(12, asked)) == [b"0", b"1", b"2"]
    assert bodies_of(desk.broker.ask(12, {**asked, "maxNum": 1})) == [b"2"]
    assert bodies_of(desk.broker.ask(12, {**asked, "key": "U1"})) == [b"1"]
    for changes in ({"key": "none"}, {"topic": "u"}, {"endTimestamp": NOW_MS - 1}, {"beginTimestamp": NOW_MS + 1}):
        assert desk.broker.ask(12, {**asked, **changes}).code == 22


class AsyncDesk(Desk):
    """Desk with `flush = async`."""

    make_runner = AsyncPassRunner


def test_with_async_flush_a_topic_can_be_created_right_after_its_deletion_is_answered() -> None:
    desk = AsyncDesk()
    assert isinstance(desk.runner, AsyncPassRunner)
    desk.broker.send("t", b"old")
    reply = desk.broker.begin(215, {"topic": "t"})
    assert reply is not None
    assert not desk.is_ready(reply)  # written, but not synced: the name is not free yet
    while desk.runner.time.step(200):
        desk.runner.settle()
    assert desk.take(reply).code == 0
    assert desk.broker.ask(17, {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}).code == 0
    desk.broker.send("t", b"new")
    assert bodies_of(desk.broker.pull("t")) == [b"new"]


def test_a_refused_deletion_is_answered_with_its_reason() -> None:
    desk = Desk()
    desk.broker.send("t", b"old")
    desk.fail_writes()
    assert desk.broker.ask(215, {"topic": "t"}).code == 1
    desk.files.before = lambda operation, name: None
    assert bodies_of(desk.broker.pull("t")) == [b"old"]


@pytest.mark.parametrize("attributes", ["+other=1", "message.type=FIFO", "-message.type", "-other"])
def test_attributes_that_cannot_be_changed_are_refused_as_by_apache_rocketmq(attributes: str) -> None:
    desk = Desk()
    assert desk.broker.ask(17, {**TOPIC, "attributes": attributes}).code == 1
    assert desk.broker.ask(351, {"topic": "t"}).code == 17


@pytest.mark.parametrize(
    "attribute",
    ["+cleanup.policy=COMPACTION", "+queue.type=BatchCQ", *(f"+message.type={kind}" for kind in ("LITE", "PRIORITY"))],
)
def test_kinds_of_topics_that_are_not_supported_are_not_created(attribute: str) -> None:
    desk = Desk()
    assert desk.broker.ask(17, {**TOPIC, "attributes": attribute}).code == 1
    assert desk.broker.ask(351, {"topic": "t"}).code == 17
