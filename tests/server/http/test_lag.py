"""Lag of groups over HTTP, in the commands and in the metrics: a stream without a committed offset counts from its
first message on."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from tools.rocketmq_wire import Wire
from trimq.core.groups.assigned_group import MemberHeartbeat
from trimq.core.groups.group import NO_MEMBER, CursorChange, JoinRequest, OfferedProtocol
from trimq.model import SYSTEM
from trimq.testing import Broker

PATIENCE_S = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ask(broker: Broker, target: str) -> Any:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        received = response.read()
        assert response.status == 200, received
        return json.loads(received) if "json" in response.getheader("content-type", "") else received.decode()
    finally:
        connection.close()


def cursors(broker: Broker, group: str) -> list[tuple[str, int, int | None, int, int]]:
    rows = ask(broker, f"/api/groups/{group}")["cursors"]
    return [(row["topic"], row["stream"], row["offset"], row["end"], row["lag"]) for row in rows]


def lags(broker: Broker) -> dict[str, float]:
    lines = ask(broker, "/metrics").splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if "group_lag{" in line}


def fill(broker: Broker, topic: str, counts: list[int]) -> None:
    broker.create_topic(topic, partitions=len(counts))
    for partition, count in enumerate(counts):
        for number in range(count):
            broker.send(topic, str(number), partition=partition)


def commit(broker: Broker, group: str, topic: str, stream: int, offset: int) -> None:
    def change(node: Any) -> None:
        found = node.core.broker.topics.get(SYSTEM, topic)
        node.core.broker.groups.commit(SYSTEM, group, NO_MEMBER, [CursorChange(found.stream(stream).id, offset)])

    broker.on_loop(change)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(broker: Broker, group: str, *topics: str) -> None:
    """Joins without syncing: the group stays in a rebalance."""
    offers = (OfferedProtocol("range", subscription(*topics)),)
    request = JoinRequest("", None, "consumer", offers, 60_000, 60_000, "c1", "here", requires_member_id=False)
    broker.on_loop(lambda node: node.core.broker.groups.join(SYSTEM, group, request, lambda outcome, ticket: None))


def beat(broker: Broker, group: str, *topics: str) -> None:
    request = MemberHeartbeat("", 0, None, None, 60_000, topics, None, None, frozenset(), "consumer", "c1", "here")
    broker.on_loop(lambda node: node.core.broker.groups.heartbeat_assigned(SYSTEM, group, request))


def test_streams_of_a_topic_that_were_never_committed_count_from_their_beginning(broker: Broker) -> None:
    fill(broker, "orders", [3, 4, 6])
    commit(broker, "billing", "orders", 2, 4)
    assert cursors(broker, "billing") == [
        ("orders", 0, None, 3, 3),
        ("orders", 1, None, 4, 4),
        ("orders", 2, 4, 6, 2),
    ]
    assert lags(broker) == {'trimq_group_lag{group="billing",topic="orders"}': 9}


@pytest.mark.parametrize("enter", [join, beat])
def test_a_member_that_has_committed_nothing_lags_behind_all_of_its_topics(broker: Broker, enter: Any) -> None:
    fill(broker, "orders", [2, 1])
    fill(broker, "refunds", [5])
    fill(broker, "others", [7])
    enter(broker, "billing", "orders", "refunds", "unknown")
    assert cursors(broker, "billing") == [
        ("orders", 0, None, 2, 2),
        ("orders", 1, None, 1, 1),
        ("refunds", 0, None, 5, 5),
    ]
    assert lags(broker) == {
        'trimq_group_lag{group="billing",topic="orders"}': 3,
        'trimq_group_lag{group="billing",topic="refunds"}': 5,
    }


def test_a_stream_whose_head_was_deleted_counts_from_its_first_message(broker: Broker) -> None:
    fill(broker, "orders", [5, 1])
    commit(broker, "billing", "orders", 1, 1)

    def trim(node: Any) -> None:
        topic = node.core.broker.topics.get(SYSTEM, "orders")
        node.core.broker.partitions.cut_head(SYSTEM, topic, 0, 2)

    broker.on_loop(trim)
    assert cursors(broker, "billing") == [("orders", 0, None, 5, 3), ("orders", 1, 1, 1, 0)]


def test_the_command_shows_streams_without_an_offset(broker: Broker) -> None:
    fill(broker, "orders", [2, 6])
    commit(broker, "billing", "orders", 1, 4)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    command = [sys.executable, "-m", "trimq.cli", "groups", "describe", "billing", "--http", broker.addresses["http"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()[-2:]] == [
        ["orders", "0", "-", "2", "2"],
        ["orders", "1", "4", "6", "2"],
    ]


# -- RocketMQ


def rocketmq_send(wire: Wire, topic: str, queue: int, count: int) -> None:
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 2, "e": queue, "f": 0, "g": 1, "h": 0, "i": ""}
    for _ in range(count):
        assert wire.ask(310, fields, b"hello")[0]["code"] == 0


def rocketmq_beat(wire: Wire, group: str, topic: str, model: str = "CLUSTERING") -> None:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    body = json.dumps({"clientID": "c1", "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    assert wire.ask(34, {}, body)[0]["code"] == 0


def rocketmq_commit(wire: Wire, group: str, topic: str, queue: int, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
    assert wire.ask(15, fields)[0]["code"] == 0


def test_a_rocketmq_group_lags_behind_the_topics_that_it_subscribes_to(broker: Broker) -> None:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        rocketmq_send(wire, "orders", 0, 3)
        rocketmq_send(wire, "orders", 1, 2)
        rocketmq_beat(wire, "cashiers", "orders")
        assert [row for row in cursors(broker, "cashiers") if row[0] == "orders"] == [
            ("orders", 0, None, 3, 3),
            ("orders", 1, None, 2, 2),
        ]
        assert lags(broker)['trimq_group_lag{group="cashiers",topic="orders"}'] == 5


def test_a_rocketmq_group_without_members_lags_behind_whole_topics(broker: Broker) -> None:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        rocketmq_send(wire, "orders", 0, 3)
        rocketmq_send(wire, "orders", 1, 2)
        rocketmq_beat(wire, "cashiers", "orders")
        rocketmq_commit(wire, "cashiers", "orders", 0, 1)
        assert wire.ask(35, {"clientID": "c1", "consumerGroup": "cashiers"})[0]["code"] == 0
        assert [row for row in cursors(broker, "cashiers") if row[0] == "orders"] == [
            ("orders", 0, 1, 3, 2),
            ("orders", 1, None, 2, 2),
        ]


def test_a_broadcasting_rocketmq_group_has_no_lag_that_the_broker_knows(broker: Broker) -> None:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        rocketmq_send(wire, "orders", 0, 3)
        rocketmq_beat(wire, "screens", "orders", model="BROADCASTING")
        assert [row for row in cursors(broker, "screens") if row[0] == "orders"] == []


# -- readers of other layouts, such as Spark


def put_cursor(broker: Broker, group: str, topic: str, offset: int) -> None:
    connection = HTTPConnection(broker.addresses["http"], timeout=PATIENCE_S)
    body = json.dumps({"cursors": [{"topic": topic, "stream": 0, "offset": offset}], "note": "stopped"})
    connection.request("PUT", f"/api/groups/{group}/cursors", body)
    response = connection.getresponse()
    assert response.status == 204, response.read()
    connection.close()


def test_cursors_of_queues_and_rocketmq_topics_outlive_a_restart(broker: Broker) -> None:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        rocketmq_send(wire, "orders", 0, 3)
    declare = (SYSTEM, "mails", True, False, False, {}, None)
    broker.on_loop(lambda node: node.core.broker.queues.declare_queue(*declare))
    for topic, offset in (("orders", 2), ("mails", 0)):
        put_cursor(broker, "spark-q", topic, offset)
    broker.restart()
    group = ask(broker, "/api/groups/spark-q")
    assert {
        (row["topic"], row["offset"], row.get("note")) for row in group["cursors"] if row["offset"] is not None
    } == {
        ("orders", 2, "stopped"),
        ("mails", 0, "stopped"),
    }
    assert group["last_commit_ms"] == broker.now_ms()


def test_offsets_of_a_group_without_members_are_kept_as_long_as_was_set() -> None:
    with Broker(kafka_offsets_retention_ms=3_600_000) as broker:
        fill(broker, "orders", [1])
        commit(broker, "billing", "orders", 0, 1)
        broker.advance(3000)
        assert cursors(broker, "billing") == [("orders", 0, 1, 1, 0)]
        broker.advance(3000)
        assert ask(broker, "/api/groups") == {"groups": []}
