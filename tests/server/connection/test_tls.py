"""TLS clients on every port, beside plain ones."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import pytest
from authority import Authority
from confluent_kafka import Consumer, Producer, TopicPartition
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trimq.config import Tls, load
from trimq.errors import StartupError
from trimq.server.connection.certificates import Certificates, _self_signed
from trimq.testing import Broker

NOW_MS = 1_800_000_000_000
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate and key in one file, for clients to trust."""
    import time

    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    path.touch(0o600)
    path.write_bytes(_self_signed(time.time_ns() // 1_000_000))
    return path


@pytest.fixture(scope="module")
def broker(certificate: Path) -> Iterator[Broker]:
    files = {"tls_certificate": str(certificate), "tls_key": str(certificate)}
    with Broker(rocketmq_grpc_listen="127.0.0.1:0", tls_mode="optional", **files) as running:
        yield running


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@contextmanager
def encrypted(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    host, port = address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        yield secured


def test_a_kafka_client_that_encrypts_produces_and_consumes(broker: Broker, certificate: Path) -> None:
    common = {
        "bootstrap.servers": broker.kafka,
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificate),
    }
    bodies = [bytes([n % 256]) * (n * 1000) for n in range(1, 101)]
    producer = Producer(common)
    for body in bodies:
        producer.produce("sealed", body, partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({**common, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition("sealed", 0, 0)])
    assert [consumer.poll(10).value() for _ in bodies] == bodies
    consumer.close()


def test_a_plain_client_is_served_on_the_same_port(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce("open", b"plain", partition=0)
    assert producer.flush(20) == 0
    assert [record.body for record in broker.records("open")] == [b"plain"]


def test_an_amqp_client_that_encrypts_publishes_and_gets_large_bodies(broker: Broker, certificate: Path) -> None:
    parameters = pika.URLParameters(broker.amqp)
    parameters.ssl_options = pika.SSLOptions(trusting(certificate), parameters.host)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("sealed-queue", durable=True)
        channel.confirm_delivery()
        body = bytes(range(256)) * 20_000
        channel.basic_publish("", "sealed-queue", body)
        assert channel.basic_get("sealed-queue", auto_ack=True)[2] == body


def test_http_is_served_encrypted(broker: Broker, certificate: Path) -> None:
    with encrypted(broker.http.removeprefix("http://"), trusting(certificate)) as secured:
        secured.sendall(b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: secured.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_grpc_client_negotiates_http_2(broker: Broker, certificate: Path) -> None:
    context = trusting(certificate)
    context.set_alpn_protocols(["h2"])
    with encrypted(broker.rocketmq_grpc, context) as secured:
        assert secured.selected_alpn_protocol() == "h2"


def test_a_browser_is_told_that_it_speaks_http_1(broker: Broker, certificate: Path) -> None:
    context = trusting(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with encrypted(broker.http.removeprefix("http://"), context) as secured:
        assert secured.selected_alpn_protocol() == "http/1.1"
        secured.sendall(b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert b"".join(iter(lambda: secured.recv(65536), b"")).startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_needs_no_option_but_the_certificate(broker: Broker, certificate: Path) -> None:
    url = f"https://{broker.http.removeprefix('http://')}/readyz"
    done = subprocess.run(["curl", "-sS", "--cacert", str(certificate), url], capture_output=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ready\n", b"")


@pytest.mark.parametrize("listener", ["kafka", "amqp", "rocketmq", "rocketmq_broker"])
def test_other_clients_are_told_of_no_protocol(broker: Broker, certificate: Path, listener: str) -> None:
    context = trusting(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with encrypted(broker.addresses[listener], context) as secured:
        assert secured.selected_alpn_protocol() is None


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_however_the_bytes_are_cut_the_answer_is_the_same(broker: Broker, certificate: Path, piece: int) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(certificate).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    host, port = broker.kafka.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def exchange() -> None:
            sent = outgoing.read()
            for start in range(0, len(sent), piece):
                plain.sendall(sent[start : start + piece])
            incoming.write(plain.recv(65536))

        def complete(step) -> object:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    exchange()

        complete(tls.do_handshake)
        tls.write(API_VERSIONS)
        answer = complete(lambda: tls.read(65536))
    assert isinstance(answer, bytes)
    assert struct.unpack_from(">i", answer, 4)[0] == 7


def test_garbage_that_begins_like_a_handshake_closes_its_connection_only(broker: Broker, certificate: Path) -> None:
    host, port = broker.kafka.rsplit(":", 1)
    for garbage in (b"\x16\x03\x01\x00\x05hello", b"\x16" + b"\xff" * 5000, b"\x16\x03\x03\x40\x00" + b"\x01" * 16384):
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(garbage)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(65536):
                pass
    with encrypted(broker.kafka, trusting(certificate)) as secured:
        secured.sendall(API_VERSIONS)
        assert struct.unpack(">ii", secured.recv(8))[1] == 7


def test_a_client_that_trusts_another_certificate_is_not_connected(broker: Broker) -> None:
    with (
        pytest.raises(ssl.SSLCertVerificationError),
        encrypted(broker.kafka, ssl.create_default_context()),
    ):
        pass


def test_without_a_certificate_the_broker_makes_its_own_for_clients_that_do_not_verify() -> None:
    with Broker(rocketmq_grpc_listen="127.0.0.1:0") as broker:
        for address in (broker.rocketmq, broker.addresses["rocketmq_broker"], broker.rocketmq_grpc):
            with encrypted(address, unasking()) as secured:
                assert secured.version() in ("TLSv1.2", "TLSv1.3")
        with pytest.raises((ssl.SSLError, ConnectionResetError)), encrypted(broker.kafka, unasking()):
            pass


def test_where_encryption_is_required_one_of_its_own_will_do() -> None:
    with Broker(tls_mode="required") as broker, encrypted(broker.kafka, unasking()) as secured:
        secured.sendall(API_VERSIONS)
        assert secured.recv(8)


def unasking() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_where_encryption_is_required_a_plain_client_is_closed(certificate: Path) -> None:
    with Broker(tls_mode="required", tls_certificate=str(certificate), tls_key=str(certificate)) as broker:
        host, port = broker.kafka.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(API_VERSIONS)
            with pytest.raises(ConnectionResetError):
                raise_end(plain.recv(100))
        with encrypted(broker.kafka, trusting(certificate)) as secured:
            secured.sendall(API_VERSIONS)
            assert secured.recv(8)


def raise_end(data: bytes) -> None:
    """Treats an end of file and a reset alike."""
    if not data:
        raise ConnectionResetError


def test_where_it_is_off_a_handshake_is_no_request(certificate: Path) -> None:
    with (
        Broker(tls_mode="off") as broker,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
        encrypted(broker.kafka, trusting(certificate)),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Tls(certificate="here.pem"), "set together"),
        (Tls(certificate="nowhere.pem", key="nowhere.key"), "does not exist"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_a_mistake_at_the_start(settings: Tls, reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        Certificates(settings, lambda: NOW_MS)


def test_it_is_required_once_a_certificate_is_given() -> None:
    assert Tls().mode_of("kafka") == "optional"
    given = Tls(certificate="a", key="a", http_mode="optional")
    assert [given.mode_of(name) for name in ("kafka", "http", "rocketmq_vip")] == ["required", "optional", "required"]


@pytest.mark.parametrize("mode", ["required", "optional"])
def test_a_half_handshake_and_a_silent_client_are_closed_in_time(certificate: Path, mode: str) -> None:
    """A client that has sent nothing may still want to be served without TLS where that is optional."""
    files = {"tls_certificate": str(certificate), "tls_key": str(certificate)}
    with Broker(rocketmq_grpc_listen="127.0.0.1:0", tls_mode=mode, **files) as broker, ExitStack() as opened:
        names = ("kafka", "amqp", "rocketmq", "rocketmq_broker", "rocketmq_grpc", "http")
        half = [opened.enter_context(connect(broker.addresses[name])) for name in names]
        for connection in half:
            connection.sendall(HALF_A_HELLO)
        if mode == "required":
            half += [opened.enter_context(connect(broker.addresses[name])) for name in names]
        with encrypted(broker.kafka, trusting(certificate)) as secured:
            broker.advance("9s", liveness=True)
            half[0].settimeout(0.05)
            with pytest.raises(TimeoutError):
                half[0].recv(1)
            broker.advance("2s", liveness=True)
            for connection in half:
                connection.settimeout(20)
                assert is_end(connection)
            secured.sendall(API_VERSIONS)
            assert secured.recv(8)


HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def is_end(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_many_half_handshakes_do_not_keep_others_out(certificate: Path) -> None:
    files = {"tls_certificate": str(certificate), "tls_key": str(certificate)}
    with Broker(tls_unfinished_handshakes=20, **files) as broker, ExitStack() as opened:
        half = [opened.enter_context(connect(broker.kafka)) for _ in range(30)]
        with encrypted(broker.kafka, trusting(certificate)) as secured:
            secured.sendall(API_VERSIONS)
            assert secured.recv(8)
        assert all(is_end(connection) for connection in half[:10])


@pytest.mark.parametrize("mode", ["off", "optional", "required"])
@pytest.mark.parametrize("listener", ["kafka", "amqp", "rocketmq", "rocketmq_broker", "rocketmq_grpc", "http"])
def test_each_listener_has_a_mode_of_its_own(certificate: Path, listener: str, mode: str) -> None:
    others = "required" if mode == "off" else "off"
    settings = {"tls_mode": others, f"tls_{listener}_mode": mode}
    files = {"tls_certificate": str(certificate), "tls_key": str(certificate)}
    with Broker(rocketmq_grpc_listen="127.0.0.1:0", **settings, **files) as broker:
        for name in ("kafka", "amqp", "rocketmq", "rocketmq_broker", "rocketmq_grpc", "http"):
            expected = mode if name == listener else others
            assert serves_plain(broker.addresses[name], name) == (expected != "required"), name
            assert serves_tls(broker.addresses[name], certificate) == (expected != "off"), name


COMMAND = b'{"code":105,"language":"JAVA","opaque":1}'
REMOTING_REQUEST = struct.pack(">ii", 4 + len(COMMAND), len(COMMAND)) + COMMAND
REQUESTS = {
    "kafka": API_VERSIONS,
    "amqp": b"AMQP\x00\x00\x09\x01",
    "rocketmq": REMOTING_REQUEST,
    "rocketmq_broker": REMOTING_REQUEST,
    "rocketmq_grpc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "http": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def serves_plain(address: str, listener: str) -> bool:
    with connect(address) as plain:
        plain.sendall(REQUESTS[listener])
        return not is_end(plain)


def serves_tls(address: str, certificate: Path) -> bool:
    try:
        with encrypted(address, trusting(certificate)) as secured:
            return secured.version() in ("TLSv1.2", "TLSv1.3")
    except OSError:
        return False


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Tls(key="a"), "set together"),
        (Tls(certificate="a", key="a", client_certificates="wanted"), "tls.client_ca does not name"),
        (Tls(certificate="a", key="a", client_ca="a"), "no listener asks for certificates"),
        (Tls(certificate="a", key="a", client_crl="a"), "without tls.client_ca"),
        (Tls(amqp_client_certificates="needed", client_ca="a"), "set tls.amqp_mode = "),
        (
            Tls(certificate="a", key="a", http_mode="off", client_ca="a", client_certificates="wanted"),
            "http: certificates of clients are wanted, but TLS is off",
        ),
        (Tls(principal_rules="RULE:x"), "tls.principal_rules"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: Tls, reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        Certificates(settings, lambda: NOW_MS)


def test_all_contradictions_are_reported_at_once() -> None:
    with pytest.raises(StartupError) as refused:
        load({"tls.key": "a", "tls.client_crl": "a"}, {})
    assert "set together" in str(refused.value)
    assert "without tls.client_ca" in str(refused.value)


def test_a_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("broker", mode=0o604)
    with pytest.raises(StartupError, match=r"every user of this machine may read or change .*: chmod 600"):
        Certificates(Tls(certificate=str(issued), key=str(issued)), lambda: NOW_MS)
    issued.chmod(0o640)
    Certificates(Tls(certificate=str(issued), key=str(issued)), lambda: NOW_MS)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_password(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "key.pem"
    path.touch(0o600)
    hidden = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
    certificate = Authority(tmp_path).issue("broker")
    with pytest.raises(StartupError, match="is encrypted"):
        Certificates(Tls(certificate=str(certificate), key=str(path)), lambda: NOW_MS)
