"""Doubles for the broker's doors: threads that run when the test says so, and files that fail on demand."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from trimq.clock import ManualTime
from trimq.model import Buffer
from trimq.offload import Done, Work
from trimq.storage.group_commit.flusher import AsyncFlusher, Flusher, SyncFlusher
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import File, Files, Memory, Space
from trimq.storage.io.memory_files import NameChange

T = TypeVar("T")


class ManualOffload:
    """Collects work and runs it on demand, in the order of submission."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Work, Done]] = deque()

    def __call__(self, work: Work, done: Done) -> None:
        self._pending.append((work, done))

    def __len__(self) -> int:
        return len(self._pending)

    def run_one(self) -> bool:
        """Runs the oldest piece of work. Returns False if there is none. A `PowerCut` is not reported to `done`, but
        raised."""
        if not self._pending:
            return False
        work, done = self._pending.popleft()
        result: object = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as caught:
            error = caught
        done(result, error)
        return True

    def run_all(self) -> None:
        while self.run_one():
            pass

    def fail_one(self, error: BaseException) -> None:
        """Ends the oldest piece of work with `error`, without running it."""
        self._pending.popleft()[1](None, error)

    def drop_all(self) -> None:
        """Drops all work, as when the process dies."""
        self._pending.clear()


class PassRunner:
    """Passes with a synchronous flusher; the test ends the passes and runs the syncs."""

    def __init__(self, files: Files, syncfs_threshold: int = 64) -> None:
        self.offload = ManualOffload()
        self.failures: list[BaseException] = []
        self._soon: deque[Callable[[], None]] = deque()
        self.passes = Passes(self._soon.append, self.failures.append)
        self.passes.start(self.make_flusher(files, syncfs_threshold))

    def make_flusher(self, files: Files, syncfs_threshold: int) -> Flusher:
        turns, settle = self.passes.turns, self.passes.mark_durable
        return SyncFlusher(files, self.offload, syncfs_threshold, settle, self.failures.append, turns, ManualTime(0))

    def end_pass(self) -> None:
        """Writes the collected appends; nothing is synced yet."""
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def settle(self) -> None:
        """Ends passes and runs work off the loop until neither is left."""
        while self._soon or len(self.offload):
            self.end_pass()
            self.offload.run_one()


class AsyncPassRunner(PassRunner):
    """Passes that are acknowledged from the page cache, and synced each 200 ms of `time`."""

    def make_flusher(self, files: Files, syncfs_threshold: int) -> Flusher:
        self.time = ManualTime(0)
        settle, failed = self.passes.mark_durable, self.failures.append
        return AsyncFlusher(files, self.offload, syncfs_threshold, settle, failed, self.time, 200)


class PowerCut(BaseException):
    """The machine stops at this operation. Not an Exception, so that no code under test handles it."""


class TornTails:
    """Survivors of a power cut for files that only grow or are written into preallocated zeros: a percentage of the
    unsynced bytes, and all unsynced names or none."""

    def __init__(self, kept_percent: int, keeps_names: bool) -> None:
        self._kept_percent = kept_percent
        self._keeps_names = keeps_names

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return changes if self._keeps_names else ()

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        synced, newest = versions[0], versions[-1]
        if len(newest) < len(synced):
            return newest
        begin = _same(synced, newest)
        same_end = _same(synced[::-1], newest[::-1]) if len(synced) == len(newest) > begin else 0
        kept = begin + (len(newest) - same_end - begin) * self._kept_percent // 100
        return newest[:kept] + synced[kept:]


def _same(one: bytes, other: bytes) -> int:
    """Returns the length of the common prefix."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


Before = Callable[[str, str], None]


def _nothing(operation: str, name: str) -> None:
    """Lets every operation succeed."""


class FaultyFiles:
    """Files over other files. `before(operation, name)` is called ahead of every change and may raise.

    The operations: create, write, resize, reserve, fill, lock, unlock, sync, make_folder, remove, rename, restrict,
    sync_folder, sync_all. `room_bytes`, when set, is the number of bytes that may still be written: a write beyond it
    is short, as on a full disk.

    While `is_cold`, files are cold until they are warmed; `waits` counts reads of cold files. Warming is one more
    operation: warm. `read_bytes` counts the bytes that were read or viewed.
    """

    def __init__(self, inner: Files) -> None:
        self._inner = inner
        self._opened = 0
        self.before: Before = _nothing
        self.room_bytes: int | None = None
        self.is_cold = False
        self.waits = 0
        self.read_bytes = 0

    def open(self, name: str, create: bool = False) -> FaultyFile:
        folder, _, last = name.rpartition("/")
        if create and last not in self._inner.names(folder):
            self.before("create", name)
        self._opened += 1
        return FaultyFile(self, self._inner.open(name, create), self._opened)

    def names(self, folder: str) -> list[str]:
        return self._inner.names(folder)

    def make_folder(self, name: str) -> None:
        self.before("make_folder", name)
        self._inner.make_folder(name)

    def remove(self, name: str) -> None:
        self.before("remove", name)
        self._inner.remove(name)

    def rename(self, old: str, new: str) -> None:
        self.before("rename", old)
        self._inner.rename(old, new)

    def restrict(self, name: str) -> None:
        self.before("restrict", name)
        self._inner.restrict(name)

    def sync_folder(self, name: str) -> None:
        self.before("sync_folder", name)
        self._inner.sync_folder(name)

    def sync_all(self) -> None:
        self.before("sync_all", "")
        self._inner.sync_all()

    def space(self) -> Space:
        return self._inner.space()

    def memory(self) -> Memory:
        return self._inner.memory()


class FaultyFile:
    def __init__(self, faults: FaultyFiles, inner: File, serial: int) -> None:
        self._faults = faults
        self._inner = inner
        self._serial = serial
        self.name = inner.name

    def __hash__(self) -> int:
        # Files are synced in the order of a set; with hashes by memory address, failures could not be replayed.
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other

    def size(self) -> int:
        return self._inner.size()

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        self._faults.before("write", self.name)
        room_bytes = self._faults.room_bytes
        if room_bytes is None:
            self._inner.write(position, parts)
            return
        data = b"".join(parts)
        self._faults.room_bytes = max(room_bytes - len(data), 0)
        self._inner.write(position, [data[:room_bytes]])
        if len(data) > room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)

    def read(self, position: int, length: int) -> bytes:
        self._faults.waits += self._faults.is_cold
        data = self._inner.read(position, length)
        self._faults.read_bytes += len(data)
        return data

    def view(self, position: int, length: int) -> memoryview:
        self._faults.waits += self._faults.is_cold
        self._faults.read_bytes += length
        return self._inner.view(position, length)

    def begin_warm(self, position: int, length: int) -> Callable[[], None] | None:
        return self._warm if self._faults.is_cold else self._inner.begin_warm(position, length)

    def _warm(self) -> None:
        self._faults.is_cold = False
        self._faults.before("warm", self.name)

    def begin_sync(self) -> Callable[[], None]:
        inner = self._inner.begin_sync()

        def sync() -> None:
            self._faults.before("sync", self.name)
            inner()

        return sync

    def begin_reserve(self, size: int) -> Callable[[], None]:
        return self._guarded("reserve", self._inner.begin_reserve(size))

    def begin_fill(self, position: int, length: int) -> Callable[[], None]:
        return self._guarded("fill", self._inner.begin_fill(position, length))

    def begin_lock(self, length: int) -> Callable[[], Callable[[], None]]:
        release = self._guarded("lock", self._inner.begin_lock(length))

        def lock() -> Callable[[], None]:
            return self._guarded("unlock", release())

        return lock

    def _guarded(self, operation: str, work: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            self._faults.before(operation, self.name)
            return work()

        return run

    def resize(self, size: int) -> None:
        self._faults.before("resize", self.name)
        self._inner.resize(size)

    def close(self) -> None:
        self._inner.close()
