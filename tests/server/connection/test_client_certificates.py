"""Client certificates on every port: who is let in, and as whom."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pika
import pytest
from authority import Authority
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pika.credentials import ExternalCredentials

from tools.users import make_users
from trimq.testing import Broker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.issue("broker")


@pytest.fixture(scope="module")
def broker(authority: Authority, certificate: Path) -> Iterator[Broker]:
    with Broker(
        tls_certificate=str(certificate),
        tls_key=str(certificate),
        tls_client_certificates="wanted",
        tls_client_ca=str(authority.file),
        tls_principal_from="common-name",
        tls_http_mode="optional",
    ) as running:
        make_users(running.http, alice={"configure": ".*", "write": ".*", "read": ".*"})
        yield running


def shown(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if own is not None:
        context.load_cert_chain(own)
    return context


def connect_amqp(broker: Broker, context: ssl.SSLContext, credentials: object) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.amqp)
    parameters.ssl_options = pika.SSLOptions(context, parameters.host)
    parameters.credentials = credentials
    return pika.BlockingConnection(parameters)


def test_pika_logs_in_with_its_certificate(broker: Broker, authority: Authority) -> None:
    context = shown(authority, authority.issue("alice"))
    with connect_amqp(broker, context, ExternalCredentials()) as connection:
        channel = connection.channel()
        channel.queue_declare("certified")
        channel.basic_publish("", "certified", b"hello")
        assert channel.basic_get("certified", auto_ack=True)[2] == b"hello"


def test_external_is_offered_only_with_a_certificate(broker: Broker, authority: Authority) -> None:
    with pytest.raises(pika.exceptions.AuthenticationError, match="EXTERNAL"):
        connect_amqp(broker, shown(authority), ExternalCredentials())
    with connect_amqp(broker, shown(authority), pika.PlainCredentials("alice", "alice's")) as connection:
        assert connection.is_open


def test_a_certificate_of_nobody_is_refused_as_rabbitmq_does(broker: Broker, authority: Authority) -> None:
    context = shown(authority, authority.issue("mallory"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused:
        connect_amqp(broker, context, ExternalCredentials())
    text = "Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile."
    assert f"ACCESS_REFUSED - {text}" in str(refused.value)


def kafka_settings(broker: Broker, authority: Authority, own: Path, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.kafka,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(own),
        "ssl.key.location": str(own),
        **more,
    }


def test_a_kafka_client_is_the_user_of_its_certificate(broker: Broker, authority: Authority) -> None:
    producer = Producer(kafka_settings(broker, authority, authority.issue("alice")))
    producer.produce("certified-topic", b"hers", partition=0)
    assert producer.flush(20) == 0
    assert [record.body for record in broker.records("certified-topic")] == [b"hers"]
    topics = AdminClient(kafka_settings(broker, authority, authority.issue("mallory"))).list_topics(timeout=20).topics
    assert topics == {}


def test_a_login_counts_more_than_the_certificate(broker: Broker, authority: Authority) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice's"}
    own = authority.issue("mallory")
    settings = kafka_settings(broker, authority, own, **login) | {"security.protocol": "sasl_ssl"}
    producer = Producer(settings)
    producer.produce("certified-topic-2", b"hers", partition=0)
    assert producer.flush(20) == 0


def ask_http(broker: Broker, context: ssl.SSLContext, path: str) -> tuple[int, bytes]:
    connection = HTTPSConnection(broker.addresses["http"], context=context, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_http_knows_the_user_of_the_certificate(broker: Broker, authority: Authority) -> None:
    assert ask_http(broker, shown(authority, authority.issue("alice")), "/api/queues")[0] == 200
    assert ask_http(broker, shown(authority), "/api/queues")[0] == 401
    status, body = ask_http(broker, shown(authority, authority.issue("mallory")), "/api/queues")
    assert (status, json.loads(body)["error"]) == (401, "WrongLogin")


ENCRYPTED_LISTENERS = ("kafka", "amqp", "rocketmq", "rocketmq_broker", "rocketmq_grpc", "http")


def handshake(address: str, context: ssl.SSLContext) -> None:
    """Raises OSError if the server refuses; with TLS 1.3 it does so after the client's handshake."""
    host, port = address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        secured.settimeout(0.2)
        try:
            if secured.recv(1) == b"":
                raise ConnectionResetError
        except TimeoutError:  # it waits for a request
            pass


@pytest.fixture(scope="module")
def strict(authority: Authority, certificate: Path) -> Iterator[Broker]:
    with Broker(
        rocketmq_grpc_listen="127.0.0.1:0",
        tls_certificate=str(certificate),
        tls_key=str(certificate),
        tls_client_certificates="needed",
        tls_client_ca=str(authority.file),
        tls_client_crl=str(authority.write_revocations()),
    ) as running:
        yield running


@pytest.mark.parametrize("listener", ENCRYPTED_LISTENERS)
def test_where_certificates_are_needed_only_valid_ones_are_let_in(
    strict: Broker, authority: Authority, tmp_path: Path, listener: str
) -> None:
    address = strict.addresses[listener]
    handshake(address, shown(authority, authority.issue("alice")))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        handshake(address, shown(authority))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_EXPIRED"):
        handshake(address, shown(authority, authority.issue("alice", is_expired=True)))
    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
        handshake(address, shown(authority, Authority(tmp_path, "foreign").issue("alice")))


def test_without_a_name_in_the_certificate_a_client_is_nobody(authority: Authority, certificate: Path) -> None:
    with Broker(
        tls_certificate=str(certificate),
        tls_key=str(certificate),
        tls_client_certificates="wanted",
        tls_client_ca=str(authority.file),
        tls_principal_rules=r"RULE:CN=(\w+),O=Ours/$1/L",
    ) as broker:
        with pytest.raises(pika.exceptions.AuthenticationError, match="EXTERNAL"):
            connect_amqp(broker, shown(authority, authority.issue("alice")), ExternalCredentials())
        own = authority.issue("GUEST", organization="Ours")
        with connect_amqp(broker, shown(authority, own), ExternalCredentials()) as connection:
            assert connection.is_open
