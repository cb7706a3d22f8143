"""Heartbeats, group members, change notifications, and queue locks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, Peer, Way


def members(desk: Desk, group: str = "g") -> Any:
    return json.loads(desk.broker.ask(38, {"consumerGroup": group}).body)["consumerIdList"]


def test_members_are_listed_and_notified_of_each_other() -> None:
    desk = Desk()
    first, second = desk.connect(), desk.connect()
    assert first.heartbeat("a", "g", "t").fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert [(notice.code, notice.is_one_way, notice.fields) for notice in first.way.sent] == [
        (40, True, {"consumerGroup": "g"})
    ]
    second.heartbeat("b", "g", "t")
    assert (len(first.way.sent), len(second.way.sent)) == (2, 1)
    assert members(desk) == ["a", "b"]
    first.heartbeat("a", "g", "t")
    assert (len(first.way.sent), len(second.way.sent)) == (2, 1)
    first.heartbeat("a", "g", "t", "u")
    assert (len(first.way.sent), len(second.way.sent)) == (3, 2)


@pytest.mark.parametrize("how", ["unregister", "close", "silence"])
def test_a_leaving_member_is_noticed_at_once(how: str) -> None:
    desk = Desk()
    first, second = desk.connect(), desk.connect()
    first.heartbeat("a", "g", "t")
    second.heartbeat("b", "g", "t")
    if how == "unregister":
        second.ask(35, {"clientID": "b", "producerGroup": "", "consumerGroup": "g"})
    elif how == "close":
        second.conversation.closed()
    else:
        desk.let_pass(100_000)
        first.heartbeat("a", "g", "t")
        desk.let_pass(40_000)
    assert members(desk) == ["a"]
    assert len(first.way.sent) == 3


def test_a_group_without_members_is_not_known() -> None:
    desk = Desk()
    assert desk.broker.ask(38, {"consumerGroup": "g"}).code == 1
    peer = desk.connect()
    peer.heartbeat("a", "g", "t")
    peer.conversation.closed()
    assert desk.broker.ask(38, {"consumerGroup": "g"}).code == 1


def test_broadcast_members_are_not_notified() -> None:
    desk = Desk()
    peer = desk.connect()
    peer.heartbeat("a", "g", "t", model=0)
    assert (peer.way.sent, members(desk)) == ([], ["a"])


def test_a_group_gets_a_topic_for_its_retries() -> None:
    desk = Desk()
    desk.broker.heartbeat("a", "g", "t")
    (queues,) = json.loads(desk.names.ask(105, {"topic": "%RETRY%g"}).body)["queueDatas"]
    assert (queues["readQueueNums"], queues["perm"]) == (1, 6)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_the_topic_for_retries_is_ordered_if_a_subscribed_topic_is(is_ordered: bool) -> None:
    desk = Desk()
    fields = {"topic": "t", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": is_ordered}
    assert desk.broker.ask(17, fields).code == 0
    desk.broker.heartbeat("a", "g", "other", "t")
    described = json.loads(desk.broker.ask(351, {"topic": "%RETRY%g"}).body)
    assert described["order"] is is_ordered


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b'{"clientID":"a","consumerDataSet":[1]}',
        b'{"clientID":"a","consumerDataSet":[{}]}',
        b'{"clientID":"a","producerDataSet":{}}',
        b'{"clientID":"a","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","subVersion":"x"}]}]}',
        b'{"clientID":"a","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":1}]}]}',
    ],
)
def test_a_heartbeat_that_cannot_be_read_is_refused(body: bytes) -> None:
    assert Desk().broker.ask(34, body=body).code == 1


def locked(desk: Desk, client: str, *queues: int, code: int = 41) -> Any:
    asked = [{"topic": "t", "brokerName": "b", "queueId": queue} for queue in queues]
    answer = desk.broker.ask(code, body={"consumerGroup": "g", "clientId": client, "mqSet": asked})
    return [each["queueId"] for each in json.loads(answer.body)["lockOKMQSet"]] if answer.body else answer.code


def test_a_queue_belongs_to_one_member_until_it_is_given_back_or_forgotten() -> None:
    desk = Desk()
    assert locked(desk, "a", 0, 1) == [0, 1]
    assert locked(desk, "b", 0, 1, 2) == [2]
    assert locked(desk, "b", 0, code=42) == 0
    assert locked(desk, "b", 0) == []
    assert locked(desk, "a", 0, code=42) == 0
    assert locked(desk, "b", 0) == [0]
    desk.let_pass(60_001)
    assert locked(desk, "b", 1) == [1]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"consumerGroup":"g","clientId":"c","mqSet":[{}]}'])
def test_a_lock_that_cannot_be_read_is_refused(body: bytes) -> None:
    assert Desk().broker.ask(41, body=body).code == 1


def test_a_group_that_locks_too_many_queues_is_refused() -> None:
    desk = Desk(group_locks=2)
    asked = [{"topic": "t", "brokerName": "b", "queueId": queue} for queue in range(3)]
    answer = desk.broker.ask(41, body={"consumerGroup": "g", "clientId": "a", "mqSet": asked})
    assert (answer.code, answer.remark) == (1, "one group may lock 2 queues, see rocketmq.group_locks")


# -- limits for one client


def test_a_client_may_be_in_so_many_groups() -> None:
    desk = Desk(client_groups=3)
    peer = desk.connect()
    for name in ("a", "b"):
        assert peer.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": name}] * 5}).code == 0
    assert peer.heartbeat("c", "a", "t").code == 0
    assert peer.heartbeat("c", "a", "t").code == 0
    refused = peer.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "b"}, {"groupName": "d"}]})
    assert (refused.code, refused.remark) == (1, "one client may be in 3 groups, see rocketmq.client_groups")
    assert desk.broker.ask(204, {"producerGroup": "d"}).code == 1, "the heartbeat took effect in part"
    assert desk.connect().heartbeat("other", "a", "t").code == 0
    peer.ask(35, {"clientID": "c", "producerGroup": "a"})
    assert peer.heartbeat("c", "d", "t").code == 0


def test_the_number_of_subscriptions_in_a_heartbeat_is_limited() -> None:
    desk = Desk(client_subscriptions=3)
    assert desk.broker.heartbeat("c", "g", "t", "u", "v").code == 0
    refused = desk.broker.heartbeat("c", "g", "t", "u", "v", "w")
    assert refused.code == 1
    assert refused.remark == "one client may subscribe 3 times, see rocketmq.client_subscriptions"


class CountedWay(Way):
    """Counts hash table look-ups with this outlet as key."""

    searches = 0

    def __hash__(self) -> int:
        self.searches += 1
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def test_to_leave_many_groups_takes_as_many_steps() -> None:
    desk = Desk()
    way = CountedWay()
    peer = Peer(desk, desk.doors.broker().open_conversation("10.0.0.1:5000", way), way)
    for sender, client in ((desk.broker, "other"), (peer, "own")):
        groups = [{"groupName": f"{client}{number}"} for number in range(500)]
        assert sender.ask(34, body={"clientID": client, "producerDataSet": groups}).code == 0
    way.searches = 0
    peer.conversation.closed()
    assert way.searches < 10 * 500
    assert len(json.loads(desk.broker.ask(328).body)["data"]) == 500


def test_a_client_that_changes_its_id_is_found_by_the_last_one_alone() -> None:
    desk = Desk()
    clients = desk.doors._services.clients
    for number in range(3):
        desk.broker.ask(34, body={"clientID": f"c{number}", "producerDataSet": [{"groupName": "g"}]})
    assert [clients.producer(f"c{number}") is not None for number in range(3)] == [False, False, True]
    desk.broker.conversation.closed()
    assert clients.producer("c2") is None


def test_a_queue_that_is_named_twice_is_locked_once() -> None:
    assert locked(Desk(), "c", 1, 1) == [1]


def test_unregistering_creates_a_group_that_is_not_known_as_a_genuine_broker_does() -> None:
    desk = Desk()
    assert desk.broker.ask(35, {"clientID": "c", "consumerGroup": "late"}).code == 0
    assert "late" in json.loads(desk.broker.ask(201).body)["subscriptionGroupTable"]
