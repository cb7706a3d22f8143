"""The broker's storage on a real folder, without the rest of the broker, for the figures of storage."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from trimq.config import Settings
from trimq.core.partitions.topic_settings import log_settings
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import BatchHeader, check_sent
from trimq.model import Record
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import DiskFiles
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.settings import LogSettings
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

NOW_MS = time.time_ns() // 1_000_000
SETTINGS = log_settings({}, Settings())


class NoSyncFlusher:
    """A flusher that reports every pass durable at once, which leaves the disk out of the measurement."""

    is_idle = True
    preallocates_up_to_writers = 0

    def __init__(self, mark_durable: Callable[[int], None]) -> None:
        self._mark_durable = mark_durable
        self.dirty = Dirty()
        self.on_disk = 0

    def flush(self, number: int) -> None:
        self.on_disk = number
        self._mark_durable(number)

    def flush_now(self) -> None: ...


def event_loop() -> asyncio.AbstractEventLoop:
    """Event loop of the same kind as in `trimq serve`: uvloop if the `speed` extra is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def raise_failure(error: BaseException) -> NoReturn:
    raise error


Batch = tuple[memoryview, BatchHeader]
"""A batch as a front-end passes it on: a writable view and its header."""


def batch_of(size: int) -> Batch:
    """One batch of one record, of exactly `size` bytes."""
    body = next(length for length in range(size, 0, -1) if len(_seal(1, length)) == size)
    batch = _seal(1, body)
    return memoryview(batch), check_sent(batch)


def batch_of_records(count: int, record_bytes: int) -> Batch:
    """One batch of `count` records, each with a body of `record_bytes`."""
    batch = _seal(count, record_bytes)
    return memoryview(batch), check_sent(batch)


def _seal(count: int, body: int) -> bytearray:
    return from_records([Record(bytes(body), timestamp_ms=NOW_MS)] * count)


class Storage:
    """A data folder with passes that end on `passes.finish` and are durable at once."""

    def __init__(self, folder: Path) -> None:
        self.files = DiskFiles(str(folder))
        self.passes = Passes(lambda finish: None, raise_failure)
        self.passes.start(NoSyncFlusher(self.passes.mark_durable))
        self.files.make_folder(ROOT)
        table = open_table(
            self.files, "tables", "checkpoints", self.passes, list, lambda work, done: done(work(), None)
        )
        self._store = PartitionStore(self.files, self.passes, Checkpoints(table), lambda: NOW_MS)

    def open_log(self, index: int = 0, settings: LogSettings = SETTINGS) -> PartitionLog:
        """Opens the log of a partition, which is created if it does not exist."""
        opened = self._store.open("bench", index, UUID(int=7), settings)
        self.passes.finish()
        return opened


@contextmanager
def storage_in(folder: Path) -> Iterator[Storage]:
    """Opens storage on a new folder, which is removed at the end."""
    storage = Storage(folder)
    try:
        yield storage
    finally:
        storage.files.close()
        shutil.rmtree(folder)
