"""Memory of partly received requests is counted to the byte for any input and any split, stays below its limit, and is
zero when all connections are closed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from hypothesis import given
from hypothesis import strategies as st
from protocols.amqp.wires import command, header_frame, running
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, data, headers, message, request_fields, word

from trimq.errors import ProtocolError
from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire import frames as amqp_frames
from trimq.protocols.grpc.frames import END_HEADERS, END_STREAM, ErrorCode, FrameType, frame, window_update
from trimq.protocols.grpc.hpack import encode
from trimq.wire.receive_buffer import ALWAYS_ALLOWED_BYTES, ReceiveMemory
from trimq.wire.remoting import START_SIZE, RemotingConnection

MANY = 1 << 40


class Held(Protocol):
    """One connection: its input, the memory it holds, and its end."""

    def feed(self, sent: bytes) -> None: ...

    @property
    def held(self) -> int: ...

    def close(self) -> None: ...


class Remoting:
    def __init__(self, receive_memory: ReceiveMemory) -> None:
        self._connection = RemotingConnection(receive_memory=receive_memory)

    def feed(self, sent: bytes) -> None:
        for at in range(0, len(sent), 50_000):
            self._connection.receive(sent[at : at + 50_000])
            while self._connection.next_event() is not None:
                pass

    @property
    def held(self) -> int:
        return max(len(self._connection._received.data) - START_SIZE, 0)

    def close(self) -> None:
        self._connection.drop()


class Amqp:
    def __init__(self, receive_memory: ReceiveMemory) -> None:
        self._connection = running(1, 2, 3, max_message_bytes=400_000, receive_memory=receive_memory)
        self._connection.frame_max = 1 << 20

    def feed(self, sent: bytes) -> None:
        for at in range(0, len(sent), 50_000):
            self._connection.receive(sent[at : at + 50_000])
            while self._connection.next_event() is not None:
                pass

    @property
    def held(self) -> int:
        contents = [each.content for each in self._connection._channels.values() if each.content is not None]
        kept = sum(len(each.header) + sum(map(len, each._chunks)) + len(each._end) for each in contents)
        return kept + max(len(self._connection._received.data) - amqp_frames.START_SIZE, 0)

    def close(self) -> None:
        self._connection.drop()


class Grpc:
    """Stops reading responses beyond 20,000 bytes."""

    def __init__(self, receive_memory: ReceiveMemory) -> None:
        limits = SMALL._replace(message_bytes=400_000, header_bytes=20_000, unsent_bytes=10_000)
        self._peer = Http2Peer(limits, window=20_000, receive_memory=receive_memory)
        self._peer.greet()

    def feed(self, sent: bytes) -> None:
        self._peer.feed(sent)

    @property
    def held(self) -> int:
        http2, postponed = self._peer.conversation._http2, self._peer.conversation._deferred
        size = len(http2._block or b"") + sum(len(asked.raw) for asked in postponed._by_stream.values())
        for stream in http2.streams.values():
            size += len(stream.partial or b"") + (len(stream.message[1]) if stream.message is not None else 0)
            size += stream.block.long_bytes
        return size

    def close(self) -> None:
        self._peer.conversation.closed()


def remoting_command(size: int) -> bytes:
    header = b'{"code":10,"opaque":1}'
    return struct.pack(">iI", 4 + len(header) + size, len(header)) + header + bytes(size)


sizes = st.sampled_from([0, 1, 300, 5000, 30_000, 64_000, 70_000, 150_000, 350_000])
cuts = st.integers(0, 400_000)
remoting_commands = st.builds(lambda size, cut: remoting_command(size)[: max(cut, 1)], sizes, cuts)

LONG_HEADER = write_properties(message_id="m" * 200, correlation_id="c" * 200)
PUBLISH = methods.BasicPublish(routing_key="q")
channels = st.sampled_from((1, 2, 3))
amqp_pieces = (
    st.builds(lambda n: command(n, PUBLISH), channels)
    | st.builds(lambda n, size: command(n, PUBLISH) + header_frame(n, size, LONG_HEADER), channels, sizes)
    | st.builds(lambda n, size: amqp_frames.frame(amqp_frames.BODY, n, bytes(size)), channels, sizes)
    | st.builds(lambda n, size: amqp_frames.frame(amqp_frames.BODY, n, bytes(size))[:-5], channels, sizes)
    | st.builds(lambda n: command(n, methods.ChannelClose()), channels)
)

numbers = st.sampled_from((1, 3, 5, 7, 9, 11))
flags = st.sampled_from((0, END_STREAM))
WORDY = encode([*request_fields(), ("x", b"v" * 9000)])
grpc_pieces = (
    st.builds(lambda n, method: headers(n, request_fields(method)), numbers, st.sampled_from(("Plain", "Stream")))
    | st.builds(lambda n: frame(FrameType.HEADERS, END_HEADERS, n, WORDY), numbers)
    | st.builds(lambda n: frame(FrameType.HEADERS, 0, n, WORDY[:5000]), numbers)
    | st.builds(lambda n: frame(FrameType.CONTINUATION, END_HEADERS, n, WORDY[5000:]), numbers)
    | st.builds(lambda n, size, end: data(n, message(bytes(size))[:16_000], end), numbers, sizes, flags)
    | st.builds(lambda n, size, end: data(n, bytes(size)[:16_000], end), numbers, sizes, flags)
    | st.builds(lambda n: word(FrameType.RST_STREAM, n, ErrorCode.CANCEL), numbers)
    | st.builds(lambda n: window_update(n, 5000), st.just(0) | numbers)
)


def run(make: Callable[[ReceiveMemory], Held], limit: int, steps: list[tuple[int, bytes | None]]) -> None:
    receive_memory = ReceiveMemory(limit)
    connections = [make(receive_memory) for _ in range(3)]
    for index, sent in steps:
        try:
            if sent is None:
                connections[index].close()
                connections[index] = make(receive_memory)
            else:
                connections[index].feed(sent)
        except ProtocolError:
            assert receive_memory.count == sum(each.held for each in connections)
            connections[index].close()
            connections[index] = make(receive_memory)
        assert receive_memory.count == sum(each.held for each in connections)
        # Each may have begun when there was room, and then filled the reserve, or grown once more.
        assert receive_memory.count <= limit + len(connections) * ALWAYS_ALLOWED_BYTES + 1_000_000
    for each in connections:
        each.close()
    assert receive_memory.count == 0


def steps_of(pieces: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[tuple[int, bytes | None]]]:
    return st.lists(st.tuples(st.integers(0, 2), st.none() | pieces | pieces | pieces), max_size=25)


limits = st.sampled_from([1, 100_000, 300_000, MANY])


@given(limits, steps_of(remoting_commands))
def test_the_memory_of_remoting_connections_is_counted(limit: int, steps: list[tuple[int, bytes | None]]) -> None:
    run(Remoting, limit, steps)


@given(limits, steps_of(amqp_pieces))
def test_the_memory_of_amqp_connections_is_counted(limit: int, steps: list[tuple[int, bytes | None]]) -> None:
    run(Amqp, limit, steps)


@given(limits, steps_of(grpc_pieces))
def test_the_memory_of_grpc_connections_is_counted(limit: int, steps: list[tuple[int, bytes | None]]) -> None:
    run(Grpc, limit, steps)
