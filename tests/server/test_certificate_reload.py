"""SIGHUP: new files are used for new connections, and no open connection notices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from authority import Authority
from confluent_kafka import Consumer, Producer, TopicPartition

from tools.broker import running

MESSAGES = 3_000


def served_serial(address: str, context: ssl.SSLContext) -> str:
    host, port = address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        if context.verify_mode is not ssl.CERT_NONE:
            secured.settimeout(0.2)
            try:
                if not secured.recv(1):
                    raise ConnectionResetError
            except TimeoutError:
                pass
        return str(secured.getpeercert()["serialNumber"])


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline


def test_a_reload_under_load_loses_nothing_and_a_revoked_client_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown, revoked = authority.issue("alice"), authority.issue("bob")
    used = tmp_path / "broker.pem"

    def put(certificate: Path) -> None:
        replacement = tmp_path / "replacement.pem"
        shutil.copy(certificate, replacement)
        replacement.rename(used)

    put(authority.issue("broker"))
    lists = authority.write_revocations()
    flags = [
        *("--tls-certificate", str(used), "--tls-key", str(used), "--tls-client-certificates", "wanted"),
        *("--tls-client-ca", str(authority.file), "--tls-client-crl", str(lists)),
    ]
    common = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(shown),
        "ssl.key.location": str(shown),
    }
    as_bob = ssl.create_default_context(cafile=str(authority.file))
    as_bob.load_cert_chain(revoked)
    as_alice = ssl.create_default_context(cafile=str(authority.file))
    as_alice.load_cert_chain(shown)
    with running(tmp_path, flags) as addresses:
        process = json.loads((tmp_path / "ready.json").read_text())["pid"]
        settings = {**common, "bootstrap.servers": addresses["kafka"]}
        failed: list[object] = []
        lost: list[object] = []
        producer = Producer(
            {**settings, "enable.idempotence": True, "error_cb": failed.append, "statistics.interval.ms": 0}
        )
        before = served_serial(addresses["kafka"], as_bob)
        for number in range(MESSAGES):
            producer.produce(
                "loaded", b"%d" % number, partition=0, callback=lambda error, _: lost.append(error) if error else None
            )
            producer.poll(0)
            if number % 1000 == 500:
                put(authority.issue("broker"))
                authority.revoke(revoked)
                authority.write_revocations()
                os.kill(process, signal.SIGHUP)
        assert producer.flush(60) == 0
        eventually(lambda: served_serial(addresses["kafka"], as_alice) != before)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REVOKED"):
            served_serial(addresses["kafka"], as_bob)
        assert (lost, failed) == ([], [])
        consumer = Consumer({**settings, "group.id": "readers"})
        consumer.assign([TopicPartition("loaded", 0, 0)])
        assert [consumer.poll(20).value() for _ in range(MESSAGES)] == [b"%d" % number for number in range(MESSAGES)]
        consumer.close()
        log = (tmp_path / "broker.log").read_text()
        assert "tls: certificates reloaded; new connections use them" in log

        used.write_text("no certificate")
        current = served_serial(addresses["kafka"], as_alice)
        os.kill(process, signal.SIGHUP)
        eventually(lambda: "tls: the files were not reloaded" in (tmp_path / "broker.log").read_text())
        assert served_serial(addresses["kafka"], as_alice) == current
