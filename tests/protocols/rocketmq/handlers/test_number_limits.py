"""Numbers out of the range of Java's types: each is refused, and none is stored where Apache RocketMQ could not read
it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk

LARGE = [2**31, 2**63, 2**70, -(2**63) - 1, -(2**70)]
LARGER = [2**63, 2**70, -(2**63) - 1, -(2**70)]

QUEUE: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": 0}
PULL = {**QUEUE, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 5, "commitOffset": 0, "subscription": "*"}
POP = {**QUEUE, "maxMsgNums": 1, "invisibleTime": 1000, "pollTime": 0}
TOPIC = {"topic": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
BROKER = {"brokerName": "b", "brokerAddr": "1.2.3.4:1", "clusterName": "c", "brokerId": 0}
END = {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8}
SEND = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": "", "j": 0}

INTS: list[tuple[int, dict[str, Any], str]] = [
    (14, QUEUE, "queueId"),
    (15, {**QUEUE, "commitOffset": 1}, "queueId"),
    (11, PULL, "queueId"),
    (11, PULL, "maxMsgNums"),
    (11, PULL, "sysFlag"),
    (30, {"topic": "t"}, "queueId"),
    (17, TOPIC, "readQueueNums"),
    (17, TOPIC, "perm"),
    (17, TOPIC, "topicSysFlag"),
    (36, {"offset": 0, "group": "g", "delayLevel": 1}, "delayLevel"),
    (37, END, "commitOrRollback"),
    (310, SEND, "d"),
    (310, SEND, "e"),
    (310, SEND, "l"),
    (321, {"topic": "t", "queueId": 0, "index": 0, "count": 1}, "count"),
    (12, {"topic": "t", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}, "maxNum"),
    (222, {"topic": "t", "group": "g", "timestamp": 0, "offset": 1}, "queueId"),
    (200050, POP, "queueId"),
    (200050, POP, "initMode"),
    (200051, {**QUEUE, "extraInfo": "0 1 1 0 0 broker-a 0 0", "offset": 0}, "queueId"),
]
LONGS: list[tuple[int, dict[str, Any], str]] = [
    (15, {**QUEUE, "commitOffset": 1}, "commitOffset"),
    (11, PULL, "commitOffset"),
    (11, PULL, "queueOffset"),
    (11, PULL, "suspendTimeoutMillis"),
    (11, PULL, "subVersion"),
    (29, {"topic": "t", "queueId": 0}, "timestamp"),
    (33, {}, "offset"),
    (36, {"group": "g", "delayLevel": 1}, "offset"),
    (37, END, "tranStateTableOffset"),
    (37, END, "commitLogOffset"),
    (12, {"topic": "t", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}, "endTimestamp"),
    (222, {"topic": "t", "group": "g", "timestamp": 0}, "timestamp"),
    (222, {"topic": "t", "group": "g", "timestamp": 0, "queueId": 0}, "offset"),
    (321, {"topic": "t", "queueId": 0, "count": 1}, "index"),
    (200050, POP, "invisibleTime"),
    (200050, POP, "pollTime"),
    (200054, {**QUEUE, "pollTime": 0}, "pollTime"),
    (200051, {**QUEUE, "extraInfo": "0 1 1 0 0 broker-a 0 0", "offset": 0}, "offset"),
]


@pytest.fixture(scope="module")
def desk() -> Desk:
    desk = Desk()
    desk.broker.send("t")
    desk.broker.heartbeat("c", "g", "t")
    return desk


@pytest.mark.parametrize(("code", "fields", "name"), INTS)
@pytest.mark.parametrize("value", LARGE)
def test_a_number_larger_than_an_int_is_refused(
    desk: Desk, code: int, fields: dict[str, Any], name: str, value: int
) -> None:
    assert desk.broker.ask(code, {**fields, name: value}, b"x").code in (1, 29)


@pytest.mark.parametrize(("code", "fields", "name"), LONGS)
@pytest.mark.parametrize("value", LARGER)
def test_a_number_larger_than_a_long_is_refused(
    desk: Desk, code: int, fields: dict[str, Any], name: str, value: int
) -> None:
    assert desk.broker.ask(code, {**fields, name: value}, b"x").code in (1, 29)


@pytest.mark.parametrize("value", LARGE)
@pytest.mark.parametrize("name", ["brokerId", "heartbeatTimeoutMillis"])
def test_a_broker_with_such_a_number_is_refused(desk: Desk, name: str, value: int) -> None:
    if name == "brokerId" and value == 2**31:
        return  # a broker id is a long
    assert desk.names.ask(103, {**BROKER, name: value}).code == (0 if value == 2**31 else 1)


@pytest.mark.parametrize("value", LARGE)
def test_groups_and_topics_in_a_body_are_held_to_the_same(desk: Desk, value: int) -> None:
    for name in ("retryQueueNums", "retryMaxTimes"):
        assert desk.broker.ask(200, body={"groupName": "large", name: value}).code == 29
    row = {"topicName": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": value}
    assert desk.broker.ask(18, body={"topicConfigList": [row]}).code == 29
    shares = {"topic": "t", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": value}
    assert desk.broker.ask(401, body=shares).code in (1, 29)


@pytest.mark.parametrize("value", [2**63, 2**70])
def test_a_heartbeat_with_such_numbers_is_refused_or_harmless(desk: Desk, value: int) -> None:
    queue = {"topic": "t", "brokerName": "broker-a", "queueId": value}
    assert desk.broker.ask(41, body={"consumerGroup": "g", "clientId": "c", "mqSet": [queue]}).code in (0, 1, 29)
    subscription = {"topic": "t", "subString": "*", "subVersion": value}
    consumer = {"groupName": "said", "subscriptionDataSet": [subscription]}
    desk.broker.ask(34, body={"clientID": "x", "heartbeatFingerprint": value, "consumerDataSet": [consumer]})
    entry = {"c": "g", "t": "t", "r": "0", "so": value, "q": value, "pt": value, "b": "AQ=="}
    desk.broker.ask(200151, body={"acks": [entry]})
    assert desk.broker.ask(28).code == 0


def test_nothing_of_it_was_kept(desk: Desk) -> None:
    for code in (11, 15):
        desk.broker.ask(code, {**PULL, "commitOffset": 2**63})
    offsets = desk.broker.ask(43).body
    assert str(2**63).encode() not in offsets
    assert "made" not in json.loads(desk.broker.ask(21).body)["topicConfigTable"]
