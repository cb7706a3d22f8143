"""Partition logs in a real folder; the test ends passes and makes them durable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from doubles import PassRunner

from trimq.formats.kafka_batch.header import read_header
from trimq.model import Buffer
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.io.files import DiskFiles
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import read_batches
from trimq.storage.partition_log.settings import LogSettings
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

NOW_MS = 1_800_000_000_000
SETTINGS = LogSettings(
    segment_bytes=1 << 30,
    segment_ms=1 << 50,
    index_interval_bytes=200,
    retention_ms=-1,
    retention_bytes=-1,
    checkpoint_bytes=1 << 20,
)


class OpenedLog:
    def __init__(self, log: PartitionLog, files: DiskFiles, runner: PassRunner) -> None:
        self.log = log
        self.files = files
        self._runner = runner

    def append(self, *batches: Buffer, leader_epoch: int = 0) -> None:
        """Appends in one pass and makes it durable."""
        for batch in batches:
            self.log.append(batch, read_header(batch), leader_epoch)
        self._runner.settle()

    def read_all(self, max_bytes: int = 700) -> bytes:
        parts: list[memoryview] = []
        offset = self.log.start
        while offset < self.log.durable_end:
            found = read_batches(self.log, offset, max_bytes, self.log.durable_end)
            assert found.next_offset > offset
            parts += found.parts
            offset = found.next_offset
        return b"".join(parts)


@contextmanager
def opened(data_folder: Path, topic: str, settings: LogSettings = SETTINGS) -> Iterator[OpenedLog]:
    """Opens the log of partition 0 and closes it cleanly at the end."""
    files = DiskFiles(str(data_folder))
    runner = PassRunner(files)
    files.make_folder(ROOT)
    checkpoints = Checkpoints(open_table(files, "tables", "checkpoints", runner.passes, list, runner.offload))
    is_adopted = checkpoints.point(f"{ROOT}/{topic}-0") is None  # written by Kafka, or new
    store = PartitionStore(files, runner.passes, checkpoints, lambda: NOW_MS)
    log = store.open(topic, 0, UUID(int=5), settings, is_adopted=is_adopted)
    runner.settle()
    yield OpenedLog(log, files, runner)
    log.close()
    runner.settle()
    assert runner.failures == []
    files.close()
