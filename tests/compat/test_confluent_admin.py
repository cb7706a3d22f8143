"""confluent-kafka's AdminClient against a broker process: topics, partitions, settings, offsets, records, credentials,
and the enforcement of settings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tools.broker import running
from trimq.core.security.quotas import Metered, QuotaEntity, QuotaEntityName
from trimq.model import SYSTEM
from trimq.testing import Broker

PATIENCE_S = 20
BODY = b"abc" * 10_000
T = TypeVar("T")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


@pytest.fixture
def admin(broker: str) -> AdminClient:
    """One client per test: its sockets are closed with it."""
    return AdminClient({"bootstrap.servers": broker})


def the(futures: dict[Any, Future[T]]) -> T:
    """Result of the single future; raises its error."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def code_of(futures: dict[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as raised:
        the(futures)
    code: int = raised.value.args[0].code()
    return code


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    config = {key.replace("_", "."): value for key, value in config.items()}
    the(admin.create_topics([NewTopic(name, partitions, 1, config=config)]))


def settings(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    return the(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))


def is_set(entry: ConfigEntry) -> bool:
    """True if the value was given to the topic itself: min.insync.replicas is never a default, the cluster has it."""
    return bool(entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def alter(admin: AdminClient, topic: str, operation: AlterConfigOpType, name: str, value: str | None) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    the(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))


def send(broker: str, topic: str, *, key: bytes | None = b"k", body: bytes = b"body", **options: Any) -> Message:
    """Sends one message. Returns its delivery report."""
    seen: list[tuple[KafkaError | None, Message]] = []
    producer = Producer({"bootstrap.servers": broker, "message.max.bytes": 4_000_000})
    producer.produce(topic, body, key, on_delivery=lambda error, message: seen.append((error, message)), **options)
    assert producer.flush(PATIENCE_S) == 0
    error, message = seen[0]
    if error is not None:
        raise KafkaException(error)
    return message


def test_a_topic_is_made_described_extended_and_removed(broker: str, admin: AdminClient) -> None:
    create(admin, "life", 3)
    assert code_of(admin.create_topics([NewTopic("life", 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    described = the(admin.describe_topics(TopicCollection(["life"])))
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert described.topic_id is not None
    the(admin.create_partitions([NewPartitions("life", 5)]))
    assert len(admin.list_topics("life", PATIENCE_S).topics["life"].partitions) == 5
    assert code_of(admin.create_partitions([NewPartitions("life", 2)])) == KafkaError.INVALID_PARTITIONS
    the(admin.delete_topics(["life"]))
    assert "life" not in admin.list_topics(timeout=PATIENCE_S).topics
    assert code_of(admin.delete_topics(["life"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_refuses_the_same_requests(admin: AdminClient) -> None:
    the(admin.create_topics([NewTopic("only-asked", 2, 1)], validate_only=True))
    assert "only-asked" not in admin.list_topics(timeout=PATIENCE_S).topics
    refused = admin.create_topics([NewTopic("only-asked", 2, 2)], validate_only=True)
    assert code_of(refused) == KafkaError.INVALID_REPLICATION_FACTOR
    refused = admin.create_topics([NewTopic("a b", 2, 1)], validate_only=True)
    assert code_of(refused) == KafkaError.TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such", "1"), ("retention.ms", "soon"), ("remote.storage.enable", "true")],
)
def test_a_setting_that_cannot_be_enforced_is_refused_with_a_message(admin: AdminClient, name: str, value: str) -> None:
    with pytest.raises(KafkaException) as raised:
        the(admin.create_topics([NewTopic("refused", 1, 1, config={name: value})]))
    assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert name in raised.value.args[0].str()


def test_settings_are_described_with_their_source(admin: AdminClient) -> None:
    create(admin, "described", retention_ms="12345")
    found = settings(admin, "described")
    assert found["retention.ms"].value == "12345"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].is_default
    assert list(found["segment.bytes"].synonyms) == ["log.segment.bytes"]


def test_settings_change_one_by_one_or_all_at_once(admin: AdminClient) -> None:
    create(admin, "changed", retention_ms="1000", segment_ms="60000")
    alter(admin, "changed", AlterConfigOpType.SET, "retention.ms", "2000")
    alter(admin, "changed", AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert settings(admin, "changed")["cleanup.policy"].value == "delete,compact"
    alter(admin, "changed", AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    alter(admin, "changed", AlterConfigOpType.DELETE, "segment.ms", None)
    own = {name: entry.value for name, entry in settings(admin, "changed").items() if is_set(entry)}
    assert own == {"retention.ms": "2000", "cleanup.policy": "compact"}
    with pytest.deprecated_call():
        the(admin.alter_configs([ConfigResource(ResourceType.TOPIC, "changed", {"max.message.bytes": "500"})]))
    own = {name: entry.value for name, entry in settings(admin, "changed").items() if is_set(entry)}
    assert own == {"max.message.bytes": "500"}


def test_the_broker_describes_itself(broker: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(PATIENCE_S)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker
    found = the(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]))
    assert found["advertised.listeners"].value == f"PLAINTEXT://{broker}"
    assert found["num.partitions"].value == "1"


def test_max_message_bytes_is_enforced_and_changes_at_once(broker: str, admin: AdminClient) -> None:
    create(admin, "sizes", max_message_bytes="300")
    send(broker, "sizes")
    with pytest.raises(KafkaException) as refused:
        send(broker, "sizes", body=b"x" * 1000)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    alter(admin, "sizes", AlterConfigOpType.SET, "max.message.bytes", "2000")
    assert send(broker, "sizes", body=b"x" * 1000).offset() == 1


def test_a_compacted_topic_refuses_messages_without_a_key(broker: str, admin: AdminClient) -> None:
    create(admin, "compacted", cleanup_policy="compact")
    send(broker, "compacted", key=b"")
    with pytest.raises(KafkaException) as refused:
        send(broker, "compacted", key=None)
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD


def test_only_the_bad_records_of_a_batch_are_refused_as_invalid(broker: str, admin: AdminClient) -> None:
    create(admin, "ten-of-a-hundred", cleanup_policy="compact")
    outcomes: Counter[int] = Counter()
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 1000})
    for number in range(100):
        key = None if number % 10 == 3 else b"k"
        producer.produce("ten-of-a-hundred", b"v", key, on_delivery=lambda error, _: outcomes.update([error.code()]))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == {KafkaError.INVALID_RECORD: 10, KafkaError._INVALID_DIFFERENT_RECORD: 90}


def change_broker(admin: AdminClient, node: str, operation: AlterConfigOpType, name: str, value: str | None) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    the(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])]))


def test_broker_settings_change_live_and_can_be_removed(broker: str, admin: AdminClient) -> None:
    create(admin, "live")
    send(broker, "live", body=b"x" * 1000)
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    change_broker(admin, "1", set_, "message.max.bytes", "500")
    try:
        assert settings(admin, "live")["max.message.bytes"].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
        with pytest.raises(KafkaException) as refused:
            send(broker, "live", body=b"x" * 1000)
        assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        with pytest.raises(KafkaException) as invalid:
            change_broker(admin, "1", set_, "message.max.bytes", "-1")
        assert invalid.value.args[0].code() == KafkaError.INVALID_REQUEST
    finally:
        change_broker(admin, "1", delete, "message.max.bytes", None)
    send(broker, "live", body=b"x" * 1000)
    change_broker(admin, "1", delete, "leader.replication.throttled.rate", None)  # was not set
    in_sync = settings(admin, "live")["min.insync.replicas"]
    assert (in_sync.value, in_sync.source) == ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)


def test_records_are_compacted_when_the_maximum_lag_is_over(broker: str, admin: AdminClient) -> None:
    """The interval is Kafka's 15 s by default; here it is shorter, also set by a client."""
    change_broker(admin, "1", AlterConfigOpType.SET, "log.cleaner.backoff.ms", "200")
    create(admin, "lagging", cleanup_policy="compact", max_compaction_lag_ms="100", min_compaction_lag_ms="0")
    for _ in range(20):
        send(broker, "lagging")
    until = time.monotonic() + PATIENCE_S
    while len(kept(broker, "lagging")) > 2:
        assert time.monotonic() < until, kept(broker, "lagging")
        send(broker, "lagging")
    change_broker(admin, "1", AlterConfigOpType.DELETE, "log.cleaner.backoff.ms", None)


def kept(broker: str, topic: str) -> list[int]:
    """Offsets that are still in the only partition."""
    options = {"bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    offsets: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            offsets.append(message.offset())
    finally:
        consumer.close()
    return offsets


def test_internal_topics_are_listed_and_described(broker: str, admin: AdminClient) -> None:
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "uses-offsets"})
    try:
        create(admin, "committed")
        consumer.commit(offsets=[TopicPartition("committed", 0, 1)], asynchronous=False)
    finally:
        consumer.close()
    assert len(admin.list_topics(timeout=PATIENCE_S).topics["__consumer_offsets"].partitions) == 50
    assert the(admin.describe_topics(TopicCollection(["__consumer_offsets"]))).is_internal
    assert settings(admin, "__consumer_offsets")["cleanup.policy"].value == "compact"


def test_times_are_checked_or_set_by_the_broker(broker: str, admin: AdminClient) -> None:
    now_ms = int(time.time() * 1000)
    create(admin, "windows", message_timestamp_before_max_ms="60000")
    send(broker, "windows", timestamp=now_ms)
    with pytest.raises(KafkaException) as refused:
        send(broker, "windows", timestamp=now_ms - 120_000)
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP
    create(admin, "stamped", message_timestamp_type="LogAppendTime")
    kind, stamped_ms = send(broker, "stamped", timestamp=1).timestamp()
    assert kind == 2
    assert stamped_ms >= now_ms


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_may_have_a_codec_of_its_own(broker: str, admin: AdminClient, codec: str) -> None:
    create(admin, f"codec-{codec}", compression_type=codec)
    send(broker, f"codec-{codec}", body=BODY)
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(f"codec-{codec}", 0, 0)])
        assert consumer.poll(PATIENCE_S).value() == BODY
    finally:
        consumer.close()


def test_offsets_are_listed_and_records_deleted(broker: str, admin: AdminClient) -> None:
    create(admin, "trimmed")
    for _ in range(3):
        send(broker, "trimmed")
    place = TopicPartition("trimmed", 0)
    assert the(admin.list_offsets({place: OffsetSpec.latest()})).offset == 3
    assert the(admin.delete_records([TopicPartition("trimmed", 0, 2)])).low_watermark == 2
    assert the(admin.list_offsets({place: OffsetSpec.earliest()})).offset == 2
    assert code_of(admin.delete_records([TopicPartition("trimmed", 0, 9)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_producer_above_its_quota_is_throttled_and_loses_nothing() -> None:
    rate, size, count = 50_000, 10_000, 12
    with Broker() as broker:
        broker.create_topic("slow")
        quota = QuotaEntity(client=QuotaEntityName("eager"))
        broker.on_loop(lambda node: node.core.broker.quotas.define(SYSTEM, quota, {Metered.IN: rate}))
        throttled_ms: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.kafka,
                "client.id": "eager",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "throttle_cb": lambda event: throttled_ms.append(event.throttle_time),
            }
        )
        began = time.monotonic()
        for _ in range(count):
            producer.produce("slow", b"x" * size, partition=0)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        took_s = time.monotonic() - began
        assert len(broker.records("slow")) == count
    assert max(throttled_ms) > 0
    # The quota of the first second is free, the rest is throttled; the response to the last request is not waited for.
    assert took_s >= (count * size - rate) / rate - 2 * size / rate


def test_scram_credentials_are_kept_listed_and_removed(admin: AdminClient) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    the(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"secret", b"salt")]))
    described = admin.describe_user_scram_credentials(["alice"])["alice"].result(PATIENCE_S)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    the(admin.alter_user_scram_credentials([deletion]))
    gone = admin.describe_user_scram_credentials(["alice"])
    assert code_of(gone) == KafkaError.RESOURCE_NOT_FOUND


def test_access_control_lists_are_refused_as_unsupported(admin: AdminClient) -> None:
    pattern = (ResourceType.TOPIC, "any", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ)
    assert code_of(admin.create_acls([AclBinding(*pattern, AclPermissionType.ALLOW)])) == KafkaError.SECURITY_DISABLED
    refused = admin.delete_acls([AclBindingFilter(*pattern, AclPermissionType.ALLOW)])
    assert code_of(refused) == KafkaError.SECURITY_DISABLED


def test_settings_topics_and_deletions_survive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        admin = AdminClient({"bootstrap.servers": addresses["kafka"]})
        create(admin, "kept", 2, cleanup_policy="compact", max_message_bytes="300")
        create(admin, "gone")
        the(admin.delete_topics(["gone"]))
        alter(admin, "kept", AlterConfigOpType.SET, "retention.ms", "5")
        the(admin.create_partitions([NewPartitions("kept", 4)]))
    (tmp_path / "ready.json").unlink()
    with running(tmp_path) as addresses:
        admin = AdminClient({"bootstrap.servers": addresses["kafka"]})
        listed = admin.list_topics(timeout=PATIENCE_S).topics
        assert {name: len(topic.partitions) for name, topic in listed.items()} == {"kept": 4}
        own = {name: entry.value for name, entry in settings(admin, "kept").items() if is_set(entry)}
        assert own == {"cleanup.policy": "compact", "max.message.bytes": "300", "retention.ms": "5"}
        with pytest.raises(KafkaException) as refused:
            send(addresses["kafka"], "kept", body=b"x" * 1000)
        assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
