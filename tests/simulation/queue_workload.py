"""A workload on queue logs alone: messages are appended, read, acked and purged, and checked after a crash."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from simulated_loop import Host
from simulated_trace import SimulationFailure
from simulation import Death, Environment
from storage_workload import Cut

from trimq.errors import Refusal
from trimq.formats.amqp_content.content import (
    NO_BLOB,
    TRANSIENT,
    Content,
    EncodedContent,
    encode_content,
    encode_reference,
)
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import SyncFlusher
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.queue_log.compaction import SegmentCompaction, is_worth_compacting
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.segment import QueueSegment
from trimq.storage.queue_log.store import QueueStore
from trimq.storage.tables.table import open_table


class QueuePromises:
    """Expected state of one queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: set[bytes] = set()
        self._refused: set[bytes] = set()
        self._known: dict[bytes, int] = {}  # acknowledged, or seen by a reader: with its offset
        self._settled: set[bytes] = set()
        self._transient: set[bytes] = set()

    def asked(self, body: bytes, is_transient: bool) -> None:
        self._asked.add(body)
        if is_transient:
            self._transient.add(body)

    def refused(self, body: bytes) -> None:
        self._refused.add(body)
        if body in self._known:
            self._fail(f"{body[:20]!r} was refused after it was seen")

    def seen(self, offset: int, body: bytes, how: str) -> None:
        if body not in self._asked:
            self._fail(f"{body[:20]!r} was {how}, but was never sent")
        if body in self._refused:
            self._fail(f"{body[:20]!r} was {how}, but had been refused")
        if self._known.setdefault(body, offset) != offset:
            self._fail(f"{body[:20]!r} was {how} at {offset}, but was at {self._known[body]}")

    def settled(self, body: bytes) -> None:
        self._settled.add(body)

    def check_recovered(self, found: list[tuple[int, bytes]], is_orderly: bool) -> None:
        """`is_orderly`: there was no crash, so no acked message may exist again."""
        offsets = [offset for offset, _ in found]
        if offsets != sorted(set(offsets)):
            self._fail(f"offsets out of order after recovery: {offsets}")
        bodies = {body for _, body in found}
        for body in self._known.keys() - bodies - self._settled - self._transient:
            self._fail(f"{body[:20]!r} is lost, which was at {self._known[body]}")
        for offset, body in found:
            if body in self._transient:
                self._fail(f"{body[:20]!r} exists after a restart, but is transient")
            if body in self._settled and is_orderly:
                self._fail(f"{body[:20]!r} exists again without a crash, but was acked")
            self.seen(offset, body, "recovered")
        self._settled -= bodies
        # A pending message that was not found never exists again; an acked one may exist after a later crash.
        self._known = {body: offset for body, offset in self._known.items() if body in bodies | self._settled}
        self._asked = bodies | self._settled
        self._refused.clear()

    def _fail(self, reason: str) -> None:
        raise SimulationFailure(f"{self._name}: {reason}")


class QueueBroker:
    def __init__(self, environment: Environment, names: list[str], segment_bytes: int, memory_bytes: int) -> None:
        self._environment = environment
        self.host = environment.host
        files = environment.files
        self.passes = Passes(environment.loop.call_soon, environment.failed)
        turns, settle = self.passes.turns, self.passes.mark_durable
        offload, failed, time = environment.offload, environment.failed, environment.clock.liveness
        self.passes.start(SyncFlusher(files, offload, 4, settle, failed, turns, time))
        self.passes.on_progress(self._answer)
        self._waiting: deque[tuple[Ticket, int, asyncio.Future[int]]] = deque()
        table = open_table(files, "tables", "checkpoints", self.passes, list, environment.offload)
        self._checkpoints = Checkpoints(table)
        self._work: SegmentCompaction | None = None
        store = QueueStore(files, self.passes, self._checkpoints, segment_bytes, memory_bytes)
        store.open(names)
        files.sync_folder("")
        self.logs: list[QueueLog] = [store.recover(name) for name in names]
        store.sweep()
        self.blobs = store.blobs

    async def start(self) -> None:
        while not self.passes.is_idle:
            await asyncio.sleep(0.001)

    def append(self, queue: int, body: bytes, is_transient: bool) -> asyncio.Future[int]:
        return self._append(queue, encode_content(_content(body)), TRANSIENT if is_transient else 0)

    def _append(self, queue: int, sealed: EncodedContent, flags: int) -> asyncio.Future[int]:
        log = self.logs[queue]
        offset = log.end
        ticket = log.append(sealed, flags=flags)
        answer = self._environment.loop.create_future()
        self._waiting.append((ticket, offset, answer))
        return answer

    def share(self, queues: list[int], body: bytes) -> dict[int, asyncio.Future[int]]:
        """One body for several queues; none of them stores it if bodies cannot be shared yet."""
        blob = self.blobs.put(body, False, 5)
        if blob == NO_BLOB:
            return {}
        sealed = encode_reference(_content(body), blob)
        answers: dict[int, asyncio.Future[int]] = {}
        for queue in queues:
            with suppress(Refusal):
                answers[queue] = self._append(queue, sealed, 0)
        self.blobs.drop_unreferenced(blob)
        return answers

    def check_blobs(self) -> None:
        """Checks that exactly the bodies of live messages are stored."""
        held = {blob for log in self.logs for part in log.segments for _, blob in part.live_blobs()}
        there = {blob for log in self.blobs.logs for part in log.segments for blob in _live_offsets(part)}
        # A body that no queue had room for is removed once it is durable: until then it has no message.
        unreferenced = there - held if self.passes.is_idle else set()
        if unreferenced or held - there or len(self.blobs) != len(held):
            raise SimulationFailure(
                f"bodies without a message: {sorted(unreferenced)[:5]}, messages without a body: "
                f"{sorted(held - there)[:5]}, counted: {len(self.blobs)} of {len(held)}"
            )

    def compact(self, log: QueueLog) -> None:
        if self._work is None or self._work.is_finished:
            segment = next(filter(is_worth_compacting, log.segments), None)
            if segment is not None:
                files, passes = self._environment.files, self.passes
                self._work = SegmentCompaction(
                    files, passes, self._checkpoints, log, segment, self._environment.offload
                )
                self._work.start()

    def _answer(self) -> None:
        while self._waiting and self._waiting[0][0].number <= self.passes.durable:
            ticket, offset, answer = self._waiting.popleft()
            if answer.done():
                continue
            if ticket.refusal is not None:
                answer.set_exception(ticket.refusal)
            else:
                answer.set_result(offset)

    def readable(self, queue: int) -> list[tuple[int, bytes]]:
        log = self.logs[queue]
        found = []
        offset = log.next_live(0)
        while offset is not None:
            content = log.peek(offset).content
            if content != _content(content.body):
                raise SimulationFailure(f"message {content.key!r} has the body {content.body[:20]!r} of another")
            found.append((offset, content.body))
            offset = log.next_live(offset + 1)
        return found

    def cut(self) -> None:
        for _, _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(Cut())

    async def stop(self) -> None:
        for log in (*self.logs, *self.blobs.logs):
            log.close()
        while not self.passes.is_idle:
            await asyncio.sleep(0.001)


def _content(body: bytes) -> Content:
    """With a key that only this body has."""
    return Content(b"x", body.partition(b" ")[0], b"\0\0", body, 5)


def _live_offsets(segment: QueueSegment) -> Iterator[int]:
    offset = segment.next_live(segment.base)
    while offset < segment.end:
        yield offset
        offset = segment.next_live(offset + 1)


class QueueWorkload:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = [f"queue-{number}" for number in range(random.randint(1, 3))]
        self._segment_bytes = random.choice((400, 2_000, 20_000))
        self._memory_bytes = random.choice((0, 3_000, 1 << 20))
        self._body_bytes = random.choice((10, 300, 3_000))
        self._transient_share = random.choice((0.0, 0.0, 0.3))
        self._shared_share = random.choice((0.0, 0.2, 0.8))
        self._promises = [QueuePromises(name) for name in self._names]
        self._broker: QueueBroker | None = None
        self._latest: QueueBroker | None = None
        self._last_death: Death | None = None
        self._stopped_whole = False
        self._changed = asyncio.Event()
        self._finishing = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    # -- interface for the simulation

    async def start_broker(self, environment: Environment) -> QueueBroker:
        broker = QueueBroker(environment, self._names, self._segment_bytes, self._memory_bytes)
        await broker.start()
        return broker

    async def stop_broker(self, broker: QueueBroker) -> None:
        self._broker = None
        self._changed.clear()
        await broker.stop()
        # Acks whose write failed cause redeliveries after a clean stop, too.
        self._stopped_whole = not any(part.unwritten for log in broker.logs for part in log.segments)

    def begin(self, clients: Host) -> None:
        for number in range(self._random.randint(1, 3)):
            name = f"writer {number}"
            self._tasks[name] = clients.start(self._write(number, self._random.randint(5, 60)), name)
        for number in range(self._random.randint(1, 2)):
            name = f"reader {number}"
            self._tasks[name] = clients.start(self._read(), name)

    def recovered(self, broker: QueueBroker) -> None:
        for number, promises in enumerate(self._promises):
            found = broker.readable(number)
            promises.check_recovered(found, self._last_death is Death.STOP and self._stopped_whole)
            if broker.logs[number].live != len(found):
                raise SimulationFailure(f"{len(found)} messages are readable, {broker.logs[number].live} are counted")
        broker.check_blobs()
        self._broker = self._latest = broker
        self._changed.set()

    def would_not_start(self, error: Exception) -> None:
        raise SimulationFailure(f"the broker does not start: {error}")

    def choose_lifetime_s(self) -> float:
        return self._random.choice((0.01, 0.2, 0.2, 2, 2, 10)) * self._random.random()

    def died(self, way: Death) -> None:
        if self._latest is not None:
            self._latest.cut()
        # After a stop of a broker that did not start, the state is still that of the crash before.
        if self._latest is not None or way is not Death.STOP:
            self._last_death = way
        self._broker = self._latest = None
        self._changed.clear()

    def check(self) -> None:
        if self._broker is None:
            return
        for name, log in zip(self._names, self._broker.logs, strict=True):
            if not log.readable_end <= log.end or log.live < 0:
                raise SimulationFailure(f"{name}: {log.readable_end} is readable, {log.end} its end, {log.live} live")

    def finish(self) -> None:
        self._finishing.set()

    def still_waiting(self) -> list[str]:
        for name, task in self._tasks.items():
            if task.done() and (error := task.exception()) is not None:
                raise SimulationFailure(f"{name} failed: {error}") from error
        return [name for name, task in self._tasks.items() if not task.done()]

    # -- clients

    async def _current(self) -> QueueBroker:
        while self._broker is None:
            await self._changed.wait()
            await asyncio.sleep(self._random.random() * 0.01)
        return self._broker

    async def _think(self, idle_chance: float) -> None:
        if not self._finishing.is_set():
            scale = 3600 if self._random.random() < idle_chance else self._random.choice((0, 0.001, 0.01, 0.1))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finishing.wait(), scale * self._random.random())

    async def _write(self, writer: int, count: int) -> None:
        for number in range(count):
            broker = await self._current()
            queues = self._random.sample(range(len(self._names)), self._random.randint(1, len(self._names)))
            asked: list[tuple[int, bytes, asyncio.Future[int]]] = []
            is_shared = self._random.random() < self._shared_share
            for part in range(self._random.choice((1, 1, 5, 30))):
                body = f"{writer}/{number}/{part} ".encode() + self._random.randbytes(
                    self._random.randint(0, self._body_bytes)
                )
                if is_shared:
                    asked += [(queue, body, answer) for queue, answer in self._share(broker, queues, body).items()]
                elif (answer := self._ask(broker, queues[0], body)) is not None:
                    asked.append((queues[0], body, answer))
            for queue, body, answer in asked:
                try:
                    self._promises[queue].seen(await answer, body, "acknowledged")
                except Refusal:
                    self._promises[queue].refused(body)
                except Cut:
                    pass
            await self._think(0.01)

    def _ask(self, broker: QueueBroker, queue: int, body: bytes) -> asyncio.Future[int] | None:
        if self._broker is not broker:
            return None
        is_transient = self._random.random() < self._transient_share
        try:
            answer = broker.host.run(broker.append, queue, body, is_transient)
        except Refusal:
            return None
        self._promises[queue].asked(body, is_transient)
        return answer

    def _share(self, broker: QueueBroker, queues: list[int], body: bytes) -> dict[int, asyncio.Future[int]]:
        if self._broker is not broker:
            return {}
        for queue in queues:
            self._promises[queue].asked(body, False)
        return broker.host.run(broker.share, queues, body)

    async def _read(self) -> None:
        while not self._finishing.is_set():
            broker = await self._current()
            queue = self._random.randrange(len(self._names))
            promises, log = self._promises[queue], broker.logs[queue]
            found = broker.host.run(broker.readable, queue)
            for offset, body in found:
                promises.seen(offset, body, "read")
            share = self._random.choice((0.0, 0.3, 0.9, 1.0))
            if self._random.random() < 0.05 and found:
                kept = {offset for offset, _ in found if self._random.random() < 0.1}
                end = found[-1][0] + 1
                broker.host.run(log.acks.ack_range, 0, end, kept)
                chosen = [(offset, body) for offset, body in found if offset not in kept]
            else:
                chosen = [entry for entry in found if self._random.random() < share]
                for offset, _ in chosen:
                    broker.host.run(log.acks.ack, offset)
            for _, body in chosen:
                promises.settled(body)
            broker.check_blobs()
            if self._random.random() < 0.3:
                broker.host.run(broker.compact, self._random.choice([log, *broker.blobs.logs]))
            await self._think(0.05)
