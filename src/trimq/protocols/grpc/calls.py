"""Calls out of the streams of an HTTP/2 connection, without IO: each is told of when it can be answered, and those that
cannot be made are ended here. Knows gRPC's rules; not who answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from trimq.model import Buffer
from trimq.protocols.contract import CallRun, Parts
from trimq.protocols.grpc import messages
from trimq.protocols.grpc.connection import Http2Connection, Limits, Opened, Received
from trimq.protocols.grpc.frames import Fault
from trimq.protocols.grpc.messages import PREFIX_BYTES
from trimq.protocols.grpc.request_headers import Head, HeadReader, Method, NotGrpc, NotHttp
from trimq.protocols.grpc.statuses import (
    HEADERS,
    OK_TRAILERS,
    Rejection,
    Status,
    plain_answer,
    trailers,
    whole_answer,
)
from trimq.protocols.grpc.streams import Stream


class CallEvent(msgspec.Struct, gc=False):
    stream: Stream

    @property
    def title(self) -> str:
        """As a report shows it."""
        head: Head | None = self.stream.block.meaning
        return f"{'?' if head is None else head.method.name} {type(self).__name__.lower()}"


class Asked(CallEvent):
    """A plain call, whole."""

    raw: bytes


class AskedTogether(CallEvent):
    """Plain calls that came together, each whole, which `run` has taken. The first is that of `stream`."""

    streams: list[Stream]
    run: CallRun


class Begun(CallEvent):
    """A call that goes on: each may say something at any time."""


class Said(CallEvent):
    raw: bytes


class Finished(CallEvent):
    """The caller will say nothing more, and waits for the end."""


class Cancelled(CallEvent):
    """Nobody waits for the answer any more."""


class Calls:
    """Of one connection. Answers are made by `answer`, `say` and `end`, which give what to send now."""

    def __init__(
        self,
        http2: Http2Connection,
        methods: Mapping[str, Method],
        address: str,
        limits: Limits,
        heeded: frozenset[str],
    ) -> None:
        self._http2 = http2
        self._heads = HeadReader(methods, address, limits.header_bytes, heeded)
        self._limits = limits
        self._said: list[CallEvent] = []  # more than one message may come at once, the first is the last

    # -- in

    def next_event(self) -> CallEvent | None:
        while True:
            if self._said:
                said = self._said.pop()
                if said.stream.is_open:
                    return said
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

    def _open(self, stream: Stream) -> CallEvent | None:
        block = stream.block
        try:
            if stream.kept:
                self._require_room()
            if block.meaning is None:
                block.meaning = self._heads.read(block)
            if stream.has_ended and not block.meaning.method.is_stream:
                raise Rejection(Status.INTERNAL, "a call without a message")
        except NotHttp:
            return Cancelled(self._http2.fail(stream, Fault.PROTOCOL_ERROR).stream)
        except NotGrpc as error:
            self._http2.post(self._finish(stream, plain_answer(error.http_status)))
            return None
        except Rejection as rejection:
            return self._reject(stream, rejection)
        if not block.meaning.method.is_stream:
            return None
        if stream.has_ended:
            self._said.append(Finished(stream))
        return Begun(stream)

    def _receive(self, stream: Stream, data: bytes) -> CallEvent | None:
        head: Head = stream.block.meaning
        try:
            if (
                stream.has_ended
                and stream.partial is None
                and not head.method.is_stream
                and len(data) >= PREFIX_BYTES
                and not data[0]
                and messages.size_of(data, self._limits.message_bytes) == len(data) - PREFIX_BYTES
            ):  # nearly all: a plain call whose message came at once
                return Asked(stream, data[PREFIX_BYTES:])
            return self._assemble(stream, head, data)
        except Rejection as rejection:
            return self._reject(stream, rejection)

    def _assemble(self, stream: Stream, head: Head, data: bytes) -> CallEvent | None:
        if stream.partial is None:
            stream.partial = bytearray()
        stream.partial += data
        found = self._take_messages(stream, head)
        if head.method.is_stream:
            events: list[CallEvent] = [Said(stream, self._content(head, each)) for each in found]
            if stream.has_ended:
                events.append(Finished(stream))
            self._keep(stream, not events)
            self._said = events[::-1]
            return self._said.pop() if events else None
        if found and stream.asked is None:
            stream.asked = found.pop(0)
        if found or (stream.asked is not None and stream.partial):
            raise Rejection(Status.INTERNAL, "a plain call with more than one message")
        self._keep(stream, not stream.has_ended)
        if not stream.has_ended:
            return None
        if stream.asked is None:
            raise Rejection(Status.INTERNAL, "a call ends before its message does")
        self._http2.intake.complete(stream)
        asked, stream.asked = stream.asked, None
        self._keep(stream, False)
        return Asked(stream, self._content(head, asked))

    def _keep(self, stream: Stream, must_wait: bool) -> None:
        """What has come is counted. Rejection: more has to come, and there is no room for it."""
        partial, asked = stream.partial, stream.asked
        self._http2.intake.keep(stream, len(partial or b"") + (0 if asked is None else len(asked[1])))
        if must_wait:
            self._require_room()

    def _require_room(self) -> None:
        shortage = self._http2.intake.shortage
        if shortage:
            raise Rejection(Status.RESOURCE_EXHAUSTED, shortage)

    def _content(self, head: Head, found: tuple[int, bytes]) -> bytes:
        """Only of what is passed on now: compressed messages take little until then."""
        flag, raw = found
        return messages.content(flag, raw, head.is_packed, self._limits.message_bytes)

    def _take_messages(self, stream: Stream, head: Head) -> list[tuple[int, bytes]]:
        """Those that are whole, each behind the flag that tells whether it is compressed."""
        partial = stream.partial
        assert partial is not None
        most, found, at = self._limits.message_bytes, [], 0
        while len(partial) - at >= PREFIX_BYTES:
            size = messages.size_of(memoryview(partial)[at : at + PREFIX_BYTES], most)
            begin, finish = at + PREFIX_BYTES, at + PREFIX_BYTES + size
            if finish > len(partial):
                self._http2.intake.expect(stream, finish - len(partial))
                break
            found.append((partial[at], bytes(memoryview(partial)[begin:finish])))
            at = finish
        if at:
            del partial[:at]
            if head.method.is_stream:  # the message of a plain call is kept, with its room, until the call's end
                self._http2.intake.complete(stream)
        return found

    def _reject(self, stream: Stream, rejection: Rejection) -> CallEvent | None:
        had_begun = stream.work is not None
        stream.partial = stream.asked = None
        self._keep(stream, False)
        self._http2.post(self.end(stream, rejection.status, str(rejection)))
        return Cancelled(stream) if had_begun else None

    # -- out

    def answer(self, stream: Stream, parts: Parts) -> list[Buffer]:
        """The whole answer to a plain call, and its end."""
        http2 = self._http2
        head, tail = http2.headers(stream, HEADERS), http2.headers(stream, OK_TRAILERS, True)
        return http2.outflow.send(stream, head, messages.framed(parts), tail)

    def answer_all(self, streams: Iterable[Stream], answers: Parts) -> list[Buffer]:
        """As `answer`, one message for each of these calls; for none that nobody waits for any more."""
        parts: list[Buffer] = []
        for stream, raw in zip(streams, answers, strict=True):
            if stream.is_open:
                parts += self.answer(stream, (raw,))
        return parts

    def say(self, stream: Stream, parts: Parts) -> list[Buffer]:
        """More of an answer that goes on."""
        head = b"" if stream.has_headers else self._http2.headers(stream, HEADERS)
        stream.has_headers = True
        return self._http2.outflow.send(stream, head, messages.framed(parts))

    def end(self, stream: Stream, status: Status, reason: str) -> list[Buffer]:
        """The end of a call that has no other answer, or has had all of it."""
        if not stream.has_headers:
            return self._finish(stream, whole_answer(status, reason))
        return self._finish(stream, OK_TRAILERS if status is Status.OK else trailers(status, reason))

    def _finish(self, stream: Stream, block: bytes) -> list[Buffer]:
        return self._http2.outflow.finish(stream, self._http2.headers(stream, block, True))
