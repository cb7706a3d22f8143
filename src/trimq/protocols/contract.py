"""Interface between a front-end and the session that carries its bytes: events out of bytes, and replies with their
order. Knows no socket and no broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimq.errors import ProtocolError
from trimq.model import Buffer

Parts = Sequence[Buffer]
Build = Callable[[], Parts]

IN_ORDER = 0

NEVER = 1 << 62
"""Number of a pass that is never reached: that of a reply which only a call makes ready."""


class ReplyWatcher(Protocol):
    """Holds a reply that is not ready: the connection's pending replies, or a deferred reply that takes its place."""

    def reply_resolved(self, reply: Reply) -> None:
        """The reply is ready, or will be once the pass `reply.number` is done."""


class Reply:
    """Answer to one or more requests: ready, or ready once a pass of the broker is done. Replies of one lane are sent
    in the order in which they were made; in the lane None each is sent as soon as it is ready."""

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
        """Number of requests that it answers: those received together may be answered together."""
        self.number = number
        """Pass that makes it ready. 0: it is ready."""
        self.needs_sync = needs_sync
        """Whether that pass must be durable. Otherwise it is enough that it is written: for transient messages."""
        self.watcher: ReplyWatcher | None = None
        self._parts = parts
        self._build = build
        self._wrap: Callable[[Build], Parts] | None = None

    @classmethod
    def now(cls, parts: Parts, lane: object = IN_ORDER) -> Reply:
        """Ready as it is."""
        return Reply(lane, parts)

    @classmethod
    def when_durable(cls, number: int, build: Build, lane: object = IN_ORDER) -> Reply:
        """Ready once pass `number` is durable. `build` then looks at its tickets and makes the answer. For every answer
        that acknowledges a write; work that must be done before any such answer is sent belongs in
        `Passes.on_durable`."""
        return Reply(lane, None, build, number)

    def resolve(self, parts: Parts) -> None:
        """Makes it ready with these bytes, even if it waits for a pass: its client waits no longer."""
        self._parts = parts
        self._build = None
        self.number = 0
        if self.watcher is not None:
            self.watcher.reply_resolved(self)

    def wrap(self, wrap: Callable[[Build], Parts]) -> None:
        """Has the answer put into frames when it is taken: `wrap` is given the function that makes the parts, once. A
        second call wraps the result of the first."""
        inner = self._wrap
        self._wrap = wrap if inner is None else lambda build: wrap(lambda: inner(build))

    def cancel(self) -> None:
        """Nobody waits for it any more, though its connection stays open. One that waits for a pass stays as it is."""

    def is_ready(self, written: int, durable: int) -> bool:
        """`PendingReplies` has the same condition in line."""
        return self.number <= (durable if self.needs_sync else written)

    @property
    def is_open(self) -> bool:
        """Whether only a call, which may never be made, makes it ready."""
        return self.number == NEVER

    @property
    def waits_for_event(self) -> bool:
        """Whether it may never be ready."""
        return False

    @property
    def waits_for_pass(self) -> bool:
        """Whether its answer is made once a pass is done."""
        return self._build is not None

    def take(self) -> Parts:
        """The bytes to send; call once, when ready."""
        if self._wrap is not None:
            return self._wrap(self._take)
        return self._build() if self._build is not None else self._take()

    def _take(self) -> Parts:
        if self._build is not None:
            return self._build()
        assert self._parts is not None
        return self._parts


class DeferredReply(Reply):
    """Reply to a request that waits for an event, such as a long poll: ready once its owner resolves it, with bytes,
    with a pass, or as another reply. The three call-backs ask the owner to stop waiting; each may be None."""

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
        """The connection ended before it was resolved."""
        self.on_resolve_now = on_resolve_now
        """Resolve it now with what there is: nobody will wait any longer."""
        self.on_reject_over_limit = on_reject_over_limit
        """Resolve it now: too many of its connection wait. Given for those that may wait long."""
        self.resolves_soon = resolves_soon
        """Whether it is resolved in a moment in any case: it is then waited for where others are abandoned."""

    def resolve(self, parts: Parts) -> None:
        self.on_abandon = self.on_resolve_now = None
        super().resolve(parts)

    def resolve_when_durable(self, number: int, build: Build) -> None:
        """Ready once pass `number` is durable, with what `build` makes."""
        self.on_abandon = self.on_resolve_now = None
        if self._parts is None:  # else it was cancelled, and is ready
            self.number = number
            self._build = build
        if self.watcher is not None:
            self.watcher.reply_resolved(self)

    def resolve_as(self, other: Reply) -> None:
        """Ready when `other` is, with its answer. Nobody else may hold `other`."""
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
        """Ready with an answer that cannot be made: `take` raises the error, and the connection ends."""

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
    """The way out of a connection that nobody asked for: deliveries, notices, and its end."""

    def send(self, parts: Parts) -> None:
        """Send in this loop pass, independently of the order of replies."""

    @property
    def is_congested(self) -> bool:
        """The peer reads slower than it is sent to: hold back what can wait."""

    def throttle_reading(self, milliseconds: int) -> None:
        """Read nothing from this peer for a while: it exceeded its quota."""

    def hold_reading(self) -> None:
        """Read and handle nothing from this peer until `release_reading`: what it asks next depends on an answer that
        is not there yet, or there is no room for what it sends."""

    def release_reading(self) -> None: ...

    def disable_idle_timeout(self) -> None:
        """This peer may say nothing for as long as it likes: its front-end has its own signs of life."""

    def close(self) -> None:
        """Send what is ready, then close."""

    def abort(self) -> None:
        """Close without another word."""


class Conversation(Protocol):
    """One connection of a front-end."""

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        """Where the next received bytes go: never empty."""

    def buffer_updated(self, count: int) -> None: ...

    def next_event(self) -> object | None:
        """The next whole request, or None: more bytes are needed. ProtocolError: the peer broke the rules."""

    def handle(self, event: object) -> Reply | None:
        """Do what is asked, now. None: the protocol wants no answer."""

    def on_congestion_end(self) -> None:
        """The peer has read what was sent: deliveries may go on."""

    def release_memory(self) -> bool:
        """Free the receive buffer of a connection that was idle for a while. False: a request is partly received, the
        buffer is still needed."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        """What to tell a peer that broke the protocol, before the connection closes."""

    def closed(self) -> None:
        """The connection is gone. Give back what it held."""


class FrontEnd(Protocol):
    """Makes a conversation for each accepted connection."""

    def open_conversation(self, address: str, outlet: SessionControl) -> Conversation: ...


@dataclass(slots=True, eq=False)
class CallInfo:
    """What whoever carries a call knows of it. `metadata` is what is heeded of it, `remaining_ms` how long its caller
    waits; None: for ever. Calls that say the same share their facts: `parsed` is for whoever answers, who need not
    find it out again."""

    address: str
    metadata: Mapping[str, str]
    remaining_ms: int | None = None
    parsed: Any = None


class CallStream(Protocol):
    """One stream of a caller, who may be sent something at any time."""

    def receive(self, raw: bytes) -> Parts:
        """What to send at once for what has come."""

    def closed(self) -> None: ...


class CallBatch(Protocol):
    """Calls of one method that came together on one connection and are answered together."""

    limit: int
    """How many they are at most."""

    def take(self, call_info: CallInfo, raw: bytes) -> bool:
        """Whether the call is one that may be answered with others. One that is not must be made alone."""

    def finish(self) -> Reply:
        """Do what is asked, now, by all that were taken; the next that is taken begins anew. The parts of the reply are
        one message for each, in their order."""


class Sink(Protocol):
    """The way to the peer of a stream on which both sides say what they like."""

    def __call__(self, parts: Parts) -> None:
        """What finds no room, or nobody who listens, is lost."""

    @property
    def is_congested(self) -> bool:
        """The peer reads slower than it is sent to: hold back what can wait."""


class CallFrontEnd(Protocol):
    """A front-end that is given whole calls, whatever carries them. The parts of a reply are messages, one for a plain
    call."""

    service: str
    calls: tuple[str, ...]
    server_streaming_calls: tuple[str, ...]
    """Those of the calls that are answered with any number of messages."""
    streams: tuple[str, ...]
    used_metadata: frozenset[str]
    """Names of what it looks at of a caller's metadata: it is told no other, and calls that differ in others share
    their facts."""

    def call(self, method: str, call_info: CallInfo, raw: bytes) -> Reply:
        """Do what is asked, now."""

    def call_batches(self) -> Mapping[str, CallBatch]:
        """For a new connection: the methods of which calls that come together may be answered together."""

    def open(self, stream: str, call_info: CallInfo, sink: Sink) -> CallStream: ...

    def failed(self, method: str) -> Parts:
        """The answer to a call over which the front-end stumbled."""
