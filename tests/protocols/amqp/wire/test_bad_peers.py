"""Peers that misuse a broker process: their cost is bounded, and other clients are served meanwhile."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from protocols.amqp.wires import command, publish

from tools.broker import running
from trimq.core.queues.unacked import SHORT_BODY
from trimq.formats.amqp_content.property_list import EMPTY, write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.frames import METHOD, OVERHEAD, PREFIX_SIZE, unpack_prefix
from trimq.protocols.amqp.wire.method_codec import read_method

PATIENCE_S = 30
MIB = 1 << 20
UNACKED_BYTES = 4 * MIB
BODY_BYTES = 100_000
PERSISTENT = write_properties(delivery_mode=2)

pytestmark = pytest.mark.timeout(120)


class Peer:
    """One connection, with channel 1 open."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # fills up quickly
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((host, int(port)))
        self._received = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect(methods.ConnectionStart)
        self.tell(0, methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        self.expect(methods.ConnectionTune)
        self.tell(0, methods.ConnectionTuneOk(2047, 131_072, 0), methods.ConnectionOpen("/"))
        self.expect(methods.ConnectionOpenOk)
        self.ask(methods.ChannelOpen(), methods.ChannelOpenOk)

    def tell(self, channel: int, *sent_methods: methods.Method) -> None:
        self.socket.sendall(b"".join(command(channel, method) for method in sent_methods))

    def next_frame(self) -> tuple[int, bytes]:
        while True:
            data = self._received
            if len(data) >= PREFIX_SIZE:
                kind, _, size = unpack_prefix(data)
                if len(data) >= size + OVERHEAD:
                    payload = bytes(data[PREFIX_SIZE : PREFIX_SIZE + size])
                    del data[: size + OVERHEAD]
                    return kind, payload
            came = self.socket.recv(1 << 20)
            assert came, "the broker has closed the connection"
            data += came

    def expect(self, wanted: type[methods.Method]) -> methods.Method:
        """Returns the next method of this kind and skips all others."""
        while True:
            kind, payload = self.next_frame()
            if kind == METHOD and payload[:4] == wanted.ID.to_bytes(4):
                return read_method(payload)

    def ask(self, method: methods.Method, answer: type[methods.Method]) -> methods.Method:
        self.tell(1, method)
        return self.expect(answer)

    def push(self, data: bytes, most: int) -> int:
        """Sends this repeatedly until the broker stops reading or `most` bytes are sent. Returns the number of bytes
        sent."""
        self.socket.settimeout(1)
        sent = 0
        try:
            while sent < most:
                sent += self.socket.send(data[sent % len(data) :])
        except TimeoutError:
            pass
        self.socket.settimeout(PATIENCE_S)
        return sent


class Broker:
    def __init__(self, address: str, pid: int) -> None:
        self.address = address
        self._pid = pid

    @contextmanager
    def peer(self) -> Iterator[Peer]:
        peer = Peer(self.address)
        with peer.socket:
            yield peer

    def memory(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def serves(self) -> bool:
        """Publishes and gets a message on another connection."""
        with self.peer() as other:
            other.ask(methods.QueueDeclare(queue="mine", is_exclusive=True), methods.QueueDeclareOk)
            other.socket.sendall(publish(1, methods.BasicPublish(routing_key="mine"), b"still here"))
            other.ask(methods.BasicGet(queue="mine", no_ack=True), methods.BasicGetOk)
            other.next_frame()
            return other.next_frame()[1] == b"still here"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    with running(folder, ["--amqp-unacked-bytes", str(UNACKED_BYTES)]) as addresses:
        yield Broker(addresses["amqp"], json.loads((folder / "ready.json").read_text())["pid"])


@contextmanager
def costing_less_than(size: int, broker: Broker) -> Iterator[None]:
    assert broker.serves()
    before = broker.memory()
    yield
    assert broker.serves()
    assert broker.memory() - before < size


def fill(broker: Broker, queue: str, count: int, size: int = BODY_BYTES) -> None:
    with broker.peer() as peer:
        peer.ask(methods.QueueDeclare(queue=queue, is_durable=True), methods.QueueDeclareOk)
        for _ in range(count):
            peer.socket.sendall(publish(1, methods.BasicPublish(routing_key=queue), bytes(size), PERSISTENT))
        peer.ask(methods.QueueDeclare(queue=queue, is_passive=True), methods.QueueDeclareOk)


def test_a_hundred_thousand_channels_are_opened_and_closed(broker: Broker) -> None:
    with costing_less_than(8 * MIB, broker), broker.peer() as peer:
        turn = b"".join(
            command(channel, method)
            for channel in range(2, 102)
            for method in (methods.ChannelOpen(), methods.ChannelClose())
        )
        for _ in range(1000):
            peer.socket.sendall(turn)
            for _ in range(200):
                peer.next_frame()


def test_a_publisher_that_never_reads_its_returns_is_not_read_any_more(broker: Broker) -> None:
    lost = publish(1, methods.BasicPublish(routing_key="nowhere", is_mandatory=True), bytes(1000))
    with broker.peer() as peer, costing_less_than(32 * MIB, broker):
        most = 200 * MIB
        assert peer.push(lost * 100, most) < most


def test_a_publisher_that_never_reads_its_confirms_is_not_read_any_more(broker: Broker) -> None:
    """Each message is rejected because its queue is full. Each rejection is a frame of its own."""
    with broker.peer() as peer, costing_less_than(32 * MIB, broker):
        table = {"x-max-length": 0, "x-overflow": "reject-publish"}
        peer.ask(methods.QueueDeclare(queue="full", is_exclusive=True, arguments=table), methods.QueueDeclareOk)
        peer.ask(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        most = 200 * MIB
        assert peer.push(publish(1, methods.BasicPublish(routing_key="full"), b"") * 1000, most) < most


def test_a_consumer_that_never_acknowledges_gets_a_bounded_number_of_bytes(broker: Broker) -> None:
    count = 3 * UNACKED_BYTES // SHORT_BODY
    fill(broker, "unacknowledged", count, SHORT_BODY)
    with broker.peer() as peer, costing_less_than(4 * UNACKED_BYTES, broker):
        peer.ask(methods.BasicConsume(queue="unacknowledged", consumer_tag="t"), methods.BasicConsumeOk)
        taken = held = 0
        while taken < count:
            peer.expect(methods.BasicDeliver)
            taken, held = taken + 1, held + 1
            if held * (SHORT_BODY + 400) >= UNACKED_BYTES:
                held += (rest := await_deliveries_in_flight(peer, count - taken))
                taken += rest
                assert held * SHORT_BODY <= UNACKED_BYTES + MIB
                held = 0
                peer.tell(1, methods.BasicAck(0, is_multiple=True))
    delete(broker, "unacknowledged")


def test_long_unacked_bodies_are_not_held_in_memory_and_are_redelivered_whole(broker: Broker) -> None:
    count = 400
    fill(broker, "unacknowledged", count)
    with costing_less_than(12 * MIB, broker), broker.peer() as peer:
        peer.ask(methods.BasicConsume(queue="unacknowledged", consumer_tag="t"), methods.BasicConsumeOk)
        for _ in range(count):
            peer.expect(methods.BasicDeliver)
        assert broker.serves()
    with broker.peer() as peer:
        peer.ask(methods.BasicConsume(queue="unacknowledged", consumer_tag="t"), methods.BasicConsumeOk)
        for _ in range(count):
            delivered = peer.expect(methods.BasicDeliver)
            assert delivered.is_redelivered
            assert read_body(peer) == bytes(BODY_BYTES)
    delete(broker, "unacknowledged")


def read_body(peer: Peer) -> bytes:
    peer.next_frame()
    body = b""
    while len(body) < BODY_BYTES:
        body += peer.next_frame()[1]
    return body


def await_deliveries_in_flight(peer: Peer, left: int) -> int:
    """Waits for all messages in flight. Returns how many of the remaining ones the broker has sent."""
    came = 0
    while True:
        peer.tell(1, methods.QueueDeclare(queue="unacknowledged", is_passive=True))
        while True:
            kind, payload = peer.next_frame()
            method = read_method(payload) if kind == METHOD else None
            came += isinstance(method, methods.BasicDeliver)
            if isinstance(method, methods.QueueDeclareOk):
                break
        if method.message_count == left - came:
            return came


def test_a_consumer_that_never_reads_holds_its_messages_in_the_queue(broker: Broker) -> None:
    count = 300
    fill(broker, "unread", count)
    with broker.peer() as peer, costing_less_than(32 * MIB, broker):
        peer.tell(1, methods.BasicConsume(queue="unread", consumer_tag="t", no_ack=True))
        with broker.peer() as other:
            found = other.ask(methods.QueueDeclare(queue="unread", is_passive=True), methods.QueueDeclareOk)
            assert isinstance(found, methods.QueueDeclareOk)
            assert found.message_count > count // 2
        for _ in range(count):
            peer.expect(methods.BasicDeliver)
    delete(broker, "unread")


def delete(broker: Broker, queue: str) -> None:
    with broker.peer() as peer:
        peer.ask(methods.QueueDelete(queue=queue), methods.QueueDeleteOk)


def test_garbage_in_any_state_ends_one_connection(broker: Broker) -> None:
    rng = random.Random(7)
    host, _, port = broker.address.rpartition(":")
    with costing_less_than(8 * MIB, broker):
        for number in range(60):
            if number % 2:
                with broker.peer() as peer:
                    peer.socket.sendall(rng.randbytes(2000))
                    ended = receive_to_the_end(peer.socket)
            else:
                with socket.create_connection((host, int(port)), PATIENCE_S) as raw:
                    raw.sendall(rng.randbytes(200))
                    ended = receive_to_the_end(raw)
            assert ended


def receive_to_the_end(peer: socket.socket) -> bool:
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def test_an_announced_length_takes_no_memory(broker: Broker) -> None:
    claims = (
        command(1, methods.BasicPublish(routing_key="q")) + b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0" + (100 * MIB).to_bytes(8)
    )
    with costing_less_than(8 * MIB, broker):
        peers = [Peer(broker.address) for _ in range(50)]
        for peer in peers:
            peer.socket.sendall(claims + EMPTY + b"\xce" + b"\x03\0\x01\0\x01\xff\xf8")
        for peer in peers:
            peer.socket.close()
