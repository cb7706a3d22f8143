"""A gRPC listener on a free port with a front-end that answers as each request asks, and a client of the `grpc`
package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import grpc.aio

from trimq.clock import LoopTime, Timeline
from trimq.metrics import Counter
from trimq.protocols.contract import CallInfo, DeferredReply, Parts, Reply, Sink
from trimq.protocols.grpc.connection import Http2Limits
from trimq.protocols.grpc.front_end import GrpcTransport
from trimq.server.connection.buffer_release import BufferReleaser
from trimq.server.connection.limits import SessionLimits
from trimq.server.connection.listener import Listener
from trimq.server.connection.pending_replies import PassProgress
from trimq.server.connection.session import Session, SessionMetrics

PATIENCE_S = 10
SMALL = Http2Limits(streams=100, header_bytes=4096, message_bytes=4096, idle_frames=1000, unsent_bytes=1 << 20)


class NoGood(Exception):
    status = "INVALID_ARGUMENT"


class EchoStream:
    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.is_closed = False

    def receive(self, raw: bytes) -> Parts:
        if raw == b"bad":
            raise NoGood("bad bytes")
        if raw == b"bug":
            raise ZeroDivisionError
        return [b"echo " + raw]

    def closed(self) -> None:
        self.is_closed = True


class EchoRun:
    """Batch of requests that begin with `run`. One that contains `bug` fails the whole batch."""

    limit = 5

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._taken: list[bytes] = []

    def take(self, call_info: CallInfo, raw: bytes) -> bool:
        if raw == b"run into a bug":
            raise ZeroDivisionError
        if raw[:3] != b"run":
            return False
        self._taken.append(raw)
        return True

    def finish(self) -> Reply:
        taken, self._taken = self._taken, []
        self._echo.taken.append(taken)
        if b"run bug" in taken:
            raise ZeroDivisionError

        def build() -> Parts:
            if b"run badly" in taken:
                raise ZeroDivisionError
            return [b"echo " + raw for raw in taken]

        return Reply.when_durable(3, build, None)


class Echo:
    """Front-end that answers as each request asks."""

    service = "test.Echo"
    calls: tuple[str, ...] = ("Plain", "Parts")
    server_streaming_calls: tuple[str, ...] = ("Parts",)
    streams: tuple[str, ...] = ("Stream",)
    used_metadata = frozenset(("x-mq-client-id", "a", "b-bin"))

    def __init__(self) -> None:
        self.call_info: list[CallInfo] = []
        self.held: list[Reply] = []
        self.abandoned = asyncio.Event()
        self.opened: list[EchoStream] = []
        self.gathers = False
        self.taken: list[list[bytes]] = []

    def call(self, method: str, call_info: CallInfo, raw: bytes) -> Reply:
        self.call_info.append(call_info)
        if raw == b"bad":
            raise NoGood("bad bytes")
        if raw == b"bug":
            raise ZeroDivisionError
        if raw == b"write":
            return Reply.when_durable(3, lambda: [b"durable"], None)
        if raw == b"write badly":
            return Reply.when_durable(3, lambda: [b"%d" % (1 // 0)], None)
        if raw == b"wait":
            reply = DeferredReply(None, self.abandoned.set)
            reply.on_resolve_now = lambda: reply.resolve([b"in a hurry"])
            self.held.append(reply)
            return reply
        return Reply.now([b"a", b"b"] if method == "Parts" else [b"echo " + raw], None)

    def call_batches(self) -> dict[str, EchoRun]:
        return {"Plain": EchoRun(self)} if self.gathers else {}

    def open(self, stream: str, call_info: CallInfo, sink: Sink) -> EchoStream:
        self.opened.append(EchoStream(sink))
        return self.opened[-1]

    def failed(self, method: str) -> Parts:
        return [b"our fault"]


class EchoBench:
    """A listener on a free port and a client of it."""

    def __init__(self, limits: Http2Limits = SMALL, liveness: Timeline | None = None) -> None:
        self.echo = Echo()
        self.progress = PassProgress()
        self.metrics = SessionMetrics(Counter(), Counter(), Counter())
        self._liveness = LoopTime() if liveness is None else liveness
        self._door = GrpcTransport(self.echo, limits, self._liveness)
        self._limits = SessionLimits(
            pending_replies=1000, held_replies=1000, unsent_bytes=limits.unsent_bytes, idle_ms=600_000
        )
        self.sessions: list[Session] = []
        self.listener = self.make_listener()

    def make_listener(self) -> Listener:
        return Listener("rocketmq_grpc", self._session, 100, Counter())

    def _session(self, ended: Callable[[Session], None]) -> Session:
        buffer_releaser = BufferReleaser(self._liveness)
        made = Session(self._door, self.progress, self._limits, self.metrics, self._liveness, buffer_releaser, ended)
        self.sessions.append(made)
        return made

    async def __aenter__(self) -> EchoBench:
        await self.listener.start("127.0.0.1", 0)
        await self.listener.serve()
        # Channels to the same address share a connection by default.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(self.listener.address, options)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close()
        await self.stop()

    async def stop(self) -> None:
        self.listener.stop_accepting()
        self.listener.close_sessions()
        async with asyncio.timeout(PATIENCE_S):
            await self.listener.closed()
            while self.listener._server is not None and self.listener._server.sockets:
                await asyncio.sleep(0)

    def ask(self, raw: bytes, method: str = "Plain", **options: Any) -> Any:
        return self.channel.unary_unary(f"/test.Echo/{method}")(raw, timeout=PATIENCE_S, **options)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.001)


def with_bench(test: Callable[[EchoBench], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        async with EchoBench(**options) as bench:
            await test(bench)

    asyncio.run(run())
