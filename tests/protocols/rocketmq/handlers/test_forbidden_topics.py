"""Topics that a group may not read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of

GROUP = {"group": "g", "topic": "t"}


def permission_of(desk: Desk, **fields: Any) -> dict[str, Any]:
    answer = desk.broker.ask(353, {**GROUP, **fields})
    assert answer.code == 0
    found: dict[str, Any] = json.loads(answer.body)
    return found


def forbidden() -> Desk:
    desk = Desk()
    desk.broker.send("t")
    desk.broker.send("u")
    assert permission_of(desk) == {"group": "g", "readable": True, "topic": "t"}
    assert permission_of(desk, readable=False) == {"group": "g", "readable": False, "topic": "t"}
    return desk


def test_a_group_may_not_pull_a_forbidden_topic() -> None:
    desk = forbidden()
    refused = desk.broker.pull("t")
    assert (refused.code, refused.fields["forbiddenType"]) == (16, "5")
    assert bodies_of(desk.broker.pull("u")) == [b"hello"]
    assert bodies_of(desk.broker.pull("t", consumerGroup="h")) == [b"hello"]
    assert permission_of(desk, readable=True)["readable"]
    assert bodies_of(desk.broker.pull("t")) == [b"hello"]


@pytest.mark.parametrize("code", [200050, 200052, 200054])
def test_nor_take_it_in_another_way(code: int) -> None:
    asked = {"consumerGroup": "g", "topic": "t", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 1000, "pollTime": 0}
    assert forbidden().broker.ask(code, asked).code == 16


def test_it_stays_when_the_group_is_changed_and_over_a_restart() -> None:
    desk = forbidden()
    assert desk.broker.ask(200, body={"groupName": "g", "retryMaxTimes": 3}).code == 0
    desk = desk.restart()
    assert not permission_of(desk)["readable"]
    assert desk.broker.pull("t").code == 16
    shown = json.loads(desk.broker.ask(201).body)
    assert (shown["forbiddenTable"], shown["subscriptionGroupTable"]["g"]["retryMaxTimes"]) == ({"g": {"t": 4}}, 3)


def test_it_goes_with_its_group() -> None:
    desk = forbidden()
    assert desk.broker.ask(207, {"groupName": "g"}).code == 0
    assert permission_of(desk)["readable"]


def test_allowing_a_topic_creates_no_group() -> None:
    desk = Desk()
    assert permission_of(desk, readable=True)["readable"]
    assert "g" not in json.loads(desk.broker.ask(201).body)["subscriptionGroupTable"]


def test_a_name_that_no_topic_has_cannot_be_forbidden() -> None:
    assert Desk().broker.ask(353, {"group": "g", "topic": "a,b", "readable": False}).code == 29


def test_another_trimq_takes_it_over_from_the_files() -> None:
    """Uses the log and the configuration files alone, without our tables, as Apache RocketMQ does."""
    desk = forbidden()
    desk.restart()
    file = desk.files.open("store/config/subscriptionGroup.json")
    assert json.loads(file.read(0, file.size()))["forbiddenTable"] == {"g": {"t": 4}}
    for name in desk.files.names("tables"):
        desk.files.remove(f"tables/{name}")
    assert Desk(desk.files, desk.message_time.now_ms()).broker.pull("t").code == 16
