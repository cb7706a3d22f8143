"""Broker embedded in another program: one store with any number of runs of a node, each of which ends by a stop or a
simulated crash. Runs on the caller's event loop with the caller's clock."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Protocol, TypeVar

from trimq.clock import Clock
from trimq.config import Settings
from trimq.offload import Done, ThreadOffload, Work
from trimq.server.front_ends import configured_front_ends
from trimq.server.node import THREADS, Node, Platform
from trimq.server.traffic_recorder import OnEvent, RecordedFrontEnds
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.folder_lock import FolderLock
from trimq.storage.io.memory_files import MemoryFiles

T = TypeVar("T")

# Iterations of the loop in which a connection that arrived while its listener closed is accepted, refused and closed.
_LAST_PASSES = 10

# Consecutive idle iterations of the loop that count as quiet: effects of one iteration show in the next.
_QUIET_PASSES = 3
_SPINS = 20
_POLL_S = 0.001


class Store(Protocol):
    """Stored data that outlives a run."""

    def open(self, settings: Settings) -> Files:
        """Returns the files for the next run. Raises StartupError if they are in use."""

    def close(self) -> None:
        """Releases the files after a regular end of the run."""

    def crash(self) -> str:
        """Applies the effect of a crash to unsynced data and returns one sentence that describes it."""


class MemoryStore:
    def __init__(self) -> None:
        self._files = MemoryFiles()

    def open(self, settings: Settings) -> Files:
        return self._files

    def close(self) -> None:
        """Keeps the contents for the next run."""

    def crash(self) -> str:
        self._files.crash()
        return "crashed: unsynced data is lost, as in a power cut"


class FolderStore:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock: FolderLock | None = None
        self._files: DiskFiles | None = None

    def open(self, settings: Settings) -> Files:
        self._lock = FolderLock(self._folder)
        self._files = DiskFiles(self._folder, settings.storage.open_files)
        return self._files

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        if self._lock is not None:
            self._lock.release()
        self._files = self._lock = None

    def crash(self) -> str:
        self.close()
        return (
            f"crashed, as by kill -9: {self._folder} keeps data that was written but not synced, since the page cache "
            "of the machine outlives a process; use a broker in memory to simulate a power cut"
        )


class _CountedOffload:
    """Thread that counts its pending work. After `shut_down` it starts no work and reports no results."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = ThreadOffload(name, loop)
        self._is_shut_down = False
        self._under_way = 0

    @property
    def is_idle(self) -> bool:
        return self._under_way == 0

    def __call__(self, work: Work, done: Done) -> None:
        self._under_way += 1
        self._thread(lambda: self._do(work), lambda result, error: self._finish(done, result, error))

    def _do(self, work: Work) -> object:
        return None if self._is_shut_down else work()

    def _finish(self, done: Done, result: object, error: BaseException | None) -> None:
        self._under_way -= 1
        if not self._is_shut_down:
            done(result, error)

    def shut_down(self) -> None:
        """Finishes the current work item, drops the others and ends the thread."""
        self._is_shut_down = True
        self._thread.stop()


class NotQuiet(Exception):
    """The broker has pending work and makes no progress, or ended meanwhile."""


class BrokerRun:
    """One run of a node, from `start` to `stop` or `crash`. It cannot be started again."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, on_event: OnEvent) -> None:
        self._store = store
        self._has_ended = False
        loop = asyncio.get_running_loop()
        files = store.open(settings)
        self._threads = syncs, work, reviews, passwords = [_CountedOffload(name, loop) for name in THREADS]
        platform = Platform(files, clock, syncs, work, reviews, passwords, random.Random(os.urandom(16)))
        self._recorded_front_ends = RecordedFrontEnds(configured_front_ends, on_event)
        self.report_new_topics = self._recorded_front_ends.report_new_topics
        self.node = Node(settings, platform, self._recorded_front_ends)

    async def start(self) -> dict[str, str]:
        """Returns the bound addresses by listener. If it fails, everything that was opened is closed again."""
        try:
            addresses = await self.node.start()
            if self.node.failure is not None:
                raise self.node.failure
            return addresses
        except BaseException:
            for listener in self.node.listeners.values():
                listener.stop_accepting()
            await _pass(_LAST_PASSES)
            self._release(self._store.close)
            raise

    async def stop(self) -> None:
        """Responds to pending requests, makes all writes durable and closes the node."""
        try:
            if self.node.failure is None:
                await self.node.stop()
            else:
                await self._abort()
            await _pass(_LAST_PASSES)
        finally:
            self._release(self._store.close)

    async def crash(self) -> str:
        """Ends the node at once. Returns the sentence of the store about the fate of unsynced data."""
        self.node.abort()
        note = self._release(self._store.crash)
        await self._abort()
        await _pass(_LAST_PASSES)
        return note

    async def _abort(self) -> None:
        self.node.abort()
        for listener in self.node.listeners.values():
            await listener.closed()
        for connector in self.node.connectors:
            await connector.closed()

    def _release(self, end: Callable[[], T]) -> T:
        self._has_ended = True
        for thread in self._threads:
            thread.shut_down()
        return end()

    @property
    def is_quiet(self) -> bool:
        """True if nothing is unhandled, unwritten, unsynced or unsent. A pending long poll counts as handled."""
        return (
            self.node.passes.is_idle
            and all(thread.is_idle for thread in self._threads)
            and all(listener.is_quiet for listener in self.node.listeners.values())
            and all(connector.is_quiet for connector in self.node.connectors)
        )

    async def wait_until_quiet(self, timeout_s: float) -> None:
        """Flushes and waits until the broker is quiet. Raises NotQuiet on time-out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_quiet()
        except TimeoutError:
            raise NotQuiet(f"the broker has pending work after {timeout_s:g} s; {self._busy()}") from None

    async def _wait_quiet(self) -> None:
        quiet = spins = 0
        while quiet < _QUIET_PASSES and self.node.failure is None:
            if self._has_ended:
                raise NotQuiet("the broker ended meanwhile")
            self.node.flush_now()
            await asyncio.sleep(0 if spins < _SPINS else _POLL_S)
            quiet = quiet + 1 if self.is_quiet else 0
            spins += 1

    def _busy(self) -> str:
        unsent = [name for name, listener in self.node.listeners.items() if not listener.is_quiet]
        if unsent:
            return f"a client of {', '.join(unsent)} does not read its responses, or keeps sending requests"
        return "some data is not written or not synced"


async def _pass(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
