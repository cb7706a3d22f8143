"""Inspects the commit log in a stopped broker's folder without changing it: every unit, and every position in the
consume queues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

from trimq.errors import Damage
from trimq.formats.rocketmq_unit.unit import BadUnit, Unit, check_unit, filler_size, unit_size
from trimq.storage.commit_log.checkpoint import CommitCheckpoints, CommitPoint
from trimq.storage.commit_log.consume_queue import BLANK_SIZE, ENTRY, ENTRY_BYTES
from trimq.storage.commit_log.store import ROOT
from trimq.storage.group_commit.segment import base_of, segment_name
from trimq.storage.inspection.partitions import Finding, ReportProgress, read_table
from trimq.storage.io.files import File, Files
from trimq.storage.tables.table import Table

_LOG = f"{ROOT}/commitlog"
_QUEUES = f"{ROOT}/consumequeue"
_CHECKPOINTS = "commit"
_LOG_REMEDY = "Restore it from a copy."
_TAIL_REMEDY = "Start the broker: it cuts bytes that were never acknowledged."
_QUEUE_REMEDY = "Stop the broker, remove the folder store/consumequeue and start it: it rebuilds them from the log."
_ENTRIES_AT_ONCE = 10_000


class _LogFile(NamedTuple):
    base: int
    file: File
    is_last: bool


def _log_files(files: Files) -> list[_LogFile]:
    found = [(base, name) for name in files.names(_LOG) if (base := base_of(name, "")) is not None]
    return [_LogFile(base, files.open(f"{_LOG}/{name}"), base == found[-1][0]) for base, name in found]


def _units_of(found: _LogFile) -> Iterator[Unit]:
    """Yields every unit of a file. Raises BadUnit if the file continues with bytes that are not a whole unit."""
    size = found.file.size()
    view = found.file.view(0, size) if size else memoryview(b"")
    at = 0
    while at < size:
        if filler_size(view, at) is not None or not any(view[at : at + 8]):
            return  # the next file continues, or nothing was written from here on
        unit = check_unit(view, at, found.base + at)
        yield unit
        at += unit.size


def units(files: Files) -> Iterator[Unit]:
    """Yields all units of the log in their order, in each file up to the first damaged one."""
    for found in _log_files(files):
        with suppress(BadUnit):  # `verify` reports position and reason
            yield from _units_of(found)
        found.file.close()


def verify(files: Files, progress: ReportProgress) -> Iterator[Finding]:
    """Yields every inconsistency."""
    point = _checkpoint(files)
    durable_to = point.position
    found = _log_files(files)
    yield from _verify_files(found, point)
    total, done = sum(each.file.size() for each in found), 0
    for each in found:
        yield from _verify_file(each, durable_to)
        done += each.file.size()
        progress(done, total)
    yield from _verify_queues(files, found)
    for each in found:
        each.file.close()


def _checkpoint(files: Files) -> CommitPoint:
    """Returns the checkpoint. Everything before its position was on disk."""
    try:
        table = read_table(files, _CHECKPOINTS, list)
    except Damage:  # reported by the check of the tables
        return CommitPoint()
    return CommitCheckpoints(cast("Table[list[Any]]", table)).point()


def _verify_files(found: list[_LogFile], point: CommitPoint) -> Iterator[Finding]:
    """Yields missing files that a start would notice."""
    expected = point.start
    for each in found:
        if expected < each.base <= point.position:
            yield _missing(expected)
        expected = max(expected, each.base + each.file.size())
    if expected < point.position:
        yield _missing(expected)


def _missing(base: int) -> Finding:
    return Finding(f"{_LOG}/{segment_name(base, '')}", 0, "the file is missing", _LOG_REMEDY)


def _verify_file(found: _LogFile, durable_to: int) -> Iterator[Finding]:
    end = found.base
    try:
        for unit in _units_of(found):
            end = unit.position + unit.size
    except BadUnit as error:
        is_tail = found.is_last and end >= durable_to
        advice = _TAIL_REMEDY if is_tail else _LOG_REMEDY
        yield Finding(found.file.name, end - found.base, f"no complete message at this position: {error}", advice)
        return
    if found.is_last and end < durable_to:
        problem = f"the data ends here, but was on disk up to byte {durable_to - found.base}"
        yield Finding(found.file.name, end - found.base, problem, _LOG_REMEDY)


def _verify_queues(files: Files, log: list[_LogFile]) -> Iterator[Finding]:
    """Yields entries that point to no message. Ignores entries of removed log files and the unused end of a queue
    file."""
    for topic in files.names(_QUEUES):
        for number in files.names(f"{_QUEUES}/{topic}"):
            for name in files.names(f"{_QUEUES}/{topic}/{number}"):
                file = files.open(f"{_QUEUES}/{topic}/{number}/{name}")
                finding = _verify_queue_file(file, log)
                file.close()
                if finding is not None:
                    yield finding


def _verify_queue_file(file: File, log: list[_LogFile]) -> Finding | None:
    for at in range(0, file.size(), _ENTRIES_AT_ONCE * ENTRY_BYTES):
        data = file.read(at, _ENTRIES_AT_ONCE * ENTRY_BYTES)
        whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
        for index, (position, size, _) in enumerate(ENTRY.iter_unpack(data[:whole])):
            if size and size != BLANK_SIZE and not _stands_there(log, position, size):
                problem = f"no message of {size} bytes is at position {position} of the log"
                return Finding(file.name, at + index * ENTRY_BYTES, problem, _QUEUE_REMEDY)
    return None


def _stands_there(log: list[_LogFile], position: int, size: int) -> bool:
    place = bisect_right(log, position, key=_base) - 1
    if place < 0:
        return True  # its log file was removed
    found = log[place]
    try:
        return unit_size(found.file.read(position - found.base, size)) == size
    except BadUnit:
        return False


def _base(found: _LogFile) -> int:
    return found.base
