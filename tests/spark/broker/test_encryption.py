"""A broker with users that accepts only TLS: source, sink and pipelines reach it, and no password is ever sent
unencrypted."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from pyspark_trimq.broker.client import StreamKey, open_broker_client
from pyspark_trimq.broker.encryption import Encryption, client_settings, read_encryption
from pyspark_trimq.broker.kafka_client import check_login
from pyspark_trimq.broker.login import Login
from pyspark_trimq.mistakes import Mistake, Unreachable
from pyspark_trimq.pipelines import PipelineContext, archive, dedupe
from pyspark_trimq.pipelines.runner.broker_admin import BrokerAdmin
from pyspark_trimq.sink.options import read_sink_options
from pyspark_trimq.source.lag_reporter import _start_group_cleanup
from tools.users import make_users
from trimq.server.connection.certificates import _self_signed
from trimq.testing import Broker

USER, PASSWORD = "alice", "alice's"
LOGIN = Login(USER, PASSWORD)
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    path.touch(0o600)
    path.write_bytes(_self_signed(time.time_ns() // 1_000_000))
    return path


@pytest.fixture
def broker(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    files = {"tls_certificate": str(certificate), "tls_key": str(certificate)}
    with Broker(tls_mode="required", **files) as broker:
        for topic in ("orders", "copies"):
            broker.create_topic(topic)
        for index in range(6):
            broker.send("orders", str(index), str(index % 2))
        with monkeypatch.context() as patched:
            patched.setenv("SSL_CERT_FILE", str(certificate))
            make_users(https(broker), alice=EVERYTHING)
        yield broker


def https(broker: Broker) -> str:
    return broker.http.replace("http://", "https://")


def given(bootstrap: str, certificate: Path, **more: str) -> dict[str, str]:
    return {"bootstrap": bootstrap, "caFile": str(certificate), "user": USER, "password": PASSWORD, **more}


def groups(broker: Broker, certificate: Path) -> list[str]:
    encryption = read_encryption(https(broker), str(certificate))
    return [name for name in BrokerAdmin(https(broker), LOGIN, encryption).groups() if "sink" not in name]


def test_a_query_reads_writes_and_deletes_its_group(
    spark: Any, broker: Broker, certificate: Path, tmp_path: Path
) -> None:
    options = given(https(broker), certificate)
    wanted = {"subscribe": "orders", "startingOffsets": "earliest", "keepGroup": "false"}
    reader = spark.readStream.format("trimq").options(**options, **wanted)
    writer = reader.load().select("key", "value").writeStream.format("trimq").options(**options, topic="copies")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        broker.send("orders", "6")
        query.processAllAvailable()
        assert groups(broker, certificate) == [f"spark-{query.id}"]
    finally:
        query.stop()
    assert [record.body for record in broker.records("copies")] == [b"%d" % index for index in range(7)]
    for _ in range(100):
        if not (left := groups(broker, certificate)):
            break
        Event().wait(0.1)  # a separate process deletes the group after the query
    assert left == []


def test_a_kafka_port_is_read_encrypted_where_authorities_are_given(
    spark: Any, broker: Broker, certificate: Path
) -> None:
    options = given(broker.kafka, certificate, subscribe="orders")
    assert spark.read.format("trimq").options(**options).load().count() == 6
    with pytest.raises(Mistake, match=r"is not trusted .*: give the option caFile"):
        check_login(broker.kafka, LOGIN, Encryption())


def test_pipelines_encrypt(spark: Any, broker: Broker, certificate: Path, tmp_path: Path) -> None:
    common = {"spark": spark, "show": False, "user": USER, "password": PASSWORD}
    run_context = PipelineContext(
        https(broker), options={"cafile": str(certificate)}, checkpoint=tmp_path / "dedupe", **common
    )
    assert dedupe(["orders"], to="made", by="key", context=run_context).figures["written"] == 2
    run_context = PipelineContext(broker.kafka, options={"caFile": str(certificate)}, **common)
    assert archive(["orders"], lake=tmp_path / "lake", context=run_context).figures["rows archived"] == 6


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_the_group_cleanup_of_a_query_is_encrypted(broker: Broker, certificate: Path, port: str) -> None:
    address = https(broker) if port == "http" else broker.kafka
    encryption = read_encryption(address, str(certificate))
    with closing(open_broker_client(address, "", True, login=LOGIN, encryption=encryption)) as opened:
        opened.commit("spark-x", {StreamKey("orders", 0): 3}, "note")
        assert groups(broker, certificate) == ["spark-x"]
        closing_parts = _start_group_cleanup(opened, "spark-x")
        assert closing_parts.stdin is not None
        closing_parts.stdin.close()
        assert closing_parts.wait(20) == 0
    assert groups(broker, certificate) == []


def test_a_certificate_of_an_unknown_authority_is_not_trusted(broker: Broker) -> None:
    with (
        closing(open_broker_client(https(broker), "", True, login=LOGIN)) as port,
        pytest.raises(Mistake, match=r"^the certificate of the broker at https://.* is not trusted .*caFile"),
    ):
        port.topics()
    with pytest.raises(Mistake, match="is not trusted"):
        BrokerAdmin(https(broker), LOGIN).groups()


def test_a_password_is_not_sent_to_a_port_that_does_not_encrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port sees the TLS handshake, and nothing else."""
    monkeypatch.setattr("pyspark_trimq.broker.retry._WAITS_S", ())
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = []

        def listen() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"\0\0\0\4what")

        listener = Thread(target=listen)
        listener.start()
        with pytest.raises(Unreachable, match="the TLS handshake failed"):
            check_login(f"127.0.0.1:{server.getsockname()[1]}", LOGIN, Encryption())
        listener.join(20)
    assert heard[0][:1] == b"\x16", "a handshake of TLS"
    assert PASSWORD.encode() not in heard[0]


def test_clients_that_would_send_the_password_in_the_clear_are_refused(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = given("https://127.0.0.1:1", certificate, topic="orders")
    read = read_sink_options(options)
    settings = client_settings(read.login, read.encryption, read.client)
    assert settings["security.protocol"] == "SASL_SSL"
    assert "BEGIN CERTIFICATE" in settings["ssl.ca.pem"]
    assert "PRIVATE KEY" not in settings["ssl.ca.pem"]
    with pytest.raises(Mistake, match="would send the password unencrypted"):
        read_sink_options({**options, "kafka.security.protocol": "sasl_plaintext"})
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert client_settings(None, Encryption(), {}) == {"security.protocol": "SSL"}
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert client_settings(None, Encryption(), {})["ssl.ca.location"] == str(certificate)
    assert client_settings(LOGIN, None, {})["security.protocol"] == "SASL_PLAINTEXT"


def test_a_file_without_certificates_is_a_sentence(tmp_path: Path, certificate: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for address, file, sentence in (
        ("https://h:1", str(empty), "the file contains no certificate"),
        ("https://h:1", str(tmp_path / "none"), "cannot be read: No such file"),
        ("http://h:1", str(certificate), "bootstrap is http://h:1: give https://"),
    ):
        with pytest.raises(Mistake, match=sentence):
            read_encryption(address, file)
    assert read_encryption("http://h:1", None) is None
    assert read_encryption("h:1", None) is None
    assert read_encryption("https://h:1", None) == Encryption()
