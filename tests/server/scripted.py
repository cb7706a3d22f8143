"""A front-end whose clients choose the outcome of each request, a transport whose socket accepts as much as the test
allows, and the event loops that must be supported. For the tests of sessions and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from trimq.clock import LoopTime, ManualTime, Timeline
from trimq.errors import ProtocolError, Stopping
from trimq.metrics import Counter
from trimq.model import Buffer
from trimq.protocols.contract import IN_ORDER, ConnectionDetails, DeferredReply, Parts, Reply, SessionControl
from trimq.server.connection.buffer_release import BufferReleaser
from trimq.server.connection.limits import SessionLimits
from trimq.server.connection.pending_replies import PassProgress
from trimq.server.connection.session import Session, SessionMetrics

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.SelectorEventLoop}
try:
    import uvloop
except ImportError:  # the `speed` extra is not installed
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop

IDLE_MS = 600_000
ROOMY = SessionLimits(pending_replies=1000, held_replies=1000, unsent_bytes=1 << 20, idle_ms=IDLE_MS)


def run(main: Callable[[], Coroutine[Any, Any, None]], loop: str = "asyncio") -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


class Conversation:
    """Requests are lines: a word that chooses the kind of answer, then the answer.

    now X, pass N X, written N X, later KEY, quiet, big N, bad X (protocol error), raise, raise-late (encoding the
    answer fails), deliver N (as many as the outlet accepts), send X, close, toil N (takes N milliseconds); `LANE|`
    before the word chooses a lane."""

    def __init__(self, front_end: ScriptedFrontEnd, outlet: SessionControl) -> None:
        self.front_end = front_end
        self.outlet = outlet
        self.buffer = bytearray(1 << 20)
        self.received = bytearray()
        self.start = 0
        self.handled: list[str] = []
        self.to_deliver = 0
        self.times_closed = 0
        self.last_word = ""
        self.times_relieved = 0
        self.times_rested = 0
        self.is_restless = False

    def get_buffer(self, size_hint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.received += memoryview(self.buffer)[:count]

    def next_event(self) -> str | None:
        end = self.received.find(b"\n", self.start)
        if end < 0:
            del self.received[: self.start]
            self.start = 0
            return None
        line = self.received[self.start : end]
        self.start = end + 1
        return line.decode()

    def handle(self, event: object) -> Reply | None:
        assert isinstance(event, str)
        self.handled.append(event)
        self.front_end.handled.append(event)
        lane: object = IN_ORDER
        if "|" in event:
            name, _, event = event.partition("|")
            lane = name or None
        word, _, rest = event.partition(" ")
        answer: Callable[[str, object], Reply | None] = getattr(self, "_" + word.replace("-", "_"))
        return answer(rest, lane)

    def _now(self, rest: str, lane: object) -> Reply:
        return Reply.now([rest.encode() + b"\n"], lane)

    def _pass(self, rest: str, lane: object) -> Reply:
        number, _, text = rest.partition(" ")
        return Reply.when_durable(int(number), lambda: [text.encode() + b"\n"], lane)

    def _written(self, rest: str, lane: object) -> Reply:
        number, _, text = rest.partition(" ")
        return Reply(lane, None, lambda: [text.encode() + b"\n"], int(number), needs_sync=False)

    def _later(self, rest: str, lane: object) -> Reply:
        """KEY! can be resolved at once, KEY? can be rejected over the limit."""
        key = rest.rstrip("!?")
        resolve_now = (lambda: self.front_end.resolve_now(key)) if rest.endswith("!") else None
        reject_over_limit = (lambda: self.front_end.resolve_now(key, "turned away")) if rest.endswith("?") else None
        reply = DeferredReply(lane, lambda: self.front_end.abandoned.append(key), resolve_now, reject_over_limit)
        self.front_end.deferred[key] = reply
        return reply

    def _quiet(self, rest: str, lane: object) -> None:
        return None

    def _big(self, rest: str, lane: object) -> Reply:
        return Reply.now([b"x" * int(rest), b"\n"], lane)

    def _toil(self, rest: str, lane: object) -> Reply:
        self.front_end.toil(int(rest))
        return Reply.now([b"done\n"], lane)

    def _bad(self, rest: str, lane: object) -> Reply:
        raise ProtocolError(rest)

    def _raise(self, rest: str, lane: object) -> Reply:
        raise RuntimeError("planted")

    def _raise_late(self, rest: str, lane: object) -> Reply:
        return Reply.when_durable(int(rest), self._fail, lane)

    def _fail(self) -> Parts:
        raise RuntimeError("planted")

    def _deliver(self, rest: str, lane: object) -> None:
        self.to_deliver += int(rest)
        self.deliver()

    def deliver(self) -> None:
        while self.to_deliver and not self.outlet.is_congested:
            self.to_deliver -= 1
            self.outlet.send([b"d" * 999, b"\n"])

    def _send(self, rest: str, lane: object) -> None:
        self.outlet.send([rest.encode() + b"\n"])

    def _close(self, rest: str, lane: object) -> Reply:
        self.outlet.close()
        return Reply.now([b"closing\n"], lane)

    def _rest(self, rest: str, lane: object) -> None:
        self.outlet.throttle_reading(int(rest))

    def release_memory(self) -> bool:
        self.times_rested += 1
        return not self.is_restless

    def _hold(self, rest: str, lane: object) -> None:
        self.outlet.hold_reading()

    def _remember(self, rest: str, lane: object) -> None:
        self.last_word = rest

    def _hush(self, rest: str, lane: object) -> None:
        self.outlet.disable_idle_timeout()

    def on_congestion_end(self) -> None:
        self.times_relieved += 1
        self.deliver()

    def closing_parts(self, error: ProtocolError) -> Parts:
        if isinstance(error, Stopping):
            return [f"{self.last_word}\n".encode()] if self.last_word else []
        return [f"farewell {error}\n".encode()]

    def describe(self) -> ConnectionDetails:
        return ConnectionDetails()

    def closed(self) -> None:
        self.times_closed += 1


class ScriptedFrontEnd:
    def __init__(self) -> None:
        self.conversations: list[Conversation] = []
        self.handled: list[str] = []
        self.deferred: dict[str, DeferredReply] = {}
        self.abandoned: list[str] = []
        self.hurried = 0
        self.toil: Callable[[int], None] = lambda milliseconds: None

    def resolve_now(self, key: str, how: str = "hurried") -> None:
        self.hurried += 1
        self.deferred[key].resolve([f"{key} {how}\n".encode()])

    def open_conversation(self, address: str, outlet: SessionControl) -> Conversation:
        conversation = Conversation(self, outlet)
        self.conversations.append(conversation)
        return conversation


class Pipe(asyncio.Transport):
    """A transport with a socket that accepts `room` bytes; the test makes more room."""

    def __init__(self, room: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 7)})
        self.room = room
        self.protocol: Session
        self.sent = bytearray()
        self.waiting = bytearray()
        self.writes: list[int] = []
        self.max_waiting = 0
        self.steered: list[str] = []
        self.reads = True
        self.has_sent_end = False
        self.is_closed = False
        self.is_lost = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0, "unsent data must stay in the session"

    def write(self, data: Buffer) -> None:
        assert not self.is_closed
        assert not self.has_sent_end
        assert not self.waiting, "the session wrote to a full socket"
        self.writes.append(len(data))
        taken = min(self.room, len(data))
        self.room -= taken
        self.sent += data[:taken]
        self.waiting += data[taken:]
        self.max_waiting = max(self.max_waiting, len(self.waiting))
        if self.waiting:
            self.protocol.pause_writing()

    def make_room(self, room: int) -> None:
        taken = min(room, len(self.waiting))
        self.sent += self.waiting[:taken]
        del self.waiting[:taken]
        self.room = room - taken
        if taken and not self.waiting:
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        assert self.reads, "paused twice"
        self.reads = False
        self.steered.append("pause")

    def resume_reading(self) -> None:
        assert not self.reads, "resumed twice"
        self.reads = True
        self.steered.append("resume")

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.has_sent_end
        self.has_sent_end = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True
        if not self.waiting:
            self.lose()

    def abort(self) -> None:
        self.is_closed = True
        self.waiting.clear()
        self.lose()

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Peer:
    """One session on a pipe, with its pass progress and time. Created inside a running loop."""

    def __init__(
        self, limits: SessionLimits = ROOMY, room: int = 1 << 30, front_end: Any = None, is_made: bool = True
    ) -> None:
        self.front_end = front_end or ScriptedFrontEnd()
        self.progress = PassProgress()
        self.time = ManualTime(0)
        self.ended: list[Session] = []
        self.metrics = SessionMetrics(Counter(), Counter(), Counter())
        self.buffer_releaser = BufferReleaser(self.time)
        self.session = Session(
            self.front_end, self.progress, limits, self.metrics, self.time, self.buffer_releaser, self.ended.append
        )
        self.pipe = Pipe(room)
        self.pipe.protocol = self.session
        if is_made:
            self.make()

    def make(self) -> None:
        self.session.connection_made(self.pipe)

    @property
    def conversation(self) -> Conversation:
        conversation: Conversation = self.front_end.conversations[0]
        return conversation

    def say(self, *lines: str) -> None:
        self.feed("".join(f"{line}\n" for line in lines).encode())

    def feed(self, data: bytes) -> None:
        """Feeds bytes as a transport does: only while it reads, and in pieces of the size of the buffer."""
        while data:
            assert self.pipe.reads, f"{len(data)} bytes are left, but reading is paused"
            buffer = self.session.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.session.buffer_updated(count)
            data = data[count:]

    def heard(self) -> list[str]:
        """Returns the lines received since the last call."""
        text = self.pipe.sent.decode()
        self.pipe.sent.clear()
        return text.splitlines()

    async def settle(self) -> None:
        """Returns when the loop has nothing left to do; fails if that takes too long."""
        loop: Any = asyncio.get_running_loop()
        for _ in range(10_000):
            await asyncio.sleep(0)
            if not loop._ready:
                return
        raise AssertionError("the session does not become idle")

    async def listen(self) -> list[str]:
        await self.settle()
        return self.heard()


class Served:
    """Sessions on real sockets of the running loop."""

    def __init__(self, limits: SessionLimits = ROOMY, time: Timeline | None = None) -> None:
        self.front_end = ScriptedFrontEnd()
        self.progress = PassProgress()
        self.metrics = SessionMetrics(Counter(), Counter(), Counter())
        self.ended: list[Session] = []
        self.sessions: list[Session] = []
        self._limits = limits
        self._time = time or LoopTime()
        self._server: asyncio.Server
        self.address: tuple[str, int]

    async def __aenter__(self) -> Served:
        self._server = await asyncio.get_running_loop().create_server(self._make, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    def _make(self) -> Session:
        buffer_releaser = BufferReleaser(self._time)
        session = Session(
            self.front_end, self.progress, self._limits, self.metrics, self._time, buffer_releaser, self.ended.append
        )
        self.sessions.append(session)
        return session

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for session in self.sessions:
            session.abort()
        while len(self.ended) < len(self.sessions):
            await asyncio.sleep(0)
        await self._server.wait_closed()
