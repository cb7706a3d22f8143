"""One accepted connection: passes received bytes to the front-end, and sends replies once their pass is durable. Owns
the turns of the connection, back-pressure in both directions, and closing. Knows no protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from trimq.clock import Timeline, Timer
from trimq.core.security.login_delays import source_of
from trimq.errors import ForcedClose, ProtocolError, Stopping
from trimq.metrics import Counter
from trimq.protocols.contract import ConnectionDetails, Conversation, FrontEnd, Parts, Reply
from trimq.server.connection.buffer_release import BufferReleaser
from trimq.server.connection.limits import ConnectionsByAddress, IdleTimeout, SessionLimits, TurnBudget
from trimq.server.connection.pending_replies import PassProgress, PendingReplies
from trimq.server.connection.send_queue import SendQueue, send_eof, supports_gather_write
from trimq.server.connection.session_state import (
    HAS_CONVERSATION,
    HAS_ENDED_INPUT,
    TAKES_REQUESTS,
    ReadHold,
    SessionEvent,
    SessionState,
    next_state,
)

log = logging.getLogger(__name__)

# An incomplete request counts as activity only after each so many received bytes: a peer that sends single bytes does
# not keep its connection open.
_LIVELY_BYTES = 64 * 1024

# How long the broker reads from a connection after closing its own side. If a socket is closed with unread bytes, the
# kernel sends a reset, and the peer discards replies that it has not read yet.
_LINGER_MS = 1000
_DISCARDED = bytearray(64 * 1024)

# Used for every event: module constants are cheaper than attributes of the enum.
_OPEN, _HALF_CLOSED = TAKES_REQUESTS
_LINGERING, _LOST = SessionState.LINGERING, SessionState.LOST

# As plain integers: the operators of an enum.Flag are slow, and some requests hold reading until they are answered.
_OVER_QUOTA, _FRONT_END = ReadHold.OVER_QUOTA.value, ReadHold.FRONT_END.value


@dataclass(frozen=True, slots=True)
class SessionMetrics:
    received_bytes: Counter
    sent_bytes: Counter
    requests: Counter


class Session(asyncio.BufferedProtocol):
    """Implements `SessionControl` for its conversation."""

    def __init__(
        self,
        front_end: FrontEnd,
        progress: PassProgress,
        limits: SessionLimits,
        metrics: SessionMetrics,
        liveness: Timeline,
        buffer_releaser: BufferReleaser,
        ended: Callable[[Session], None],
        by_address: ConnectionsByAddress | None = None,
    ) -> None:
        self._front_end = front_end
        self._limits = limits
        self._metrics = metrics
        self._liveness = liveness
        self._buffer_releaser = buffer_releaser
        self._turn_budget = TurnBudget(liveness)
        self._ended = ended
        self._by_address = by_address
        self._counted_as: str | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._conversation: Conversation
        self.address = ""
        self._pending_replies = PendingReplies(progress, self._send_ready, limits.held_replies)
        self._send_queue = SendQueue(metrics.sent_bytes)
        self._idle_timeout = IdleTimeout(liveness, limits.idle_ms, self._idle_timed_out)
        self._unlively_bytes = 0
        self._closing_parts: Parts = ()
        self._timer: Timer | None = None
        self._first_request_timer: Timer | None = None
        self._state = SessionState.ACCEPTED
        self._read_holds = 0
        self._is_reading_paused = False  # at the last check; the event that ends the reason schedules a turn
        self._is_reading = True  # of the transport
        self._flush_scheduled = self._turn_scheduled = False
        self._ignores_idle_timeout = self._must_report_congestion_end = False

    def _move(self, event: SessionEvent) -> bool:
        """Applies an event. Returns whether it changed the state."""
        before = self._state
        self._state = next_state(before, event)
        return self._state is not before

    # -- calls of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.use(cast(asyncio.Transport, transport))  # uvloop's transport has the methods without the base class
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else ""
        self._move(SessionEvent.MADE)
        if self._state is SessionState.ABORTED:  # closed before it was made
            self._transport.abort()
            return
        if self._by_address is not None:
            source = source_of(self.address)
            if not self._by_address.enter(source):
                log.info("connection of %s: closing (limit of connections from one address reached)", self.address)
                self._move(SessionEvent.OPENING_FAILED)
                self._transport.abort()
                return
            self._counted_as = source
        try:
            self._conversation = self._front_end.open_conversation(self.address, self)
        except Exception:
            log.exception("connection of %s: the front-end could not open it; closing it", self.address)
            self._move(SessionEvent.OPENING_FAILED)
            self._transport.abort()
            return
        self._move(SessionEvent.OPENED)
        self._idle_timeout.start()
        if (limit_ms := self._limits.first_request_ms()) is not None:
            due_ms = self._liveness.now_ms() + limit_ms
            self._first_request_timer = self._liveness.call_at(due_ms, self._first_request_timed_out)

    def use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # `pause_writing` is called as soon as the socket is full: unsent bytes stay in our queue, without a copy.
        transport.set_write_buffer_limits(high=0)
        self._send_queue.supports_gather_write = supports_gather_write(transport)

    def identify(self, principal: str) -> None:
        """Called after the TLS handshake of a client whose verified certificate names a user, before its first
        request."""
        if self._state in TAKES_REQUESTS:
            self._conversation.identify(principal)

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        if self._state is _OPEN or self._state is _HALF_CLOSED:
            return self._conversation.get_buffer(size_hint)
        return _DISCARDED

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is not _OPEN and self._state is not _HALF_CLOSED:
            return
        self._metrics.received_bytes.value += nbytes
        self._unlively_bytes += nbytes
        if self._unlively_bytes >= _LIVELY_BYTES:
            self._unlively_bytes = 0
            self._idle_timeout.activity_count += 1
            self._buffer_releaser.watch(self)
        self._conversation.buffer_updated(nbytes)
        if not self._turn_scheduled:
            self._take_turn()

    def eof_received(self) -> bool:
        """Called when the peer has closed its side. It may wait for replies: all its requests are answered first."""
        self._move(SessionEvent.END_OF_INPUT)
        if self._state not in HAS_ENDED_INPUT:
            return False
        self._schedule_turn()
        return True

    def pause_writing(self) -> None:
        self._send_queue.is_blocked = True

    def resume_writing(self) -> None:
        self._send_queue.is_blocked = False
        self._idle_timeout.activity_count += 1
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        had_conversation = self._state in HAS_CONVERSATION
        if not self._move(SessionEvent.LOST):
            return
        self._buffer_releaser.forget(self)
        if self._by_address is not None and self._counted_as is not None:
            self._by_address.leave(self._counted_as)
        self._idle_timeout.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._end_first_request_timer()
        self._send_queue.clear()
        self._pending_replies.end()
        try:
            if had_conversation:
                self._conversation.closed()
        except Exception:
            log.exception("connection of %s: clean-up in the front-end failed", self.address)
        finally:
            if had_conversation:  # breaks a reference cycle that would keep its buffers until a garbage collection
                del self._conversation
            self._ended(self)

    @property
    def activity_count(self) -> int:
        return self._idle_timeout.activity_count

    def release_memory(self) -> bool:
        """Frees the receive buffer of a peer that once sent much and sends nothing now."""
        return self._state not in TAKES_REQUESTS or self._conversation.release_memory()

    # -- events

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Handles received requests up to the budget of this connection, so that it does not starve others."""
        self._turn_scheduled = False
        budget = self._turn_budget
        budget.begin()
        while not (must_wait := self._must_wait()) and (requests := self._take_event()):
            if budget.is_used_up(requests):
                self._schedule_turn()
                break
        if self._state is not _OPEN and self._state in HAS_ENDED_INPUT:
            self._finish_input()
        if must_wait or self._turn_scheduled or self._is_reading_paused or not self._is_reading:
            self._update_reading()

    def _take_event(self) -> int:
        """Handles the next event. Returns the number of its requests; 0 if there is no event, or the session is
        closing."""
        requests = 1
        try:
            if (event := self._conversation.next_event()) is None:
                return 0
            self._idle_timeout.activity_count += 1
            if self._first_request_timer is not None:
                self._end_first_request_timer()
            if (reply := self._conversation.handle(event)) is not None:
                requests = reply.count
                if not self._pending_replies.add(reply):
                    self.send(reply.take())
        except ProtocolError as error:
            log.info("connection of %s: closing (%s)", self.address, error)
            self._end_with_error(self._make_closing_parts(error))
            return 0
        except Exception:
            log.exception("connection of %s: request failed unexpectedly; closing the connection", self.address)
            self._end_with_error(())
            return 0
        self._metrics.requests.value += requests
        return requests

    def _finish_input(self) -> None:
        """Answers long polls of a peer that has closed its side, and closes the connection after the last reply."""
        self._pending_replies.resolve_now()
        if not self._pending_replies.count and not self._turn_scheduled and not self._must_wait():
            self._close()

    def _must_wait(self) -> bool:
        """True if no request may be handled now (back-pressure). The event that ends this schedules a turn."""
        if self._read_holds or (self._state is not _OPEN and self._state is not _HALF_CLOSED):
            return True
        limits, replies = self._limits, self._pending_replies
        has_many = replies.count >= limits.pending_replies and replies.pending >= limits.pending_replies
        return has_many or self._send_queue.unsent_bytes >= limits.unsent_bytes

    def _update_reading(self) -> None:
        self._is_reading_paused = self._turn_scheduled or self._must_wait()
        # After end of file a transport does not read, and would report the end again if reading were resumed.
        if self._state in HAS_ENDED_INPUT or self._state is _LOST or self._transport.is_closing():
            return
        if self._is_reading_paused and self._is_reading:
            self._transport.pause_reading()
        elif not self._is_reading_paused and not self._is_reading:
            self._transport.resume_reading()
        self._is_reading = not self._is_reading_paused

    # -- replies

    def _send_ready(self, ready: list[Reply], is_by_pass: bool) -> None:
        if self._state is _LOST:
            return
        for reply in ready:
            try:
                self._send_queue.put(reply.take())
            except Exception:
                log.exception("connection of %s: reply could not be encoded; closing the connection", self.address)
                self._pending_replies.abandon_all()  # a peer that counts replies must not take a later one for this
                self._end_with_error(())
                break
        if self._is_reading_paused or self._state in HAS_ENDED_INPUT:
            # More requests may be handled now, but not in this call, which may be inside another connection's turn.
            self._schedule_turn()
        if not is_by_pass or self._flush_scheduled:
            self._schedule_flush()
            return
        try:
            self._flush()  # scheduling it would add a turn of the loop to each reply that waits for a pass
        except Exception:
            log.exception("connection of %s: sending replies failed; closing the connection", self.address)
            self._transport.abort()  # an error here must not affect other connections of this pass

    # -- sending: bytes are collected during the turn and written once at its end

    def send(self, parts: Parts) -> None:
        if self._state is not _LOST:
            self._send_queue.put(parts)
            self._schedule_flush()

    @property
    def is_congested(self) -> bool:
        congested = self._send_queue.is_blocked or self._send_queue.unsent_bytes >= self._limits.unsent_bytes
        if congested:
            self._must_report_congestion_end = True
        return congested

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        queue, state = self._send_queue, self._state
        if state is _LOST or state is _LINGERING or self._transport.is_closing():
            return
        is_draining = state is not _OPEN and state is not _HALF_CLOSED
        if is_draining and not self._pending_replies.count:
            queue.put(self._closing_parts)
            self._closing_parts = ()
        queue.write_to(self._transport)
        if queue.unsent_bytes and not queue.is_blocked:
            self._schedule_flush()  # the rest of a long reply, after other connections had their turn
        if is_draining:
            if not self._pending_replies.count and not queue.unsent_bytes and not queue.is_blocked:
                self._end()
            return
        if self._must_report_congestion_end and not self.is_congested:
            self._must_report_congestion_end = False
            self._report_congestion_end()
        if self._is_reading_paused and not self._must_wait():
            self._schedule_turn()

    def _report_congestion_end(self) -> None:
        try:
            self._conversation.on_congestion_end()
        except Exception:
            log.exception("connection of %s: deliveries failed unexpectedly; closing the connection", self.address)
            self._end_with_error(())

    # -- closing

    def close(self) -> None:
        """Answers the pending requests as far as possible now, then closes. The peer may still be sending."""
        self._close(SessionEvent.CLOSE_AND_LINGER)

    def _close(self, event: SessionEvent = SessionEvent.CLOSE) -> None:
        was_closing = self._state not in (SessionState.OPENING, *TAKES_REQUESTS)
        if self._move(event) and not was_closing:
            self._pending_replies.resolve_now()
            self._update_reading()
            self._schedule_flush()

    def close_for_shutdown(self) -> None:
        """Closes as `close` does, after the message by which the protocol announces a shutdown. Does not linger."""
        if self._state in TAKES_REQUESTS:
            self._closing_parts = self._make_closing_parts(Stopping())
        self._close()

    def _make_closing_parts(self, error: ProtocolError) -> Parts:
        try:
            return self._conversation.closing_parts(error)
        except Exception:
            log.exception("connection of %s: the protocol's closing message could not be encoded", self.address)
            return ()

    def _end_with_error(self, closing_parts: Parts) -> None:
        """Sends the replies to earlier requests, then these parts, then closes."""
        if self._state in TAKES_REQUESTS:
            self._closing_parts = closing_parts
            self.close()

    def _end(self) -> None:
        """Closes the transport after everything was sent, or lingers first."""
        if self._state is not SessionState.DRAINING_TO_LINGER or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._move(SessionEvent.LINGER)
        send_eof(self._transport)
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        self._set_timer(_LINGER_MS, self._transport.abort)

    def _idle_timed_out(self) -> None:
        if self._send_queue.unsent_bytes or self._send_queue.is_blocked:
            log.info("connection of %s: closing (idle timeout, the client does not read its replies)", self.address)
            self._transport.abort()
        elif not self._pending_replies.count and self._state in TAKES_REQUESTS and not self._ignores_idle_timeout:
            log.info("connection of %s: closing (idle timeout)", self.address)
            self._close()

    def _first_request_timed_out(self) -> None:
        self._first_request_timer = None
        log.info("connection of %s: closing (no complete request in time, and a login is required)", self.address)
        self._transport.abort()

    def _end_first_request_timer(self) -> None:
        if self._first_request_timer is not None:
            self._first_request_timer.cancel()
            self._first_request_timer = None

    def throttle_reading(self, milliseconds: int) -> None:
        self._set_timer(milliseconds, self._end_throttling)
        self._hold(_OVER_QUOTA)

    def _end_throttling(self) -> None:
        self._read_holds &= ~_OVER_QUOTA
        self._take_turn()

    def hold_reading(self) -> None:
        self._hold(_FRONT_END)

    def release_reading(self) -> None:
        if self._read_holds & _FRONT_END:
            self._read_holds &= ~_FRONT_END
            self._schedule_turn()

    def _hold(self, reason: int) -> None:
        self._read_holds |= reason
        if self._state in HAS_CONVERSATION:
            self._update_reading()

    def disable_idle_timeout(self) -> None:
        self._ignores_idle_timeout = True

    def _set_timer(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Sets the one timer of the session, for throttling or lingering, and cancels an earlier setting."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._liveness.call_at(self._liveness.now_ms() + delay_ms, callback)

    def force_close(self, reason: str) -> None:
        """Closes for an administrator: after the pending replies, and with the reason if the protocol can tell it."""
        log.info("connection of %s: closing by an administrator (%s)", self.address, reason)
        self._end_with_error(self._make_closing_parts(ForcedClose(reason)) if self._state in TAKES_REQUESTS else ())

    def describe(self) -> ConnectionDetails | None:
        """Returns what its protocol knows of the connection; None if it is closing or not open yet."""
        return self._conversation.describe() if self._state in TAKES_REQUESTS else None

    @property
    def local_address(self) -> str:
        own = self._transport.get_extra_info("sockname")
        return f"{own[0]}:{own[1]}" if own else ""

    def abort(self, reason: str = "") -> None:
        """Drops the connection and all unsent bytes. A reason is logged."""
        if reason:
            log.info("connection of %s: closing (%s)", self.address, reason)
        self._move(SessionEvent.ABORT)
        if self._state not in (SessionState.CANCELLED, _LOST):
            self._transport.abort()

    @property
    def is_quiet(self) -> bool:
        """True if nothing waits to be handled or sent. A reply that waits for a pass or an event does not count."""
        is_sending = bool(self._send_queue.unsent_bytes) or self._send_queue.is_blocked or self._flush_scheduled
        return self._state is _LOST or not (is_sending or self._turn_scheduled)
