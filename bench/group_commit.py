"""Group commit: appends per second of 64 writers, each of which waits until its append is durable before it sends the
next. Compared with a bare loop that writes and syncs the same number of files. By wall time, since the writers mostly
wait."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from uuid import UUID

from bench.figures import Figure, at_least_times_floor
from bench.sizes import Sizes
from bench.storage_setup import SETTINGS, batch_of, event_loop, raise_failure
from trimq.clock import LoopTime
from trimq.config import Settings
from trimq.offload import ThreadOffload
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import SyncFlusher
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.io.files import DiskFiles
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

WRITERS = 64
SMALL = 200
DIRTY_FILES = (1, 2, 3, 4, 8, 16, 64)

Sync = Callable[[DiskFiles, Sequence[int]], None]


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    for streams in sizes.commit_streams:
        rates: dict[str, list[float]] = {"fdatasync": [], "syncfs": [], "broker": []}
        seconds = sizes.commit_seconds
        with _Floor(folder / "floor", streams) as floor, _Broker(folder / "broker", streams) as broker:
            for _ in range(sizes.commit_rounds):
                rates["fdatasync"].append(floor.rate(WRITERS, sync_each, seconds))
                rates["broker"].append(broker.rate(seconds))
                rates["syncfs"].append(floor.rate(WRITERS, sync_at_once, seconds))
        # On a shared disk the median is more stable than the best round.
        medians = {name: statistics.median(found) for name, found in rates.items()}
        chosen = max(("fdatasync", "syncfs"), key=lambda name: medians[name])
        yield Figure(
            f"group commit, 64 writers, {streams:,} stream{'s' if streams > 1 else ''}",
            medians["broker"],
            "appends/s",
            medians[chosen],
            at_least_times_floor(0.7),
            f"wall time, median of {sizes.commit_rounds}; floor is {chosen}: fdatasync {medians['fdatasync']:,.0f}, "
            f"syncfs {medians['syncfs']:,.0f} appends/s",
        )


def measure_crossover(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Finds the number of dirty files from which one syncfs is faster than an fdatasync of each."""
    took_ms: dict[int, tuple[float, float]] = {}
    seconds = sizes.commit_seconds / 5
    with _Floor(folder / "floor", max(DIRTY_FILES)) as floor:
        for files in DIRTY_FILES:
            rates = [
                (floor.rate(files, sync_each, seconds), floor.rate(files, sync_at_once, seconds))
                for _ in range(sizes.commit_rounds)
            ]
            each, at_once = (1e3 * files / max(column) for column in zip(*rates, strict=True))
            took_ms[files] = (each, at_once)
    crossover = next((files for files, (each, at_once) in took_ms.items() if at_once < each), max(DIRTY_FILES) + 1)
    timings = "; ".join(f"{files}: {each:.2f} / {at_once:.2f}" for files, (each, at_once) in took_ms.items())
    yield Figure(
        "dirty files from which one syncfs is quicker",
        crossover,
        "files",
        note=f"storage.syncfs_threshold is {Settings().storage.syncfs_threshold}; ms by fdatasync / syncfs: {timings}",
    )


def sync_each(files: DiskFiles, descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.fdatasync(fd)


def sync_at_once(files: DiskFiles, descriptors: Sequence[int]) -> None:
    files.sync_all()


class _Floor:
    """One loop: writes to each file that the writers chose, then syncs. Each file is in a folder of its own, as in
    Kafka's layout: a file system places folders apart, which makes a sync slower."""

    def __init__(self, folder: Path, streams: int) -> None:
        self._folder = folder
        self._files = DiskFiles(str(folder))
        self._descriptors = [_make_file(folder / str(n)) for n in range(streams)]
        self._next = 0
        self._files.sync_all()

    def __enter__(self) -> _Floor:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._descriptors:
            os.close(fd)
        shutil.rmtree(self._folder)

    def rate(self, writers: int, sync: Sync, seconds: float) -> float:
        """Returns the appends per second if `writers` append once per round, to the streams in turn."""
        part = batch_of(SMALL)[0]
        streams = len(self._descriptors)
        touched = min(writers, streams)
        parts = [part] * (writers // touched)
        rounds = 0
        began_s = time.perf_counter()
        while time.perf_counter() < began_s + seconds or not rounds:
            chosen = [self._descriptors[(self._next + n) % streams] for n in range(touched)]
            self._next += touched
            for fd in chosen:
                os.writev(fd, parts)
            sync(self._files, chosen)
            rounds += 1
        return rounds * writers / (time.perf_counter() - began_s)


def _make_file(folder: Path) -> int:
    folder.mkdir()
    return os.open(folder / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)


class _Broker:
    """Passes, flusher and flusher thread as in the broker."""

    def __init__(self, folder: Path, streams: int) -> None:
        self._folder = folder
        self._streams = streams

    def __enter__(self) -> _Broker:
        self._runner = asyncio.Runner(loop_factory=event_loop)
        self._loop = self._runner.get_loop()
        self._offload = ThreadOffload("bench-sync", self._loop)
        self._files = DiskFiles(str(self._folder), Settings().storage.open_files)
        self._passes = Passes(self._loop.call_soon, raise_failure)
        threshold = Settings().storage.syncfs_threshold
        turns, mark_durable = self._passes.turns, self._passes.mark_durable
        flusher = SyncFlusher(self._files, self._offload, threshold, mark_durable, raise_failure, turns, LoopTime())
        self._passes.start(flusher)
        self._logs = self._runner.run(self._open())
        return self

    async def _open(self) -> list[PartitionLog]:
        self._files.make_folder(ROOT)
        table = open_table(self._files, "tables", "checkpoints", self._passes, list, self._offload)
        store = PartitionStore(self._files, self._passes, Checkpoints(table), lambda: time.time_ns() // 1_000_000)
        logs = [store.open("bench", index, UUID(int=7), SETTINGS, is_new=True) for index in range(self._streams)]
        for _ in range(2):  # the first append to a stream also creates files, which the floor has already
            await self._until_idle()
            for log in logs:
                log.append(*batch_of(SMALL), 0)
        await self._until_idle()
        return logs

    async def _until_idle(self) -> None:
        while not self._passes.is_idle:
            await asyncio.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self._offload.stop()
        self._runner.close()
        self._files.close()
        shutil.rmtree(self._folder)

    def rate(self, seconds: float) -> float:
        return self._runner.run(_Writers(self._passes, self._logs).run(seconds))


class _Writers:
    """Writers that append to the streams in turn, each again once its last append is durable."""

    def __init__(self, passes: Passes, logs: list[PartitionLog]) -> None:
        self._passes = passes
        self._turns = cycle([log.append for log in logs])
        self._batches = [batch_of(SMALL) for _ in range(WRITERS)]
        self._waiting: list[Ticket] = []
        self._durable = passes.durable
        self._done = 0
        self._is_over = False
        self._ended = asyncio.Event()

    async def run(self, seconds: float) -> float:
        """Returns the appends per second."""
        stop_listening = _listen(self._passes, self._on_progress)
        began_s = time.perf_counter()
        self._append(WRITERS)
        await asyncio.sleep(seconds)
        self._is_over = True
        await self._ended.wait()
        stop_listening()
        return self._done / (time.perf_counter() - began_s)

    def _append(self, writers: int) -> None:
        # The writers do as little work as possible, so that the broker's part dominates.
        self._waiting += [
            append(batch, header, 0)
            for (batch, header), append in zip(self._batches[:writers], self._turns, strict=False)
        ]

    def _on_progress(self) -> None:
        durable = self._passes.durable
        if durable == self._durable:
            return
        self._durable = durable
        left = [ticket for ticket in self._waiting if ticket.number > durable]
        completed = len(self._waiting) - len(left)
        self._waiting = left
        self._done += completed
        if not self._is_over:
            self._append(completed)
        elif not left:
            self._ended.set()


def _listen(passes: Passes, listener: Callable[[], None]) -> Callable[[], None]:
    """Calls `listener` on progress until the returned function is called: passes outlive one measurement."""
    listeners = [listener]
    passes.on_progress(lambda: listeners[0]())

    def stop() -> None:
        listeners[0] = lambda: None

    return stop
