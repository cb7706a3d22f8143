"""Server side of one HTTP/2 connection without IO (RFC 9113): turns received bytes into streams that open, receive data
and are reset. Knows frames, settings and windows; knows neither sockets nor gRPC nor who answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from trimq.model import Buffer
from trimq.protocols.grpc import frames
from trimq.protocols.grpc.flood_guard import FloodGuard
from trimq.protocols.grpc.frames import (
    ACK,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEAD,
    NUMBER_BITS,
    PADDED,
    ErrorCode,
    FrameType,
    Http2ConnectionError,
    Setting,
)
from trimq.protocols.grpc.hpack import CLEAR_TABLE, TABLE_BYTES, HeaderDecoder
from trimq.protocols.grpc.receive_window import CONNECTION_WINDOW, STREAM_WINDOW, ReceiveWindow
from trimq.protocols.grpc.received_frames import ReceivedFrames
from trimq.protocols.grpc.send_window import SendWindow
from trimq.protocols.grpc.streams import Http2Stream
from trimq.wire.receive_buffer import ConnectionReceiveMemory, ReceiveMemory

_PRIORITY_BYTES = 5
_PING_BYTES = 8
_TRIFLE_BYTES = 256  # smaller window updates count as idle frames


class Http2Limits(NamedTuple):
    """Limits of each connection. `idle_frames`: frames without effect within ten seconds."""

    streams: int
    header_bytes: int
    message_bytes: int
    idle_frames: int
    unsent_bytes: int


class Opened(msgspec.Struct, gc=False):
    stream: Http2Stream


class Received(msgspec.Struct, gc=False):
    """Data, possibly empty; `stream.has_ended` tells whether it was the last."""

    stream: Http2Stream
    data: bytes


class Reset(msgspec.Struct, gc=False):
    """The stream ended because the peer reset it or violated the protocol."""

    stream: Http2Stream


Event = Opened | Received | Reset


class Http2Connection:
    """Parser and encoder of one connection. `get_buffer`, `buffer_updated` and `release_memory` are those of a
    conversation. After each `buffer_updated`, call `next_event` until it returns None, then send the result of
    `take_outgoing`. If it raises Http2ConnectionError, the connection must close after `goaway`. Call `forget` when the
    connection is closed: `receive_memory` counts the partly received requests of all connections."""

    def __init__(
        self, limits: Http2Limits, now_ms: Callable[[], int], receive_memory: ReceiveMemory | None = None
    ) -> None:
        self._limits = limits
        self.held = ConnectionReceiveMemory(receive_memory)
        self._received = ReceivedFrames(self.held)
        self.get_buffer = self._received.get_buffer
        self.buffer_updated = self._received.buffer_updated
        self.release_memory = self._received.release_memory
        self._decoder = HeaderDecoder(limits.header_bytes)
        self._flood_guard = FloodGuard(limits.idle_frames, now_ms)
        self._block: bytearray | None = None
        self._block_of = self._block_flags = 0
        self._last = 0
        self._must_forget_table = False
        self.streams: dict[int, Http2Stream] = {}
        self.receive_window = ReceiveWindow(
            limits.message_bytes, lambda update: self._outgoing.append(update), self.held
        )
        self.send_window = SendWindow(self._ended)
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
        """Frees everything that a closed connection held, even if others still refer to it."""
        self._received.drop()
        self._block = None
        for stream in self.streams.values():
            stream.partial = stream.held = stream.message = None
            stream.kept = 0
        self.streams.clear()
        self._outgoing.clear()
        self.held.give_back()

    def next_event(self) -> Event | None:
        """Returns the next event of a stream, or None until more bytes arrive."""
        while (found := self._received.next()) is not None:
            kind, flags, number, payload = found
            if self._block is not None and kind != FrameType.CONTINUATION:
                raise _protocol_error("frame between HEADERS and CONTINUATION")
            if kind >= len(_READERS):
                self._flood_guard.count_idle_frame()  # frames of unknown type are ignored
                continue
            event: Event | None = _READERS[kind](self, flags, number, payload)
            if event is not None:
                return event
        return None

    # -- data

    def _read_data(self, flags: int, number: int, payload: bytes) -> Event | None:
        size = len(payload)
        self.receive_window.take(size)
        stream = self.streams.get(number)
        if stream is None:
            return self._ignore_frame(number)
        if stream.has_ended:
            return self.fail(stream, ErrorCode.STREAM_CLOSED)
        stream.credit -= size
        if stream.credit < 0:
            return self.fail(stream, ErrorCode.FLOW_CONTROL_ERROR)
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & END_STREAM:
            stream.has_ended = True
        else:
            if not payload:
                self._flood_guard.count_idle_frame()
            if len(payload) < size:
                self.receive_window.give_back(stream, size - len(payload))
        return Received(stream, payload)

    def _ignore_frame(self, number: int) -> Event | None:
        """Ignores a frame for a closed stream, since the sender may not know yet that it is closed. Refuses it if the
        stream was never opened."""
        if number > self._last or not number & 1:
            raise _protocol_error(f"stream {number} was never opened")
        self._flood_guard.count_idle_frame()
        return None

    # -- headers

    def _read_headers(self, flags: int, number: int, payload: bytes) -> Event | None:
        if not number & 1:
            raise _protocol_error(f"client cannot open stream {number}")
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < _PRIORITY_BYTES:
                raise Http2ConnectionError(
                    ErrorCode.FRAME_SIZE_ERROR, "HEADERS frame is too short for its priority fields"
                )
            payload = payload[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            return self._take_headers(flags, number, payload)
        self._block, self._block_of, self._block_flags = bytearray(payload), number, flags
        self.held.change(len(payload))
        return None

    def _read_continuation(self, flags: int, number: int, payload: bytes) -> Event | None:
        if self._block is None or number != self._block_of:
            raise _protocol_error("CONTINUATION without HEADERS")
        self._flood_guard.count_idle_frame()
        self._block += payload
        self.held.change(len(payload))
        if len(self._block) > self._limits.header_bytes:
            raise Http2ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"header block is longer than the {self._limits.header_bytes} bytes allowed",
            )
        if not flags & END_HEADERS:
            if self.held.must_close():
                raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, self.held.reason)
            return None
        block, self._block = bytes(self._block), None
        self.held.change(-len(block))
        return self._take_headers(self._block_flags, number, block)

    def _take_headers(self, flags: int, number: int, raw: bytes) -> Event | None:
        block = self._decoder.decode(raw)
        has_ended = bool(flags & END_STREAM)
        if number <= self._last:
            return self._take_trailers(number, has_ended)
        self._last = number
        if len(self.streams) >= self._limits.streams:
            self._flood_guard.count_idle_frame()
            self._outgoing.append(frames.reset(number, ErrorCode.REFUSED_STREAM))
            return None
        stream = Http2Stream(number, block, STREAM_WINDOW, self.send_window.stream_window, has_ended)
        self.streams[number] = stream
        self.receive_window.open(stream)
        return Opened(stream)

    def _take_trailers(self, number: int, has_ended: bool) -> Event | None:
        stream = self.streams.get(number)
        if stream is None:
            return self._ignore_frame(number)
        if stream.has_ended:
            return self.fail(stream, ErrorCode.STREAM_CLOSED)
        if not has_ended:
            return self.fail(stream, ErrorCode.PROTOCOL_ERROR)
        stream.has_ended = True
        return Received(stream, b"")

    # -- other frames

    def _read_priority(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _PRIORITY_BYTES:
            raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY frame of {len(payload)} bytes")
        self._flood_guard.count_idle_frame()

    def _read_reset(self, flags: int, number: int, payload: bytes) -> Event | None:
        frames.read_word(payload)
        stream = self.streams.get(number)
        if stream is None:
            return self._ignore_frame(number)
        self._flood_guard.count_idle_frame()
        self._forget(stream)
        return Reset(stream)

    def _read_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise _protocol_error("SETTINGS frame on a stream")
        self._flood_guard.count_idle_frame()
        if flags & ACK:
            if payload:
                raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS acknowledgement with a payload")
            return
        found = frames.read_settings(payload)
        send_window = self.send_window
        send_window.frame_bytes = found.get(Setting.MAX_FRAME_SIZE, send_window.frame_bytes)
        self._must_forget_table |= found.get(Setting.HEADER_TABLE_SIZE, TABLE_BYTES) < TABLE_BYTES
        window = found.get(Setting.INITIAL_WINDOW_SIZE, send_window.stream_window)
        difference, send_window.stream_window = window - send_window.stream_window, window
        self._outgoing.append(frames.frame(FrameType.SETTINGS, ACK, 0))
        if difference:
            for stream in list(self.streams.values()):
                parts = send_window.add_stream_credit(stream, difference)
                if parts is None:
                    raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "window of a stream exceeds its maximum")
                self._outgoing += parts

    def _read_push(self, flags: int, number: int, payload: bytes) -> None:
        raise _protocol_error("PUSH_PROMISE from a client")

    def _read_ping(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _PING_BYTES:
            raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"PING frame of {len(payload)} bytes")
        if number:
            raise _protocol_error("PING frame on a stream")
        self._flood_guard.count_idle_frame()
        if not flags & ACK:
            self._outgoing.append(frames.frame(FrameType.PING, ACK, 0, payload))

    def _read_goaway(self, flags: int, number: int, payload: bytes) -> None:
        """Counts the frame only: the peer opens no more streams, and closes when the open ones have ended."""
        self._flood_guard.count_idle_frame()

    def _read_window(self, flags: int, number: int, payload: bytes) -> Event | None:
        """Adds credit to a window. An update counts as idle if no data waits for it and it does not return credit of
        sent data."""
        increment = frames.read_word(payload) & NUMBER_BITS
        parts: list[Buffer] | None
        if number:
            stream = self.streams.get(number)
            if stream is None:
                return self._ignore_frame(number)
            if not increment:
                return self.fail(stream, ErrorCode.PROTOCOL_ERROR)
            parts = self.send_window.add_stream_credit(stream, increment)
            if parts is None:
                return self.fail(stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            if not increment:
                raise _protocol_error("WINDOW_UPDATE with an increment of 0")
            parts = self.send_window.add_credit(increment)
        is_due = self.send_window.give_back(bool(number), increment)
        if increment < _TRIFLE_BYTES or not (parts or is_due):
            self._flood_guard.count_idle_frame()
        self._outgoing += parts
        return None

    # -- ends of streams, and output

    def fail(self, stream: Http2Stream, fault: ErrorCode) -> Reset:
        """Resets a stream without an answer."""
        self._outgoing.append(frames.reset(stream.number, fault))
        self._flood_guard.count_idle_frame()
        self._forget(stream)
        return Reset(stream)

    def _forget(self, stream: Http2Stream) -> None:
        stream.is_open = False
        self.streams.pop(stream.number, None)
        stream.partial = stream.message = None
        if stream.held is not None:
            self.send_window.forget(stream)
        if stream.kept:
            self.receive_window.keep(stream, 0)
        if stream.granted:
            self.receive_window.complete(stream)

    def _ended(self, stream: Http2Stream) -> bytes:
        """Called when the last frame of a stream is sent. Resets the stream if the peer has not ended it."""
        self._flood_guard.call_answered()
        self._forget(stream)
        return b"" if stream.has_ended else frames.reset(stream.number, ErrorCode.NO_ERROR)

    def headers(self, stream: Http2Stream, block: bytes, is_last: bool = False) -> bytes:
        """Encodes a HEADERS frame."""
        if self._must_forget_table:
            self._must_forget_table = False
            block = CLEAR_TABLE + block
        return HEAD.pack(len(block) << 8 | FrameType.HEADERS, END_HEADERS | is_last, stream.number) + block

    def post(self, parts: Iterable[Buffer]) -> None:
        """Queues bytes for the next `take_outgoing`."""
        self._outgoing += parts

    def goaway(self, fault: ErrorCode, reason: str) -> list[Buffer]:
        """Returns the queued bytes and GOAWAY."""
        return [*self.take_outgoing(), frames.goaway(self._last, fault, reason)]

    def take_outgoing(self) -> Sequence[Buffer]:
        """Returns the queued frames, which are not answers."""
        if not self._outgoing:
            return ()
        taken, self._outgoing = self._outgoing, []
        return taken


def _protocol_error(reason: str) -> Http2ConnectionError:
    return Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, reason)


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise _protocol_error("padding is longer than the frame")
    return payload[1 : len(payload) - payload[0]]


# Readers by frame type.
_READERS: tuple[Callable[[Http2Connection, int, int, bytes], Event | None], ...] = (
    Http2Connection._read_data,
    Http2Connection._read_headers,
    Http2Connection._read_priority,
    Http2Connection._read_reset,
    Http2Connection._read_settings,
    Http2Connection._read_push,
    Http2Connection._read_ping,
    Http2Connection._read_goaway,
    Http2Connection._read_window,
    Http2Connection._read_continuation,
)
