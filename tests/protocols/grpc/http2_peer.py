"""An HTTP/2 client without a socket: sends any frames and decodes the frames it receives. It encodes headers as in RFC
7541 and decodes with a table of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from protocols.grpc.echo_bench import SMALL, Echo

from trimq.clock import ManualTime, Timeline
from trimq.model import Buffer
from trimq.protocols.contract import CallFrontEnd, Parts, Reply
from trimq.protocols.grpc.connection import Http2Limits
from trimq.protocols.grpc.conversation import GrpcConversation
from trimq.protocols.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    PREFACE,
    FrameType,
    frame,
    window_update,
)
from trimq.protocols.grpc.front_end import GrpcTransport
from trimq.protocols.grpc.hpack import HeaderDecoder, encode
from trimq.server.connection.pending_replies import PassProgress, PendingReplies
from trimq.wire.receive_buffer import ReceiveMemory

HEAD = struct.Struct(">IBI")


class Frame(NamedTuple):
    kind: int
    flags: int
    number: int
    payload: bytes


def frames_of(data: bytes) -> list[Frame]:
    """Splits bytes into frames; the bytes must end with a whole frame."""
    found, at = [], 0
    while at < len(data):
        mark, flags, number = HEAD.unpack_from(data, at)
        finish = at + HEAD.size + (mark >> 8)
        assert finish <= len(data), "a frame was sent in part"
        found.append(Frame(mark & 0xFF, flags, number, data[at + HEAD.size : finish]))
        at = finish
    return found


def request_fields(method: str = "Plain", service: str = "test.Echo", **metadata: str) -> list[tuple[str, bytes]]:
    named = {":method": "POST", ":scheme": "http", ":path": f"/{service}/{method}", "content-type": "application/grpc"}
    given = {**named, **{name.replace("_", "-"): value for name, value in metadata.items()}}
    return [(name, value.encode("latin-1")) for name, value in given.items()]


def headers(number: int, fields: Iterable[tuple[str, bytes]] | None = None, flags: int = END_HEADERS) -> bytes:
    return frame(FrameType.HEADERS, flags, number, encode(request_fields() if fields is None else fields))


def message(raw: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(raw)) + raw


def data(number: int, raw: bytes, flags: int = END_STREAM) -> bytes:
    return frame(FrameType.DATA, flags, number, raw)


def call(number: int, raw: bytes, method: str = "Plain", **metadata: str) -> bytes:
    return headers(number, request_fields(method, **metadata)) + b"".join(pieces(number, message(raw)))


def pieces(number: int, raw: bytes) -> list[bytes]:
    """Splits a message into as many DATA frames as it needs; the last one ends the stream."""
    cut = [raw[at : at + FRAME_BYTES] for at in range(0, len(raw), FRAME_BYTES)]
    return [data(number, each, 0) for each in cut[:-1]] + [data(number, cut[-1])]


def word(kind: int, number: int, value: int) -> bytes:
    return frame(kind, 0, number, struct.pack(">I", value))


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(FrameType.SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


class Answer:
    """Headers, data and reset received on one stream."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.data = b""
        self.is_ended = False
        self.reset: int | None = None

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.data):
            _, size = struct.unpack_from(">BI", self.data, at)
            found.append(self.data[at + 5 : at + 5 + size])
            at += 5 + size
        return found

    @property
    def status(self) -> str:
        assert self.is_ended
        return self.headers[-1]["grpc-status"]


class Http2Peer:
    """One connection to a gRPC conversation with an `Echo` as front-end, unless another is given. Also plays the
    session: replies are sent when `moved` makes them ready. `gathers`: calls received together are answered
    together."""

    def __init__(
        self,
        limits: Http2Limits = SMALL,
        liveness: Timeline | None = None,
        window: int = 1 << 30,
        receive_memory: ReceiveMemory | None = None,
        front_end: CallFrontEnd | None = None,
        gathers: bool = False,
    ) -> None:
        self.is_aborted = False
        self.echo = Echo()
        self.echo.gathers = gathers
        self.liveness = ManualTime(0) if liveness is None else liveness
        door = GrpcTransport(self.echo if front_end is None else front_end, limits, self.liveness, receive_memory)
        self.conversation: GrpcConversation = door.open_conversation("10.0.0.9:5009", self)
        self._progress = PassProgress()
        self._pending_replies = PendingReplies(self._progress, self._send_ready)
        self._decoder = HeaderDecoder(1 << 20)
        self._unread = bytearray()
        self._window = window
        self.answers: dict[int, Answer] = {}
        self.others: list[Frame] = []
        self.events: list[object] = []

    # -- the session

    def send(self, parts: Parts) -> None:
        self._unread += b"".join(parts)

    @property
    def is_congested(self) -> bool:
        return False

    def throttle_reading(self, milliseconds: int) -> None: ...

    def hold_reading(self) -> None: ...

    def release_reading(self) -> None: ...

    def disable_idle_timeout(self) -> None: ...

    def close(self) -> None: ...

    def abort(self, reason: str = "") -> None:
        self.is_aborted = True

    def _accept(self, reply: Reply) -> None:
        if not self._pending_replies.add(reply):
            self.send(reply.take())

    def _send_ready(self, ready: list[Reply], is_by_pass: bool) -> None:
        for reply in ready:
            self.send(reply.take())

    def moved(self, durable: int) -> None:
        self._progress.advance(durable, durable)
        self.read()

    @property
    def owed(self) -> int:
        return len(self._pending_replies)

    # -- the client

    def greet(self) -> Http2Peer:
        """Sends the preface and opens the windows as far as `window` says."""
        self.say(PREFACE + settings((4, min(self._window, (1 << 31) - 1))))
        if self._window > 65_535:
            self.say(window_update(0, self._window - 65_535))
        return self

    def say(self, data: Buffer, piece: int = 10_000) -> None:
        """Sends the bytes in pieces of this size."""
        view = memoryview(data)
        for at in range(0, len(view), piece):
            self.feed(view[at : at + piece])
        self.read()

    def feed(self, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            room = self.conversation.get_buffer(len(view))
            assert isinstance(room, memoryview)
            size = min(len(room), len(view))
            assert size, "the receive buffer has no room"
            room[:size] = view[:size]
            room.release()
            self.conversation.buffer_updated(size)
            view = view[size:]
            self._take_events()

    def _take_events(self) -> None:
        while (event := self.conversation.next_event()) is not None:
            self.events.append(event)
            reply = self.conversation.handle(event)
            if reply is not None:
                self._accept(reply)

    def read(self) -> None:
        found = frames_of(bytes(self._unread))
        self._unread.clear()
        for each in found:
            if each.kind in (FrameType.HEADERS, FrameType.DATA, FrameType.RST_STREAM):
                self._read_answer(each)
            else:
                self.others.append(each)

    def _read_answer(self, found: Frame) -> None:
        answer = self.answers.setdefault(found.number, Answer())
        if found.kind == FrameType.RST_STREAM:
            answer.reset = struct.unpack(">I", found.payload)[0]
            return
        assert not answer.is_ended, "frames were sent after the end of the stream"
        answer.is_ended = bool(found.flags & END_STREAM)
        if found.kind == FrameType.DATA:
            answer.data += found.payload
        else:
            assert found.flags & END_HEADERS
            answer.headers.append(dict(self._decoder.decode(found.payload).fields))

    def windows(self, number: int) -> int:
        """Bytes granted on a stream beyond its initial window."""
        opened = [each for each in self.others if each.kind == FrameType.WINDOW_UPDATE and each.number == number]
        return sum(struct.unpack(">I", each.payload)[0] for each in opened)

    def pongs(self) -> Sequence[Frame]:
        return [each for each in self.others if each.kind == FrameType.PING and each.flags & ACK]
