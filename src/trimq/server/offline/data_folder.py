"""Verifies, dumps and measures the data folder of a stopped broker. Locks out brokers meanwhile and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec

from trimq.core.partitions.topics import TopicDefinition as TopicDefinition
from trimq.errors import StartupError
from trimq.formats.kafka_batch.header import BadBatch
from trimq.formats.kafka_batch.records import iterate_records
from trimq.formats.rocketmq_unit.properties import KEYS, read_properties
from trimq.server.offline import queues as offline_queues
from trimq.server.offline.queues import read_definitions
from trimq.storage.inspection import commit_log, partitions, queues
from trimq.storage.inspection.partitions import Finding, ReportProgress
from trimq.storage.io.files import DiskFiles, is_folder
from trimq.storage.io.folder_format import NAME as FORMAT
from trimq.storage.io.folder_format import check_format
from trimq.storage.io.folder_lock import ReadOnlyFolderLock
from trimq.storage.partition_log.store import ROOT

__all__ = ["Finding", "dump", "dump_queue", "queue_stats", "stats", "verify"]


@contextmanager
def _opened(data_dir: str) -> Iterator[DiskFiles]:
    if not is_folder(data_dir):
        raise StartupError(f"there is no data folder {data_dir}")
    glance = ReadOnlyFolderLock(data_dir)
    try:
        files = DiskFiles(data_dir, is_read_only=True)
    except OSError as error:
        glance.release()
        raise StartupError(f"the data folder {data_dir} cannot be read: {error.strerror}") from None
    try:
        if not check_format(files):
            raise StartupError(f"{data_dir} is not the data folder of a broker: it has no file named {FORMAT}")
        yield files
    except PermissionError as error:
        raise StartupError(
            f"the data folder {data_dir} cannot be read: {error.filename} is not readable for this user"
        ) from None
    finally:
        files.close()
        glance.release()


def verify(data_dir: str, progress: ReportProgress) -> Iterator[Finding]:
    """Yields each damage when it is found."""
    with _opened(data_dir) as files:
        yield from partitions.verify(files, progress, _owners(files))
        yield from commit_log.verify(files, progress)
        yield from queues.verify(files, progress, offline_queues.folders(files))


def _owners(files: DiskFiles) -> dict[str, UUID]:
    """Returns the topic id of every defined partition, by the folder of the partition."""
    owners: dict[str, UUID] = {}
    for key, definition in read_definitions(files, "topic").items():
        topic = msgspec.convert(definition.value, TopicDefinition)
        if not topic.deleted:
            owners |= {f"{ROOT}/{topic.name}-{number}": UUID(key) for number in range(topic.streams)}
    return owners


def stats(data_dir: str) -> list[dict[str, Any]]:
    """Returns one row for each stream."""
    with _opened(data_dir) as files:
        rows = [_row(files, topic, number) for topic, number in partitions.partitions(files)]
        return rows + _commit_log_rows(files)


def queue_stats(data_dir: str) -> list[dict[str, Any]]:
    """Returns one row for each log of an AMQP queue."""
    with _opened(data_dir) as files:
        return offline_queues.stats(files)


def dump_queue(data_dir: str, vhost: str, queue: str, from_offset: int, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields the messages of a durable queue, including acknowledged ones whose segment still exists."""
    with _opened(data_dir) as files:
        yield from offline_queues.dump(files, vhost, queue, from_offset, limit)


def _row(files: DiskFiles, topic: str, number: int) -> dict[str, Any]:
    found = partitions.segments(files, f"{ROOT}/{topic}-{number}")
    batches = records = 0
    end = found[0].base if found else 0
    for segment in found:
        try:
            for _, header, _ in partitions.batches(segment):
                batches += 1
                records += header.record_count
                end = header.next_offset
        except BadBatch:
            break  # `verify` reports position and reason
    return {
        "topic": topic,
        "stream": number,
        "start": found[0].base if found else 0,
        "end": end,
        "segments": len(found),
        "batches": batches,
        "records": records,
        "bytes": sum(segment.file.size() for segment in found),
    }


def _commit_log_rows(files: DiskFiles) -> list[dict[str, Any]]:
    """Returns the rows of commit log topics. Segments are not counted, since all topics share the files of the log."""
    rows: dict[tuple[bytes, int], dict[str, Any]] = {}
    for unit in commit_log.units(files):
        row = rows.get((unit.topic, unit.queue_id))
        if row is None:
            name = unit.topic.decode("utf-8", "replace")
            row = {"topic": name, "stream": unit.queue_id, "start": unit.queue_offset, "end": 0, "segments": 0}
            rows[unit.topic, unit.queue_id] = row = {**row, "batches": 0, "records": 0, "bytes": 0}
        row["end"] = unit.queue_offset + 1
        row["batches"] += 1
        row["records"] += 1
        row["bytes"] += unit.size
    return [rows[key] for key in sorted(rows)]


def dump(data_dir: str, topic: str, stream: int, from_offset: int, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields the stored records in order, including transaction markers and records of aborted transactions."""
    with _opened(data_dir) as files:
        is_partition = (topic, stream) in partitions.partitions(files)
        records = (
            _partition_records(files, topic, stream) if is_partition else _commit_log_records(files, topic, stream)
        )
        is_empty, left = not is_partition, limit
        for record in records:
            is_empty = False
            if record["offset"] < from_offset:
                continue
            if left == 0:
                return
            left = None if left is None else left - 1
            yield record
        if is_empty:
            raise StartupError(f"the data folder has no stream {stream} of topic {topic}")


def _partition_records(files: DiskFiles, topic: str, stream: int) -> Iterator[dict[str, Any]]:
    for segment in partitions.segments(files, f"{ROOT}/{topic}-{stream}"):
        for _, header, view in partitions.batches(segment):
            for record in iterate_records(view):
                yield {
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "key": record.key,
                    "body": record.value,
                    "headers": [[name.decode("utf-8", "replace"), value] for name, value in record.headers],
                    "control": header.is_control,
                }


def _commit_log_records(files: DiskFiles, topic: str, stream: int) -> Iterator[dict[str, Any]]:
    """Yields the records of a commit log topic; properties are shown as headers."""
    for unit in commit_log.units(files):
        if unit.topic == topic.encode() and unit.queue_id == stream:
            properties = read_properties(unit.properties)
            yield {
                "offset": unit.queue_offset,
                "timestamp_ms": unit.store_ms,
                "key": properties.get(KEYS, "").encode() or None,
                "body": bytes(unit.body),
                "headers": [[name, value.encode()] for name, value in properties.items()],
                "control": False,
            }
