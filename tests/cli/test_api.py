"""The HTTP client of the commands: no server, or another server, on the port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from authority import Authority

from trimq.cli.api import Topics, connect, parse_endpoint
from trimq.cli.failure import CommandFailure
from trimq.config import Address
from trimq.errors import StartupError
from trimq.server.connection.certificates import _self_signed
from trimq.testing import Broker


@pytest.fixture
def speak_once() -> Iterator[object]:
    """A port that answers its first connection with these bytes and closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def start(answer: bytes) -> str:
        def answer_first() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        threads.append(threading.Thread(target=answer_first))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def test_an_unreachable_broker_is_a_one_line_error(trimq) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    for words in (["topics", "list"], ["groups", "list"]):
        done = trimq(*words, "--http", address)
        assert done.returncode == 1
        assert done.stderr == f"trimq: no broker answers at {address}: Connection refused\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00\x00\x04\x00\x00\x00\x01",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    ],
)
def test_a_foreign_server_on_the_port_is_a_failure_without_a_traceback(speak_once, answer: bytes) -> None:
    address = speak_once(answer)
    with pytest.raises(CommandFailure):
        connect(address).get("/api/topics", Topics)


@pytest.mark.parametrize(
    ("text", "address", "is_encrypted"),
    [
        ("here:8180", Address("here", 8180), False),
        ("http://here:81", Address("here", 81), False),
        ("http://here:81/", Address("here", 81), False),
        ("HTTP://here", Address("here", 8180), False),
        ("https://here", Address("here", 8180), True),
        ("https://[::1]:9", Address("::1", 9), True),
        ("https://[::1]", Address("::1", 8180), True),
    ],
)
def test_an_address_may_be_a_url(text: str, address: Address, is_encrypted: bool) -> None:
    assert parse_endpoint(text) == (address, is_encrypted)


@pytest.mark.parametrize("text", ["", "here", "http://", "ftp://here:1", "http://here:x", "https://here:1/api"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StartupError, match="--http: expected HOST:PORT, got"):
        connect(text)


def test_a_command_uses_https_and_says_whom_it_does_not_trust(trimq, tmp_path: Path) -> None:
    path = tmp_path / "broker.pem"
    path.touch(0o600)
    path.write_bytes(_self_signed(time.time_ns() // 1_000_000))
    with Broker(tls_certificate=str(path), tls_key=str(path), tls_mode="required") as broker:
        broker.create_topic("orders")
        url = f"https://{broker.addresses['http']}"
        refused = trimq("topics", "list", "--http", url)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"trimq: the certificate of {url} is not trusted: self-signed certificate")
        for words, environment in (
            (("--http", url), {"SSL_CERT_FILE": str(path)}),
            (("--http", url, "--ca", str(path)), {}),
            (("--ca", str(path)), {"TRIMQ_HTTP": broker.addresses["http"]}),
            ((), {"TRIMQ_HTTP": url, "TRIMQ_CA": str(path)}),
        ):
            done = trimq("topics", "list", *words, environment=environment)
            assert (done.returncode, done.stderr) == (0, "")
            assert "orders" in done.stdout


def test_a_command_logs_in_with_its_certificate(trimq, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("broker")
    with Broker(
        tls_certificate=str(certificate),
        tls_key=str(certificate),
        tls_client_ca=str(authority.file),
        tls_http_client_certificates="needed",
        tls_principal_from="common-name",
    ) as broker:
        trust = ("--http", broker.addresses["http"], "--ca", str(authority.file))
        shown = ("--cert", str(authority.issue("root")))
        refused = trimq(*trust, "users", "list")
        assert refused.returncode == 1
        assert "certificate required" in refused.stderr
        password = {"TRIMQ_NEW_PASSWORD": "secret"}
        done = trimq(*trust, *shown, "users", "set", "root", "--administrator", "yes", environment=password)
        assert done.returncode == 0, done.stderr
        assert trimq(*trust, *shown, "users", "delete", "guest").returncode == 0
        done = trimq(*trust, *shown, "users", "list")
        assert (done.returncode, done.stderr) == (0, "")
        assert "root" in done.stdout
        nobody = trimq(*trust, "--cert", str(authority.issue("nobody")), "users", "list")
        assert (nobody.returncode, nobody.stderr) == (1, "trimq: the certificate of the client names no user\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--http", "http://here:1", "--ca", "x"],
            "--ca needs an encrypted connection, but the address is http://here",
        ),
        (["--http", "https://here:1", "--ca", "nowhere.pem"], "--ca: nowhere.pem cannot be read: No such file"),
        (["--http", "https://here:1", "--ca", __file__], "holds no certificate (PEM)"),
        (["--http", "https://here:1", "--cert", __file__], "holds no certificate with its key (PEM)"),
    ],
)
def test_files_of_certificates_that_cannot_be_used_are_refused(trimq, words: list[str], reason: str) -> None:
    done = trimq("topics", "list", *words)
    assert done.returncode == 2
    assert reason in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--http", "ADDRESS", "topics", "list", "--json"],
        ["--json", "--http=ADDRESS", "topics", "list"],
        ["topics", "--http", "ADDRESS", "list"],
        ["topics", "--json", "list", "--http", "ADDRESS"],
    ],
)
def test_options_may_stand_before_the_command(trimq, broker_http, words: list[str]) -> None:
    broker_http.answers["GET", "/api/topics"] = 200, {"topics": []}
    done = trimq(*(word.replace("ADDRESS", f"http://{broker_http.address}") for word in words))
    assert done.stderr == ""
    assert done.returncode == 0
