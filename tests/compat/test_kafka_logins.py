"""Real clients log in to a broker with users by each SASL mechanism, and have the permissions of the user."""

from __future__ import annotations

import asyncio
import json
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tools.users import make_users
from trimq.testing import Broker

PATIENCE_S = 20
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        make_users(broker.http, alice={"write": "^(orders|shop-.*)$", "read": "^(orders|shop-.*)$"})
        yield broker


def librdkafka(
    broker: Broker, password: str = "alice's", mechanism: str = "PLAIN", **more: object
) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_sends_in_a_transaction_and_reads_as_a_group(broker: Broker, mechanism: str) -> None:
    producer = Producer(librdkafka(broker, mechanism=mechanism, **{"transactional.id": "shop-1"}))
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    producer.commit_transaction(PATIENCE_S)
    reads = {"group.id": "shop-billing", "auto.offset.reset": "earliest"}
    consumer = Consumer(librdkafka(broker, mechanism=mechanism, **reads))
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"one")
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "due to invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_confluent_kafka_gets_an_error_for_a_wrong_login(broker: Broker, mechanism: str, text: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(librdkafka(broker, "his", mechanism, error_cb=errors.append))
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert text in errors[0].str()


def test_confluent_kafka_gets_authorization_errors(broker: Broker) -> None:
    consumer = Consumer(librdkafka(broker, **{"group.id": "others"}))
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_goes_on_through_many_short_sessions(mechanism: str) -> None:
    with Broker(kafka_max_reauth_ms=1000) as broker:
        broker.create_topic("orders")
        make_users(broker.http, alice={"write": "^orders$", "read": "^orders$"})
        failed: list[object] = []
        producer = Producer(librdkafka(broker, mechanism=mechanism, error_cb=failed.append))
        until_s = time.monotonic() + 3.5
        sent = 0
        while time.monotonic() < until_s:
            producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
            assert producer.flush(PATIENCE_S) == 0
            sent += 1
        assert failed == []
        with urlopen(f"{broker.http}/metrics", timeout=PATIENCE_S) as page:
            metrics = page.read().decode()
        (logins,) = re.findall(r'trimq_logins_total{protocol="kafka",result="success"} (\d+)', metrics)
        assert int(logins) >= 3
        assert sent > 3


class Tokens(AbstractTokenProvider):
    """Bearer tokens of an issuer with a key of its own, for all clients."""

    def __init__(self, folder: Path, user: str = "alice") -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "k"})
        self._user = user
        self.file = folder / "jwks.json"
        self.file.write_text(json.dumps(KeySet([self._key]).as_dict(private=False)))

    def token(self) -> str:
        claims = {"sub": self._user, "exp": int(time.time()) + 60, "iss": "idp", "aud": "trimq"}
        return jwt.encode({"alg": "RS256", "kid": "k"}, claims, self._key, algorithms=["RS256"])

    def of_librdkafka(self, _: str) -> tuple[str, float]:
        return self.token(), time.time() + 60


class AsyncTokens(AsyncTokenProvider):
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def token(self) -> str:
        return self._tokens.token()


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


@pytest.fixture
def issued(tokens: Tokens) -> Iterator[Broker]:
    oauth = {"kafka_oauth_issuer": "idp", "kafka_oauth_audience": "trimq"}
    with Broker(kafka_oauth_jwks_file=str(tokens.file), **oauth) as broker:
        broker.create_topic("orders")
        make_users(broker.http, alice={"write": "^orders$", "read": "^orders$"})
        yield broker


def test_confluent_kafka_logs_in_with_bearer_tokens(issued: Broker, tokens: Tokens) -> None:
    given = {"sasl.mechanism": "OAUTHBEARER", "security.protocol": "SASL_PLAINTEXT", "oauth_cb": tokens.of_librdkafka}
    producer = Producer({"bootstrap.servers": issued.kafka, **given})
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE_S) == 0


def test_kafka_python_logs_in_with_bearer_tokens(issued: Broker, tokens: Tokens) -> None:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    producer = KafkaProducer(bootstrap_servers=issued.kafka, **given, sasl_oauth_token_provider=tokens)
    assert producer.send("orders", b"one").get(PATIENCE_S).offset == 0
    producer.close()


def test_aiokafka_logs_in_with_bearer_tokens(issued: Broker, tokens: Tokens) -> None:
    async def main() -> None:
        given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        async with AIOKafkaProducer(
            bootstrap_servers=issued.kafka, **given, sasl_oauth_token_provider=AsyncTokens(tokens)
        ) as producer:
            await producer.send_and_wait("orders", b"one")

    asyncio.run(main())


def of_python(broker: Broker, mechanism: str) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice's",
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_sends_and_reads(broker: Broker, mechanism: str) -> None:
    producer = KafkaProducer(**of_python(broker, mechanism))
    assert producer.send("orders", b"one").get(PATIENCE_S).offset == 0
    producer.close()
    patience = {"consumer_timeout_ms": PATIENCE_S * 1000}
    consumer = KafkaConsumer("orders", **of_python(broker, mechanism), auto_offset_reset="earliest", **patience)
    assert next(iter(consumer)).value == b"one"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_sends_and_reads(broker: Broker, mechanism: str) -> None:
    given = of_python(broker, mechanism)

    async def main() -> bytes | None:
        async with AIOKafkaProducer(**given) as producer:
            await producer.send_and_wait("orders", b"one")
        async with AIOKafkaConsumer("orders", **given, auto_offset_reset="earliest") as consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value
            return value

    assert asyncio.run(main()) == b"one"
