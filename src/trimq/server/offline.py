"""What can be asked of a stopped broker's folder. Takes the folder's lock while it looks, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trimq.errors import StartMistake
from trimq.formats.batch import BadBatch
from trimq.formats.records import iterate
from trimq.storage import inspection
from trimq.storage.files import DiskFiles, FolderLock, is_folder
from trimq.storage.folder_format import check_format
from trimq.storage.inspection import Finding, Progress
from trimq.storage.partition_store import ROOT

__all__ = ["Finding", "dump", "stats", "verify"]


@contextmanager
def _opened(data_dir: str) -> Iterator[DiskFiles]:
    if not is_folder(data_dir):
        raise StartMistake(f"there is no data folder {data_dir}")
    try:
        lock = FolderLock(data_dir)
    except OSError as error:
        raise StartMistake(f"the data folder {data_dir} cannot be used: {error.strerror}") from None
    files = DiskFiles(data_dir)
    try:
        check_format(files)
        yield files
    finally:
        files.close()
        lock.release()


def verify(data_dir: str, progress: Progress) -> Iterator[Finding]:
    """Every damage that is found, as it is found."""
    with _opened(data_dir) as files:
        yield from inspection.verify(files, progress)


def stats(data_dir: str) -> list[dict[str, Any]]:
    """One row for each stream."""
    with _opened(data_dir) as files:
        return [_row(files, topic, number) for topic, number in inspection.partitions(files)]


def _row(files: DiskFiles, topic: str, number: int) -> dict[str, Any]:
    found = inspection.segments(files, f"{ROOT}/{topic}-{number}")
    batches = records = 0
    end = found[0].base if found else 0
    for segment in found:
        try:
            for _, header, _ in inspection.batches(segment):
                batches += 1
                records += header.record_count
                end = header.next_offset
        except BadBatch:
            break  # `verify` tells where and why
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


def dump(data_dir: str, topic: str, stream: int, from_offset: int, limit: int | None) -> Iterator[dict[str, Any]]:
    """The stored records, one after the other; those of markers and aborted transactions too."""
    with _opened(data_dir) as files:
        if (topic, stream) not in inspection.partitions(files):
            raise StartMistake(f"the folder holds no stream {stream} of topic {topic}")
        found = inspection.segments(files, f"{ROOT}/{topic}-{stream}")
        left = limit
        for segment in found:
            for _, header, view in inspection.batches(segment):
                for record in iterate(view):
                    if record.offset < from_offset:
                        continue
                    if left == 0:
                        return
                    left = None if left is None else left - 1
                    yield {
                        "offset": record.offset,
                        "timestamp_ms": record.timestamp_ms,
                        "key": record.key,
                        "body": record.value,
                        "headers": [[name.decode("utf-8", "replace"), value] for name, value in record.headers],
                        "control": header.is_control,
                    }
