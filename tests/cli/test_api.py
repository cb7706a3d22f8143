"""The HTTP client of the commands: no server, or another server, on the port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from trimq.cli.api import Topics, connect
from trimq.cli.failure import CommandFailure


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
