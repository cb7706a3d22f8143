"""One partition log on files in memory. The test ends and syncs passes, makes them fail, and crashes, stops and reopens
the log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from doubles import FaultyFiles, PassRunner

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import BatchHeader, check_stored, read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.formats.kafka_batch.records import BatchRecord, iterate_records
from trimq.model import Buffer, Record
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import File, Files
from trimq.storage.io.memory_files import MemoryFiles, Survivors
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import read_batches
from trimq.storage.partition_log.settings import LogSettings
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

START_MS = 1_800_000_000_000
TOPIC = UUID(int=5)
FOLDER = f"{ROOT}/t-0"
SETTINGS = LogSettings(
    segment_bytes=1 << 20,
    segment_ms=1 << 50,
    index_interval_bytes=100,
    retention_ms=-1,
    retention_bytes=-1,
    checkpoint_bytes=1 << 20,
)


def batch_of(*bodies: bytes, timestamp_ms: int = START_MS, **fields: Any) -> bytearray:
    """One batch as a producer sends it, with timestamps that rise by one per record."""
    return from_records(
        [Record(body, timestamp_ms=timestamp_ms + number) for number, body in enumerate(bodies)], **fields
    )


class Stored(NamedTuple):
    """A batch as it was read."""

    header: BatchHeader
    data: bytes


def bodies_of(stored: Stored) -> list[bytes | None]:
    return [record.value for record in iterate_records(stored.data)]


class LogBench:
    def __init__(
        self,
        files: MemoryFiles | None = None,
        make_runner: Callable[[Files], PassRunner] = PassRunner,
        is_settled: bool = True,
        **changes: Any,
    ) -> None:
        """Unless `is_settled`, the pass that creates the log has not ended."""
        self.memory = files or MemoryFiles()
        self.settings = replace(SETTINGS, **changes)
        self.now_ms = START_MS
        self._make_runner = make_runner
        self.files: FaultyFiles
        self.runner: PassRunner
        self.checkpoints: Checkpoints
        self.log: PartitionLog
        self.begin_open()
        if is_settled:
            self.settle()

    # -- starts, stops and crashes

    def open(self) -> None:
        self.begin_open()
        self.settle()

    def begin_open(self) -> None:
        """Opens the log, and makes nothing durable yet."""
        self.files = FaultyFiles(self.memory)
        self.runner = self._make_runner(self.files)
        for folder in ("tables", ROOT):
            self.files.make_folder(folder)
        self.files.sync_folder("")
        table = open_table(self.files, "tables", "checkpoints", self.runner.passes, list, self.runner.offload)
        self.checkpoints = Checkpoints(table)
        self.store = PartitionStore(self.files, self.runner.passes, self.checkpoints, lambda: self.now_ms)
        self.log = self.store.open("t", 0, TOPIC, self.settings)

    def settle(self) -> None:
        self.runner.settle()
        assert self.runner.failures == []

    def close(self) -> None:
        self.log.close()
        self.settle()

    def restart(self) -> None:
        self.close()
        self.open()

    def crash(self, survivors: Survivors | None = None) -> None:
        """The power fails; the log is opened again."""
        self.memory.crash(survivors)
        self.open()

    def kill(self) -> None:
        """The process dies, the page cache survives; the log is opened again."""
        self.open()

    # -- writing

    def begin_append(self, batch: Buffer, leader_epoch: int = 0) -> Ticket:
        return self.log.append(batch, read_header(batch), leader_epoch)

    def append(self, *bodies: bytes, **fields: Any) -> int:
        """Appends one batch, makes it durable, and returns its first offset."""
        offset = self.log.end
        self.begin_append(batch_of(*bodies, **fields))
        self.settle()
        return offset

    def fill(self, count: int, size: int = 100, first_ms: int = START_MS) -> None:
        """Appends `count` records, each in its own batch and pass."""
        for number in range(count):
            self.append(b"%d " % self.log.end + bytes(size), timestamp_ms=first_ms + number)

    def marker(self, producer_id: int, commit: bool, epoch: int = 0) -> bytes:
        return control_batch(producer_id, epoch, 1, commit, self.now_ms, 0)

    def end_transaction(self, producer_id: int, commit: bool) -> int:
        offset = self.log.end
        self.begin_append(self.marker(producer_id, commit))
        self.settle()
        return offset

    def roll(self) -> None:
        self.log.roll()
        self.settle()

    def fail_writes(self, suffix: str = ".log") -> None:
        """Makes writes fail in files with this suffix."""

        def refuse(operation: str, name: str) -> None:
            if operation == "write" and name.endswith(suffix):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

        self.files.before = refuse

    def mend(self) -> None:
        self.files.before = lambda operation, name: None
        self.files.room_bytes = None

    # -- reading

    def batches(self, offset: int | None = None, max_bytes: int = 300, limit: int | None = None) -> list[Stored]:
        """Returns all readable batches from `offset` on."""
        return list(read_all(self.log, offset, max_bytes, limit))

    def records(self, offset: int | None = None, max_bytes: int = 300) -> list[BatchRecord]:
        return [record for stored in self.batches(offset, max_bytes) for record in iterate_records(stored.data)]

    def bodies(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.memory.names(FOLDER) if name.endswith(suffix)]

    def contents(self, name: str) -> bytes:
        file = self.memory.open(f"{FOLDER}/{name}")
        return file.read(0, file.size())

    def damage(self, name: str, change: Callable[[bytearray], Any], folder: str = FOLDER) -> None:
        """Changes a file without the broker's knowledge."""
        file = self.memory.open(f"{folder}/{name}")
        data = bytearray(file.read(0, file.size()))
        change(data)
        file.resize(0)
        file.write(0, [bytes(data)])
        self.memory.sync_all()

    def state(self) -> dict[str, Any]:
        """Returns the state that an undone pass must restore."""
        log = self.log
        return {
            "end": log.end,
            "segments": [(each.segment.base, each.segment.size, each.end_offset) for each in log.segments],
            "files": {name: self.contents(name).rstrip(b"\0") for name in self.names(".log")},  # without zeros
            "producers": dict(log.producers.items()),
            "first open": log.producers.first_open_offset(),
            "epochs": list(log.epochs),
            "mark": log.active.growing.mark(),
            "offsets": log.active.growing.encode_offsets(),
            "times": log.active.growing.encode_times(),
            "aborted": list(log.active.aborted or ()),
        }


def read_all(log: PartitionLog, offset: int | None, max_bytes: int, limit: int | None = None) -> Iterator[Stored]:
    offset = log.start if offset is None else offset
    limit = log.durable_end if limit is None else limit
    while offset < limit:
        found = read_batches(log, offset, max_bytes, limit)
        assert found.next_offset > offset
        assert found.size == sum(map(len, found.parts))
        for part in found.parts:
            position = 0
            while position < len(part):
                header = check_stored(part, position)
                yield Stored(header, bytes(part[position : position + header.size]))
                position += header.size
        offset = found.next_offset


class CountingFiles:
    """Files over other files that count the bytes read from each."""

    def __init__(self, inner: Files) -> None:
        self._inner = inner
        self.read_bytes: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, name: str, create: bool = False) -> File:
        return _CountingFile(self._inner.open(name, create), self.read_bytes)  # type: ignore[return-value]


class _CountingFile:
    def __init__(self, inner: File, read_bytes: dict[str, int]) -> None:
        self._inner = inner
        self._read_bytes = read_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, position: int, length: int) -> bytes:
        data = self._inner.read(position, length)
        self._read_bytes[self._inner.name] = self._read_bytes.get(self._inner.name, 0) + len(data)
        return data

    def view(self, position: int, length: int) -> memoryview:
        data = self._inner.view(position, length)
        self._read_bytes[self._inner.name] = self._read_bytes.get(self._inner.name, 0) + len(data)
        return data
