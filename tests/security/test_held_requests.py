"""Attack t14: silent connections with partly received requests must not stop the large requests of others, and before a
login only short requests are received, for a short time."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from security.attacked import ask, connect, is_closed, receive

from tools.broker import running
from tools.users import make_users
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.handshakes import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreateTopicsRequest

MIB = 1 << 20
LIMIT_MIB = 8
LOGIN_MS = 800
NOW_MS = 1_700_000_000_000
LARGE = from_records([Record(bytes(700_000), timestamp_ms=NOW_MS)])


def hold(address: str, size: int, source: str = "127.0.0.66") -> socket.socket:
    """Sends all of a large Produce request but its end."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=10, source_address=(source, 0))
    connection.settimeout(0.5)
    with suppress(OSError):  # it was closed meanwhile
        connection.sendall(struct.pack(">ihhi", 2 * size, 0, 9, 1) + bytes(size))
    return connection


def produce(connection: socket.socket) -> int:
    sent = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=LARGE)])
    response = ask(connection, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[sent]), 9)
    return response.responses[0].partition_responses[0].error_code  # type: ignore[no-any-return]


def create(address: str) -> None:
    with connect(address) as connection:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert ask(connection, CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == 0


@pytest.mark.parametrize("source", ["127.0.0.66", "127.0.0.1"], ids=["another address", "the same address"])
def test_large_requests_are_received_beside_silent_connections_that_hold_all_memory(
    tmp_path: Path, source: str
) -> None:
    with running(tmp_path, ["--kafka-received-bytes", str(LIMIT_MIB * MIB)]) as addresses, ExitStack() as opened:
        create(addresses["kafka"])
        for _ in range(2 * LIMIT_MIB):
            opened.enter_context(hold(addresses["kafka"], MIB, source))
        connection = opened.enter_context(connect(addresses["kafka"]))
        assert [produce(connection) for _ in range(20)] == [0] * 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running(tmp_path_factory.mktemp("broker"), ["--security-login-timeout-ms", str(LOGIN_MS)]) as addresses:
        create(addresses["kafka"])
        make_users(f"http://{addresses['http']}", alice={"write": ".*"})
        yield addresses


def log_in(connection: socket.socket) -> None:
    ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert ask(connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice's"), 1).error_code == 0


def test_before_a_login_a_long_request_closes_the_connection(guarded: dict[str, str]) -> None:
    with connect(guarded["kafka"]) as connection:
        connection.sendall(struct.pack(">ihhi", 512 * 1024 + 1, 0, 9, 1))
        assert is_closed(connection, 10)
    with connect(guarded["kafka"]) as connection:
        log_in(connection)
        assert produce(connection) == 0
        time.sleep(1.3 * LOGIN_MS / 1000)
        assert produce(connection) == 0  # nor does the time to log in hold any more


def test_connections_that_do_not_ask_in_time_are_closed(guarded: dict[str, str]) -> None:
    """Those of AMQP too: `amqp.handshake_ms` is longer."""
    with ExitStack() as opened:
        connections = []
        for address in guarded.values():
            for sent in (b"", b"\x00\x00"):
                connection = opened.enter_context(connect(address))
                connection.sendall(sent)
                connections.append(connection)
        assert all(is_closed(connection, 10) for connection in connections)


def test_a_kafka_client_that_asks_but_does_not_log_in_is_closed(guarded: dict[str, str]) -> None:
    with connect(guarded["kafka"]) as connection:
        begin = time.monotonic()
        assert ask(connection, ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert is_closed(connection, 10)
        assert time.monotonic() - begin >= LOGIN_MS / 1000


def test_a_tls_handshake_that_does_not_end_is_closed(guarded: dict[str, str]) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    with connect(guarded["rocketmq_broker"]) as connection:  # has a certificate of its own
        connection.sendall(outgoing.read())
        assert receive(connection, 5)[0] == 0x16
        assert is_closed(connection, 10)
