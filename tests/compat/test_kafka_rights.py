"""Kafka's access control lists with real clients; and the table of rights against a genuine Kafka."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.kafka_rights import RightsRun, Wire
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.kafka_peer import kafka_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern
    from kafka.admin import ACLResourcePatternType as PatternType
    from kafka.admin import ResourcePatternFilter as PatternFilter
    from kafka.admin import ResourceType as PythonResourceType
    from kafka.errors import ClusterAuthorizationFailedError

from tools.users import make_users
from trimq.testing import Broker

PATIENCE_S = 20
ANYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        make_users(broker.http, alice={})
        yield broker


def as_user(broker: Broker, user: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}'s",
        **more,
    }


def binding(
    name: str = "orders",
    operation: AclOperation = AclOperation.WRITE,
    type: ResourceType = ResourceType.TOPIC,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(type, name, pattern, "User:alice", "*", operation, permission)


def create(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings)).values():
        future.result(PATIENCE_S)


def send(broker: Broker) -> int | None:
    """Returns the code of the error, if any. A producer that was refused remembers that for a while: each is new."""
    codes: list[int | None] = []
    producer = Producer(as_user(broker, "alice"))
    producer.produce("orders", b"1", on_delivery=lambda error, _: codes.append(error and error.code()))
    producer.flush(PATIENCE_S)
    return codes[0]


def code_of_poll(consumer: Consumer) -> int:
    """Returns the code of the first error. (A consumer that may not read its topic either reports both.)"""
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is not None
        if message.error().code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return int(message.error().code())


def test_confluent_kafka_allows_a_producer_and_denies_it_again(broker: Broker) -> None:
    admin = AdminClient(as_user(broker, "root"))
    assert send(broker) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    create(admin, binding())
    assert send(broker) is None
    denial = binding("ord", permission=AclPermissionType.DENY, pattern=ResourcePatternType.PREFIXED)
    create(admin, denial)
    assert send(broker) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(admin.describe_acls(ANYTHING).result(PATIENCE_S)) == {binding(), denial}
    (deleting,) = admin.delete_acls([ANYTHING]).values()
    assert set(deleting.result(PATIENCE_S)) == {binding(), denial}
    assert admin.describe_acls(ANYTHING).result(PATIENCE_S) == []


def test_confluent_kafka_reads_as_a_group_with_just_the_rights_for_that(broker: Broker) -> None:
    broker.send("orders", b"1")
    admin = AdminClient(as_user(broker, "root"))
    consumer = Consumer(as_user(broker, "alice", **{"group.id": "billing", "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe(["orders"])
        assert code_of_poll(consumer) == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
    create(admin, binding(operation=AclOperation.READ), binding("billing", AclOperation.READ, ResourceType.GROUP))
    consumer = Consumer(as_user(broker, "alice", **{"group.id": "billing", "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"1")
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


def test_confluent_kafka_sees_the_authorized_operations(broker: Broker) -> None:
    admin = AdminClient(as_user(broker, "root"))
    create(admin, binding(operation=AclOperation.READ), binding(operation=AclOperation.ALTER_CONFIGS))
    alice = AdminClient(as_user(broker, "alice"))
    asked = alice.describe_topics(TopicCollection(["orders"]), include_authorized_operations=True)
    assert set(asked["orders"].result(PATIENCE_S).authorized_operations) == {
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    }


def test_without_a_login_that_is_required_confluent_kafka_gets_nothing() -> None:
    with Broker(security_mode="required") as broker:
        admin = AdminClient({"bootstrap.servers": broker.kafka, "socket.timeout.ms": 2000})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2)


def test_kafka_python_creates_lists_and_deletes_entries(broker: Broker) -> None:
    def admin(user: str) -> KafkaAdminClient:
        return KafkaAdminClient(
            bootstrap_servers=broker.kafka,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=f"{user}'s",
        )

    entry = ACL(
        "User:alice",
        "*",
        ACLOperation.READ,
        ACLPermissionType.ALLOW,
        ResourcePattern(PythonResourceType.TOPIC, "orders"),
    )
    everything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        PatternFilter(PythonResourceType.ANY, None, PatternType.ANY),
    )
    root, alice = admin("root"), admin("alice")
    try:
        assert root.create_acls([entry]) == {"succeeded": [entry], "failed": []}
        found, error = root.describe_acls(everything)
        assert (found, error.errno) == ([entry], 0)
        with pytest.raises(ClusterAuthorizationFailedError):
            alice.describe_acls(everything)
        ((_, deleted, _),) = root.delete_acls([everything])
        assert deleted == [entry]
        assert root.describe_acls(everything)[0] == []
    finally:
        root.close()
        alice.close()


# --- the table --------------------------------------------------------------------------------------------------------

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_WITH_AUTHORIZER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
    "advertised.listeners": "SASL_PLAINTEXT://127.0.0.1:{port}",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_LOGIN} username="root" password="root\'s" '
    'user_root="root\'s" user_alice="alice\'s";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
}

# SCRAM credentials are for administrators here: who changes those of an administrator becomes one.
_DIFFERENCES = {
    *(f"DescribeUserScramCredentials: allowed to [('{word}', 'cluster')]" for word in
      ("READ", "WRITE", "DELETE", "ALTER", "DESCRIBE")),
    "AlterUserScramCredentials: allowed to [('ALTER', 'cluster')]",
}  # fmt: skip


@pytest.mark.external
@pytest.mark.timeout(600)
def test_the_table_of_rights_is_that_of_a_genuine_kafka(tmp_path: Path) -> None:
    with kafka_in(tmp_path / "kafka", properties_more=_WITH_AUTHORIZER) as peer, Wire(f"127.0.0.1:{peer.port}") as wire:
        assert set(RightsRun(wire).differences()) == _DIFFERENCES


@pytest.mark.external  # a minute, and the same table is sent without sockets in tests/protocols/kafka
@pytest.mark.timeout(600)
def test_the_table_of_rights_holds_over_sockets(broker: Broker) -> None:
    with Wire(broker.kafka) as wire:
        assert set(RightsRun(wire).differences()) == set()
