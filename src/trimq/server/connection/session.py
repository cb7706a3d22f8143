"""One accepted connection: bytes in, events to the front-end, replies out once their pass is durable. Owns the turns of
the connection, back-pressure in both directions and how it ends. Knows no protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from trimq.clock import Timeline, Timer
from trimq.errors import ProtocolError, Stopping
from trimq.protocols.contract import Conversation, FrontEnd, Parts, Reply
from trimq.server.connection.buffer_release import BufferReleaser
from trimq.server.connection.durability import PassProgress
from trimq.server.connection.idle_timeout import IdleTimeout
from trimq.server.connection.limits import SessionLimits, SessionMetrics
from trimq.server.connection.reply_release import ReplyReleaser
from trimq.server.connection.send_queue import SendQueue, send_eof, supports_gather_write
from trimq.server.connection.turn_budget import TurnBudget

log = logging.getLogger(__name__)

# A request that arrives in pieces counts as a sign of life only in pieces of this size: drops do not keep a
# connection open.
_LIVELY_BYTES = 64 * 1024

# How long a connection is still listened to that its front-end ends. Closed with unread bytes, the machine would tell
# the peer to throw away what it has not read of our answers.
_LINGER_MS = 1000
_DISCARDED = bytearray(64 * 1024)


class Session(asyncio.BufferedProtocol):
    """Implements `Outlet` for its conversation."""

    def __init__(
        self,
        front_end: FrontEnd,
        progress: PassProgress,
        limits: SessionLimits,
        metrics: SessionMetrics,
        liveness: Timeline,
        buffer_releaser: BufferReleaser,
        ended: Callable[[Session], None],
    ) -> None:
        self._front_end = front_end
        self._limits = limits
        self._metrics = metrics
        self._liveness = liveness
        self._buffer_releaser = buffer_releaser
        self._turn_budget = TurnBudget(liveness)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._conversation: Conversation
        self.address = ""
        self._releaser = ReplyReleaser(progress, limits.held_replies, self._send_ready)
        self._pending_replies = self._releaser.replies
        self._send_queue = SendQueue(metrics.sent_bytes)
        self._idle_timeout = IdleTimeout(liveness, limits.idle_ms, self._idle_timed_out)
        self._unlively_bytes = 0
        self._closing_parts: Parts = ()
        self._timer: Timer | None = None
        self._flush_scheduled = self._turn_scheduled = False
        self._is_reading = True
        self._is_reading_paused = self._is_over_quota = self._is_reading_held = False
        self._ignores_idle_timeout = self._must_report_congestion_end = False
        self._is_made = self._has_conversation = self._has_ended_input = self._must_linger = False
        self._is_closing = self._is_lingering = self._is_lost = False

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.use(cast(asyncio.Transport, transport))  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else ""
        self._is_made = True
        if self._is_closing:  # ended before it was made
            self._transport.abort()
            return
        try:
            self._conversation = self._front_end.open_conversation(self.address, self)
        except Exception:
            log.exception("a connection from %s could not begin", self.address)
            self._is_closing = True
            self._transport.abort()
            return
        self._has_conversation = True
        self._idle_timeout.start()

    def use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # Told at once when the socket is full: what is unsent stays here, uncopied.
        transport.set_write_buffer_limits(high=0)
        self._send_queue.supports_gather_write = supports_gather_write(transport)

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        return _DISCARDED if self._is_closing else self._conversation.get_buffer(size_hint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
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
        """The peer sends no more, but may wait for what it asked: all of it is answered, then the connection ends."""
        self._has_ended_input = True
        if self._is_lingering or not self._has_conversation:
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
        if self._is_lost:
            return
        self._is_lost = True
        self._buffer_releaser.forget(self)
        self._idle_timeout.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._send_queue.clear()
        self._releaser.end()
        try:
            if self._has_conversation:
                self._conversation.closed()
        except Exception:
            log.exception("a connection from %s did not end as it should", self.address)
        finally:
            if self._has_conversation:  # it knows us: without this, what it has received would wait for the collector
                self._has_conversation = False
                del self._conversation
            self._ended(self)

    @property
    def activity_count(self) -> int:
        return self._idle_timeout.activity_count

    def release_memory(self) -> bool:
        """Nothing is being received: whoever sent much once must not hold the memory for it for ever."""
        return self._is_closing or self._conversation.release_memory()

    # -- events

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Handle what has arrived, up to this connection's share, so that none starves another."""
        self._turn_scheduled = False
        budget = self._turn_budget
        budget.begin()
        while not (must_wait := self._must_wait()) and (requests := self._take_event()):
            if budget.is_used_up(requests):
                self._schedule_turn()
                break
        if self._has_ended_input:
            self._finish_input()
        if must_wait or self._turn_scheduled or self._is_closing or self._is_reading_paused or not self._is_reading:
            self._update_reading()

    def _take_event(self) -> int:
        """How many requests it was. 0: there is none, or no more are taken."""
        requests = 1
        try:
            if (event := self._conversation.next_event()) is None:
                return 0
            self._idle_timeout.activity_count += 1
            if (reply := self._conversation.handle(event)) is not None:
                requests = reply.count
                self._accept(reply)
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self.address, error)
            self._end_with_error(self._make_closing_parts(error))
            return 0
        except Exception:
            log.exception("a request of %s failed unexpectedly; its connection is closed", self.address)
            self._end_with_error(())
            return 0
        self._metrics.requests.value += requests
        return requests

    def _finish_input(self) -> None:
        """The peer asks nothing more: nobody waits for an event, and with the last answer the connection ends."""
        self._pending_replies.resolve_now()
        if not self._pending_replies and not self._turn_scheduled and not self._must_wait():
            self._close()

    def _must_wait(self) -> bool:
        """Whether nothing may be taken in: what ends that schedules a turn."""
        if self._is_lost or self._is_closing or self._is_over_quota or self._is_reading_held:
            return True
        limits, replies = self._limits, self._pending_replies
        has_many = replies.count >= limits.pending_replies and replies.pending >= limits.pending_replies
        return has_many or self._send_queue.unsent_bytes >= limits.unsent_bytes

    def _update_reading(self) -> None:
        self._is_reading_paused = self._turn_scheduled or self._must_wait()
        # After its end of file a transport does not read, and would tell of the end again if it were resumed.
        if self._has_ended_input or self._is_lost or self._transport.is_closing():
            return
        if self._is_reading_paused and self._is_reading:
            self._transport.pause_reading()
        elif not self._is_reading_paused and not self._is_reading:
            self._transport.resume_reading()
        self._is_reading = not self._is_reading_paused

    # -- replies

    def _accept(self, reply: Reply) -> None:
        if not self._releaser.hold(reply):
            self.send(reply.take())

    def _send_ready(self, ready: list[Reply], is_by_pass: bool) -> None:
        if self._is_lost:
            return
        for reply in ready:
            try:
                self._send_queue.put(reply.take())
            except Exception:
                log.exception("an answer to %s could not be made; its connection is closed", self.address)
                self._pending_replies.abandon_all()  # a peer that counts answers must not take a later one for this one
                self._end_with_error(())
                break
        if self._is_reading_paused or self._has_ended_input:
            # More may be taken in now; not from here, which may be inside another connection's turn.
            self._schedule_turn()
        if is_by_pass and not self._flush_scheduled:
            self._flush_now()
        else:
            self._schedule_flush()

    def _flush_now(self) -> None:
        """`_schedule_flush` would add a turn of the loop to every answer that waits for a pass."""
        try:
            self._flush()
        except Exception:
            log.exception("%s could not be answered; its connection is closed", self.address)
            self._transport.abort()  # the others must be answered all the same

    # -- bytes out: collected during the pass, written once at its end

    def send(self, parts: Parts) -> None:
        if not self._is_lost:
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
        if self._is_lost or self._is_lingering or self._transport.is_closing():
            return
        if self._is_closing and not self._pending_replies:
            self._send_queue.put(self._closing_parts)
            self._closing_parts = ()
        self._send_queue.write_to(self._transport)
        if self._send_queue and not self._send_queue.is_blocked:
            self._schedule_flush()  # the rest of a long answer, when the others have had their turn
        if self._is_closing:
            if not self._pending_replies and not self._send_queue and not self._send_queue.is_blocked:
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
            log.exception("deliveries to %s failed unexpectedly; its connection is closed", self.address)
            self._end_with_error(())

    # -- the end

    def close(self) -> None:
        """Answer what was asked with what there is, then close. The peer may still be sending."""
        self._must_linger = True
        self._close()

    def _close(self) -> None:
        if not self._is_made:
            self._is_closing = True  # accepted in this very pass: it ends as soon as it is made
        elif not self._is_lost and not self._is_closing:
            self._is_closing = True
            self._pending_replies.resolve_now()
            self._update_reading()
            self._schedule_flush()

    def close_for_shutdown(self) -> None:
        """As `close`, with the protocol's own word for it that the broker stops."""
        if self._has_conversation and not self._is_closing:
            self._closing_parts = self._make_closing_parts(Stopping())
        self._close()

    def _make_closing_parts(self, error: ProtocolError) -> Parts:
        try:
            return self._conversation.closing_parts(error)
        except Exception:
            log.exception("no farewell could be made for %s", self.address)
            return ()

    def _end_with_error(self, closing_parts: Parts) -> None:
        """Deliver the answers that came before, then these last words, then close."""
        if not self._is_closing:
            self._closing_parts = closing_parts
            self.close()

    def _end(self) -> None:
        """Everything has been sent."""
        if not self._must_linger or self._has_ended_input or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._is_lingering = True
        send_eof(self._transport)
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        self._set_timer(_LINGER_MS, self._transport.abort)

    def _idle_timed_out(self) -> None:
        if self._send_queue or self._send_queue.is_blocked:
            log.info("closing the connection of %s: it does not read", self.address)
            self._transport.abort()
        elif not self._pending_replies and not self._is_closing and not self._ignores_idle_timeout:
            log.info("closing the connection of %s: it was idle", self.address)
            self._close()

    def throttle_reading(self, milliseconds: int) -> None:
        self._is_over_quota = True
        self._set_timer(milliseconds, self._end_pause)
        if self._has_conversation:
            self._update_reading()

    def _end_pause(self) -> None:
        self._is_over_quota = False
        self._take_turn()

    def hold_reading(self) -> None:
        self._is_reading_held = True
        if self._has_conversation:
            self._update_reading()

    def release_reading(self) -> None:
        if self._is_reading_held:
            self._is_reading_held = False
            self._schedule_turn()

    def disable_idle_timeout(self) -> None:
        self._ignores_idle_timeout = True

    def _set_timer(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """There is one: its last setting counts."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._liveness.call_at(self._liveness.now_ms() + delay_ms, callback)

    def abort(self) -> None:
        """Drop the connection and whatever was not sent."""
        if not self._is_made:
            self._is_closing = True
        elif not self._is_lost:
            self._transport.abort()

    @property
    def is_quiet(self) -> bool:
        """Nothing waits to be handled or sent. An answer that is held for a pass or an event is not counted here."""
        is_sending = bool(self._send_queue) or self._send_queue.is_blocked or self._flush_scheduled
        return self._is_lost or not (is_sending or self._turn_scheduled)
