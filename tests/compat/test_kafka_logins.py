"""Real clients log in with SASL/PLAIN to a broker with users, and have the permissions of the user."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka import KafkaConsumer, KafkaProducer

from tools.users import make_users
from trimq.testing import Broker

PATIENCE_S = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        make_users(broker.http, alice={"write": "^(orders|shop-.*)$", "read": "^(orders|shop-.*)$"})
        yield broker


def librdkafka(broker: Broker, password: str = "alice's", **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
        **more,
    }


def test_confluent_kafka_sends_in_a_transaction_and_reads_as_a_group(broker: Broker) -> None:
    producer = Producer(librdkafka(broker, **{"transactional.id": "shop-1"}))
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer(librdkafka(broker, **{"group.id": "shop-billing", "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"one")
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


def test_confluent_kafka_gets_authorization_errors_and_an_error_for_a_wrong_password(broker: Broker) -> None:
    consumer = Consumer(librdkafka(broker, **{"group.id": "others"}))
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
    errors: list[KafkaError] = []
    producer = Producer(librdkafka(broker, "his", error_cb=errors.append))
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "unknown user or wrong password" in errors[0].str()


def of_python(broker: Broker) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice's",
    }


def test_kafka_python_sends_and_reads(broker: Broker) -> None:
    producer = KafkaProducer(**of_python(broker))
    assert producer.send("orders", b"one").get(PATIENCE_S).offset == 0
    producer.close()
    consumer = KafkaConsumer(
        "orders", **of_python(broker), auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_S * 1000
    )
    assert next(iter(consumer)).value == b"one"
    consumer.close()


def test_aiokafka_sends_and_reads(broker: Broker) -> None:
    async def main() -> bytes | None:
        async with AIOKafkaProducer(**of_python(broker)) as producer:
            await producer.send_and_wait("orders", b"one")
        async with AIOKafkaConsumer("orders", **of_python(broker), auto_offset_reset="earliest") as consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value
            return value

    assert asyncio.run(main()) == b"one"
