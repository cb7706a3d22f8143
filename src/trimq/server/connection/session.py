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
from trimq.server.connection.buffer_release import Rests
from trimq.server.connection.durability import Progress
from trimq.server.connection.idle_timeout import Idleness
from trimq.server.connection.limits import SessionLimits, SessionMetrics
from trimq.server.connection.reply_release import Releases
from trimq.server.connection.send_queue import Outbox, gathers, send_end
from trimq.server.connection.turn_budget import Share

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
        progress: Progress,
        limits: SessionLimits,
        metrics: SessionMetrics,
        liveness: Timeline,
        rests: Rests,
        ended: Callable[[Session], None],
    ) -> None:
        self._front_end = front_end
        self._limits = limits
        self._metrics = metrics
        self._liveness = liveness
        self._rests = rests
        self._share = Share(liveness)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._conversation: Conversation
        self.address = ""
        self._releases = Releases(progress, limits.held_replies, self._leave)
        self._owed = self._releases.owed
        self._outbox = Outbox(metrics.sent_bytes)
        self._idleness = Idleness(liveness, limits.idle_ms, self._idled)
        self._unlively_bytes = 0
        self._last_words: Parts = ()
        self._timer: Timer | None = None
        self._flush_scheduled = self._turn_scheduled = False
        self._is_reading = True
        self._is_held_back = self._is_over_quota = self._is_intake_held = False
        self._expects_silence = self._owes_relief = False
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
            self._conversation = self._front_end.converse(self.address, self)
        except Exception:
            log.exception("a connection from %s could not begin", self.address)
            self._is_closing = True
            self._transport.abort()
            return
        self._has_conversation = True
        self._idleness.start()

    def use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # Told at once when the socket is full: what is unsent stays here, uncopied.
        transport.set_write_buffer_limits(high=0)
        self._outbox.gathers = gathers(transport)

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        return _DISCARDED if self._is_closing else self._conversation.get_buffer(size_hint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._metrics.received_bytes.value += nbytes
        self._unlively_bytes += nbytes
        if self._unlively_bytes >= _LIVELY_BYTES:
            self._unlively_bytes = 0
            self._idleness.moves += 1
            self._rests.watch(self)
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
        self._outbox.is_blocked = True

    def resume_writing(self) -> None:
        self._outbox.is_blocked = False
        self._idleness.moves += 1
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._rests.forget(self)
        self._idleness.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._outbox.clear()
        self._releases.end()
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
    def moves(self) -> int:
        return self._idleness.moves

    def rest(self) -> bool:
        """Nothing is being received: whoever sent much once must not hold the memory for it for ever."""
        return self._is_closing or self._conversation.rest()

    # -- events

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Handle what has arrived, up to this connection's share, so that none starves another."""
        self._turn_scheduled = False
        share = self._share
        share.begin()
        while not (must_wait := self._must_wait()) and (requests := self._take_event()):
            if share.is_used_up(requests):
                self._schedule_turn()
                break
        if self._has_ended_input:
            self._finish_input()
        if must_wait or self._turn_scheduled or self._is_closing or self._is_held_back or not self._is_reading:
            self._steer_reading()

    def _take_event(self) -> int:
        """How many requests it was. 0: there is none, or no more are taken."""
        requests = 1
        try:
            if (event := self._conversation.next_event()) is None:
                return 0
            self._idleness.moves += 1
            if (reply := self._conversation.handle(event)) is not None:
                requests = reply.count
                self._accept(reply)
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self.address, error)
            self._end_with_error(self._say_farewell(error))
            return 0
        except Exception:
            log.exception("a request of %s failed unexpectedly; its connection is closed", self.address)
            self._end_with_error(())
            return 0
        self._metrics.requests.value += requests
        return requests

    def _finish_input(self) -> None:
        """The peer asks nothing more: nobody waits for an event, and with the last answer the connection ends."""
        self._owed.hurry()
        if not self._owed and not self._turn_scheduled and not self._must_wait():
            self._close()

    def _must_wait(self) -> bool:
        """Whether nothing may be taken in: what ends that schedules a turn."""
        if self._is_lost or self._is_closing or self._is_over_quota or self._is_intake_held:
            return True
        limits, owed = self._limits, self._owed
        has_many = owed.count >= limits.pending_replies and owed.pending >= limits.pending_replies
        return has_many or self._outbox.unsent_bytes >= limits.unsent_bytes

    def _steer_reading(self) -> None:
        self._is_held_back = self._turn_scheduled or self._must_wait()
        # After its end of file a transport does not read, and would tell of the end again if it were resumed.
        if self._has_ended_input or self._is_lost or self._transport.is_closing():
            return
        if self._is_held_back and self._is_reading:
            self._transport.pause_reading()
        elif not self._is_held_back and not self._is_reading:
            self._transport.resume_reading()
        self._is_reading = not self._is_held_back

    # -- replies

    def _accept(self, reply: Reply) -> None:
        if not self._releases.hold(reply):
            self.send(reply.take())

    def _leave(self, ready: list[Reply], is_by_pass: bool) -> None:
        if self._is_lost:
            return
        for reply in ready:
            try:
                self._outbox.put(reply.take())
            except Exception:
                log.exception("an answer to %s could not be made; its connection is closed", self.address)
                self._owed.abandon_all()  # a peer that counts answers must not take a later one for this one
                self._end_with_error(())
                break
        if self._is_held_back or self._has_ended_input:
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
            self._outbox.put(parts)
            self._schedule_flush()

    @property
    def is_congested(self) -> bool:
        congested = self._outbox.is_blocked or self._outbox.unsent_bytes >= self._limits.unsent_bytes
        if congested:
            self._owes_relief = True
        return congested

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._is_lost or self._is_lingering or self._transport.is_closing():
            return
        if self._is_closing and not self._owed:
            self._outbox.put(self._last_words)
            self._last_words = ()
        self._outbox.write_to(self._transport)
        if self._outbox and not self._outbox.is_blocked:
            self._schedule_flush()  # the rest of a long answer, when the others have had their turn
        if self._is_closing:
            if not self._owed and not self._outbox and not self._outbox.is_blocked:
                self._end()
            return
        if self._owes_relief and not self.is_congested:
            self._owes_relief = False
            self._tell_relief()
        if self._is_held_back and not self._must_wait():
            self._schedule_turn()

    def _tell_relief(self) -> None:
        try:
            self._conversation.congestion_ended()
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
            self._owed.hurry()
            self._steer_reading()
            self._schedule_flush()

    def dismiss(self) -> None:
        """As `close`, with the protocol's own word for it that the broker stops."""
        if self._has_conversation and not self._is_closing:
            self._last_words = self._say_farewell(Stopping())
        self._close()

    def _say_farewell(self, error: ProtocolError) -> Parts:
        try:
            return self._conversation.farewell(error)
        except Exception:
            log.exception("no farewell could be made for %s", self.address)
            return ()

    def _end_with_error(self, last_words: Parts) -> None:
        """Deliver the answers that came before, then these last words, then close."""
        if not self._is_closing:
            self._last_words = last_words
            self.close()

    def _end(self) -> None:
        """Everything has been sent."""
        if not self._must_linger or self._has_ended_input or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._is_lingering = True
        send_end(self._transport)
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        self._set_timer(_LINGER_MS, self._transport.abort)

    def _idled(self) -> None:
        if self._outbox or self._outbox.is_blocked:
            log.info("closing the connection of %s: it does not read", self.address)
            self._transport.abort()
        elif not self._owed and not self._is_closing and not self._expects_silence:
            log.info("closing the connection of %s: it was idle", self.address)
            self._close()

    def pause_intake(self, milliseconds: int) -> None:
        self._is_over_quota = True
        self._set_timer(milliseconds, self._end_pause)
        if self._has_conversation:
            self._steer_reading()

    def _end_pause(self) -> None:
        self._is_over_quota = False
        self._take_turn()

    def hold_intake(self) -> None:
        self._is_intake_held = True
        if self._has_conversation:
            self._steer_reading()

    def resume_intake(self) -> None:
        if self._is_intake_held:
            self._is_intake_held = False
            self._schedule_turn()

    def expect_silence(self) -> None:
        self._expects_silence = True

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
        is_sending = bool(self._outbox) or self._outbox.is_blocked or self._flush_scheduled
        return self._is_lost or not (is_sending or self._turn_scheduled)
