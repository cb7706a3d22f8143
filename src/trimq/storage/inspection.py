"""Looks through a stopped broker's folder without changing it: every batch, every index, every table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trimq.formats.batch import BadBatch, BatchHeader, check_stored
from trimq.storage.companions import LOG, OFFSET_INDEX, TIME_INDEX, Unusable
from trimq.storage.files import File, Files
from trimq.storage.partition_index import StoredIndex
from trimq.storage.partition_store import ROOT
from trimq.storage.segment import base_of, segment_name
from trimq.storage.table_records import iterate_frames

TABLES = "tables"
_SEGMENT_REMEDY = "Restore the file from a copy, or move the segment away to give up its records."
_TAIL_REMEDY = "Start the broker: it cuts what was never acknowledged."
_INDEX_REMEDY = "Remove the index file: the broker builds it anew from the log."
_TABLE_REMEDY = "Start the broker: it cuts a torn tail, or names what must be restored."

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    position: int
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment of a partition folder, and the number in the name of the one after it."""

    folder: str
    base: int
    following: int | None
    file: File

    @property
    def name(self) -> str:
        return self.file.name


def partitions(files: Files) -> Iterator[tuple[str, int]]:
    """Topic and number of every partition folder."""
    for name in files.names(ROOT):
        topic, dash, number = name.rpartition("-")
        if dash and number.isdigit():
            yield topic, int(number)


def segments(files: Files, folder: str) -> list[FoundSegment]:
    bases = [base for name in files.names(folder) if (base := base_of(name, LOG)) is not None]
    return [
        FoundSegment(folder, base, following, files.open(f"{folder}/{segment_name(base, LOG)}"))
        for base, following in zip(bases, [*bases[1:], None], strict=True)
    ]


def batches(segment: FoundSegment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch. BadBatch: the one after the last given is damaged or torn."""
    size = segment.file.size()
    view = segment.file.view(0, size) if size else memoryview(b"")
    position = 0
    while position < size:
        header = check_stored(view, position)
        yield position, header, view[position : position + header.size]
        position += header.size


def verify(files: Files, progress: Progress) -> Iterator[Finding]:
    """Everything that does not fit together."""
    found = [segment for name in files.names(ROOT) for segment in segments(files, f"{ROOT}/{name}")]
    total, done = sum(segment.file.size() for segment in found), 0
    progress(0, total)
    for segment in found:
        yield from _verify_segment(files, segment)
        segment.file.close()
        done += segment.file.size()
        progress(done, total)
    yield from _verify_tables(files)


def _verify_segment(files: Files, segment: FoundSegment) -> Iterator[Finding]:
    position, expected = 0, segment.base
    try:
        for position, header, _ in batches(segment):
            if header.base_offset < expected or (segment.following or header.next_offset) < header.next_offset:
                yield Finding(segment.name, position, f"offset {header.base_offset} is out of order", _SEGMENT_REMEDY)
                return
            expected = header.next_offset
            position += header.size
    except BadBatch as error:
        remedy = _TAIL_REMEDY if segment.following is None else _SEGMENT_REMEDY
        yield Finding(segment.name, position, f"no whole batch is here: {error}", remedy)
        return
    yield from _verify_index(files, segment, expected)


def _verify_index(files: Files, segment: FoundSegment, end_offset: int) -> Iterator[Finding]:
    contents = []
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        name = f"{segment.folder}/{segment_name(segment.base, suffix)}"
        try:
            file = files.open(name)
            contents.append(file.read(0, file.size()))
        except FileNotFoundError:
            return  # made at the next checkpoint
    try:
        offsets, times = contents
        index = StoredIndex(segment.base, offsets, times, segment.file.size(), end_offset)
        last_offsets = {position: header.last_offset for position, header, _ in batches(segment)}
        for offset, position in index.offsets():
            if last_offsets.get(position) != offset:
                raise Unusable(f"no batch at byte {position} ends at offset {offset}")
        for _ in index.times():
            pass
    except Unusable as error:
        name = f"{segment.folder}/{segment_name(segment.base, OFFSET_INDEX)}"
        yield Finding(name, 0, str(error), _INDEX_REMEDY)


def _verify_tables(files: Files) -> Iterator[Finding]:
    for name in files.names(TABLES):
        file = files.open(f"{TABLES}/{name}")
        data = file.read(0, file.size())
        position = 0
        for frame in iterate_frames(data):
            position = frame.end
        if position < len(data):
            yield Finding(file.name, position, "no whole record is here", _TABLE_REMEDY)
