"""What a front-end offers to the session that carries its bytes: events out of bytes, and replies with their order.
Knows no socket and no broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trimq.errors import ProtocolError
from trimq.model import Buffer

Parts = Sequence[Buffer]
Build = Callable[[], Parts]

IN_ORDER = 0


class Reply:
    """An answer and its place in the order: replies of one lane leave in the order in which they were made; in the
    lane None each leaves as soon as it is ready."""

    __slots__ = ("_build", "_durable", "_number", "_parts", "_wake", "abandon", "hurry", "lane")

    def __init__(self, lane: object = IN_ORDER) -> None:
        self.lane = lane
        self.abandon: Callable[[], None] | None = None
        self.hurry: Callable[[], None] | None = None
        self._parts: Parts | None = None
        self._build: Build | None = None
        self._number = 0
        self._durable = True
        self._wake: Callable[[], None] | None = None

    @classmethod
    def now(cls, parts: Parts, lane: object = IN_ORDER) -> Reply:
        """Ready as it is."""
        reply = cls(lane)
        reply._parts = parts
        return reply

    @classmethod
    def when_durable(cls, number: int, build: Build, lane: object = IN_ORDER) -> Reply:
        """Ready when pass `number` is durable. `build` then looks at its tickets and makes the answer."""
        reply = cls(lane)
        reply._number = number
        reply._build = build
        return reply

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
        hurry: Callable[[], None] | None = None,
    ) -> Reply:
        """Ready when somebody calls `resolve`. `hurry` asks whoever that is to do it now, with what there is: nobody
        will wait any longer. `abandon` is called when the connection ends before it was resolved."""
        reply = cls(lane)
        reply.abandon = abandon
        reply.hurry = hurry
        return reply

    def resolve(self, parts: Parts) -> None:
        self.abandon = self.hurry = None
        self._parts = parts
        if self._wake is not None:
            self._wake()

    def resolve_when_durable(self, number: int, build: Build) -> None:
        """A deferred answer that turned out to depend on a pass."""
        self.abandon = self.hurry = None
        self._number = number
        self._build = build
        if self._wake is not None:
            self._wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """The session's wish to hear when the reply is resolved."""
        self._wake = wake

    def is_ready(self, written: int, durable: int) -> bool:
        if self._parts is not None:
            return True
        return self._build is not None and self._number <= (durable if self._durable else written)

    @property
    def waits_for_pass(self) -> bool:
        """Whether progress of the passes, and not a call of `resolve`, makes it ready."""
        return self._build is not None

    def take(self) -> Parts:
        """The bytes to send; call once, when ready."""
        if self._parts is not None:
            return self._parts
        assert self._build is not None
        return self._build()


class Outlet(Protocol):
    """The way out of a connection that nobody asked for: deliveries, notices, and its end."""

    def send(self, parts: Parts) -> None:
        """Send in this loop pass, independently of the order of replies."""

    @property
    def is_congested(self) -> bool:
        """The peer reads slower than it is sent to: hold back what can wait."""

    def pause_intake(self, milliseconds: int) -> None:
        """Read nothing from this peer for a while: it exceeded its quota."""

    def hold_intake(self) -> None:
        """Read and handle nothing from this peer until `resume_intake`: what it asks next depends on an answer that
        is not there yet, or there is no room for what it sends."""

    def resume_intake(self) -> None: ...

    def expect_silence(self) -> None:
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

    def congestion_ended(self) -> None:
        """The peer has read what was sent: deliveries may go on."""

    def rest(self) -> bool:
        """Nothing has come for a while: give back memory that is held to receive into. False: a request has come in
        part, it is still needed."""

    def farewell(self, error: ProtocolError) -> Parts:
        """What to tell a peer that broke the protocol, before the connection closes."""

    def closed(self) -> None:
        """The connection is gone. Give back what it held."""


class FrontEnd(Protocol):
    """Makes a conversation for each accepted connection."""

    def converse(self, address: str, outlet: Outlet) -> Conversation: ...
