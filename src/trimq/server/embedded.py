"""A broker inside another program: what is stored outlives any number of runs of a node, each of which may end as a
crash does. Runs on the caller's event loop with the caller's clock."""

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
from trimq.server.node import Node, Platform
from trimq.server.traffic_recorder import OnEvent, RecordedFrontEnds
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.folder_lock import FolderLock
from trimq.storage.io.memory_files import MemoryFiles

T = TypeVar("T")

# After these a connection that came while its listener closed has been accepted, refused and closed.
_LAST_PASSES = 10

# Loop passes in a row in which nothing may be left to do: what one pass sets off is seen in the next.
_QUIET_PASSES = 3
_SPINS = 20
_POLL_S = 0.001


class Store(Protocol):
    """What outlives a run."""

    def open(self, settings: Settings) -> Files:
        """The files of the next run. StartupError: they are in use."""

    def close(self) -> None:
        """The run has ended as it should."""

    def crash(self) -> str:
        """The run has crashed. One sentence on what that did to what was not synced."""


class MemoryStore:
    def __init__(self) -> None:
        self._files = MemoryFiles()

    def open(self, settings: Settings) -> Files:
        return self._files

    def close(self) -> None:
        """The contents stay for the next run."""

    def crash(self) -> str:
        self._files.crash()
        return "crashed: whatever was not synced is lost, as in a power cut"


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
            f"crashed, as by kill -9: {self._folder} keeps what was written but not synced, since the machine's page "
            "cache outlives a process; only a broker in memory shows a power cut"
        )


class _CountedOffload:
    """A thread whose work is counted. Once cut, it begins none, and nobody hears of what was under way."""

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
        """Finish what is under way, forget the rest, end the thread."""
        self._is_shut_down = True
        self._thread.stop()


class NotQuiet(Exception):
    """The broker still has work, and none of it goes on."""


class BrokerRun:
    """One life of a node, from `start` to `stop` or `crash`. It cannot be started again."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, on_event: OnEvent) -> None:
        self._store = store
        self._has_ended = False
        loop = asyncio.get_running_loop()
        files = store.open(settings)
        self._syncs, self._work = _CountedOffload("trimq-sync", loop), _CountedOffload("trimq-work", loop)
        platform = Platform(files, clock, self._syncs, self._work, random.Random(os.urandom(16)))
        self._recorded_front_ends = RecordedFrontEnds(configured_front_ends, on_event)
        self.report_new_topics = self._recorded_front_ends.report_new_topics
        self.node = Node(settings, platform, self._recorded_front_ends)

    async def start(self) -> dict[str, str]:
        """The bound addresses by listener. When it fails, everything that was opened is closed again."""
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
        """Answer what was asked, make it durable, close."""
        try:
            if self.node.failure is None:
                await self.node.stop()
            else:
                await self._abort()
            await _pass(_LAST_PASSES)
        finally:
            self._release(self._store.close)

    async def crash(self) -> str:
        """End at once. What was not synced is the store's to lose; it says what became of it."""
        self.node.abort()
        note = self._release(self._store.crash)
        await self._abort()
        await _pass(_LAST_PASSES)
        return note

    async def _abort(self) -> None:
        self.node.abort()
        for listener in self.node.listeners.values():
            await listener.closed()

    def _release(self, end: Callable[[], T]) -> T:
        self._has_ended = True
        self._syncs.shut_down()
        self._work.shut_down()
        return end()

    @property
    def is_quiet(self) -> bool:
        """Nothing is unhandled, unwritten, unsynced or unsent. A request that waits for an event has been handled."""
        return (
            self.node.passes.is_idle
            and self._syncs.is_idle
            and self._work.is_idle
            and all(listener.is_quiet for listener in self.node.listeners.values())
        )

    async def wait_until_quiet(self, timeout_s: float) -> None:
        """Return when the broker is quiet, and hurry it there. Unsettled: it was not for so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_quiet()
        except TimeoutError:
            raise NotQuiet(f"the broker was not quiet for {timeout_s:g} s; {self._busy()}") from None

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
            return f"a client of {', '.join(unsent)} does not read what is sent to it, or never stops asking"
        return "something is not written or not synced"


async def _pass(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
