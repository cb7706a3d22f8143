"""Listeners: binding, limits, and the error message for an unavailable address."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

import pytest
from server.scripted import LOOPS, ROOMY, ScriptedFrontEnd, run

from trimq.clock import LoopTime
from trimq.errors import StartupError
from trimq.metrics import Counter
from trimq.server.connection.buffer_release import BufferReleaser
from trimq.server.connection.listener import Listener
from trimq.server.connection.pending_replies import PassProgress
from trimq.server.connection.session import Session, SessionMetrics

both_loops = pytest.mark.parametrize("loop", LOOPS)


class Made:
    """A listener with sessions of the scripted protocol."""

    def __init__(self, name: str = "kafka", limit: int = 100) -> None:
        self.front_end = ScriptedFrontEnd()
        self.refused = Counter()
        self.listener = Listener(name, self._session, limit, self.refused)

    def _session(self, ended: Callable[[Session], None]) -> Session:
        metrics = SessionMetrics(Counter(), Counter(), Counter())
        return Session(self.front_end, PassProgress(), ROOMY, metrics, LoopTime(), BufferReleaser(LoopTime()), ended)

    async def stop(self) -> None:
        self.listener.stop_accepting()
        self.listener.close_sessions()
        async with asyncio.timeout(20):
            await self.listener.closed()
            while self.listener._server is not None and self.listener._server.sockets:
                await asyncio.sleep(0)


async def open_to(made: Made, host: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(host or made.listener.host, made.listener.port)


async def answered(made: Made, host: str | None = None) -> None:
    reader, writer = await open_to(made, host)
    writer.write(b"now hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    await writer.wait_closed()


@both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_a_listener_is_reached_at_its_reported_address(loop: str, host: str) -> None:
    async def main() -> None:
        made = Made()
        await made.listener.start(host, 0)
        await made.listener.serve()
        shown = f"[{host}]" if ":" in host else host
        assert made.listener.address == f"{shown}:{made.listener.port}"
        await answered(made)
        await made.stop()

    run(main, loop)


@both_loops
def test_a_name_with_two_addresses_has_one_port_on_both(loop: str) -> None:
    async def main() -> None:
        found = await asyncio.get_running_loop().getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        hosts = {where[0] for *_, where in found}
        made = Made()
        await made.listener.start("localhost", 0)
        await made.listener.serve()
        for host in hosts:
            await answered(made, host)
        await made.stop()

    run(main, loop)


def test_every_address_of_a_name_gets_the_port_though_the_system_picks_another_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulates a resolver that returns two addresses for a name."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        create = loop.create_server

        def create_on_both(factory: object, host: str, port: int, **options: object) -> object:
            return create(factory, ["127.0.0.1", "::1"], port, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "create_server", create_on_both)
        made = Made()
        await made.listener.start("both", 0)
        await made.listener.serve()
        for host in ("127.0.0.1", "::1"):
            await answered(made, host)
        await made.stop()

    run(main)


@both_loops
def test_no_connection_is_accepted_before_the_broker_serves(loop: str) -> None:
    async def main() -> None:
        made = Made()
        await made.listener.start("127.0.0.1", 0)
        with pytest.raises(ConnectionRefusedError):
            await open_to(made)
        await made.listener.serve()
        await answered(made)
        await made.stop()

    run(main, loop)


@both_loops
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("kafka", "--kafka-listen"),
        ("rocketmq_broker", "--rocketmq-broker-listen"),
        ("rocketmq_vip", "--rocketmq-broker-listen, or set --rocketmq-old-clients false"),
        ("http", "--http-listen"),
    ],
)
def test_a_taken_port_is_a_sentence_with_the_flag_that_helps(loop: str, name: str, flag: str) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(StartupError) as caught:
                await Made(name).listener.start("127.0.0.1", port)
        assert str(caught.value) == (
            f"{name}: port {port} on 127.0.0.1 is taken by another program; choose another address with {flag}"
        )

    run(main, loop)


@both_loops
def test_a_port_that_was_taken_between_binding_and_listening_is_the_same_sentence(loop: str) -> None:
    """Two brokers that start at the same time may both bind, but only one can listen."""

    async def main() -> None:
        first, second = Made(), Made()
        await first.listener.start("127.0.0.1", 0)
        await second.listener.start("127.0.0.1", first.listener.port)
        await first.listener.serve()
        with pytest.raises(StartupError, match="is taken by another program"):
            await second.listener.serve()
        await first.stop()
        await second.stop()

    run(main, loop)


@both_loops
@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("no-such-host.invalid", "cannot listen on no-such-host.invalid:0: "),
        ("192.0.2.1", "cannot listen on 192.0.2.1:0: "),
    ],
)
def test_an_address_that_is_not_ours_is_a_sentence(loop: str, host: str, reason: str) -> None:
    async def main() -> None:
        with pytest.raises(StartupError) as caught:
            await Made().listener.start(host, 0)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)

    run(main, loop)


def test_a_name_without_a_common_free_port_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        create = loop.create_server

        async def create_on_both(factory: object, host: str, port: int, **options: object) -> object:
            if port:
                raise OSError(errno.EADDRINUSE, "planted")
            return await create(factory, ["127.0.0.1", "::1"], 0, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "create_server", create_on_both)
        with pytest.raises(StartupError, match="taken by another program"):
            await Made().listener.start("both", 0)

    run(main)


@both_loops
def test_a_connection_over_the_limit_is_closed_at_once_and_counted(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        made = Made(limit=2)
        await made.listener.start("127.0.0.1", 0)
        await made.listener.serve()
        held = [await open_to(made) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"now in\n")
            assert await reader.readline() == b"in\n"
        for _ in range(5):
            reader, writer = await open_to(made)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        assert made.refused.value == 5
        assert made.listener.connections == 2
        _, first = held[0]
        first.close()
        await first.wait_closed()
        while made.listener.connections == 2:
            await asyncio.sleep(0)
        await answered(made)
        held[1][1].close()
        await held[1][1].wait_closed()
        await made.stop()

    with caplog.at_level(logging.WARNING):
        run(main, loop)
    assert len([record for record in caplog.records if "limit of 2 connections" in record.getMessage()]) == 1


@both_loops
def test_a_listener_that_stops_answers_pending_requests_and_accepts_no_connections(loop: str) -> None:
    async def main() -> None:
        made = Made()
        await made.listener.start("127.0.0.1", 0)
        await made.listener.serve()
        clients = [await open_to(made) for _ in range(10)]
        for number, (_, writer) in enumerate(clients):
            writer.write(b"later %d!\n" % number)
        while len(made.front_end.handled) < 10:
            await asyncio.sleep(0)
        await made.stop()
        for number, (reader, writer) in enumerate(clients):
            assert await reader.read() == b"%d hurried\n" % number
            writer.close()
            await writer.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await open_to(made)
        assert made.listener.connections == 0

    run(main, loop)


@both_loops
def test_sessions_can_be_cut_off(loop: str) -> None:
    async def main() -> None:
        made = Made()
        await made.listener.start("127.0.0.1", 0)
        await made.listener.serve()
        reader, writer = await open_to(made)
        writer.write(b"later poll\n")
        while not made.front_end.handled:
            await asyncio.sleep(0)
        made.listener.abort_sessions()
        await made.listener.closed()
        assert made.front_end.abandoned == ["poll"]
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        await made.stop()

    run(main, loop)
