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


class Reply:
    """An answer and its place in the order: replies of one lane leave in the order in which they were made; in the
    lane None each leaves as soon as it is ready."""

    __slots__ = (
        *("_build", "_wrap", "_durable", "_number", "_parts", "_wake"),
        *("abandon", "resolves_soon", "count", "resolve_now", "lane", "reject_over_limit"),
    )

    def __init__(
        self, lane: object = IN_ORDER, parts: Parts | None = None, build: Build | None = None, number: int = 0
    ) -> None:
        self.lane = lane
        self.count = 1
        """How many requests it answers: those that came together may be answered together."""
        self.abandon: Callable[[], None] | None = None
        self.resolves_soon = False
        """Whether it is resolved in a moment, whatever happens: then it is waited for where the rest is given up."""
        self.resolve_now: Callable[[], None] | None = None
        self.reject_over_limit: Callable[[], None] | None = None
        self._parts = parts
        self._build = build
        self._number = number
        self._durable = True
        self._wake: Callable[[], None] | None = None
        self._wrap: Callable[[Build], Parts] | None = None

    @classmethod
    def now(cls, parts: Parts, lane: object = IN_ORDER) -> Reply:
        """Ready as it is."""
        return cls(lane, parts)

    @classmethod
    def when_durable(cls, number: int, build: Build, lane: object = IN_ORDER) -> Reply:
        """Ready when pass `number` is durable. `build` then looks at its tickets and makes the answer."""
        return cls(lane, None, build, number)

    @classmethod
    def when_written(cls, number: int, build: Build, lane: object = IN_ORDER) -> Reply:
        """As `when_durable`, for streams that are volatile: nothing waits for a sync."""
        reply = cls.when_durable(number, build, lane)
        reply._durable = False
        return reply

    @classmethod
    def later(
        cls,
        lane: object = IN_ORDER,
        abandon: Callable[[], None] | None = None,
        resolve_now: Callable[[], None] | None = None,
        reject_over_limit: Callable[[], None] | None = None,
    ) -> Reply:
        """Ready when somebody calls `resolve`. `resolve_now` asks whoever that is to do it now, with what there is:
        nobody will wait any longer. `abandon` is called when the connection ends before it was resolved.
        `reject_over_limit` is for one that may wait long for something to happen: it asks to resolve it now, too many
        of its connection wait."""
        reply = cls(lane)
        reply.abandon = abandon
        reply.resolve_now = resolve_now
        reply.reject_over_limit = reject_over_limit
        return reply

    def resolve(self, parts: Parts) -> None:
        """Ready with these bytes: also one that waits for a pass, whose client will wait no longer."""
        self.abandon = self.resolve_now = None
        self._parts = parts
        if self._wake is not None:
            self._wake()

    def resolve_when_durable(self, number: int, build: Build) -> None:
        """A deferred answer that turned out to depend on a pass."""
        self.abandon = self.resolve_now = None
        self._number = number
        self._build = build
        if self._wake is not None:
            self._wake()

    def fail(self, error: Exception) -> None:
        """Ready with an answer that cannot be made: whoever takes it hears why, and ends the connection."""

        def build() -> Parts:
            raise error

        self.resolve_when_durable(0, build)

    def resolve_as(self, other: Reply) -> None:
        """A deferred answer turned out to be that of another reply, which nobody else holds."""
        self.abandon, self.resolve_now = other.abandon, other.resolve_now
        self._parts, self._build = other._parts, other._build
        self._number, self._durable = other._number, other._durable
        if self._parts is None and self._build is None:
            other.watch(lambda: self.resolve_as(other))
        elif self._wake is not None:
            self._wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """The session's wish to hear when the reply is resolved."""
        self._wake = wake

    def wrap(self, wrap: Callable[[Build], Parts]) -> None:
        """Have what it says put into frames when it is taken: `wrap` is given what makes the parts, once."""
        self._wrap = wrap

    def cancel(self) -> None:
        """Nobody waits for it any more, though its connection goes on. What waits for a pass is ready with it."""
        abandon, self.abandon = self.abandon, None
        if abandon is not None:
            abandon()
        if self.is_open:
            self.resolve(())

    @property
    def is_held(self) -> bool:
        """Whether it waits for something that may not happen for long, and nothing has to wait for it."""
        return self.reject_over_limit is not None and self.lane is None and self.is_open

    @property
    def is_open(self) -> bool:
        """Whether only a call of `resolve`, which may never come, makes it ready."""
        return self._parts is None and self._build is None

    @property
    def waits_for_event(self) -> bool:
        """Whether it may never be ready, since what it waits for may not happen."""
        return self.is_open and not self.resolves_soon

    def is_ready(self, written: int, durable: int) -> bool:
        if self._parts is not None:
            return True
        return self._build is not None and self._number <= (durable if self._durable else written)

    @property
    def waits_for_pass(self) -> bool:
        """Whether progress of the passes, and not a call of `resolve`, makes it ready."""
        return self._build is not None

    @property
    def awaited(self) -> tuple[int, bool]:
        """The pass that makes it ready, and whether that has to be durable, where it waits for one."""
        return self._number, self._durable

    def take(self) -> Parts:
        """The bytes to send; call once, when ready."""
        if self._wrap is not None:
            return self._wrap(self._take)
        return self._build() if self._parts is None and self._build is not None else self._take()

    def _take(self) -> Parts:
        if self._parts is not None:
            return self._parts
        assert self._build is not None
        return self._build()


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
