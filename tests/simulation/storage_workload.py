"""A workload on passes, flusher and journal alone: streams of framed records, appended, read, rolled and trimmed."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from random import Random
from typing import Any

from ledger import Ledger
from promises import Promises
from simulated_loop import Host
from simulated_trace import SimulationFailure
from simulation import Death, Environment

from trimq.errors import Refusal
from trimq.storage.group_commit.flusher import SyncFlusher
from trimq.storage.group_commit.passes import Passes, Ticket


class Cut(Exception):
    """The broker died; the outcome of the request is unknown."""


class StorageBroker:
    """Ledgers, passes and a flusher, and requests that wait for their pass."""

    def __init__(self, environment: Environment, streams: int, segment_bytes: int, syncfs_threshold: int) -> None:
        self._environment = environment
        self.host = environment.host
        self.passes = Passes(environment.loop.call_soon, environment.failed)
        files, offload, failed = environment.files, environment.offload, environment.failed
        turns, settle, time = self.passes.turns, self.passes.mark_durable, environment.clock.liveness
        self.passes.start(SyncFlusher(files, offload, syncfs_threshold, settle, failed, turns, time))
        self.passes.on_progress(self._answer)
        self._waiting: deque[tuple[Ticket, int, asyncio.Future[int]]] = deque()
        self.ledgers = [
            Ledger(environment.files, f"stream-{number}", self.passes, segment_bytes) for number in range(streams)
        ]

    async def start(self) -> None:
        files = self._environment.files
        for number, ledger in enumerate(self.ledgers):
            files.make_folder(f"stream-{number}")
            ledger.recover()
        files.sync_folder("")
        while not self.passes.is_idle:
            await asyncio.sleep(0.001)
        # A killed process leaves bytes that only the page cache holds. They were just read, and readers will see them:
        # now they must become durable.
        synced = self._environment.loop.create_future()
        self._environment.offload(files.sync_all, lambda _, error: synced.set_result(error))
        if await synced is not None:
            self._environment.failed(synced.result())
            await self._environment.loop.create_future()
        for ledger in self.ledgers:
            ledger.durable_end = ledger.end

    def append(self, stream: int, payload: bytes) -> tuple[int, asyncio.Future[int]]:
        index, ticket = self.ledgers[stream].append(payload)
        answer = self._environment.loop.create_future()
        self._waiting.append((ticket, index, answer))
        return index, answer

    def trim(self, stream: int) -> None:
        ledger = self.ledgers[stream]
        self.passes.on_durable(ledger.move_start(), ledger.remove_trimmed)

    def _answer(self) -> None:
        while self._waiting and self._waiting[0][0].number <= self.passes.durable:
            ticket, index, answer = self._waiting.popleft()
            if answer.done():
                continue
            if ticket.refusal is not None:
                answer.set_exception(ticket.refusal)
            else:
                answer.set_result(index)

    def cut(self) -> None:
        for _, _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(Cut())

    async def stop(self) -> None:
        while not self.passes.is_idle:
            await asyncio.sleep(0.001)


class StorageWorkload:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._streams = random.randint(1, 4)
        self._segment_bytes = random.choice((300, 2_000, 20_000))
        self._syncfs_threshold = random.choice((0, 3, 64))
        self._record_bytes = random.choice((20, 600, 5_000))
        self._promises = [Promises(f"stream {number}") for number in range(self._streams)]
        self._broker: StorageBroker | None = None
        self._latest: StorageBroker | None = None
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._finishing = asyncio.Event()
        self._trims = random.random() < 0.4

    # -- interface for the simulation

    async def start_broker(self, environment: Environment) -> StorageBroker:
        broker = StorageBroker(environment, self._streams, self._segment_bytes, self._syncfs_threshold)
        await broker.start()
        return broker

    async def stop_broker(self, broker: StorageBroker) -> None:
        self._broker = None  # no new requests
        self._changed.clear()
        await broker.stop()

    def begin(self, clients: Host) -> None:
        for number in range(self._random.randint(1, 4)):
            name = f"writer {number}"
            self._tasks[name] = clients.start(self._write(number, self._random.randint(5, 60)), name)
        self._tasks["reader"] = clients.start(self._read(), "reader")

    def recovered(self, broker: StorageBroker) -> None:
        for promises, ledger in zip(self._promises, broker.ledgers, strict=True):
            promises.check_recovered(ledger.start, ledger.recovered())
        self._broker = self._latest = broker
        self._changed.set()

    def would_not_start(self, error: Exception) -> None:
        raise SimulationFailure(f"the broker does not start: {error}")

    def choose_lifetime_s(self) -> float:
        return self._random.choice((0.01, 0.2, 0.2, 2, 2, 10)) * self._random.random()

    def died(self, way: Death) -> None:
        if self._latest is not None:
            self._latest.cut()
        self._broker = self._latest = None
        self._changed.clear()

    def check(self) -> None:
        if self._broker is None:
            return
        passes = self._broker.passes
        if not passes.durable <= passes.written < passes.current:
            raise SimulationFailure(f"passes out of order: {passes.durable} {passes.written} {passes.current}")
        for promises, ledger in zip(self._promises, self._broker.ledgers, strict=True):
            promises.check_ends(ledger.durable_end, ledger.end)

    def finish(self) -> None:
        self._finishing.set()

    def still_waiting(self) -> list[str]:
        for name, task in self._tasks.items():
            if task.done() and (error := task.exception()) is not None:
                raise SimulationFailure(f"{name} failed: {error}") from error
        return [name for name, task in self._tasks.items() if not task.done()]

    # -- clients

    async def _current(self) -> StorageBroker:
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
            stream = self._random.randrange(self._streams)
            burst = self._random.choice((1, 1, 1, 5, 20))
            requests = [
                self._ask(broker, stream, f"{writer}/{number}/{part} ".encode() + self._filling())
                for part in range(burst)
            ]
            for request in requests:
                if request is not None:
                    await self._settle(stream, *request)
            if self._trims and self._random.random() < 0.2 and self._broker is broker:
                await self._trim(broker, stream)
            await self._think(0.01)

    def _filling(self) -> bytes:
        return self._random.randbytes(self._random.randint(0, self._record_bytes))

    def _ask(self, broker: StorageBroker, stream: int, record: bytes) -> tuple[int, bytes, asyncio.Future[int]] | None:
        if self._broker is not broker:
            return None
        try:
            index, answer = broker.host.run(broker.append, stream, record)
        except Refusal:
            return None
        self._promises[stream].asked(index, record)
        return index, record, answer

    async def _settle(self, stream: int, index: int, record: bytes, answer: asyncio.Future[int]) -> None:
        try:
            await answer
        except Refusal:
            self._promises[stream].refused(index, record)
        except Cut:
            return
        else:
            self._promises[stream].acknowledged(index, record)

    async def _trim(self, broker: StorageBroker, stream: int) -> None:
        ledger = broker.ledgers[stream]
        if len(ledger.journal.segments) > 2:
            self._promises[stream].trimmed(ledger.journal.segments[-2].base)
            broker.host.run(broker.trim, stream)

    async def _read(self) -> None:
        while not self._finishing.is_set():
            broker = await self._current()
            stream = self._random.randrange(self._streams)
            ledger = broker.ledgers[stream]
            if ledger.durable_end > ledger.start:
                index = self._random.randrange(ledger.start, ledger.durable_end)
                self._promises[stream].seen(index, ledger.read(index, self._random.choice((1, 10, 100))))
            await self._think(0.1)
