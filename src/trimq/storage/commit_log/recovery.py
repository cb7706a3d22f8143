"""Opens the commit log after a stop or a crash: trusts the part covered by a checkpoint, reads the rest unit by unit,
and cuts a torn tail. Reports damage below the checkpoint, never skips it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator

from trimq.errors import Damage
from trimq.formats.rocketmq_unit.unit import BadUnit, Unit, check_unit, filler_size, unit_size
from trimq.storage.commit_log.log import CommitLog
from trimq.storage.group_commit.segment import Segment, segment_name

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20


def open_commit_log(opened: CommitLog, start: int, point: int, scan_from: int, found: Callable[[Unit], None]) -> None:
    """Loads the files and prepares the log. All bytes before `point` are known to be whole and durable; `start` is the
    first byte of the log. Calls `found` with every unit from `scan_from` on."""
    journal = opened.journal
    journal.load()
    while journal.segments and journal.segments[0].base + opened.file_bytes <= start:
        journal.remove(journal.segments[0], ())  # the crash was after the removal was recorded and before it was done
    if not journal.segments:
        if point > start:
            raise Damage(f"{opened.folder}/{segment_name(start, '')}: file is missing, restore it from a copy")
        opened.begin(start)
        return
    _check_files(opened, start, point)
    scan = _Scan(opened, point)
    for unit in scan.units(max(scan_from, journal.segments[0].base)):
        found(unit)
    scan.cut_tail()
    opened.unverified_end = min(max(scan_from, opened.journal.segments[0].base), scan.end)
    opened.resume(scan.end, min(point, scan.end), scan.last_store_ms)


def _check_files(opened: CommitLog, start: int, point: int) -> None:
    """Checks that every file that the checkpoint relies on exists and has its size."""
    journal = opened.journal
    if journal.segments[0].base > start and point > start:
        raise Damage(f"{opened.folder}/{segment_name(start, '')}: file is missing, restore it from a copy")
    expected = own_end = journal.segments[0].base
    for index, segment in enumerate(journal.segments):
        if segment.base != expected:
            if segment.base == own_end:
                before = journal.segments[index - 1]
                raise _wrong_size(before, own_end - before.base, opened.file_bytes)
            if segment.base <= point and point > start:
                raise Damage(f"{opened.folder}/{segment_name(expected, '')}: file is missing, restore it from a copy")
            log.warning(
                "%s: removing %d files after a gap (never acknowledged)", opened.folder, len(journal.segments) - index
            )
            for later in journal.segments[index:]:
                journal.remove(later, ())
            break
        size = segment.file.size()
        own_end = segment.base + size
        if size < opened.file_bytes and segment.base + opened.file_bytes > point:
            segment.file.resize(opened.file_bytes)  # the crash was before its size was on disk
        elif size != opened.file_bytes:
            raise _wrong_size(segment, size, opened.file_bytes)
        segment.size = opened.file_bytes
        expected += opened.file_bytes


def _wrong_size(segment: Segment, size: int, file_bytes: int) -> Damage:
    return Damage(f"{segment.file.name} has {size} bytes, but the files of this log have {file_bytes}")


class _Scan:
    """Reads units one after the other, as far as they are whole."""

    def __init__(self, opened: CommitLog, point: int) -> None:
        self._opened = opened
        self._point = point
        self.end = 0
        self.last_store_ms = 0
        self._last: Segment = opened.journal.segments[0]

    def units(self, scan_from: int) -> Iterator[Unit]:
        segments = self._opened.journal.segments
        self.end = scan_from
        for segment in segments[max(self._opened.journal.find(scan_from), 0) :]:
            self._last = segment
            if self.end < segment.base or not (yield from self._units_of(segment)):
                break
        if self.end < self._point:
            raise Damage(
                f"{self._last.file.name} is damaged at byte {self.end - self._last.base}: restore it from a copy"
            )

    def _units_of(self, segment: Segment) -> Generator[Unit, None, bool]:
        """Returns whether the file is full, so that the next one continues."""
        at = self.end - segment.base
        full = self._opened.file_bytes
        while at < full:
            data = segment.view(at, min(_READ_BYTES, full - at))
            skipped = filler_size(data)
            if skipped is not None and skipped == full - at:
                self.end = segment.base + full
                return True
            unit = self._whole_unit(segment, at, data)
            if unit is None:
                return False
            at += unit.size
            self.end = segment.base + at
            self.last_store_ms = max(self.last_store_ms, unit.store_ms)
            yield unit
        return True

    def _whole_unit(self, segment: Segment, at: int, data: memoryview) -> Unit | None:
        claimed = int.from_bytes(data[:4], "big")
        if len(data) < claimed <= self._opened.file_bytes - at:
            data = segment.view(at, claimed)
        try:
            unit_size(data)
            unit = check_unit(data, position=segment.base + at)
        except BadUnit:
            return None
        # The checksum covers the body alone. Bytes that a power cut left unwritten are zeros, which never occur in the
        # topic, the properties or the store time of a completely written unit.
        is_torn = b"\x00" in unit.topic or b"\x00" in unit.properties or not unit.topic or unit.store_ms <= 0
        return None if is_torn else unit

    def cut_tail(self) -> None:
        """Removes all bytes after the last whole unit, so that the next append does not run into them."""
        journal = self._opened.journal
        last = journal.segments[max(journal.find(self.end), 0)]
        if last.base + self._opened.file_bytes == self.end:  # the file is full, and the next was not begun
            last.size = self._opened.file_bytes
            journal.roll(self.end)
            return
        for segment in journal.segments:
            segment.size = self._opened.file_bytes
        journal.truncate(last, self.end - last.base, ())
