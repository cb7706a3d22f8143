"""Reads of stored data: sequentially as a consumer does, and of a whole unsealed tail when a log is opened after a
crash. Both compared with a bare loop over the mapped file; all data is in the page cache."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from bench.figures import Figure, at_least_times_floor, at_most_times_floor
from bench.sizes import MIB, Sizes
from bench.storage_setup import SETTINGS, Storage, batch_of, storage_in
from bench.work_cost import Work, Workload, min_costs
from trimq.core.partitions.batch_validation import BatchRules
from trimq.core.partitions.stream import Stream
from trimq.formats.checksum import crc32c
from trimq.formats.kafka_batch.header import stamp_batch
from trimq.model import StreamId
from trimq.storage.checkpoints.file_names import PARTITION_METADATA
from trimq.storage.checkpoints.leader_epochs import format_partition_metadata
from trimq.storage.guards.damages import DamageReports
from trimq.storage.partition_log.store import ROOT

LARGE = 16 * 1024
_LOG = f"{ROOT}/bench-0/{0:020d}.log"


def write_tail(folder: Path, size: int) -> Path:
    """Writes a log as a crash leaves it: one segment of batches of 16 KB, no index, no checkpoint."""
    path = folder / _LOG
    path.parent.mkdir(parents=True)
    (path.parent / PARTITION_METADATA).write_bytes(format_partition_metadata(UUID(int=7)))
    batch, _ = batch_of(LARGE)
    with path.open("wb", buffering=MIB) as file:
        for offset in range(size // LARGE):
            stamp_batch(batch, offset, 0)
            file.write(batch)
    return path


def measure_reads(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    with storage_in(folder / "read") as storage:
        path = write_tail(folder / "read", sizes.read_bytes)
        stream = Stream(StreamId(UUID(int=7), 0), "bench", storage.open_log(), 1 << 30, BatchRules(), DamageReports())
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            workloads = [_read_stream(stream), _read_stream(stream, is_first=True), _read_map(mapped)]
            cost, first, floor = min_costs(workloads, sizes.rounds)
        gigabytes = sizes.read_bytes / 1e9
        for name, taken in (
            ("sequential read, 1 MiB at a time", cost),
            ("the same, first read of a restarted broker", first),
        ):
            wall = f"by wall {floor.wall_s / taken.wall_s:.2f} x floor"
            note = f"CPU of the process is judged; every byte is touched by its CRC; {wall}"
            goal = at_least_times_floor(0.8) if taken is cost else None
            yield Figure(name, gigabytes / taken.cpu_s, "GB/s", gigabytes / floor.cpu_s, goal, note)


def _read_map(mapped: mmap.mmap) -> Workload:
    @contextmanager
    def prepare() -> Iterator[Work]:
        def work() -> None:
            view = memoryview(mapped)
            for position in range(0, len(view), MIB):
                crc32c(view[position : position + MIB])

        yield work

    return prepare


def _read_stream(stream: Stream, is_first: bool = False) -> Workload:
    """Reads the stream. Batches that this process wrote or has read are not checked again: `is_first` resets that."""

    @contextmanager
    def prepare() -> Iterator[Work]:
        (segment,) = stream.log.segments
        segment.trusted_from, segment.checked_to = (segment.segment.size if is_first else 0), 0

        def work() -> None:
            offset, end = 0, stream.readable_end
            while offset < end:
                found = stream.read(offset, MIB)
                for part in found.parts:
                    crc32c(part)
                offset = found.next_offset

        yield work

    return prepare


def measure_recovery(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    with storage_in(folder / "recovery") as storage:
        path = write_tail(folder / "recovery", sizes.recovery_bytes)
        cost, floor = min_costs([_recover(storage), _check_map(path)], sizes.recovery_rounds)
        yield Figure(
            f"recovery of a tail of {sizes.recovery_bytes // MIB} MiB",
            cost.cpu_s,
            "s CPU",
            floor.cpu_s,
            at_most_times_floor(1.5),
            f"CPU of the process is judged; by wall {cost.wall_s:.3g} s, {cost.wall_s / floor.wall_s:.2f} x floor",
        )


def _check_map(path: Path) -> Workload:
    @contextmanager
    def prepare() -> Iterator[Work]:
        def work() -> None:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            view = memoryview(mapped)
            for position in range(0, len(view), LARGE):
                crc32c(view[position : position + LARGE])
            view.release()
            mapped.close()

        yield work

    return prepare


def _recover(storage: Storage) -> Workload:
    """Opens a log without a checkpoint. It is not synced, and its indexes are not written."""

    @contextmanager
    def prepare() -> Iterator[Work]:
        opened = []
        settings = replace(SETTINGS, segment_bytes=(1 << 31) - 1, checkpoint_bytes=1 << 40)
        yield lambda: opened.append(storage.open_log(settings=settings))
        (log,) = opened
        assert log.end == log.segments[0].segment.size // LARGE, "every batch was found"
        log.journal.close()

    return prepare
