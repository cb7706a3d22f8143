"""Attack t8: a thousand wrong passwords a second must delay neither others' logins nor the reading of cold data."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocols.kafka.frames import request_frame
from security.attacked import ATTEMPTS, Health, ask, connect

from tools.broker import running
from tools.users import make_users
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from trimq.protocols.kafka.messages.handshakes import SaslAuthenticateRequest, SaslHandshakeRequest
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreateTopicsRequest

GUESSES_PER_S = 1000
FLOOD_S = 2.5
OTHER_ADDRESS = "127.0.0.66"
NOW_MS = 1_700_000_000_000


def login_frames(name: str, password: str) -> bytes:
    handshake = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{name}\0{password}".encode()
    return handshake + request_frame(SaslAuthenticateRequest(auth_bytes=token), 1)


def log_in(connection: socket.socket, name: str) -> float:
    """Logs in with the right password. Returns how long it took."""
    begin = time.monotonic()
    ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{name}\0{name}'s".encode()
    assert ask(connection, SaslAuthenticateRequest(auth_bytes=token), 1).error_code == 0
    return time.monotonic() - begin


class Flood:
    """Guesses without waiting for the answers, each on a connection of its own."""

    def __init__(self, address: str, name: str | None, source: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._name = name  # None: another one for each guess
        self._source = source
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        opened: list[socket.socket] = []
        begin = time.monotonic()
        while not self._stop.is_set() and time.monotonic() < begin + FLOOD_S:
            if self.sent > (time.monotonic() - begin) * GUESSES_PER_S:
                time.sleep(0.001)
                continue
            connection = socket.create_connection(self._address, timeout=10, source_address=(self._source, 0))
            connection.sendall(login_frames(self._name or f"user-{self.sent}", f"guess-{self.sent}"))
            opened.append(connection)
            self.sent += 1
        for connection in opened:
            connection.close()


def fetch_cold(connection: socket.socket, folder: Path) -> float:
    """Fetches what was dropped from the page cache. Returns how long it took."""
    with (folder / "data" / "partitions" / "t-0" / f"{0:020}.log").open("rb") as stored:
        os.posix_fadvise(stored.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.monotonic()
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetched = ask(connection, FetchRequest(min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])]), 12)
    assert fetched.responses[0].partitions[0].error_code == 0
    return time.monotonic() - begin


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[dict[str, str]]:
    with running(tmp_path) as addresses:
        with connect(addresses["kafka"]) as connection:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            assert ask(connection, CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == 0
            batch = from_records([Record(bytes(500_000), timestamp_ms=NOW_MS)])
            sent = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            ask(connection, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[sent]), 9)
        make_users(f"http://{addresses['http']}", **{f"alice{n}": {"read": ".*"} for n in range(ATTEMPTS)})
        yield addresses


@pytest.mark.parametrize(("name", "source"), [("admin", "127.0.0.1"), (None, OTHER_ADDRESS)], ids=["one", "many"])
def test_a_first_login_and_cold_data_do_not_wait_for_guesses(
    guarded: dict[str, str], tmp_path: Path, name: str | None, source: str
) -> None:
    seen = []
    for attempt in range(ATTEMPTS):
        with Health(guarded["http"]) as health, Flood(guarded["kafka"], name, source) as flood:
            time.sleep(0.5)
            with connect(guarded["kafka"]) as connection:
                login_s = log_in(connection, f"alice{attempt}")
                fetch_s = fetch_cold(connection, tmp_path)
            while flood._thread.is_alive():
                time.sleep(0.05)
        if login_s < 1 and fetch_s < 0.1 and health.is_good:
            assert flood.sent > 500
            return
        seen.append((login_s, fetch_s, health, flood.sent))
    raise AssertionError(seen)
