"""kafka-python's KafkaAdminClient against a broker process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from kafka.errors import (
        InvalidConfigurationError,
        InvalidReplicationAssignmentError,
        InvalidTopicError,
        MessageSizeTooLargeError,
        PolicyViolationError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )

from tools.broker import running

PATIENCE_S = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


@pytest.fixture
def admin(broker: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker)
    yield client
    client.close()


def send(broker: str, topic: str, count: int, body: bytes = b"body") -> None:
    producer = KafkaProducer(bootstrap_servers=broker, enable_idempotence=False, acks="all")
    try:
        for number in range(count):
            producer.send(topic, body, key=b"%d" % number, partition=0).get(PATIENCE_S)
    finally:
        producer.close()


def own_settings(admin: KafkaAdminClient, topic: str) -> dict[str, Any]:
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {name: config["value"] for name, config in found["topic"][topic].items()}


def test_a_topic_is_made_described_extended_and_removed(admin: KafkaAdminClient) -> None:
    admin.create_topics({"life": {"num_partitions": 2, "configs": {"retention.ms": "60000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(["life"])
    admin.create_partitions({"life": 3})
    (described,) = admin.describe_topics(["life"])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1, 2]
    found = admin.describe_topic_partitions(["life"], response_partition_limit=2)
    assert len(found["topics"][0]["partitions"]) == 2
    assert found["next_cursor"] == {"topic_name": "life", "partition_index": 2}
    admin.delete_topics(["life"])
    assert "life" not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["life"])


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"a b": {}}, InvalidTopicError),
        ({"x": {"configs": {"cleanup.policy": "shred"}}}, InvalidConfigurationError),
        ({"x": {"assignments": {0: [99]}}}, InvalidReplicationAssignmentError),
    ],
)
def test_an_invalid_topic_is_refused_with_its_own_error(
    admin: KafkaAdminClient, topic: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topics(topic)


def test_settings_are_set_and_reset(admin: KafkaAdminClient, broker: str) -> None:
    admin.create_topics({"set": {"num_partitions": 1}})
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "set", {"max.message.bytes": "200"})])
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "set", {"cleanup.policy": ("APPEND", "compact")})])
    assert own_settings(admin, "set") == {"max.message.bytes": "200", "cleanup.policy": "delete,compact"}
    with pytest.raises(MessageSizeTooLargeError):
        send(broker, "set", 1, b"x" * 500)
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, "set", ["max.message.bytes"])])
    send(broker, "set", 1, b"x" * 500)
    assert own_settings(admin, "set") == {"cleanup.policy": "delete,compact"}


def test_records_are_deleted_and_the_size_of_the_log_is_described(admin: KafkaAdminClient, broker: str) -> None:
    admin.create_topics({"cut": {"num_partitions": 1}})
    send(broker, "cut", 5)
    place = TopicPartition("cut", 0)
    assert admin.delete_records({place: 3})[place]["low_watermark"] == 3
    assert admin.list_partition_offsets({place: -2})[place].offset == 3
    (described,) = admin.describe_log_dirs({"cut": [0]})
    assert "'partition_size': 0" not in str(described)
    assert "cut" in str(described)
    admin.create_topics({"keyed": {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}}})
    send(broker, "keyed", 1)
    with pytest.raises(PolicyViolationError):
        admin.delete_records({TopicPartition("keyed", 0): 1})


def test_the_cluster_and_its_resources_are_listed(admin: KafkaAdminClient, broker: str) -> None:
    admin.create_topics({"listed": {"num_partitions": 1}})
    cluster = admin.describe_cluster()
    assert [f"{node['host']}:{node['port']}" for node in cluster["brokers"]] == [broker]
    assert "listed" in admin.list_config_resources(["TOPIC"])["topic"]
    assert admin.list_partition_reassignments() == {}
    place = TopicPartition("listed", 0)
    (node,) = [node["broker_id"] for node in cluster["brokers"]]
    assert admin.alter_partition_reassignments({place: [node]})[place] is None


def test_scram_credentials_are_kept_listed_and_removed(admin: KafkaAdminClient) -> None:
    credential = UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_512, b"secret", iterations=4096)
    assert admin.alter_user_scram_credentials([credential]) == {"bob": None}
    described = admin.describe_user_scram_credentials(["bob"])["bob"]
    assert described["credential_infos"] == [{"mechanism": ScramMechanism.SCRAM_SHA_512, "iterations": 4096}]
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    assert admin.alter_user_scram_credentials([deletion]) == {"bob": None}
    assert admin.describe_user_scram_credentials(["bob"])["bob"]["error"] is not None
