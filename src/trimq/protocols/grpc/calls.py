"""Assembles gRPC calls from the streams of an HTTP/2 connection, without IO: reports a call when it can be answered,
and ends invalid calls itself. Knows the rules of gRPC; does not know who answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from trimq.model import Buffer
from trimq.protocols.contract import CallBatch, Parts
from trimq.protocols.grpc import messages
from trimq.protocols.grpc.connection import Http2Connection, Http2Limits, Opened, Received
from trimq.protocols.grpc.frames import ErrorCode
from trimq.protocols.grpc.messages import PREFIX_BYTES
from trimq.protocols.grpc.request_headers import CallHeaderReader, CallHeaders, GrpcMethod, NotGrpc, NotHttp
from trimq.protocols.grpc.statuses import (
    HEADERS,
    OK_TRAILERS,
    CallRejected,
    Status,
    http_error_headers,
    trailers,
    trailers_only,
)
from trimq.protocols.grpc.streams import Http2Stream


class CallEvent(msgspec.Struct, gc=False):
    NAME: ClassVar[str]
    stream: Http2Stream

    @property
    def title(self) -> str:
        """Name of the event in reports."""
        head: CallHeaders | None = self.stream.block.parsed
        return f"{'?' if head is None else head.method.name} {self.NAME}"


class UnaryCall(CallEvent):
    """Complete unary call."""

    NAME = "call"

    raw: bytes


class UnaryCalls(CallEvent):
    """Complete unary calls that arrived together and that `batch` has taken. The first belongs to `stream`."""

    NAME = "calls"

    streams: list[Http2Stream]
    batch: CallBatch


class StreamingCall(CallEvent):
    """Start of a streaming call: both sides may send messages at any time."""

    NAME = "start"


class StreamMessage(CallEvent):
    """Message of a streaming call."""

    NAME = "message"
    raw: bytes


class CallerDone(CallEvent):
    """The caller sends no more messages and waits for the end."""

    NAME = "end"


class Cancelled(CallEvent):
    """The caller no longer waits for the answer."""

    NAME = "cancel"


class CallAssembler:
    """Calls of one connection. `answer`, `send_messages` and `end` encode answers and return the bytes to send now."""

    def __init__(
        self,
        http2: Http2Connection,
        methods: Mapping[str, GrpcMethod],
        address: str,
        limits: Http2Limits,
        used_metadata: frozenset[str],
    ) -> None:
        self._http2 = http2
        self._heads = CallHeaderReader(methods, address, limits.header_bytes, used_metadata)
        self._limits = limits
        self._ready: list[CallEvent] = []  # messages that arrived at once, in reverse order

    # -- received

    def next_event(self) -> CallEvent | None:
        while True:
            if self._ready:
                ready = self._ready.pop()
                if ready.stream.is_open:
                    return ready
                continue
            found = self._http2.next_event()
            if found is None:
                return None
            event: CallEvent | None
            if type(found) is Received:
                event = self._receive(found.stream, found.data)
            elif type(found) is Opened:
                event = self._open(found.stream)
            else:
                event = Cancelled(found.stream)
            if event is not None:
                return event

    def _open(self, stream: Http2Stream) -> CallEvent | None:
        block = stream.block
        try:
            if stream.kept:
                self._require_room()
            if block.parsed is None:
                block.parsed = self._heads.read(block)
            if stream.has_ended and not block.parsed.method.is_stream:
                raise CallRejected(Status.INTERNAL, "unary call without a message")
        except NotHttp:
            return Cancelled(self._http2.fail(stream, ErrorCode.PROTOCOL_ERROR).stream)
        except NotGrpc as error:
            self._http2.post(self._finish(stream, http_error_headers(error.http_status)))
            return None
        except CallRejected as rejection:
            return self._reject(stream, rejection)
        if not block.parsed.method.is_stream:
            return None
        if stream.has_ended:
            self._ready.append(CallerDone(stream))
        return StreamingCall(stream)

    def _receive(self, stream: Http2Stream, data: bytes) -> CallEvent | None:
        head: CallHeaders = stream.block.parsed
        try:
            if (
                stream.has_ended
                and stream.partial is None
                and not head.method.is_stream
                and len(data) >= PREFIX_BYTES
                and not data[0]
                and messages.size_of(data, self._limits.message_bytes) == len(data) - PREFIX_BYTES
            ):  # almost all calls: unary, with the message in one piece
                return UnaryCall(stream, data[PREFIX_BYTES:])
            return self._assemble(stream, head, data)
        except CallRejected as rejection:
            return self._reject(stream, rejection)

    def _assemble(self, stream: Http2Stream, head: CallHeaders, data: bytes) -> CallEvent | None:
        if stream.partial is None:
            stream.partial = bytearray()
        stream.partial += data
        found = self._take_messages(stream, head)
        if head.method.is_stream:
            events: list[CallEvent] = [StreamMessage(stream, self._content(head, each)) for each in found]
            if stream.has_ended:
                events.append(CallerDone(stream))
            self._keep(stream, not events)
            self._ready = events[::-1]
            return self._ready.pop() if events else None
        if found and stream.message is None:
            stream.message = found.pop(0)
        if found or (stream.message is not None and stream.partial):
            raise CallRejected(Status.INTERNAL, "unary call with more than one message")
        self._keep(stream, not stream.has_ended)
        if not stream.has_ended:
            return None
        if stream.message is None:
            raise CallRejected(Status.INTERNAL, "call ended before its message was complete")
        self._http2.receive_window.complete(stream)
        message, stream.message = stream.message, None
        self._keep(stream, False)
        return UnaryCall(stream, self._content(head, message))

    def _keep(self, stream: Http2Stream, must_wait: bool) -> None:
        """Counts the received bytes. Raises CallRejected if more bytes must arrive and the memory limit is exceeded."""
        partial, message = stream.partial, stream.message
        self._http2.receive_window.keep(stream, len(partial or b"") + (0 if message is None else len(message[1])))
        if must_wait:
            self._require_room()

    def _require_room(self) -> None:
        shortage = self._http2.receive_window.shortage
        if shortage:
            raise CallRejected(Status.RESOURCE_EXHAUSTED, shortage)

    def _content(self, head: CallHeaders, found: tuple[int, bytes]) -> bytes:
        """Decompresses a message only when it is passed on: until then it takes little memory."""
        flag, raw = found
        return messages.content(flag, raw, head.is_compressed, self._limits.message_bytes)

    def _take_messages(self, stream: Http2Stream, head: CallHeaders) -> list[tuple[int, bytes]]:
        """Cuts the complete messages. Returns each with its flag, which says whether it is compressed."""
        partial = stream.partial
        assert partial is not None
        most, found, at = self._limits.message_bytes, [], 0
        while len(partial) - at >= PREFIX_BYTES:
            size = messages.size_of(memoryview(partial)[at : at + PREFIX_BYTES], most)
            begin, finish = at + PREFIX_BYTES, at + PREFIX_BYTES + size
            if finish > len(partial):
                self._http2.receive_window.expect(stream, finish - len(partial))
                break
            found.append((partial[at], bytes(memoryview(partial)[begin:finish])))
            at = finish
        if at:
            del partial[:at]
            if head.method.is_stream:  # the message of a unary call keeps its grant until the call ends
                self._http2.receive_window.complete(stream)
        return found

    def _reject(self, stream: Http2Stream, rejection: CallRejected) -> CallEvent | None:
        had_begun = stream.work is not None
        stream.partial = stream.message = None
        self._keep(stream, False)
        self._http2.post(self.end(stream, rejection.status, str(rejection)))
        return Cancelled(stream) if had_begun else None

    # -- sent

    def answer(self, stream: Http2Stream, parts: Parts) -> list[Buffer]:
        """Encodes the complete answer to a unary call."""
        http2 = self._http2
        head, tail = http2.headers(stream, HEADERS), http2.headers(stream, OK_TRAILERS, True)
        return http2.send_window.send(stream, head, messages.framed(parts), tail)

    def answer_all(self, streams: Iterable[Http2Stream], answers: Parts) -> list[Buffer]:
        """Like `answer`, with one message for each call; skips cancelled calls."""
        parts: list[Buffer] = []
        for stream, raw in zip(streams, answers, strict=True):
            if stream.is_open:
                parts += self.answer(stream, (raw,))
        return parts

    def send_messages(self, stream: Http2Stream, parts: Parts) -> list[Buffer]:
        """Encodes further messages of a streaming call."""
        head = b"" if stream.has_headers else self._http2.headers(stream, HEADERS)
        stream.has_headers = True
        return self._http2.send_window.send(stream, head, messages.framed(parts))

    def end(self, stream: Http2Stream, status: Status, reason: str) -> list[Buffer]:
        """Ends a call that has no answer or whose answer is complete."""
        if not stream.has_headers:
            return self._finish(stream, trailers_only(status, reason))
        return self._finish(stream, OK_TRAILERS if status is Status.OK else trailers(status, reason))

    def _finish(self, stream: Http2Stream, block: bytes) -> list[Buffer]:
        return self._http2.send_window.finish(stream, self._http2.headers(stream, block, True))
