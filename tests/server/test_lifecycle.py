"""The broker as a process: signals, ready file, exit codes, and the error message of a failed start."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from no_rocketmq import NO_ROCKETMQ_FLAGS
from protocols.kafka.frames import request_frame

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from trimq.protocols.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PATIENCE_S = 30


SERVE = ("-m", "trimq.cli")


def await_so(look: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.01)


class Process:
    def __init__(
        self,
        folder: Path,
        *flags: str,
        environment: dict[str, str] | None = None,
        descriptors: int | None = None,
        program: tuple[str, ...] = SERVE,
    ) -> None:
        self.folder = folder
        self.ready = folder / "ready.json"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
        self.process = subprocess.Popen(
            [
                *(() if descriptors is None else ("sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh")),
                *(sys.executable, *program, "serve", "--data-dir", str(folder / "data")),
                *("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--amqp-listen", "127.0.0.1:0"),
                *("--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"),
                *("--rocketmq-grpc-listen", "127.0.0.1:0"),
                *("--ready-file", str(self.ready), *flags),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=inherited | (environment or {}),
        )

    def await_ready(self) -> dict[str, str]:
        await_so(lambda: self.ready.exists() or self.process.poll() is not None, "the broker does not become ready")
        assert self.process.poll() is None, self.process.communicate()[1]
        # read without a retry: the file is complete as soon as it exists
        found: dict[str, str] = json.loads(self.ready.read_bytes())
        return found

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Waits for the end. Returns the exit code and the output without audit records."""
        _, output = self.process.communicate(timeout=PATIENCE_S)
        lines = output.splitlines(keepends=True)
        return self.process.returncode, "".join(line for line in lines if " trimq.audit: " not in line)


@contextmanager
def broker(
    folder: Path,
    *flags: str,
    environment: dict[str, str] | None = None,
    descriptors: int | None = None,
    program: tuple[str, ...] = SERVE,
) -> Iterator[Process]:
    started = Process(folder, *flags, environment=environment, descriptors=descriptors, program=program)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def receive(client: socket.socket) -> bytes | None:
    """Returns the next frame, or None at the end of the connection."""
    head = exactly(client, 4)
    return None if head is None else exactly(client, struct.unpack(">i", head)[0])


def exactly(client: socket.socket, count: int) -> bytes | None:
    received = b""
    while len(received) < count:
        piece = client.recv(count - len(received))
        if not piece:
            assert received == b"", "cut off in the middle of an answer"
            return None
        received += piece
    return received


def make_topic(client: socket.socket) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client.sendall(request_frame(asked, 8, 1))
        frame = receive(client)
        assert frame is not None
        if b"\x00\x00\x00\x06orders"[2:] in frame and b"\x00\x03\x00\x06orders" not in frame:
            return
        assert time.monotonic() < deadline


def produce(correlation_id: int) -> bytes:
    partition = PartitionProduceData(index=0, records=from_records([Record(b"x", timestamp_ms=1)]))
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return request_frame(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9, correlation_id)


def fetch(correlation_id: int, max_wait_ms: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="orders", partitions=[partition])
    asked = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1 << 20, max_bytes=1 << 20, topics=[topic])
    return request_frame(asked, 12, correlation_id)


# --- from start to stop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_signal_drains_the_broker_and_ends_it_with_0(tmp_path: Path, number: int, flush: str) -> None:
    with broker(tmp_path, "--flush", flush) as started:
        ready = started.await_ready()
        wanted = ["pid", "kafka", "amqp", "rocketmq", "rocketmq_broker", "rocketmq_grpc", "http"]
        assert [name for name in ready if name != "rocketmq_vip"] == wanted  # left out where its port is taken
        assert ready["pid"] == started.process.pid
        with connect(ready["kafka"]) as client, connect(ready["http"]):
            make_topic(client)
            for correlation_id in range(100):
                client.sendall(produce(correlation_id))
            first = receive(client)  # the broker is in the middle of the requests
            assert first is not None
            started.signal(number)
            answers = [first]
            with suppress(ConnectionResetError):  # the broker may not have read all requests
                while (frame := receive(client)) is not None:
                    answers.append(frame)
        assert started.end() == (0, "")
        # every request that was read was answered, in order
        assert [struct.unpack(">i", frame[:4])[0] for frame in answers] == list(range(len(answers)))


PATIENT = """
import sys
from trimq.server import node

node._DRAIN_MS = 3_600_000
from trimq.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_waiting_consumers_do_not_delay_the_end(tmp_path: Path) -> None:
    """A stop that waited for the consumers, or for the end of the drain, would last an hour."""
    with broker(tmp_path, program=("-c", PATIENT)) as started:
        ready = started.await_ready()
        clients = [connect(ready["kafka"]) for _ in range(50)]
        make_topic(clients[0])
        for client in clients:
            client.sendall(fetch(7, 3_600_000) + produce(8))
        await_so(lambda: are_all_received(ready["http"], 50), "not all requests were received")
        started.signal(signal.SIGTERM)
        assert started.end() == (0, "")
        for client in clients:
            frames = [receive(client), receive(client), receive(client)]
            assert [frame and struct.unpack(">i", frame[:4])[0] for frame in frames] == [7, 8, None]
            client.close()


def are_all_received(address: str, count: int) -> bool:
    with connect(address) as http:
        http.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        page = b"".join(iter(lambda: http.recv(65536), b""))
    waiting = b'trimq_waiting_reads{protocol="kafka"} %d.0' % count
    return waiting in page and b"appended_batches_total %d.0" % count in page


def test_further_signals_change_nothing(tmp_path: Path) -> None:
    with broker(tmp_path) as started:
        ready = started.await_ready()
        with connect(ready["kafka"]) as client:
            make_topic(client)
            client.sendall(produce(1))
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                started.signal(number)
            assert receive(client) is not None
            while started.process.poll() is None:
                started.signal(signal.SIGINT)
                time.sleep(0.005)
        assert started.end() == (0, "")


def test_a_signal_during_the_start_ends_it_as_well(tmp_path: Path) -> None:
    with broker(tmp_path) as started:
        while not (tmp_path / "data" / "tables").exists():
            assert started.process.poll() is None
        started.signal(signal.SIGTERM)
        code, output = started.end()
        assert code == 0
        assert "Traceback" not in output


def test_a_ready_file_of_an_earlier_run_is_gone_before_the_new_one_is_ready(tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text('{"pid": 1, "kafka": "127.0.0.1:1"}')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with broker(tmp_path, "--http-listen", address) as started:
            code, output = started.end()
    assert code != 0
    assert output.count("\n") == 1
    assert not (tmp_path / "ready.json").exists()


def test_a_start_that_is_refused_leaves_the_ready_file_of_the_broker_that_runs(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        ready = first.await_ready()
        with broker(tmp_path) as second:
            code, output = second.end()
        assert code != 0
        assert output == f"trimq: the data folder {tmp_path}/data is in use by the broker with pid {ready['pid']}\n"
        assert json.loads((tmp_path / "ready.json").read_text()) == ready
        first.signal(signal.SIGTERM)
        assert first.end() == (0, "")


def test_the_lock_of_a_broker_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        first.await_ready()
        first.process.kill()
        first.end()
    (tmp_path / "ready.json").unlink()
    with broker(tmp_path) as second:
        second.await_ready()
        second.signal(signal.SIGTERM)
        assert second.end() == (0, "")


# --- start-up errors --------------------------------------------------------------------------------------------------


def sentence(folder: Path, *flags: str) -> str:
    """Error message of a broker that cannot start: one line, and a non-zero exit code."""
    with broker(folder, *flags) as started:
        code, output = started.end()
    assert code in (1, 2)
    assert output.startswith("trimq: ")
    assert output.count("\n") == 1, output
    assert not (folder / "ready.json").exists()
    return output.removeprefix("trimq: ").strip()


def test_a_file_in_the_place_of_the_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert sentence(tmp_path) == f"the data folder {tmp_path}/data cannot be used: File exists ({tmp_path}/data)"


def test_a_file_above_the_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "above").write_text("a file")
    output = sentence(tmp_path, "--data-dir", str(tmp_path / "above" / "data"))
    assert output.startswith(f"the data folder {tmp_path}/above/data cannot be used: Not a directory")


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """A folder that even root cannot write."""
    assert sentence(tmp_path, "--data-dir", "/proc/trimq").startswith("the data folder /proc/trimq cannot be used: ")


def test_a_file_in_the_place_of_a_folder_inside_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tables").write_text("a file")
    assert "cannot be used: " in sentence(tmp_path)


def test_a_newer_format_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "format").write_text('{"version": 99}')
    assert sentence(tmp_path).startswith(
        "the data folder has format 99, but this version of TriMQ supports formats up to"
    )


def test_a_new_folder_contains_its_format(tmp_path: Path) -> None:
    with broker(tmp_path) as started:
        started.await_ready()
        assert json.loads((tmp_path / "data" / "format").read_text()) == {"version": 1}


@pytest.mark.parametrize("name", ["kafka", "amqp", "rocketmq", "rocketmq-broker", "rocketmq-grpc", "http"])
def test_a_taken_port_is_a_sentence_with_its_flag(tmp_path: Path, name: str) -> None:
    flag = f"--{name}-listen"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = sentence(tmp_path, flag, f"127.0.0.1:{port}")
    name = name.replace("-", "_")
    assert output == f"{name}: port {port} on 127.0.0.1 is taken by another program; choose another address with {flag}"


def test_an_unknown_host_is_a_one_line_error(tmp_path: Path) -> None:
    assert sentence(tmp_path, "--kafka-listen", "no-such-host.invalid:0").startswith("kafka: cannot listen on no-such-")


def test_a_ready_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "ready.json"
    assert sentence(tmp_path, "--ready-file", str(place)).startswith(f"the ready file {place} cannot be written: ")
    assert "is a directory" in sentence(tmp_path, "--ready-file", str(tmp_path)).lower()


def test_the_folder_of_a_ready_file_is_not_made(tmp_path: Path) -> None:
    place = tmp_path / "nope" / "ready.json"
    assert "no such folder" in sentence(tmp_path, "--ready-file", str(place))
    assert not place.parent.exists()


def test_an_ipv6_address_and_a_host_name_are_reported_as_given(tmp_path: Path) -> None:
    with broker(tmp_path, "--kafka-listen", "[::1]:0", "--http-listen", "localhost:0") as started:
        ready = started.await_ready()
        assert ready["kafka"].startswith("[::1]:")
        assert ready["http"].startswith("localhost:")
        host, _, port = ready["kafka"].rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as client:
            make_topic(client)
        started.signal(signal.SIGTERM)
        assert started.end() == (0, "")


# --- a disk that fails ------------------------------------------------------------------------------------------------

FAILING = """
import os, sys
from trimq.storage.io import files

def fail(fd):
    raise OSError(5, "Input/output error")

def arm(*_):
    os.fdatasync = os.fsync = fail
    files.syncfs = fail
    open(os.environ["ARMED"], "x").close()

import signal
signal.signal(signal.SIGUSR1, arm)
from trimq.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_failed_sync_ends_the_process_with_1_and_a_message(tmp_path: Path) -> None:
    """The disk fails: unsynced data is never acknowledged."""
    ready, armed = tmp_path / "ready.json", tmp_path / "armed"
    flags = ["--kafka-listen", "127.0.0.1:0", "--amqp-listen", "off", "--http-listen", "off", *NO_ROCKETMQ_FLAGS]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            FAILING,
            "serve",
            "--data-dir",
            str(tmp_path / "data"),
            *flags,
            "--ready-file",
            str(ready),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"ARMED": str(armed)},
    )
    try:
        await_so(ready.exists, "the broker does not become ready")
        with connect(json.loads(ready.read_text())["kafka"]) as client:
            make_topic(client)
            process.send_signal(signal.SIGUSR1)
            await_so(armed.exists, "the signal was not handled")
            client.sendall(produce(1))
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                """It may end before it has read the request."""
        _, output = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 1
    assert "data folder: writes can no longer be made durable, the broker stops ([Errno 5] Input/output error" in output
    assert "Traceback" not in output


def test_connections_that_do_nothing_do_not_take_the_descriptors_of_the_files(tmp_path: Path) -> None:
    idle: list[socket.socket] = []
    with broker(tmp_path, descriptors=256) as started:
        addresses = started.await_ready()
        try:
            idle += [connect(addresses["kafka"]) for _ in range(240)]
            with connect(addresses["http"]) as client:
                for number in range(60):
                    body = json.dumps({"name": f"t{number}", "streams": 2}).encode()
                    head = b"POST /api/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
                    client.sendall(head + body)
                    assert client.recv(1 << 16).startswith(b"HTTP/1.1 201")
        finally:
            for client in idle:
                client.close()
        started.signal(signal.SIGTERM)
        code, output = started.end()
    assert code == 0, output
    assert "kafka: limit of open files reached by the connections of all listeners" in output
    assert "CRITICAL" not in output
