"""Contract between front-ends and the session of a connection: events parsed from bytes, and replies with their order.
Knows no socket and no broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from trimq.errors import ProtocolError
from trimq.model import Buffer

Parts = Sequence[Buffer]
Build = Callable[[], Parts]

IN_ORDER = 0

NEVER = 1 << 62
"""Number of a pass that is never reached: for replies that only a call resolves."""


class ReplyWatcher(Protocol):
    """Holder of a reply that is not ready: the pending replies of the connection, or a deferred reply that resolved as
    it."""

    def reply_resolved(self, reply: Reply) -> None:
        """Called when the reply is ready, or will be ready once the pass `reply.number` ends."""


class Reply:
    """Reply to one or more requests: ready, or ready when a pass of the broker ends. Replies of one lane are sent in
    the order in which they were made; in the lane None each is sent as soon as it is ready."""

    __slots__ = ("_build", "_parts", "_wrap", "count", "lane", "needs_sync", "number", "watcher")

    def __init__(
        self,
        lane: object = IN_ORDER,
        parts: Parts | None = None,
        build: Build | None = None,
        number: int = 0,
        needs_sync: bool = True,
    ) -> None:
        self.lane = lane
        self.count = 1
        """Number of requests that this reply answers together."""
        self.number = number
        """Pass that makes it ready; 0: ready now."""
        self.needs_sync = needs_sync
        """True if that pass must be durable. For transient messages it is enough that the pass is written."""
        self.watcher: ReplyWatcher | None = None
        self._parts = parts
        self._build = build
        self._wrap: Callable[[Build], Parts] | None = None

    @classmethod
    def now(cls, parts: Parts, lane: object = IN_ORDER) -> Reply:
        """Returns a reply that is ready."""
        return Reply(lane, parts)

    @classmethod
    def when_durable(cls, number: int, build: Build, lane: object = IN_ORDER) -> Reply:
        """Returns a reply that is ready once pass `number` is durable. `build` then checks its tickets and makes the
        answer. For every answer that acknowledges a write; work that must be done before any such answer is sent
        belongs in `Passes.on_durable`."""
        return Reply(lane, None, build, number)

    def resolve(self, parts: Parts) -> None:
        """Makes it ready with these bytes, even if it waits for a pass."""
        self._parts = parts
        self._build = None
        self.number = 0
        if self.watcher is not None:
            self.watcher.reply_resolved(self)

    def wrap(self, wrap: Callable[[Build], Parts]) -> None:
        """Sets a function that frames the answer when it is taken: `wrap` gets the function that makes the parts. A
        second call wraps the result of the first."""
        inner = self._wrap
        self._wrap = wrap if inner is None else lambda build: wrap(lambda: inner(build))

    def cancel(self) -> None:
        """Called when the client no longer waits for the reply, although its connection stays open. A reply that waits
        for a pass is not changed."""

    def is_ready(self, written: int, durable: int) -> bool:
        """Returns whether it is ready. `PendingReplies` has the same condition inlined."""
        return self.number <= (durable if self.needs_sync else written)

    @property
    def is_open(self) -> bool:
        """True if only a call, which may never be made, resolves it."""
        return self.number == NEVER

    @property
    def waits_for_event(self) -> bool:
        """True if it may never become ready."""
        return False

    @property
    def waits_for_pass(self) -> bool:
        """True if its answer is made when a pass ends."""
        return self._build is not None

    def take(self) -> Parts:
        """Returns the bytes to send. Call once, when ready."""
        if self._wrap is not None:
            return self._wrap(self._take)
        return self._build() if self._build is not None else self._take()

    def _take(self) -> Parts:
        if self._build is not None:
            return self._build()
        assert self._parts is not None
        return self._parts


class DeferredReply(Reply):
    """Reply to a request that waits for an event, such as a long poll: its owner resolves it with bytes, with a pass,
    or as another reply. The three callbacks ask the owner to stop waiting; each may be None."""

    __slots__ = ("on_abandon", "on_reject_over_limit", "on_resolve_now", "resolves_soon")

    def __init__(
        self,
        lane: object = IN_ORDER,
        on_abandon: Callable[[], None] | None = None,
        on_resolve_now: Callable[[], None] | None = None,
        on_reject_over_limit: Callable[[], None] | None = None,
        resolves_soon: bool = False,
    ) -> None:
        super().__init__(lane, None, None, NEVER)
        self.on_abandon = on_abandon
        """The connection ended before the reply was resolved."""
        self.on_resolve_now = on_resolve_now
        """Resolve it now with the available data: the wait is over."""
        self.on_reject_over_limit = on_reject_over_limit
        """Resolve it now: too many requests of the connection wait. Set for requests that may wait long."""
        self.resolves_soon = resolves_soon
        """True if it is resolved soon in any case. The session then waits for it where it abandons others."""

    def resolve(self, parts: Parts) -> None:
        self.on_abandon = self.on_resolve_now = None
        super().resolve(parts)

    def resolve_when_durable(self, number: int, build: Build) -> None:
        """Resolves it with the result of `build`, once pass `number` is durable."""
        self.on_abandon = self.on_resolve_now = None
        if self._parts is None:  # otherwise it was cancelled, and is ready
            self.number = number
            self._build = build
        if self.watcher is not None:
            self.watcher.reply_resolved(self)

    def resolve_as(self, other: Reply) -> None:
        """Resolves it as `other`: ready when `other` is, with its answer. Nobody else may hold `other`."""
        self.on_abandon = self.on_resolve_now = None
        if isinstance(other, DeferredReply):
            self.on_abandon, self.on_resolve_now = other.on_abandon, other.on_resolve_now
        self._parts, self._build = other._parts, other._build
        self.number, self.needs_sync = other.number, other.needs_sync
        if other.number == NEVER:
            other.watcher = self
        elif self.watcher is not None:
            self.watcher.reply_resolved(self)

    def reply_resolved(self, reply: Reply) -> None:
        self.resolve_as(reply)

    def fail(self, error: Exception) -> None:
        """Resolves it with an error: `take` raises it, and the connection closes."""

        def build() -> Parts:
            raise error

        self.resolve_when_durable(0, build)

    def cancel(self) -> None:
        abandon, self.on_abandon = self.on_abandon, None
        if abandon is not None:
            abandon()
        if self.number == NEVER:
            self.resolve(())

    @property
    def waits_for_event(self) -> bool:
        return self.number == NEVER and not self.resolves_soon


class SessionControl(Protocol):
    """Control of a connection by its front-end: unsolicited frames (deliveries, notices), back-pressure and closing."""

    def send(self, parts: Parts) -> None:
        """Sends in this pass of the event loop, independently of the order of replies."""

    @property
    def is_congested(self) -> bool:
        """True if the peer reads too slowly: do not send optional data."""

    def throttle_reading(self, milliseconds: int) -> None:
        """Stops reading from this peer for a while: it exceeded its quota."""

    def hold_reading(self) -> None:
        """Stops reading and handling requests of this peer until `release_reading`: the next request depends on an
        answer that is not ready, or there is no memory for more data."""

    def release_reading(self) -> None: ...

    def disable_idle_timeout(self) -> None:
        """Turns off the idle timeout: the front-end has heartbeats of its own."""

    def close(self) -> None:
        """Sends the ready replies, then closes."""

    def abort(self, reason: str = "") -> None:
        """Closes without sending anything. A reason is logged."""


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """Facts about a connection that only its protocol knows. `namespace` None: the protocol has none. `channels` None:
    it has no channels."""

    user: str = ""
    namespace: str | None = None
    client_id: str = ""
    channels: int | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict)


class OpenConnection(NamedTuple):
    """Connection as a list of all connections shows it. `name` is unique among them: the addresses of both ends, as
    RabbitMQ names connections."""

    name: str
    listener: str
    address: str
    connected_ms: int
    details: ConnectionDetails


class Conversation(Protocol):
    """One connection of a front-end."""

    def identify(self, principal: str) -> None:
        """Called before the first bytes if the client has shown a verified certificate that names this user."""

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        """Returns memory for the next received bytes; never empty."""

    def buffer_updated(self, count: int) -> None: ...

    def next_event(self) -> object | None:
        """Returns the next complete request, or None until more bytes arrive. Raises ProtocolError if the peer violates
        the protocol."""

    def handle(self, event: object) -> Reply | None:
        """Executes the request now. Returns None if the protocol expects no answer."""

    def on_congestion_end(self) -> None:
        """Called when the peer has read: deliveries may resume."""

    def release_memory(self) -> bool:
        """Frees the receive buffer of an idle connection. Returns False if a request is partly received and the buffer
        is still needed."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        """Returns the last bytes for a peer that violated the protocol; the connection closes after them."""

    def describe(self) -> ConnectionDetails:
        """Returns what a list of connections shows."""

    def closed(self) -> None:
        """Called when the connection is closed. Releases everything it held."""


class FrontEnd(Protocol):
    """Opens a conversation for each accepted connection."""

    def open_conversation(self, address: str, outlet: SessionControl) -> Conversation: ...


@dataclass(slots=True, eq=False)
class CallInfo:
    """Facts about a call from its transport. `metadata`: the headers listed in `used_metadata`; `remaining_ms`: time
    until the caller's deadline, None without one. Calls with equal facts share one object, so `parsed` may cache data
    of the front-end."""

    address: str
    metadata: Mapping[str, str]
    remaining_ms: int | None = None
    parsed: Any = None


class CallStream(Protocol):
    """Bidirectional stream of a caller, on which messages can be sent at any time."""

    def receive(self, raw: bytes) -> Parts:
        """Handles a received message. Returns the messages to send at once."""

    def closed(self) -> None: ...


class CallBatch(Protocol):
    """Calls of one method that arrived together on one connection and are answered together."""

    limit: int
    """Maximum number of calls."""

    def take(self, call_info: CallInfo, raw: bytes) -> bool:
        """Adds a call. Returns False if it must be handled alone."""

    def finish(self) -> Reply:
        """Executes all added calls now; the next call starts a new batch. The parts of the reply are one message per
        call, in order."""


class Sink(Protocol):
    """Sends messages to the peer of a bidirectional stream."""

    def __call__(self, parts: Parts) -> None:
        """Sends messages; drops them if there is no room or the stream has ended."""

    @property
    def is_congested(self) -> bool:
        """True if the peer reads too slowly: do not send optional data."""


class CallFrontEnd(Protocol):
    """Front-end that handles complete calls, independent of their transport. The parts of a reply are messages, one for
    a unary call."""

    service: str
    calls: tuple[str, ...]
    server_streaming_calls: tuple[str, ...]
    """Calls that are answered with any number of messages."""
    streams: tuple[str, ...]
    used_metadata: frozenset[str]
    """Names of the metadata that the front-end uses. It gets no other metadata, and calls that differ only in other
    metadata share their facts."""

    def call(self, method: str, call_info: CallInfo, raw: bytes) -> Reply:
        """Executes the call now."""

    def call_batches(self) -> Mapping[str, CallBatch]:
        """Returns, for a new connection, the methods whose calls may be answered together when they arrive together."""

    def open(self, stream: str, call_info: CallInfo, sink: Sink) -> CallStream: ...

    def failed(self, method: str) -> Parts:
        """Returns the answer to a call that failed with an unexpected error."""
