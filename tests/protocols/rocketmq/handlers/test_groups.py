"""Settings and members of groups."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, Peer

from trimq.protocols.rocketmq.wire.lenient_json import read_json


def test_a_group_is_kept_as_it_was_set() -> None:
    desk = Desk()
    given = {"groupName": "g", "consumeEnable": False, "retryMaxTimes": 3, "retryQueueNums": 2}
    given |= {"consumeFromMinEnable": False, "attributes": {}}
    assert desk.broker.ask(200, body=given).code == 0
    desk = desk.restart()
    shown = json.loads(desk.broker.ask(352, {"group": "g"}).body)
    assert given.items() <= shown.items()
    listed = desk.broker.ask(201)
    assert json.loads(listed.body)["subscriptionGroupTable"] == {"g": shown}
    assert listed.fields["totalGroupNum"] == "1"
    shown = json.loads(desk.broker.ask(352, {"group": "none"}).body)
    assert (shown["retryMaxTimes"], shown["consumeFromMinEnable"]) == (16, True)


def test_a_group_is_created_by_asking_for_its_settings_as_by_a_genuine_broker() -> None:
    desk = Desk()
    for name in ("g", "", "bad name$", "g" * 121):
        assert desk.broker.ask(352, {"group": name}).code == 0
    assert set(json.loads(desk.broker.ask(201).body)["subscriptionGroupTable"]) == {"g"}


def test_several_groups_are_set_at_once() -> None:
    desk = Desk()
    assert desk.broker.ask(225, body={"groupConfigList": [{"groupName": "a"}, {"groupName": "b"}]}).code == 0
    assert set(json.loads(desk.broker.ask(201).body)["subscriptionGroupTable"]) == {"a", "b"}
    assert desk.broker.ask(225, body={"groupConfigList": [1]}).code == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"groupName": "bad name$"},
        {"groupName": ""},
        {"groupName": "g" * 121},
        {"groupName": None},
        {"retryMaxTimes": "x"},
        {"brokerId": 1},
        {"consumeMessageOrderly": "yes"},
        {"consumeFromMinEnable": "yes"},
        {"attributes": {"+priority.factor": "100"}},
        {"attributes": {"nosuch": "1"}},
        {"attributes": [1]},
    ],
)
def test_an_unsupported_setting_is_refused(changes: dict[str, Any]) -> None:
    assert Desk().broker.ask(200, body={"groupName": "g", **changes}).code == 29


@pytest.mark.parametrize(("forgets", "left"), [("true", 22), ("false", 0)])
def test_a_group_is_deleted_with_or_without_its_offsets(forgets: str, left: int) -> None:
    desk = Desk()
    desk.broker.send("t")
    desk.broker.pull("t", sysFlag=5, commitOffset=1)
    assert desk.broker.ask(207, {"groupName": "g", "cleanOffset": forgets}).code == 0
    asked = {"consumerGroup": "g", "topic": "t", "queueId": 0, "setZeroIfNotFound": False}
    assert desk.broker.ask(14, asked).code == left
    assert desk.broker.ask(207, {"groupName": "g"}).code == 0


def test_a_group_that_may_not_consume_does_not() -> None:
    desk = Desk()
    desk.broker.send("t")
    desk.broker.ask(200, body={"groupName": "g", "consumeEnable": False})
    assert (desk.broker.pull("t").code, desk.broker.pull("t").fields) == (16, {"forbiddenType": "2"})
    desk.broker.ask(200, body={"groupName": "g", "consumeBroadcastEnable": False})
    assert desk.broker.pull("t").code == 0
    desk.broker.heartbeat("c", "g", "t", model="BROADCASTING")
    assert desk.broker.pull("t", sysFlag=0).fields == {"forbiddenType": "4"}
    assert desk.broker.pull("none", sysFlag=0).code == 17  # the topic is checked first


def test_members_of_a_group_without_notifications_are_not_notified() -> None:
    desk = Desk()
    desk.broker.ask(200, body={"groupName": "g", "notifyConsumerIdsChangedEnable": False})
    desk.broker.heartbeat("c", "g", "t")
    assert desk.broker.way.sent == []


def test_connections_are_shown() -> None:
    desk = Desk()
    assert (desk.broker.ask(203, {"consumerGroup": "g"}).code, desk.broker.ask(204, {"producerGroup": "p"}).code) == (
        206,
        1,
    )
    desk.broker.heartbeat("c", "g", "t")
    shown = json.loads(desk.broker.ask(203, {"consumerGroup": "g"}).body)
    (connection,) = shown["connectionSet"]
    assert connection == {"clientAddr": "10.0.0.1:5000", "clientId": "c", "language": "JAVA", "version": 479}
    assert (shown["messageModel"], shown["subscriptionTable"]["t"]["subString"]) == ("CLUSTERING", "*")
    desk.broker.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "p"}]})
    assert json.loads(desk.broker.ask(204, {"producerGroup": "p"}).body)["connectionSet"] == [connection]
    assert json.loads(desk.broker.ask(328).body)["data"]["p"][0]["clientId"] == "c"


def test_a_client_with_a_fingerprint_need_not_repeat_itself() -> None:
    desk = Desk()
    consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}

    def beat(fingerprint: int, is_without: bool) -> str:
        data = {"clientID": "c", "heartbeatFingerprint": fingerprint, "isWithoutSub": is_without}
        known = {**consumer, "subscriptionDataSet": []} if is_without else consumer
        return desk.broker.ask(34, body={**data, "consumerDataSet": [known]}).fields["IS_SUB_CHANGE"]

    assert [beat(7, False), beat(7, True), beat(8, True), beat(0, False)] == ["false", "false", "true", "true"]
    shown = json.loads(desk.broker.ask(203, {"consumerGroup": "g"}).body)
    assert list(shown["subscriptionTable"]) == ["t"]


def test_all_offsets_are_shown_in_the_form_that_brokers_read() -> None:
    desk = Desk()
    desk.broker.send("t")
    desk.broker.pull("t", sysFlag=5, commitOffset=1)
    body = desk.broker.ask(43).body
    assert b'"t@g":{0:1}' in body
    assert read_json(body)["offsetTable"] == {"t@g": {"0": 1}}


# -- one group, one subscription


def subscribe(peer: Peer, client: str, expression: str) -> None:
    subscription = {"topic": "t", "subString": expression, "subVersion": 1}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
    assert peer.ask(34, body={"clientID": client, "consumerDataSet": [consumer]}).code == 0


def subscriptions_of(desk: Desk) -> Any:
    return json.loads(desk.broker.ask(203, {"consumerGroup": "g"}).body).get("memberSubscriptions")


def test_a_member_with_a_different_subscription_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    first, second, odd = desk.connect(), desk.connect(), desk.connect()
    subscribe(first, "c1", "A")
    subscribe(second, "c2", "A")
    assert subscriptions_of(desk) is None
    assert not caplog.records
    subscribe(odd, "c3", "B")
    subscribe(odd, "c3", "B")
    assert subscriptions_of(desk) == {"c1": ["t A"], "c2": ["t A"], "c3": ["t B"]}
    assert [record.getMessage() for record in caplog.records] == [
        "group g: member c3 subscribes to t B, unlike other members (differences: t A, t B)"
    ]
    odd.conversation.closed()
    assert subscriptions_of(desk) is None


def test_all_producers_are_listed_with_their_addresses_as_java_writes_them() -> None:
    desk = Desk()
    desk.broker.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []})
    (producer,) = json.loads(desk.broker.ask(328).body)["data"]["p"]
    assert producer["remoteIP"].startswith("/")
    assert ":" in producer["remoteIP"]
