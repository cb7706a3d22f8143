"""Back-pressure on publishers when disk or memory is full or the disk does not sync: sends connection.blocked and stops
reading from the connection until a retry succeeds. Consumers and other connections continue."""

from __future__ import annotations

from trimq.clock import Timeline, Timer
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.amqp.wire.events import Publish
from trimq.protocols.amqp.wire.handshake import has_capability

# Interval of retries.
_LOOK_MS = 1000


class BlockedPublisher:
    """Keeps the one message that could not be stored, and publishes it again later."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._postponed: Publish | None = None
        self._held = 0
        self._is_notified = False
        self._timer: Timer | None = None

    def postpone(self, event: Publish, reason: str) -> None:
        """Postpones a publish. As in RabbitMQ, a client is blocked only when it publishes. Raises ConnectionFault if
        the postponed messages exceed the memory limit."""
        context = self._context
        self._keep(event)
        if context.connection.held.must_close():
            self._keep(None)
            raise ConnectionFault(Code.RESOURCE_ERROR, context.connection.held.reason)
        context.outlet.hold_reading()
        self._ignore_silence(True)
        if not self._is_notified and has_capability(context.client_properties, "connection.blocked"):
            context.outlet.send([write_command(0, methods.ConnectionBlocked(reason))])
        self._is_notified = True
        liveness: Timeline = context.clock.liveness
        self._timer = liveness.call_at(liveness.now_ms() + _LOOK_MS, self._look)

    def _keep(self, event: Publish | None) -> None:
        size = 0 if event is None else event.held
        self._context.connection.held.change(size - self._held)
        self._postponed, self._held = event, size

    def _look(self) -> None:
        self._timer = None
        self._context.outlet.release_reading()

    def take_postponed(self) -> Publish | None:
        """Returns the postponed message if the retry is due."""
        if self._timer is not None:
            return None
        event = self._postponed
        if event is not None:
            self._keep(None)
        return event

    def publish_accepted(self) -> None:
        """Sends connection.unblocked after a publish succeeded."""
        if self._is_notified:
            self._is_notified = False
            self._ignore_silence(False)
            if has_capability(self._context.client_properties, "connection.blocked"):
                self._context.outlet.send([write_command(0, methods.ConnectionUnblocked())])

    def _ignore_silence(self, ignores_silence: bool) -> None:
        if self._context.heartbeats is not None:
            self._context.heartbeats.ignores_silence = ignores_silence

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keep(None)
