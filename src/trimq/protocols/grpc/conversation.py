"""Conversation with a gRPC client: passes each call to the front-end, sends each answer on its stream when it is ready,
and serves streaming calls."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from functools import partial

from trimq.clock import Timeline, Timer
from trimq.core.security.login_delays import source_of
from trimq.errors import ProtocolError, Stopping
from trimq.model import Buffer
from trimq.protocols.contract import (
    Build,
    CallBatch,
    CallFrontEnd,
    CallStream,
    ConnectionDetails,
    Parts,
    Reply,
    SessionControl,
)
from trimq.protocols.grpc.calls import (
    CallAssembler,
    CallerDone,
    CallEvent,
    Cancelled,
    StreamingCall,
    StreamMessage,
    UnaryCall,
    UnaryCalls,
)
from trimq.protocols.grpc.connection import Http2Connection, Http2Limits
from trimq.protocols.grpc.deferred_calls import DeferredCalls
from trimq.protocols.grpc.frames import ErrorCode, Http2ConnectionError
from trimq.protocols.grpc.request_headers import CallHeaders, GrpcMethod
from trimq.protocols.grpc.statuses import Status
from trimq.protocols.grpc.streams import Http2Stream
from trimq.wire.receive_buffer import ReceiveMemory

log = logging.getLogger(__name__)


class _UnaryCall:
    """Unary call that waits for its answer."""

    __slots__ = ("_calls", "_fail", "_stream", "reply", "timer")

    def __init__(
        self, calls: CallAssembler, stream: Http2Stream, fail: Callable[[str, Exception], Parts], reply: Reply
    ) -> None:
        self._calls = calls
        self._stream = stream
        self._fail = fail
        self.reply = reply
        self.timer: Timer | None = None

    def wrap(self, build: Build) -> Parts:
        """Encodes the answer; returns nothing if the call was cancelled."""
        if self.timer is not None:
            self.timer.cancel()
        stream = self._stream
        if not stream.is_open:
            return ()
        try:
            parts = build()
        except Exception as error:
            parts = self._fail(stream.block.parsed.method.name, error)
        stream.work = None
        return self._calls.answer(stream, parts)

    def cancel(self) -> None:
        self.drop()
        self.reply.cancel()

    def drop(self) -> None:
        """Cancels the timer only: the connection is closed, and its replies were already abandoned."""
        if self.timer is not None:
            self.timer.cancel()


class _UnaryCallBatch:
    """Unary calls that are answered together. They cannot be cancelled one by one: they were executed together."""

    __slots__ = ("_calls", "_fail", "_streams")

    def __init__(
        self, calls: CallAssembler, streams: list[Http2Stream], fail: Callable[[str, Exception], Parts]
    ) -> None:
        self._calls = calls
        self._streams = streams
        self._fail = fail

    def wrap(self, build: Build) -> Parts:
        """Encodes the answers of the calls that were not cancelled."""
        streams = self._streams
        try:
            answers = build()
        except Exception as error:
            answers = [*self._fail(streams[0].block.parsed.method.name, error)] * len(streams)
        return self._calls.answer_all(streams, answers)


class _StreamCall:
    """Streaming call on which both sides send messages at any time."""

    __slots__ = ("_stream", "timer")

    def __init__(self, stream: CallStream) -> None:
        self._stream = stream
        self.timer: Timer | None = None

    def receive(self, raw: bytes) -> Parts:
        return self._stream.receive(raw)

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self._stream.closed()

    drop = cancel


class _StreamSink:
    """Sends messages to the peer of a streaming call."""

    __slots__ = ("_is_congested", "_send_message")

    def __init__(self, say: Callable[[Parts], None], is_congested: Callable[[], bool]) -> None:
        self._send_message = say
        self._is_congested = is_congested

    def __call__(self, parts: Parts) -> None:
        self._send_message(parts)

    @property
    def is_congested(self) -> bool:
        return self._is_congested()


class GrpcConversation:
    def __init__(
        self,
        front_end: CallFrontEnd,
        methods: Mapping[str, GrpcMethod],
        address: str,
        outlet: SessionControl,
        limits: Http2Limits,
        liveness: Timeline,
        held_bytes: ReceiveMemory,
    ) -> None:
        self._front_end = front_end
        self._outlet = outlet
        self._limits = limits
        self._liveness = liveness
        self._http2 = Http2Connection(limits, liveness.now_ms, held_bytes)
        self._http2.held.attach(source_of(address), lambda reason: outlet.abort(reason))
        self._calls = CallAssembler(self._http2, methods, address, limits, front_end.used_metadata)
        self._call_batches = front_end.call_batches()
        self._ahead: CallEvent | Exception | None = None  # event or error read after a batch of calls
        self._deferred = DeferredCalls(limits.message_bytes, self._http2.receive_window)
        self.get_buffer = self._http2.get_buffer
        self.buffer_updated = self._http2.buffer_updated
        self.release_memory = self._http2.release_memory

    # -- received

    def identify(self, principal: str) -> None:
        """A certificate names no user: each call carries its login in its metadata."""

    def next_event(self) -> CallEvent | None:
        ahead = self._ahead
        event = self._next()
        if type(event) is UnaryCall and event is not ahead and self._call_batches:
            event = self._gather(event)
        self._flush()
        return event

    def _gather(self, first: UnaryCall) -> CallEvent:
        """Collects the calls that follow `first` and may be answered together with it; stops at the first other
        event."""
        method = first.stream.block.parsed.method
        batch = self._call_batches.get(method.name)
        if batch is None or not _is_taken(batch, first):
            return first
        streams = [first.stream]
        while len(streams) < batch.limit and not self._deferred and self._has_room:
            try:
                event = self._calls.next_event()
            except Exception as error:
                self._ahead = error  # raised after the calls before it are handled
                break
            if event is None:
                break
            if type(event) is not UnaryCall:
                self._ahead = event
                break
            if event.stream.block.parsed.method is not method or not _is_taken(batch, event):
                self._ahead = event
                self._http2.receive_window.keep(event.stream, len(event.raw))  # counted, since it may have to wait
                break
            streams.append(event.stream)
        return UnaryCalls(first.stream, streams, batch)

    def _read(self) -> CallEvent | None:
        ahead = self._ahead
        if ahead is None:
            return self._calls.next_event()
        self._ahead = None
        if isinstance(ahead, Exception):
            raise ahead
        if type(ahead) is UnaryCall:
            self._http2.receive_window.keep(ahead.stream, 0)
        return ahead

    def _next(self) -> CallEvent | None:
        """Returns the next event. While the peer leaves too many answers unread, its calls are deferred; other frames
        are still read, because they may open the send window."""
        while True:
            if self._deferred and self._has_room:
                return self._deferred.take()
            event = self._read()
            if type(event) is UnaryCall and not self._has_room:
                if not self._deferred.add(event):
                    self._http2.fail(event.stream, ErrorCode.REFUSED_STREAM)
                continue
            if type(event) is Cancelled:
                self._deferred.drop(event.stream)
            if event is not None or not (self._deferred and self._has_room):
                return event

    @property
    def _has_room(self) -> bool:
        return self._http2.send_window.held_bytes < self._limits.unsent_bytes

    def _flush(self) -> None:
        outgoing = self._http2.take_outgoing()
        if outgoing:
            self._outlet.send(outgoing)

    def handle(self, event: object) -> Reply | None:
        if type(event) is UnaryCall:
            return self._handle_unary(event.stream, event.raw)
        if type(event) is UnaryCalls:
            return self._handle_batch(event)
        if type(event) is StreamingCall:
            self._begin(event.stream)
        elif type(event) is StreamMessage:
            self._receive_message(event.stream, event.raw)
        elif type(event) is CallerDone:
            self._end(event.stream, Status.OK, "")
        elif type(event) is Cancelled:
            self._cancel(event.stream)
        return None

    # -- unary calls

    def _handle_unary(self, stream: Http2Stream, raw: bytes) -> Reply | None:
        head: CallHeaders = stream.block.parsed
        name = head.method.name
        try:
            reply = self._front_end.call(name, head.call_info, raw)
        except Exception as error:
            if hasattr(error, "status"):
                self._end_for(stream, name, error)
                return None
            reply = Reply.now(self._failed(name, error), None)
        call = stream.work = _UnaryCall(self._calls, stream, self._failed, reply)
        reply.wrap(call.wrap)
        if reply.is_open and head.call_info.remaining_ms is not None:
            call.timer = self._time_out(stream, head.call_info.remaining_ms)
        return reply

    def _handle_batch(self, event: UnaryCalls) -> Reply:
        streams = event.streams
        try:
            reply = event.batch.finish()
        except Exception as error:
            failed = self._failed(event.stream.block.parsed.method.name, error)
            reply = Reply.now([*failed] * len(streams), None)
        reply.count = len(streams)
        reply.wrap(_UnaryCallBatch(self._calls, streams, self._failed).wrap)
        return reply

    def _failed(self, name: str, error: Exception) -> Parts:
        """Logs an unexpected error and returns the answer of the front-end for it."""
        _log_fault(name, error)
        return self._front_end.failed(name)

    # -- streaming calls

    def _begin(self, stream: Http2Stream) -> None:
        head: CallHeaders = stream.block.parsed
        try:
            opened = self._front_end.open(
                head.method.name, head.call_info, _StreamSink(partial(self._send_message, stream), self._is_congested)
            )
        except Exception as error:
            self._end_for(stream, head.method.name, error)
            return
        talk = stream.work = _StreamCall(opened)
        if head.call_info.remaining_ms is not None:
            talk.timer = self._time_out(stream, head.call_info.remaining_ms)

    def _receive_message(self, stream: Http2Stream, raw: bytes) -> None:
        if stream.work is None:
            return  # the call has ended; the peer does not know yet
        try:
            self._send_message(stream, stream.work.receive(raw))
        except Exception as error:
            self._end_for(stream, stream.block.parsed.method.name, error)

    def _send_message(self, stream: Http2Stream, parts: Parts) -> None:
        """Sends messages; drops them if the peer does not read. The front-end sends them again later."""
        if parts and stream.is_open and not stream.tail and self._has_room:
            self._outlet.send(self._calls.send_messages(stream, parts))

    def _is_congested(self) -> bool:
        """True if the send window or the socket of the peer is full."""
        return not self._has_room or self._outlet.is_congested

    # -- ends

    def _time_out(self, stream: Http2Stream, remaining_ms: int) -> Timer:
        def end() -> None:
            self._end(stream, Status.DEADLINE_EXCEEDED, "deadline exceeded")
            self._flush()  # the end may have freed room for other streams

        return self._liveness.call_at(self._liveness.now_ms() + remaining_ms, end)

    def _end(self, stream: Http2Stream, status: Status, reason: str) -> None:
        if stream.is_open and not stream.tail:
            self._outlet.send(self._calls.end(stream, status, reason))
            self._cancel(stream)

    def _end_for(self, stream: Http2Stream, name: str, error: Exception) -> None:
        """Ends a call with the gRPC status of the error, or with INTERNAL and a log entry if it has none."""
        status = getattr(error, "status", None)
        if status is None:
            _log_fault(name, error)
        self._end(stream, Status[status or "INTERNAL"], str(error) if status else "internal error")

    def _cancel(self, stream: Http2Stream) -> None:
        work, stream.work = stream.work, None
        if work is not None:
            work.cancel()

    def on_congestion_end(self) -> None:
        """Does nothing: flow control of HTTP/2 limits the unsent data."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        self._refuse_unmade()
        if not isinstance(error, Stopping):
            fault = error.fault if isinstance(error, Http2ConnectionError) else ErrorCode.INTERNAL_ERROR
            return self._http2.goaway(fault, str(error))
        talks = [stream for stream in self._http2.streams.values() if isinstance(stream.work, _StreamCall)]
        closing: list[Buffer] = []
        for stream in talks:
            closing += self._calls.end(stream, Status.UNAVAILABLE, str(error))
            self._cancel(stream)
        return [*closing, *self._http2.goaway(ErrorCode.NO_ERROR, str(error))]

    def _refuse_unmade(self) -> None:
        """Refuses calls that were read but not executed, so that their clients can retry them elsewhere."""
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, UnaryCall | StreamingCall):
            self._http2.fail(ahead.stream, ErrorCode.REFUSED_STREAM)
        while self._deferred:
            self._http2.fail(self._deferred.take().stream, ErrorCode.REFUSED_STREAM)

    def describe(self) -> ConnectionDetails:
        return ConnectionDetails()

    def closed(self) -> None:
        for stream in list(self._http2.streams.values()):
            stream.is_open = False
            work, stream.work = stream.work, None
            if work is not None:
                work.drop()
        self._http2.forget()
        self._ahead = None
        self._deferred.clear()


def _is_taken(batch: CallBatch, call: UnaryCall) -> bool:
    try:
        return batch.take(call.stream.block.parsed.call_info, call.raw)
    except Exception:
        return False  # handled alone, the call fails again without harm to others


def _log_fault(name: str, error: Exception) -> None:
    """Logs the traceback as text: a log record with the exception would keep the call alive."""
    log.error("gRPC call %s: unexpected error\n%s", name, "".join(traceback.format_exception(error)))
