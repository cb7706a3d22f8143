"""Limits of topics, streams, groups, queues and users: a clear error beyond each, and a metric to watch it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pika
import pytest
from security.attacked import ask, connect

from tools.users import make_users
from trimq.protocols.kafka.messages.classic_groups import JoinGroupRequest, JoinGroupRequestProtocol
from trimq.protocols.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.testing import Broker

LIMITS = {
    "limits_topics": 30,  # RocketMQ's system topics are among them
    "limits_streams": 10,
    "limits_groups": 2,
    "limits_queues_per_vhost": 3,
    "limits_users": 4,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(**LIMITS) as broker:
        yield broker


def metric(broker: Broker, name: str) -> float:
    with urllib.request.urlopen(broker.http + "/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"trimq_{name} ")]
    return float(line.split()[1])


def create(broker: Broker, name: str, partitions: int) -> tuple[int, str]:
    with connect(broker.kafka) as connection:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (created,) = ask(connection, CreateTopicsRequest(topics=[topic]), 5).topics
    return created.error_code, created.error_message or ""


def test_streams_of_all_topics_together() -> None:
    with Broker(**LIMITS) as broker:
        assert create(broker, "a", 8)[0] == 0
        assert create(broker, "b", 3) == (
            Code.POLICY_VIOLATION,
            "the limit of 10 streams is reached (limits.streams)",
        )
        assert create(broker, "b", 1)[0] == 0
        with connect(broker.kafka) as connection:
            for count, code in ((3, Code.POLICY_VIOLATION), (2, Code.NONE)):
                grown = CreatePartitionsTopic(name="b", count=count, assignments=None)
                (result,) = ask(connection, CreatePartitionsRequest(topics=[grown]), 2).results
                assert result.error_code == code
        assert metric(broker, "streams") == 10
        assert create(broker, "c", 1)[0] == Code.POLICY_VIOLATION
        with connect(broker.kafka) as connection:
            deleted = ask(connection, DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 5)
            assert deleted.responses[0].error_code == 0
        assert create(broker, "c", 8)[0] == 0


def test_topics() -> None:
    with Broker(**{**LIMITS, "limits_streams": 1000}) as broker:
        codes = [create(broker, f"t{number}", 1)[0] for number in range(31)]
        assert codes == [0] * 30 + [Code.POLICY_VIOLATION]
        assert metric(broker, "topics") == 30


def test_groups(broker: Broker) -> None:
    codes = []
    with connect(broker.kafka) as connection:
        for number in range(3):
            protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
            joining = JoinGroupRequest(
                group_id=f"g{number}",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            )
            codes.append(ask(connection, joining, 3).error_code)
    assert codes == [0, 0, Code.GROUP_MAX_SIZE_REACHED]
    assert metric(broker, "groups") == 2


def test_queues_of_a_virtual_host(broker: Broker) -> None:
    host, _, port = broker.amqp.rpartition("@")[2].strip("/").rpartition(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        channel = connection.channel()
        for number in range(3):
            channel.queue_declare(f"q{number}")
        channel.queue_declare("q0")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="limit of 3 queues of") as refused:
            channel.queue_declare("q3")
        assert refused.value.reply_code == 406
        channel = connection.channel()
        channel.queue_delete("q0")
        channel.queue_declare("q3")
        assert metric(broker, "queues") == 3


def test_users() -> None:
    with Broker(**LIMITS) as broker:
        make_users(broker.http, alice={}, bob={})  # beside root and guest
        assert metric(broker, "users") == 4
        with pytest.raises(urllib.error.HTTPError) as refused:
            make_users(broker.http, carol={})
        assert refused.value.code == 409
        assert "the limit of 4 users is reached" in json.loads(refused.value.read())["message"]
        refused.value.close()
        make_users(broker.http, alice={"read": "x"})
