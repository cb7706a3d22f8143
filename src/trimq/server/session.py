"""One accepted connection: bytes in, events to the front-end, replies out once their pass is durable. Owns the order
of replies, back-pressure in both directions and one socket write per loop pass. Knows no protocol."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from trimq.clock import Timeline
from trimq.errors import ProtocolError
from trimq.metrics import Counter
from trimq.model import Buffer
from trimq.protocols.contract import Conversation, FrontEnd, Parts, Reply

log = logging.getLogger(__name__)

# A connection's share of one loop pass: after so many events the others have their turn.
_EVENTS_PER_TURN = 64

# Parts up to this size are joined: a copy is cheaper than a system call.
_JOIN_BELOW = 16 * 1024

# The transport copies what the socket does not take at once, so it is given no more than this at a time.
_SLICE = 256 * 1024


class Progress:
    """The numbers that replies wait for, and the sessions that have such replies."""

    def __init__(self) -> None:
        self.written = 0
        self.durable = 0
        # A dict, not a set: sessions are released in the order in which they began to wait, on every run.
        self._waiting: dict[Session, None] = {}

    def wait(self, session: Session) -> None:
        self._waiting[session] = None

    def forget(self, session: Session) -> None:
        self._waiting.pop(session, None)

    def moved(self, written: int, durable: int) -> None:
        self.written = written
        self.durable = durable
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            session.release()


@dataclass(frozen=True, slots=True)
class SessionLimits:
    pending_replies: int
    unsent_bytes: int


@dataclass(frozen=True, slots=True)
class SessionMetrics:
    received_bytes: Counter
    sent_bytes: Counter
    requests: Counter


class Session(asyncio.BufferedProtocol):
    """Implements `Outlet` for its conversation."""

    def __init__(
        self,
        front_end: FrontEnd,
        progress: Progress,
        limits: SessionLimits,
        metrics: SessionMetrics,
        liveness: Timeline,
        ended: Callable[[Session], None],
    ) -> None:
        self._front_end = front_end
        self._progress = progress
        self._limits = limits
        self._metrics = metrics
        self._liveness = liveness
        self._ended = ended
        self._transport: asyncio.Transport
        self._conversation: Conversation
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[object, deque[Reply]] = {}
        self._unordered: list[Reply] = []
        self._pending = 0
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._collected: list[Buffer] = []
        self._flush_scheduled = False
        self._turn_scheduled = False
        self._write_paused = False
        self._read_paused = False
        self._quota_paused = False
        self._made = False
        self._closing = False
        self._lost = False

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        # Told at once when the socket is full: what is unsent stays here, uncopied.
        self._transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        address = f"{peer[0]}:{peer[1]}" if peer else ""
        self._conversation = self._front_end.converse(address, self)
        self._made = True
        if self._closing:
            self._transport.abort()

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        return self._conversation.get_buffer(size_hint)

    def buffer_updated(self, nbytes: int) -> None:
        self._metrics.received_bytes.value += nbytes
        self._conversation.buffer_updated(nbytes)
        if not self._turn_scheduled:
            self._take_turn()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._send_unsent()
        if not self._write_paused:
            self._conversation.congestion_ended()
            self._take_turn()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._progress.forget(self)
        waiting = [reply for lane in self._lanes.values() for reply in lane] + self._unordered
        self._lanes.clear()
        self._unordered.clear()
        self._unsent.clear()
        self._collected.clear()
        for reply in waiting:
            if reply.abandon is not None:
                reply.abandon()
        self._conversation.closed()
        self._ended(self)

    # -- events

    def _take_turn(self) -> None:
        """Handle what has arrived, up to this connection's share, so that none starves another."""
        self._turn_scheduled = False
        for _ in range(_EVENTS_PER_TURN):
            if self._lost or self._closing or self._quota_paused or self._is_overloaded():
                break
            if not self._take_event():
                break
        else:
            self._turn_scheduled = True
            self._loop.call_soon(self._take_turn)
        self._steer_reading()

    def _take_event(self) -> bool:
        try:
            event = self._conversation.next_event()
            if event is None:
                return False
            self._metrics.requests.value += 1
            reply = self._conversation.handle(event)
        except ProtocolError as error:
            log.info("closing a connection: %s", error)
            self._finish_with(self._conversation.farewell(error))
            return False
        except Exception:
            log.exception("a request failed unexpectedly; its connection is closed")
            self._finish_with([])
            return False
        if reply is not None:
            self._accept(reply)
        return True

    def _is_overloaded(self) -> bool:
        return self._pending >= self._limits.pending_replies or self._unsent_bytes >= self._limits.unsent_bytes

    def _steer_reading(self) -> None:
        if self._lost or self._transport.is_closing():
            return
        pause = self._turn_scheduled or self._closing or self._quota_paused or self._is_overloaded()
        if pause and not self._read_paused:
            self._transport.pause_reading()
        elif self._read_paused and not pause:
            self._transport.resume_reading()
        self._read_paused = pause

    # -- replies

    def _accept(self, reply: Reply) -> None:
        progress = self._progress
        lane = self._lanes.get(reply.lane) if reply.lane is not None else None
        if not lane and reply.is_ready(progress.written, progress.durable):
            self._collect(reply.take())
            return
        self._pending += 1
        reply.watch(self.release)
        if reply.waits_for_pass:
            progress.wait(self)
        if reply.lane is None:
            self._unordered.append(reply)
        elif lane is None:
            self._lanes[reply.lane] = deque((reply,))
        else:
            lane.append(reply)

    def release(self) -> None:
        """Send the replies that are ready, each lane in its order."""
        if self._lost:
            return
        before = self._pending
        written, durable = self._progress.written, self._progress.durable
        for key, lane in list(self._lanes.items()):
            while lane and lane[0].is_ready(written, durable):
                self._leave(lane.popleft())
            if not lane:
                del self._lanes[key]
            elif lane[0].waits_for_pass:
                self._progress.wait(self)
        if self._unordered:
            self._release_unordered(written, durable)
        if self._pending != before and not self._turn_scheduled:
            # More may be taken in now; not from here, which may be inside another connection's turn.
            self._turn_scheduled = True
            self._loop.call_soon(self._take_turn)

    def _release_unordered(self, written: int, durable: int) -> None:
        ready = [reply for reply in self._unordered if reply.is_ready(written, durable)]
        if ready:
            self._unordered = [reply for reply in self._unordered if reply not in ready]
            for reply in ready:
                self._leave(reply)
        if any(reply.waits_for_pass for reply in self._unordered):
            self._progress.wait(self)

    def _leave(self, reply: Reply) -> None:
        self._pending -= 1
        try:
            parts = reply.take()
        except Exception:
            log.exception("an answer could not be made; its connection is closed")
            self._finish_with([])
            return
        self._collect(parts)

    # -- bytes out: collected during the pass, written once at its end

    def send(self, parts: Parts) -> None:
        self._collect(parts)

    @property
    def is_congested(self) -> bool:
        return self._write_paused or self._unsent_bytes >= self._limits.unsent_bytes

    def _collect(self, parts: Parts) -> None:
        if self._lost:
            return
        self._collected.extend(parts)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._lost:
            return
        small: list[Buffer] = []
        for part in self._collected:
            if len(part) <= _JOIN_BELOW:
                small.append(part)
            else:
                self._queue_joined(small)
                small = []
                self._queue(memoryview(part))
        self._queue_joined(small)
        self._collected = []
        self._send_unsent()
        if self._closing and not self._unsent and not self._pending:
            self._transport.close()
        else:
            self._steer_reading()

    def _queue_joined(self, small: list[Buffer]) -> None:
        if small:
            self._queue(memoryview(small[0] if len(small) == 1 else b"".join(small)))

    def _queue(self, view: memoryview) -> None:
        self._unsent.append(view)
        self._unsent_bytes += len(view)

    def _send_unsent(self) -> None:
        while self._unsent and not self._write_paused and not self._lost:
            view = self._unsent.popleft()
            if len(view) > _SLICE:
                self._unsent.appendleft(view[_SLICE:])
                view = view[:_SLICE]
            self._unsent_bytes -= len(view)
            self._metrics.sent_bytes.value += len(view)
            self._transport.write(view)
        if self._closing and not self._unsent and not self._pending and not self._lost:
            self._transport.close()

    # -- the end

    def _finish_with(self, parts: Parts) -> None:
        """Deliver the answers that came before, then these last words, then close."""
        self._closing = True
        self._accept_last(Reply.now(parts))

    def _accept_last(self, reply: Reply) -> None:
        self._accept(reply)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def pause_intake(self, milliseconds: int) -> None:
        self._quota_paused = True
        self._liveness.call_at(self._liveness.now_ms() + milliseconds, self._resume_intake)
        self._steer_reading()

    def _resume_intake(self) -> None:
        self._quota_paused = False
        self._take_turn()

    def close(self) -> None:
        """Deliver the answers that are ready or certain to come, give up those that wait for an event, then close."""
        if not self._made:
            self._closing = True  # accepted in this very pass: it ends as soon as it is made
        elif not self._lost and not self._closing:
            self._abandon_deferred()
            self._finish_with([])

    def _abandon_deferred(self) -> None:
        for key, lane in list(self._lanes.items()):
            certain = deque(itertools.takewhile(_is_certain, lane))
            self._give_up(list(lane)[len(certain) :])
            self._lanes[key] = certain
        self._give_up([reply for reply in self._unordered if not _is_certain(reply)])
        self._unordered = [reply for reply in self._unordered if _is_certain(reply)]

    def _give_up(self, replies: list[Reply]) -> None:
        for reply in replies:
            self._pending -= 1
            if reply.abandon is not None:
                reply.abandon()

    def abort(self) -> None:
        """Drop the connection and whatever was not sent."""
        if not self._made:
            self._closing = True
        elif not self._lost:
            self._transport.abort()

    @property
    def is_quiet(self) -> bool:
        """Nothing waits to be handled or sent. An answer that is held for a pass or an event is not counted here."""
        is_sending = self._unsent or self._collected or self._flush_scheduled or self._write_paused
        return self._lost or not (is_sending or self._turn_scheduled)


def _is_certain(reply: Reply) -> bool:
    return reply.waits_for_pass or reply.is_ready(0, 0)
