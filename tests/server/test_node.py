"""One node in this process, on files with injected faults: start, failure, drain and stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from doubles import FaultyFiles
from no_rocketmq import NO_ROCKETMQ_KEYS
from protocols.kafka.frames import request_frame
from server.scripted import LOOPS, run

from trimq.clock import Clock, LoopTime, ManualTime, WallTime
from trimq.config import load
from trimq.errors import Damage, Refusal, StartupError
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import SYSTEM, Layout, Record
from trimq.offload import Done, ThreadOffload, Work
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.server.node import Node, Platform
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.io.folder_format import NAME
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.records import PUT, iterate_frames

both_loops = pytest.mark.parametrize("loop", LOOPS)
PATIENCE_S = 20


def no_space(name: str = "x") -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)


class HeldOffload:
    """A thread that can be blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.thread = ThreadOffload("sync", loop)
        self.is_held = False
        self.waiting: list[tuple[Work, Done]] = []

    def __call__(self, work: Work, done: Done) -> None:
        if self.is_held:
            self.waiting.append((work, done))
        else:
            self.thread(work, done)

    def release(self) -> None:
        self.is_held = False
        for work, done in self.waiting:
            self.thread(work, done)
        self.waiting = []


class Rig:
    """Platform of a node, which another node can be started on with the same files."""

    def __init__(self, files: FaultyFiles | None = None, **flags: str) -> None:
        loop = asyncio.get_running_loop()
        self.files = files or FaultyFiles(MemoryFiles())
        self.liveness: Any = LoopTime()
        self.syncs = HeldOffload(loop)
        self.work = ThreadOffload("work", loop)
        listeners = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "amqp.listen": "off"}
        self.settings = load(listeners | NO_ROCKETMQ_KEYS | {"data_dir": "here"} | flags, {})

    def make(self, max_connections: int | None = None) -> Node:
        platform = Platform(
            self.files, Clock(WallTime(), self.liveness), self.syncs, self.work, self.work, self.work, random.Random(7)
        )
        return Node(self.settings, platform, max_connections=max_connections)

    def close(self) -> None:
        self.syncs.thread.stop()
        self.work.stop()


@asynccontextmanager
async def rigged(**flags: str) -> AsyncIterator[Rig]:
    rig = Rig(**flags)
    try:
        yield rig
    finally:
        rig.close()
        await settle()


@asynccontextmanager
async def started(rig: Rig) -> AsyncIterator[Node]:
    node = rig.make()
    await node.start()
    try:
        yield node
    finally:
        node.abort()
        for listener in node.listeners.values():
            await listener.closed()


async def settle(passes: int = 10) -> None:
    for _ in range(passes):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


async def connect(node: Node, name: str = "kafka") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    listener = node.listeners[name]
    return await asyncio.open_connection(listener.host, listener.port)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def produce(correlation_id: int, body: bytes = b"x", acks: int = -1) -> bytes:
    partition = PartitionProduceData(index=0, records=from_records([Record(body, timestamp_ms=1)]))
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return request_frame(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), 9, correlation_id)


def fetch(correlation_id: int, offset: int, max_wait_ms: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="orders", partitions=[partition])
    asked = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    return request_frame(asked, 12, correlation_id)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Returns the correlation id of the next answer, and its body."""
    async with asyncio.timeout(PATIENCE_S):
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
    return int.from_bytes(frame[:4], "big"), frame[4:]


async def create(node: Node) -> None:
    _, ticket = node.core.broker.topics.create(SYSTEM, "orders", Layout.PARTITION_LOG, 1, {})
    await node.wait_until_durable()
    assert ticket.refusal is None


# --- start ------------------------------------------------------------------------------------------------------------


@both_loops
def test_a_node_reports_its_addresses_and_is_ready_from_then_on(loop: str) -> None:
    async def main() -> None:
        async with rigged() as rig:
            node = rig.make()
            assert not node.is_ready
            addresses = await node.start()
            assert node.is_ready
            assert addresses == {
                "kafka": f"127.0.0.1:{node.listeners['kafka'].port}",
                "http": f"127.0.0.1:{node.listeners['http'].port}",
            }
            _, writer = await connect(node)
            await close(writer)
            await node.stop()
            assert not node.is_ready
            assert node.failure is None

    run(main, loop)


def test_a_listener_that_is_off_is_left_out() -> None:
    async def main() -> None:
        async with rigged(**{"http.listen": "off"}) as rig:
            node = rig.make()
            assert list(await node.start()) == ["kafka"]
            await node.stop()

    run(main)


@pytest.mark.parametrize("operation", ["create", "write", "make_folder", "sync_folder", "rename", "sync", "resize"])
def test_a_disk_that_fails_at_the_start_is_a_sentence(operation: str) -> None:
    async def main() -> None:
        async with rigged() as rig:
            failed: list[str] = []

            def before(happening: str, name: str) -> None:
                if happening == operation:
                    failed.append(name)
                    raise no_space(name)

            rig.files.before = before
            with pytest.raises(
                StartupError, match=r"the data folder (here )?cannot be (used|written): .*No space left"
            ):
                await rig.make().start()
            assert failed

    run(main)


def test_a_disk_that_fails_at_any_moment_of_the_start_is_a_sentence_or_does_not_matter() -> None:
    async def main() -> None:
        for moment in range(100):
            async with rigged() as rig:
                left = moment

                def before(happening: str, name: str) -> None:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise no_space(name)

                rig.files.before = before
                node = rig.make()
                mistake = await mistake_of(node)
                if mistake is None:
                    node.abort()
                    assert moment > 5
                    return
                assert "No space left" in str(mistake)
        raise AssertionError("the node does not start")

    run(main)


async def mistake_of(node: Node) -> StartupError | None:
    try:
        await node.start()
    except StartupError as mistake:
        return mistake
    return None


def test_a_newer_data_folder_is_refused_and_left_alone() -> None:
    async def main() -> None:
        async with rigged() as rig:
            rig.files.open(NAME, create=True).write(0, [b'{"version":2}'])
            with pytest.raises(StartupError, match="has format 2"):
                await rig.make().start()
            assert rig.files.names("") == [NAME]

    run(main)


def test_a_start_that_fails_frees_the_addresses_that_it_took() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with rigged(**{"http.listen": f"127.0.0.1:{port}"}) as rig:
                node = rig.make()
                with pytest.raises(StartupError, match="--http-listen"):
                    await node.start()
                await settle()
                kafka = node.listeners["kafka"]
                with socket.create_server((kafka.host, kafka.port)):
                    """It is free again."""

    run(main)


# --- failure ----------------------------------------------------------------------------------------------------------


def fail_syncs(rig: Rig) -> None:
    def before(operation: str, name: str) -> None:
        if operation in ("sync", "sync_folder", "sync_all"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    rig.files.before = before


@both_loops
def test_a_failed_sync_ends_the_node_and_nothing_more_is_acknowledged(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with rigged() as rig, started(rig) as node:
            await create(node)
            reader, writer = await connect(node)
            fail_syncs(rig)
            writer.write(produce(1) + produce(2))
            async with asyncio.timeout(PATIENCE_S):
                await node.failed.wait()
            assert isinstance(node.failure, OSError)
            assert not node.is_ready
            node.abort()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            await close(writer)

    run(main, loop)
    assert "can no longer be made durable, the broker stops" in caplog.text


def test_a_node_with_a_failed_disk_stops_without_a_checkpoint() -> None:
    async def main() -> None:
        async with rigged() as rig:
            node = rig.make()
            await node.start()
            await create(node)
            fail_syncs(rig)
            topic = node.core.broker.topics.get(SYSTEM, "orders")
            node.core.broker.partitions.append_records(SYSTEM, topic, topic.stream(0), [Record(b"lost")])
            await node.failed.wait()
            written: list[str] = []
            rig.files.before = lambda operation, name: written.append(name)
            await node.stop()
            assert written == []

    run(main)


class BrokenWriter:
    """Participant of a pass that has a bug."""

    def __init__(self, where: str) -> None:
        self._where = where

    def write_pass(self, dirty: Dirty) -> None:
        self._fail("write")

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        raise AssertionError

    def mark_pass_durable(self, number: int) -> None:
        self._fail("settle")

    def _fail(self, where: str) -> None:
        if where == self._where:
            raise RuntimeError("planted")


@pytest.mark.parametrize("where", ["write", "settle"])
def test_a_bug_in_a_pass_ends_the_node_instead_of_leaving_everyone_waiting(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with rigged() as rig, started(rig) as node:
            node.passes.join(BrokenWriter(where))
            async with asyncio.timeout(PATIENCE_S):
                await node.failed.wait()

    run(main)
    assert "planted" in caplog.text
    assert any(record.exc_info for record in caplog.records)  # with the traceback


def test_a_failed_write_is_reported_and_counted_and_the_node_keeps_running() -> None:
    async def main() -> None:
        async with rigged() as rig, started(rig) as node:
            await create(node)
            reader, writer = await connect(node)

            def before(operation: str, name: str) -> None:
                if operation == "write":
                    raise no_space(name)

            rig.files.before = before
            writer.write(produce(1))
            correlation_id, body = await answer(reader)
            assert correlation_id == 1
            assert (56).to_bytes(2, "big") in body  # KAFKA_STORAGE_ERROR
            rig.files.before = lambda operation, name: None
            writer.write(produce(2))
            correlation_id, body = await answer(reader)
            assert (56).to_bytes(2, "big") not in body
            refused = node._counts._refused_writes.members
            assert {key: counter.value for key, counter in refused.items()} == {("kafka", "WriteFailed"): 1}
            await close(writer)

    run(main)


# --- drain and stop ---------------------------------------------------------------------------------------------------


@both_loops
def test_requests_received_before_the_stop_are_answered(loop: str) -> None:
    async def main() -> None:
        async with rigged() as rig:
            node = rig.make()
            await node.start()
            await create(node)
            clients = [await connect(node) for _ in range(5)]
            rig.syncs.is_held = True
            for _, writer in clients:
                writer.write(fetch(1, 0, 3_600_000) + produce(2) + produce(3))
            stream = node.core.broker.topics.get(SYSTEM, "orders").stream(0)
            await until(lambda: stream.end == 10)
            stop = asyncio.create_task(node.stop())
            await settle(50)
            assert not stop.done()
            rig.syncs.release()
            for reader, writer in clients:
                assert [(await answer(reader))[0] for _ in range(3)] == [1, 2, 3]
                assert await reader.read() == b""
                await close(writer)
            await stop
            again = rig.make()
            await again.start()
            assert again.core.broker.topics.get(SYSTEM, "orders").stream(0).end == 10
            await again.stop()

    run(main, loop)


@both_loops
def test_a_stop_waits_for_no_consumer_that_waits(loop: str) -> None:
    """The clock is stopped: a stop that waited for the consumers, or for the end of the drain, would never end."""

    async def main() -> None:
        async with rigged() as rig:
            rig.liveness = ManualTime(0)
            node = rig.make()
            await node.start()
            await create(node)
            clients = [await connect(node) for _ in range(50)]
            for _, writer in clients:
                writer.write(fetch(1, 0, 3_600_000))
            await until(lambda: node._counts.of("kafka").waiting_reads.value == 50)
            async with asyncio.timeout(PATIENCE_S):
                await node.stop()
            assert node._counts.of("kafka").waiting_reads.value == 0
            for reader, writer in clients:
                assert (await answer(reader))[0] == 1
                await close(writer)

    run(main, loop)


@both_loops
def test_a_client_that_does_not_read_is_cut_off_when_the_drain_is_over(loop: str) -> None:
    async def main() -> None:
        async with rigged() as rig:
            rig.liveness = ManualTime(0)
            node = rig.make()
            await node.start()
            await create(node)
            topic = node.core.broker.topics.get(SYSTEM, "orders")
            for _ in range(20):
                node.core.broker.partitions.append_records(SYSTEM, topic, topic.stream(0), [Record(b"x" * 900_000)])
            await node.wait_until_durable()
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((node.listeners["kafka"].host, node.listeners["kafka"].port))
            client.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(client, fetch(1, 0, 0) * 30)
            (session,) = await sessions(node)
            await until(lambda: session._send_queue.is_blocked)
            stop = asyncio.create_task(node.stop())
            await settle(50)
            assert not stop.done()
            rig.liveness.step(4_999)
            await settle(50)
            assert not stop.done()
            while rig.liveness.step(5_000):
                """The drain is over."""
            async with asyncio.timeout(PATIENCE_S):
                await stop
            client.close()

    run(main, loop)


async def sessions(node: Node) -> list[Any]:
    await until(lambda: node.listeners["kafka"].connections)
    return list(node.listeners["kafka"]._sessions)


def test_a_disk_that_hangs_does_not_keep_the_node_from_stopping() -> None:
    async def main() -> None:
        async with rigged() as rig:
            rig.liveness = ManualTime(0)
            node = rig.make()
            await node.start()
            await create(node)
            rig.syncs.is_held = True
            topic = node.core.broker.topics.get(SYSTEM, "orders")
            node.core.broker.partitions.append_records(SYSTEM, topic, topic.stream(0), [Record(b"x")])
            stop = asyncio.create_task(node.stop())
            await settle(50)
            assert not stop.done()
            while rig.liveness.step(30_000):
                """Nobody waits longer for the disk than this."""
            async with asyncio.timeout(PATIENCE_S):
                await stop
            assert isinstance(node.failure, TimeoutError)
            assert "30 s" in str(node.failure)
            rig.syncs.release()

    run(main)


@both_loops
def test_health_is_reported_until_everything_else_has_stopped(loop: str) -> None:
    async def main() -> None:
        async with rigged() as rig:
            node = rig.make()
            await node.start()
            await create(node)
            reader, writer = await connect(node)
            rig.syncs.is_held = True
            writer.write(produce(1))
            stream = node.core.broker.topics.get(SYSTEM, "orders").stream(0)
            await until(lambda: stream.end == 1)
            stop = asyncio.create_task(node.stop())
            await settle()
            assert await get(node, "/readyz") == (503, b"not ready\n")
            assert await get(node, "/healthz") == (200, b"ok\n")
            with pytest.raises(ConnectionRefusedError):
                await connect(node)
            rig.syncs.release()
            await stop
            assert (await answer(reader))[0] == 1
            await close(writer)
            with pytest.raises(ConnectionRefusedError):
                await connect(node, "http")

    run(main, loop)


async def get(node: Node, path: str) -> tuple[int, bytes]:
    reader, writer = await connect(node, "http")
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    await close(writer)
    return int(head.split()[1]), body


def test_writes_are_refused_while_the_node_drains() -> None:
    async def main() -> None:
        async with rigged() as rig:
            node = rig.make()
            await node.start()
            await create(node)
            reader, writer = await connect(node)
            rig.syncs.is_held = True
            writer.write(produce(1))
            stream = node.core.broker.topics.get(SYSTEM, "orders").stream(0)
            await until(lambda: stream.end == 1)
            stop = asyncio.create_task(node.stop())
            await settle()
            writer.write(produce(2))
            await until(lambda: node._counts._refused_writes.members)
            rig.syncs.release()
            (first, _), (second, bad) = await answer(reader), await answer(reader)
            assert (first, second) == (1, 2)
            assert (6).to_bytes(2, "big") in bad  # NOT_LEADER_OR_FOLLOWER
            assert stream.end == 1
            await stop
            assert list(node._counts._refused_writes.members) == [("kafka", "NotRunning")]
            await close(writer)

    run(main)


def test_an_abort_answers_nothing_and_writes_nothing_more() -> None:
    async def main() -> None:
        async with rigged() as rig:
            node = rig.make()
            await node.start()
            await create(node)
            reader, writer = await connect(node)
            rig.syncs.is_held = True
            writer.write(produce(1))
            stream = node.core.broker.topics.get(SYSTEM, "orders").stream(0)
            await until(lambda: stream.end == 1)
            node.abort()
            written: list[str] = []
            rig.files.before = lambda operation, name: written.append(name)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            await settle()
            assert written == []
            rig.syncs.release()
            await close(writer)

    run(main)


def test_an_idle_node_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Consumers are in long polls: no callback runs, and no timer is due within a minute."""

    async def main() -> None:
        async with rigged() as rig, started(rig) as node:
            await create(node)
            clients = [await connect(node) for _ in range(5)]
            for _, writer in clients:
                writer.write(fetch(1, 0, 3_600_000))
            await until(lambda: node._counts.of("kafka").waiting_reads.value == 5)
            await node.wait_until_durable()
            await settle()
            loop: Any = asyncio.get_running_loop()
            assert not loop._ready
            now = loop.time()
            due = [timer.when() - now for timer in loop._scheduled if not timer.cancelled()]
            early = [seconds for seconds in due if seconds < 50]
            # the checks of disk space, memory and disk latency run once more after the last write
            assert len(early) <= 3, early
            for _, writer in clients:
                await close(writer)

    caplog.set_level(logging.CRITICAL)
    run(main)


@pytest.mark.parametrize("table", ["catalogue", "cluster"])
def test_a_bit_that_flips_in_the_last_record_of_a_stopped_brokers_table_ends_the_next_start(table: str) -> None:
    async def main() -> None:
        async with rigged() as rig:
            async with started(rig) as node:
                await create(node)
                await node.stop()
            name = f"tables/{table}.0.log"
            file = rig.files.open(name)
            data = file.read(0, file.size())
            *_, last = [frame for frame in iterate_frames(data) if frame.payload[1] == PUT]
            file.write(last.end - 1, [bytes([data[last.end - 1] ^ 4])])
            with pytest.raises(Damage, match=rf"{name} is damaged at byte {last.position}: .*restore it from a backup"):
                await rig.make().start()
            assert len(data) == file.size(), "the log was cut"

    run(main)


def test_a_torn_tail_after_a_crash_is_cut_and_the_broker_starts(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with rigged() as rig:
            async with started(rig) as node:
                await create(node)
            file = rig.files.open("tables/catalogue.0.log")
            file.write(file.size(), [b"half a rec"])
            async with started(rig) as node:
                assert len(node.core.topics) == 1

    run(main)
    assert "tables/catalogue.0.log: cutting 10 bytes from byte" in caplog.text


@both_loops
def test_all_listeners_together_have_no_more_connections_than_there_is_room_for(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with rigged(**{"amqp.listen": "127.0.0.1:0"}) as rig:
            node = rig.make(max_connections=3)
            await node.start()
            held = [await connect(node, name) for name in ("kafka", "amqp", "kafka")]
            await until(lambda: sum(listener.connections for listener in node.listeners.values()) == 3)
            for name in ("kafka", "amqp", "kafka"):
                reader, writer = await connect(node, name)
                async with asyncio.timeout(PATIENCE_S):
                    assert await reader.read() == b""
                await close(writer)
            held.append(await connect(node, "http"))  # the next connection is accepted
            await until(lambda: node.listeners["http"].connections == 1)
            assert b'refused_connections_total{listener="kafka"} 2.0' in node.metrics.render()
            for _, writer in held:
                await close(writer)
            await node.stop()

    with caplog.at_level(logging.WARNING):
        run(main, loop)
    assert caplog.text.count("kafka: limit of open files reached") == 1
