"""One HTTP/2 connection of a server without IO (RFC 9113): received bytes become streams that open, get data and are
reset. Knows frames, settings and windows; nothing of sockets, of gRPC, or of who answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from trimq.model import Buffer
from trimq.protocols.contract import HeldBytes, HeldShare
from trimq.protocols.grpc import frames
from trimq.protocols.grpc.flood_guard import Calm
from trimq.protocols.grpc.frames import (
    ACK,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEAD,
    NUMBER_BITS,
    PADDED,
    BrokenConnection,
    Fault,
    Kind,
    Setting,
)
from trimq.protocols.grpc.hpack import FORGET_TABLE, TABLE_BYTES, HeaderDecoder
from trimq.protocols.grpc.receive_window import CONNECTION_WINDOW, STREAM_WINDOW, Intake
from trimq.protocols.grpc.received_frames import ReceivedFrames
from trimq.protocols.grpc.send_window import Outflow
from trimq.protocols.grpc.streams import Stream

_PRIORITY_BYTES = 5
_PING_BYTES = 8
_TRIFLE_BYTES = 256  # a window that is opened by less is hardly opened


class Limits(NamedTuple):
    """Of each connection. `idle_frames` are those that ask for nothing, in ten seconds."""

    streams: int
    header_bytes: int
    message_bytes: int
    idle_frames: int
    unsent_bytes: int


class Opened(msgspec.Struct, gc=False):
    stream: Stream


class Received(msgspec.Struct, gc=False):
    """Data, perhaps none; `stream.has_ended` tells whether it was the last."""

    stream: Stream
    data: bytes


class Reset(msgspec.Struct, gc=False):
    """The stream is over, by the peer's will or by its fault."""

    stream: Stream


Event = Opened | Received | Reset


class Http2Connection:
    """`get_buffer`, `buffer_updated` and `rest` are a conversation's. After each `buffer_updated` call `next_event`
    until it gives None, then send what `take_outgoing` gives. BrokenConnection: it must close, after `goodbye`. Call
    `forget` when it is gone: `together` counts what all connections hold of what has come in part."""

    def __init__(self, limits: Limits, now_ms: Callable[[], int], together: HeldBytes | None = None) -> None:
        self._limits = limits
        self._received = ReceivedFrames()
        self.get_buffer = self._received.get_buffer
        self.buffer_updated = self._received.buffer_updated
        self.rest = self._received.rest
        self._held = HeldShare(together)
        self._decoder = HeaderDecoder(limits.header_bytes)
        self._calm = Calm(limits.idle_frames, now_ms)
        self._block: bytearray | None = None
        self._block_of = self._block_flags = 0
        self._last = 0
        self._must_forget_table = False
        self.streams: dict[int, Stream] = {}
        self.intake = Intake(limits.message_bytes, lambda update: self._outgoing.append(update), self._held)
        self.outflow = Outflow(self._ended)
        self._outgoing: list[Buffer] = [
            frames.settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes,
                }
            ),
            frames.window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW),
        ]

    def forget(self) -> None:
        """The connection is gone: nothing that it held is kept, whoever still knows it."""
        self._received.drop()
        self._block = None
        for stream in self.streams.values():
            stream.partial = stream.held = stream.asked = None
            stream.kept = 0
        self.streams.clear()
        self._outgoing.clear()
        self._held.give_back()

    def next_event(self) -> Event | None:
        """What comes next of a stream, or None until more bytes arrive."""
        while (found := self._received.next()) is not None:
            kind, flags, number, payload = found
            if self._block is not None and kind != Kind.CONTINUATION:
                raise _unfit("headers must be ended before anything else is said")
            if kind >= len(_READERS):
                self._calm.disturb()  # unknown ones are passed over
                continue
            event: Event | None = _READERS[kind](self, flags, number, payload)
            if event is not None:
                return event
        return None

    # -- data

    def _read_data(self, flags: int, number: int, payload: bytes) -> Event | None:
        size = len(payload)
        self.intake.take(size)
        stream = self.streams.get(number)
        if stream is None:
            return self._pass_over(number)
        if stream.has_ended:
            return self.fail(stream, Fault.STREAM_CLOSED)
        stream.credit -= size
        if stream.credit < 0:
            return self.fail(stream, Fault.FLOW_CONTROL_ERROR)
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & END_STREAM:
            stream.has_ended = True
        else:
            if not payload:
                self._calm.disturb()
            if len(payload) < size:
                self.intake.give_back(stream, size - len(payload))
        return Received(stream, payload)

    def _pass_over(self, number: int) -> Event | None:
        """It is for a stream that is not open: it may have been, which its sender need not have known."""
        if number > self._last or not number & 1:
            raise _unfit(f"the stream {number} was never opened")
        self._calm.disturb()
        return None

    # -- headers

    def _read_headers(self, flags: int, number: int, payload: bytes) -> Event | None:
        if not number & 1:
            raise _unfit(f"a client cannot open the stream {number}")
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < _PRIORITY_BYTES:
                raise BrokenConnection(Fault.FRAME_SIZE_ERROR, "headers without room for their priority")
            payload = payload[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            return self._take_headers(flags, number, payload)
        self._block, self._block_of, self._block_flags = bytearray(payload), number, flags
        self._held.change(len(payload))
        return None

    def _read_continuation(self, flags: int, number: int, payload: bytes) -> Event | None:
        if self._block is None or number != self._block_of:
            raise _unfit("headers are continued that were not begun")
        self._calm.disturb()
        self._block += payload
        self._held.change(len(payload))
        if len(self._block) > self._limits.header_bytes:
            raise BrokenConnection(
                Fault.ENHANCE_YOUR_CALM, f"headers are longer than the {self._limits.header_bytes} bytes allowed"
            )
        if not flags & END_HEADERS:
            if self._held.must_yield:
                raise BrokenConnection(Fault.ENHANCE_YOUR_CALM, self._held.reason)
            return None
        block, self._block = bytes(self._block), None
        self._held.change(-len(block))
        return self._take_headers(self._block_flags, number, block)

    def _take_headers(self, flags: int, number: int, raw: bytes) -> Event | None:
        block = self._decoder.decode(raw)
        has_ended = bool(flags & END_STREAM)
        if number <= self._last:
            return self._take_trailers(number, has_ended)
        self._last = number
        if len(self.streams) >= self._limits.streams:
            self._calm.disturb()
            self._outgoing.append(frames.reset(number, Fault.REFUSED_STREAM))
            return None
        stream = Stream(number, block, STREAM_WINDOW, self.outflow.stream_window, has_ended)
        self.streams[number] = stream
        self.intake.open(stream)
        return Opened(stream)

    def _take_trailers(self, number: int, has_ended: bool) -> Event | None:
        stream = self.streams.get(number)
        if stream is None:
            return self._pass_over(number)
        if stream.has_ended:
            return self.fail(stream, Fault.STREAM_CLOSED)
        if not has_ended:
            return self.fail(stream, Fault.PROTOCOL_ERROR)
        stream.has_ended = True
        return Received(stream, b"")

    # -- the rest

    def _read_priority(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _PRIORITY_BYTES:
            raise BrokenConnection(Fault.FRAME_SIZE_ERROR, f"a priority of {len(payload)} bytes")
        self._calm.disturb()

    def _read_reset(self, flags: int, number: int, payload: bytes) -> Event | None:
        frames.read_word(payload)
        stream = self.streams.get(number)
        if stream is None:
            return self._pass_over(number)
        self._calm.disturb()
        self._forget(stream)
        return Reset(stream)

    def _read_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise _unfit("settings are of a connection, not of a stream")
        self._calm.disturb()
        if flags & ACK:
            if payload:
                raise BrokenConnection(Fault.FRAME_SIZE_ERROR, "settings cannot be set and acknowledged at once")
            return
        found = frames.read_settings(payload)
        outflow = self.outflow
        outflow.frame_bytes = found.get(Setting.MAX_FRAME_SIZE, outflow.frame_bytes)
        self._must_forget_table |= found.get(Setting.HEADER_TABLE_SIZE, TABLE_BYTES) < TABLE_BYTES
        window = found.get(Setting.INITIAL_WINDOW_SIZE, outflow.stream_window)
        difference, outflow.stream_window = window - outflow.stream_window, window
        self._outgoing.append(frames.frame(Kind.SETTINGS, ACK, 0))
        if difference:
            for stream in list(self.streams.values()):
                parts = outflow.widen_stream(stream, difference)
                if parts is None:
                    raise BrokenConnection(Fault.FLOW_CONTROL_ERROR, "the window of a stream was opened too far")
                self._outgoing += parts

    def _read_push(self, flags: int, number: int, payload: bytes) -> None:
        raise _unfit("a client cannot push")

    def _read_ping(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _PING_BYTES:
            raise BrokenConnection(Fault.FRAME_SIZE_ERROR, f"a ping of {len(payload)} bytes")
        if number:
            raise _unfit("a ping is of a connection, not of a stream")
        self._calm.disturb()
        if not flags & ACK:
            self._outgoing.append(frames.frame(Kind.PING, ACK, 0, payload))

    def _read_goodbye(self, flags: int, number: int, payload: bytes) -> None:
        """Whoever says so opens no more streams, and closes when those that are open have ended."""
        self._calm.disturb()

    def _read_window(self, flags: int, number: int, payload: bytes) -> Event | None:
        """One that nothing waits for, and that gives back nothing that was sent, asks for nothing."""
        increment = frames.read_word(payload) & NUMBER_BITS
        parts: list[Buffer] | None
        if number:
            stream = self.streams.get(number)
            if stream is None:
                return self._pass_over(number)
            if not increment:
                return self.fail(stream, Fault.PROTOCOL_ERROR)
            parts = self.outflow.widen_stream(stream, increment)
            if parts is None:
                return self.fail(stream, Fault.FLOW_CONTROL_ERROR)
        else:
            if not increment:
                raise _unfit("a window cannot be opened by nothing")
            parts = self.outflow.widen(increment)
        is_due = self.outflow.give_back(bool(number), increment)
        if increment < _TRIFLE_BYTES or not (parts or is_due):
            self._calm.disturb()
        self._outgoing += parts
        return None

    # -- the ends of streams, and what is sent

    def fail(self, stream: Stream, fault: Fault) -> Reset:
        """End a stream without an answer."""
        self._outgoing.append(frames.reset(stream.number, fault))
        self._calm.disturb()
        self._forget(stream)
        return Reset(stream)

    def _forget(self, stream: Stream) -> None:
        stream.is_open = False
        self.streams.pop(stream.number, None)
        stream.partial = stream.asked = None
        if stream.held is not None:
            self.outflow.forget(stream)
        if stream.kept:
            self.intake.keep(stream, 0)
        if stream.granted:
            self.intake.complete(stream)

    def _ended(self, stream: Stream) -> bytes:
        """Its last frame is on its way. A peer that has not ended it is told that nobody listens any more."""
        self._calm.work()
        self._forget(stream)
        return b"" if stream.has_ended else frames.reset(stream.number, Fault.NO_ERROR)

    def headers(self, stream: Stream, block: bytes, is_last: bool = False) -> bytes:
        """A frame of headers."""
        if self._must_forget_table:
            self._must_forget_table = False
            block = FORGET_TABLE + block
        return HEAD.pack(len(block) << 8 | Kind.HEADERS, END_HEADERS | is_last, stream.number) + block

    def post(self, parts: Iterable[Buffer]) -> None:
        """Send with what has to be sent next."""
        self._outgoing += parts

    def goodbye(self, fault: Fault, reason: str) -> list[Buffer]:
        """The last that is sent."""
        return [*self.take_outgoing(), frames.goodbye(self._last, fault, reason)]

    def take_outgoing(self) -> Sequence[Buffer]:
        """What has to be sent besides answers."""
        if not self._outgoing:
            return ()
        taken, self._outgoing = self._outgoing, []
        return taken


def _unfit(reason: str) -> BrokenConnection:
    return BrokenConnection(Fault.PROTOCOL_ERROR, reason)


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise _unfit("a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


# By the kinds of frames.
_READERS: tuple[Callable[[Http2Connection, int, int, bytes], Event | None], ...] = (
    Http2Connection._read_data,
    Http2Connection._read_headers,
    Http2Connection._read_priority,
    Http2Connection._read_reset,
    Http2Connection._read_settings,
    Http2Connection._read_push,
    Http2Connection._read_ping,
    Http2Connection._read_goodbye,
    Http2Connection._read_window,
    Http2Connection._read_continuation,
)
