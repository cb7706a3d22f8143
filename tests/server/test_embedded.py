"""Runs of a node inside another program."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from no_rocketmq import NO_ROCKETMQ_KEYS

from trimq.clock import system_clock
from trimq.config import load
from trimq.errors import StartupError
from trimq.model import SYSTEM, Layout, Record
from trimq.server.embedded import BrokerRun, FolderStore, MemoryStore, NotQuiet, Store

PATIENCE_S = 10


def begin(store: Store, **flags: str) -> BrokerRun:
    listeners = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "amqp.listen": "off"}
    settings = load({**listeners, **NO_ROCKETMQ_KEYS, **flags}, {})
    return BrokerRun(settings, store, system_clock(), lambda event: None)


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def append(run: BrokerRun, body: bytes) -> None:
    broker = run.node.core.broker
    topic = next(iter(broker.topics.all(SYSTEM)), None)
    if topic is None:
        topic, _ = broker.topics.create(SYSTEM, "orders", Layout.PARTITION_LOG, 1, {})
    broker.partitions.append_records(SYSTEM, topic, topic.streams[0], [Record(body)])


def bodies(run: BrokerRun) -> list[bytes | None]:
    broker = run.node.core.broker
    return [
        record.body for topic in broker.topics.all(SYSTEM) for record in broker.partitions.read(SYSTEM, topic, 0, 0)
    ]


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_settled_run_has_synced_everything(flush: str) -> None:
    async def test() -> None:
        store, chosen = MemoryStore(), {"flush": flush, "flush_interval_ms": "3600000"}
        run = begin(store, **chosen)
        await run.start()
        append(run, b"one")
        assert not run.is_quiet
        await run.wait_until_quiet(PATIENCE_S)
        assert run.is_quiet
        assert "lost" in await run.crash()
        again = begin(store, **chosen)
        await again.start()
        assert bodies(again) == [b"one"]
        await again.stop()

    in_loop(test)


def test_a_crash_in_the_pass_of_an_append_keeps_nothing_of_it() -> None:
    async def test() -> None:
        store = MemoryStore()
        run = begin(store)
        await run.start()
        append(run, b"kept")
        await run.wait_until_quiet(PATIENCE_S)
        append(run, b"lost")
        await run.crash()
        again = begin(store)
        await again.start()
        assert bodies(again) == [b"kept"]
        await again.stop()

    in_loop(test)


def test_a_folder_is_locked_while_a_run_lasts_and_free_after_a_crash(tmp_path: Path) -> None:
    async def test() -> None:
        run = begin(FolderStore(str(tmp_path)))
        await run.start()
        with pytest.raises(StartupError, match="is in use"):
            begin(FolderStore(str(tmp_path)))
        append(run, b"one")
        await run.wait_until_quiet(PATIENCE_S)
        assert "page cache of the machine outlives a process" in await run.crash()
        again = begin(FolderStore(str(tmp_path)))
        await again.start()
        assert bodies(again) == [b"one"]
        await again.stop()

    in_loop(test)


def test_a_run_that_cannot_start_releases_everything(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(StartupError, match="is taken by another program"):
                await begin(FolderStore(str(tmp_path)), **{"http.listen": f"127.0.0.1:{port}"}).start()
        run = begin(FolderStore(str(tmp_path)))
        await run.start()
        await run.stop()

    in_loop(test)


def test_a_connection_opened_as_the_run_ends_is_closed() -> None:
    async def test() -> None:
        for end in (BrokerRun.stop, BrokerRun.crash):
            for passes in range(8):
                run = begin(MemoryStore())
                host, _, port = (await run.start())["kafka"].rpartition(":")
                with socket.create_connection((host, int(port))) as client:
                    client.settimeout(PATIENCE_S)
                    for _ in range(passes):
                        await asyncio.sleep(0)
                    await end(run)
                    with suppress(ConnectionResetError):  # it was never accepted
                        assert client.recv(1) == b""

    in_loop(test)


def test_settling_a_run_that_ended_is_refused() -> None:
    async def test() -> None:
        run = begin(MemoryStore())
        await run.start()
        await run.stop()
        with pytest.raises(NotQuiet, match="ended meanwhile"):
            await run.wait_until_quiet(PATIENCE_S)

    in_loop(test)


def test_a_run_whose_disk_failed_can_be_stopped() -> None:
    async def test() -> None:
        run = begin(MemoryStore())
        await run.start()
        run.node._fail(OSError("no more room"))
        await run.wait_until_quiet(PATIENCE_S)
        await run.stop()

    in_loop(test)
