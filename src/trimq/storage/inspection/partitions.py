"""Inspects partition logs and tables in a stopped broker's folder without changing them: every batch, every index,
every table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from uuid import UUID

from trimq.errors import Damage, StartupError
from trimq.formats.checksum import crc32c
from trimq.formats.kafka_batch.header import BadBatch, BatchHeader, check_stored
from trimq.storage.checkpoints.file_names import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    CorruptCompanion,
)
from trimq.storage.checkpoints.leader_epochs import parse_epochs, parse_partition_metadata
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, IndexSums
from trimq.storage.group_commit.segment import base_of, is_zero_filled, segment_name
from trimq.storage.guards.quarantine import is_quarantined
from trimq.storage.io.files import File, Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log import aborted_index
from trimq.storage.partition_log.expected_segments import GIVEN_UP, find_mismatches, remedy
from trimq.storage.partition_log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, StoredIndex
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.store import ROOT
from trimq.storage.tables.records import iterate_frames
from trimq.storage.tables.recovery import DamagedTable, TableRecovery
from trimq.storage.tables.table import Table

TABLES = "tables"
_CHECKPOINTS = "checkpoints"
_TAIL_REMEDY = "Start the broker: it cuts bytes that were never acknowledged."
_INDEX_REMEDY = "Start the broker: it rebuilds the index from the log."
_COMPANION_REMEDY = "Start the broker: it rebuilds the file, or names the file to restore."
_TABLE_REMEDY = "Start the broker: it cuts a torn tail."
_REFUSED_REMEDY = "Restore the files of this table from a backup: the broker does not start with the damaged files."
_OWNER_REMEDY = "Move the folder away, or remove this file if the records belong to the topic."
_PIECE_BYTES = 1024 * 1024
_NO_OWNERS: Mapping[str, UUID] = {}

V = TypeVar("V")

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    position: int
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class InspectedSegment:
    """Segment of a partition folder, and the base offset of the next segment."""

    folder: str
    base: int
    following: int | None
    file: File

    @property
    def name(self) -> str:
        return self.file.name


def partitions(files: Files) -> Iterator[tuple[str, int]]:
    """Yields topic and number of every partition folder."""
    for name in files.names(ROOT):
        topic, dash, number = name.rpartition("-")
        if dash and number.isascii() and number.isdigit():
            yield topic, int(number)


def segments(files: Files, folder: str) -> list[InspectedSegment]:
    bases = [base for name in files.names(folder) if (base := base_of(name, LOG)) is not None]
    return [
        InspectedSegment(folder, base, following, files.open(f"{folder}/{segment_name(base, LOG)}"))
        for base, following in zip(bases, [*bases[1:], None], strict=False)  # the list may be empty
    ]


def batches(segment: InspectedSegment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields position, header and bytes of every batch. Raises BadBatch if the batch after the last yielded one is
    damaged or torn. Zeros at the end of the log are space that a broker preallocated."""
    size = segment.file.size()
    view = segment.file.view(0, size) if size else memoryview(b"")
    position = 0
    while position < size:
        try:
            header = check_stored(view, position)
        except BadBatch:
            if segment.following is None and is_zero_filled(view[position:]):
                return
            raise
        yield position, header, view[position : position + header.size]
        position += header.size


def verify(files: Files, progress: ReportProgress, owners: Mapping[str, UUID] = _NO_OWNERS) -> Iterator[Finding]:
    """Yields every inconsistency. `owners`: the ids of the topics whose folders must exist."""
    yield from _verify_tables(files)
    checkpoints = find_checkpoints(files)
    for folder, id in owners.items():
        checkpoints.take(folder, id)
    folders = sorted({*owners, *(f"{ROOT}/{name}" for name in files.names(ROOT) if not is_quarantined(name))})
    found = {folder: segments(files, folder) for folder in folders}
    total, done = sum(segment.file.size() for each in found.values() for segment in each), 0
    progress(0, total)
    for folder, inside in found.items():
        broken = {finding.file: finding for finding in _verify_expected(files, folder, inside, checkpoints)}
        yield from broken.values()
        for segment in inside:
            if segment.name not in broken:
                yield from _verify_segment(files, segment, checkpoints)
            done += segment.file.size()
            segment.file.close()
            progress(done, total)
        yield from _verify_companions(files, folder)
        yield from _verify_owner(files, folder, owners.get(folder))


def _verify_expected(
    files: Files, folder: str, found: list[InspectedSegment], checkpoints: Checkpoints
) -> Iterator[Finding]:
    """Yields mismatches that a start would reject, except segments whose loss was accepted."""
    given_up = {base for name in files.names(folder) if (base := base_of(name, GIVEN_UP)) is not None}
    sizes = {segment.base: segment.file.size() for segment in found} | dict.fromkeys(given_up, 0)
    for breach in find_mismatches(folder, dict(sorted(sizes.items())), checkpoints, given_up):
        yield Finding(breach.file, breach.position, f"the file {breach.problem}", remedy(breach.file))


def _verify_owner(files: Files, folder: str, id: UUID | None) -> Iterator[Finding]:
    path = f"{folder}/{PARTITION_METADATA}"
    if id is None or PARTITION_METADATA not in files.names(folder):
        return
    with suppress(CorruptCompanion):  # reported by the check of the companion files
        owner = parse_partition_metadata(_read(files, path))
        if owner != id:
            yield Finding(path, 0, f"the file names topic {owner}, but the folder belongs to {id}", _OWNER_REMEDY)


def read_table(files: Files, name: str, kind: type[V]) -> dict[str, V]:
    """Returns the contents of a table, read from a copy: opening it in place would tidy up its files."""
    copy = MemoryFiles()
    copy.make_folder(TABLES)
    for short in files.names(TABLES):
        if short.startswith(f"{name}."):
            copy.open(f"{TABLES}/{short}", create=True).write(0, [_read(files, f"{TABLES}/{short}")])
    return TableRecovery(copy, TABLES, name, kind, is_copy=True).run().values


def find_checkpoints(files: Files) -> Checkpoints:
    """Returns the checkpoints; none if their table is damaged, which the check of the tables reports."""
    try:
        found = read_table(files, _CHECKPOINTS, list)
    except (Damage, StartupError):
        found = {}
    return Checkpoints(cast("Table[list[Any]]", found))  # only read


def _verify_segment(files: Files, segment: InspectedSegment, checkpoints: Checkpoints) -> Iterator[Finding]:
    mark = checkpoints.sealed(segment.folder, segment.base)
    position, expected = 0, segment.base
    try:
        for position, header, _ in batches(segment):
            if header.base_offset < expected or (segment.following or header.next_offset) < header.next_offset:
                problem = f"offset {header.base_offset} is out of order"
                yield Finding(segment.name, position, problem, remedy(segment.name))
                return
            expected = header.next_offset
            position += header.size
        if position < segment.file.size() and _is_durable(segment, position, checkpoints):
            raise BadBatch("only zeros")
    except BadBatch as error:
        # A broker that crashed while it began the next segment may have left preallocated zeros in this one.
        is_last = segment.following is None or (mark is None and is_zero_filled(_rest(segment, position)))
        is_tail = is_last and not _is_durable(segment, position, checkpoints)
        advice = _TAIL_REMEDY if is_tail else remedy(segment.name)
        yield Finding(segment.name, position, f"no complete batch at this position: {error}", advice)
        return
    if mark is not None and mark.crc is not None and mark.crc != _sum(segment):
        yield Finding(segment.name, 0, "the checksum of the whole file does not match", remedy(segment.name))
    yield from _verify_index(files, segment, expected, IndexSums() if mark is None else mark.sums or IndexSums())


def _is_durable(segment: InspectedSegment, position: int, checkpoints: Checkpoints) -> bool:
    point = checkpoints.point(segment.folder)
    return point is not None and (segment.base, position) < (point.base, point.position)


def _rest(segment: InspectedSegment, position: int) -> memoryview:
    return segment.file.view(position, segment.file.size() - position)


def _sum(segment: InspectedSegment) -> int:
    crc = 0
    for position in range(0, segment.file.size(), _PIECE_BYTES):
        crc = crc32c(segment.file.read(position, _PIECE_BYTES), crc)
    return crc


def _verify_index(files: Files, segment: InspectedSegment, end_offset: int, sums: IndexSums) -> Iterator[Finding]:
    offsets_name, times_name = (
        f"{segment.folder}/{segment_name(segment.base, suffix)}" for suffix in (OFFSET_INDEX, TIME_INDEX)
    )
    try:
        offsets, times = _read(files, offsets_name), _read(files, times_name)
    except FileNotFoundError:
        return  # the next checkpoint creates them
    name = offsets_name
    try:
        index = StoredIndex(segment.base, offsets, times, segment.file.size(), end_offset)
        last_offsets = {position: header.last_offset for position, header, _ in batches(segment)}
        for offset, position in index.offsets():
            if last_offsets.get(position) != offset:
                raise CorruptCompanion(f"no batch at byte {position} ends at offset {offset}")
        _require_sum(offsets, sums.offsets * OFFSET_ENTRY_BYTES, sums.offsets_crc)
        name = times_name
        for _ in index.times():
            pass
        _require_sum(times, sums.times * TIME_ENTRY_BYTES, sums.times_crc)
    except CorruptCompanion as error:
        yield Finding(name, 0, str(error), _INDEX_REMEDY)


def _require_sum(data: bytes, size: int, crc: int) -> None:
    if len(data) < size or crc32c(data[:size]) != crc:
        raise CorruptCompanion("the checksum does not match")


def _verify_companions(files: Files, folder: str) -> Iterator[Finding]:
    """Checks files whose own format reveals damage."""
    for name in files.names(folder):
        decode = next((decode for suffix, decode in _DECODERS.items() if name.endswith(suffix)), None)
        if decode is not None:
            try:
                decode(_read(files, f"{folder}/{name}"))
            except CorruptCompanion as error:
                yield Finding(f"{folder}/{name}", 0, str(error), _COMPANION_REMEDY)


def _verify_tables(files: Files) -> Iterator[Finding]:
    """Yields damage that a start would reject, and torn tails that it would cut."""
    refused = set()
    for table in dict.fromkeys(name.partition(".")[0] for name in files.names(TABLES)):
        try:
            read_table(files, table, Any)
        except DamagedTable as damage:
            refused.add(table)
            yield Finding(damage.file, damage.position, damage.problem, _REFUSED_REMEDY)
        except (Damage, StartupError) as error:
            refused.add(table)
            yield Finding(f"{TABLES}/{table}", 0, str(error), _REFUSED_REMEDY)
    for name in files.names(TABLES):
        data = _read(files, f"{TABLES}/{name}")
        position = 0
        for frame in iterate_frames(data):
            position = frame.end
        if position < len(data) and name.partition(".")[0] not in refused:
            yield Finding(f"{TABLES}/{name}", position, "no complete record at this position", _TABLE_REMEDY)


def _read(files: Files, name: str) -> bytes:
    file = files.open(name)
    data = file.read(0, file.size())
    file.close()
    return data


_DECODERS: dict[str, Callable[[bytes], object]] = {
    TRANSACTION_INDEX: aborted_index.decode,
    PRODUCER_SNAPSHOT: ProducerStates.decode,
    LEADER_EPOCHS: parse_epochs,
    PARTITION_METADATA: parse_partition_metadata,
}
