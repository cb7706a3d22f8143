"""A compacted partition log that tests write by key, restart, and compare with the expected contents."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from doubles import ManualOffload, PassRunner

from trimq.clock import ManualTime
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import BatchHeader, check_stored, read_header
from trimq.formats.kafka_batch.markers import control_batch, read_control
from trimq.formats.kafka_batch.records import iterate_records
from trimq.model import Record
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import AsyncFlusher
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.inspection.partitions import verify
from trimq.storage.io.files import Files
from trimq.storage.partition_log.compaction import Compaction, CompactionLimits, plan_compaction
from trimq.storage.partition_log.compaction_swap import Step
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import read_batches
from trimq.storage.partition_log.settings import LogSettings
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
FOLDER = f"{ROOT}/profiles-0"
SETTINGS = LogSettings(
    segment_bytes=1 << 20,
    segment_ms=1 << 50,
    index_interval_bytes=100,
    retention_ms=-1,
    retention_bytes=-1,
    checkpoint_bytes=1 << 20,
    is_compacted=True,
    is_expired=False,
    delete_retention_ms=DAY_MS,
    min_cleanable_dirty_ratio=0.0,
)


class Kept(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class AsyncPassRunner(PassRunner):
    """Acknowledges from the page cache; nothing is synced until `sync`."""

    def __init__(self, files: Files) -> None:
        self.offload = ManualOffload()
        self.failures: list[BaseException] = []
        self._soon = deque()
        self._time = ManualTime(0)
        self.passes = Passes(self._soon.append, self.failures.append)
        self._flusher = AsyncFlusher(
            files, self.offload, 64, self.passes.mark_durable, self.failures.append, self._time, 200
        )
        self.passes.start(self._flusher)

    def sync(self) -> None:
        self.settle()
        self._flusher.flush_now()
        self.settle()


class KeyedLog:
    def __init__(
        self,
        files: Files,
        settings: LogSettings = SETTINGS,
        effort: CompactionLimits | None = None,
        make_runner: Callable[[Files], PassRunner] = PassRunner,
        now_ms: int = START_MS,
    ) -> None:
        self.files = files
        self.settings = settings
        self.effort = effort or CompactionLimits(step_records=3)
        self.now_ms = now_ms
        self._make_runner = make_runner
        self.runner: PassRunner
        self.checkpoints: Checkpoints
        self.log: PartitionLog
        self.open()

    # -- starts and stops

    def open(self) -> None:
        self.runner = self._make_runner(self.files)
        self.files.make_folder(ROOT)
        self.files.sync_folder("")
        table = open_table(self.files, "tables", "checkpoints", self.runner.passes, list, self.runner.offload)
        self.checkpoints = Checkpoints(table)
        store = PartitionStore(self.files, self.runner.passes, self.checkpoints, lambda: self.now_ms)
        self.log = store.open("profiles", 0, UUID(int=5), self.settings, False)
        self.settle()

    def settle(self) -> None:
        self.runner.settle()
        assert self.runner.failures == []

    def close(self) -> None:
        self.log.close()
        self.settle()
        assert [finding.problem for finding in verify(self.files, lambda done, total: None)] == []

    def restart(self) -> None:
        self.close()
        self.open()

    # -- writing

    def append(self, pairs: Iterable[tuple[bytes | None, bytes | None]], codec: int = Codec.NONE, **fields: Any) -> int:
        """Appends one batch, makes it durable, and returns its first offset."""
        base_offset = self.log.end
        records = [
            Record(key=key, body=value, timestamp_ms=self.now_ms + number) for number, (key, value) in enumerate(pairs)
        ]
        batch = from_records(records, codec=codec, **fields)
        self.log.append(batch, read_header(batch), 0)
        self.settle()
        return base_offset

    def put(self, key: bytes, value: bytes | None) -> int:
        return self.append([(key, value)])

    def end_transaction(self, producer_id: int, commit: bool) -> int:
        offset = self.log.end
        batch = control_batch(producer_id, 0, 1, commit, self.now_ms, 0)
        self.log.append(batch, read_header(batch), 0)
        self.settle()
        return offset

    def roll(self) -> None:
        if self.log.active.segment.size:
            self.log.roll()
            self.settle()

    # -- compacting

    def compact(self, before_step: Callable[[], None] = lambda: None) -> int:
        """Runs one round of compaction as the broker does. Returns the number of steps."""
        compaction = Compaction(self.log, self.checkpoints, self.now_ms, self.effort)
        count = 0
        for step in compaction.steps():
            self.do(step)
            before_step()
            count += 1
        self.settle()
        assert not compaction.must_finish
        return count

    @property
    def is_due(self) -> bool:
        return plan_compaction(self.log, self.checkpoints, self.now_ms) is not None

    def do(self, step: Step) -> None:
        """Does the work that the step requires before the next one."""
        if isinstance(step, Ticket):
            on_disk: list[Ticket] = []
            self.runner.passes.on_synced(step, on_disk.append)
            self.runner.sync() if isinstance(self.runner, AsyncPassRunner) else self.settle()
            assert on_disk == [step]
        elif step is not None:
            step()

    # -- reading

    def batches(self, offset: int | None = None, max_bytes: int = 300) -> Iterator[tuple[BatchHeader, memoryview]]:
        offset = self.log.start if offset is None else offset
        while offset < self.log.durable_end:
            found = read_batches(self.log, offset, max_bytes, self.log.durable_end)
            assert found.next_offset > offset
            for part in found.parts:
                position = 0
                while position < len(part):
                    header = check_stored(part, position)
                    yield header, part[position : position + header.size]
                    position += header.size
            offset = found.next_offset

    def records(self) -> list[Kept]:
        """Returns the records of a read-committed reader, computed without the transaction index."""
        found: list[Kept] = []
        undecided: dict[int, list[Kept]] = {}
        for header, batch in self.batches():
            records = [Kept(record.offset, record.key, record.value) for record in iterate_records(batch)]
            if header.is_control:
                decided = undecided.pop(header.producer_id, [])
                marker = read_control(next(iterate_records(batch)))
                assert marker is not None
                found += decided if marker.commit else []
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, []).extend(records)
            else:
                found += records
        return sorted(found)

    def table(self) -> dict[bytes, bytes]:
        """Returns the last value of each key, as read from the whole log."""
        values: dict[bytes, bytes] = {}
        for _, key, value in self.records():
            assert key is not None
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return values

    def bases(self) -> list[int]:
        return [segment.segment.base for segment in self.log.segments]


def with_settings(**changes: Any) -> LogSettings:
    return replace(SETTINGS, **changes)
