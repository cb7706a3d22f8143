"""Files of a spool: records appended to segments, read in order, and removed when they were sent. A record is synced
before `append` returns; what follows a torn or damaged record of a segment is set aside."""

from __future__ import annotations

import fcntl
import logging
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

log = logging.getLogger(__name__)

SEGMENT_BYTES = 16 * 1024 * 1024

_HEAD = Struct(">II")  # length and checksum of a record
_SUFFIX = ".spool"
_POSITION = "sent"


class SpoolInUse(OSError):
    """Another process uses this spool."""


class Chunk(NamedTuple):
    """Consecutive records, and the place behind them."""

    records: list[bytes]
    segment: int
    offset: int


class SpoolFile:
    """Blocking; used by one thread at a time."""

    def __init__(self, folder: str | os.PathLike[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = Path(folder)
        self._segment_bytes = segment_bytes
        self._segment, self._offset = 0, 0
        self._last, self._end = 0, 0
        self._writer = -1
        self._lock = -1
        self.count = 0
        """Records that wait."""
        self.bytes = 0

    def open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = -1
            raise SpoolInUse(f"{self._folder}: another process uses this spool") from None
        numbers = self._segments()
        self._segment, self._offset = self._read_position()
        if numbers and self._segment < numbers[0]:
            self._segment, self._offset = numbers[0], 0
        self._last = numbers[-1] if numbers else self._segment
        self._last = max(self._last, self._segment)
        self.count = self.bytes = 0
        for number in numbers:
            begin = self._offset if number == self._segment else 0
            if number < self._segment:
                self._path(number).unlink()
                continue
            data = self._path(number).read_bytes()
            found, end = _scan(data, begin)
            self.count += len(found)
            self.bytes += end - begin
            if number == numbers[-1]:
                self._end = end
                if end < len(data):  # a torn record, never acknowledged: the next ones go into a new segment
                    self._last, self._end = number + 1, 0
        self._open_writer()

    def _open_writer(self) -> None:
        self._writer = os.open(self._path(self._last), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{_SUFFIX}"

    def _read_position(self) -> tuple[int, int]:
        try:
            segment, offset = (self._folder / _POSITION).read_text().split()
            return int(segment), int(offset)
        except (FileNotFoundError, ValueError):
            return 0, 0

    # -- writing

    def append(self, records: Sequence[bytes]) -> None:
        """Appends and syncs. Raises OSError; then none of the records is in the spool."""
        if self._end >= self._segment_bytes:
            os.close(self._writer)
            self._last, self._end = self._last + 1, 0
            self._open_writer()
        data = b"".join([_HEAD.pack(len(record), zlib.crc32(record)) + record for record in records])
        try:
            _write_all(self._writer, data)
            os.fdatasync(self._writer)
        except OSError:
            os.ftruncate(self._writer, self._end)
            raise
        self._end += len(data)
        self.bytes += len(data)
        self.count += len(records)

    # -- reading

    def read(self, most_bytes: int) -> Chunk:
        """Returns the next records, at least one if any waits."""
        while True:
            with self._path(self._segment).open("rb") as file:
                file.seek(self._offset)
                size = most_bytes
                while True:
                    file.seek(self._offset)
                    data = file.read(size)
                    records, end = _scan(data, 0)
                    if records or len(data) < size:
                        break
                    size *= 2  # a record longer than that
            if records or self._segment == self._last:
                return Chunk(records, self._segment, self._offset + end)
            self._next_segment(is_damaged=bool(data))

    def _next_segment(self, is_damaged: bool) -> None:
        done, offset = self._path(self._segment), self._offset
        self._segment, self._offset = self._segment + 1, 0
        self._write_position()
        if is_damaged:
            log.error("%s: no whole record at byte %d, the rest is kept as %s.damaged", done, offset, done.name)
            done.rename(done.with_name(f"{done.name}.damaged"))
        else:
            done.unlink(missing_ok=True)

    def remove(self, chunk: Chunk) -> None:
        """The records of the chunk, the last one read, were sent."""
        self.bytes -= chunk.offset - self._offset
        self._offset = chunk.offset
        self.count -= len(chunk.records)
        self._write_position()

    def _write_position(self) -> None:
        temporary = self._folder / f"{_POSITION}.tmp"
        temporary.write_text(f"{self._segment} {self._offset}")
        os.replace(temporary, self._folder / _POSITION)

    def refuse(self, records: Sequence[bytes]) -> None:
        """Keeps records that the broker refuses in the file `refused`."""
        with (self._folder / "refused").open("ab") as file:
            for record in records:
                file.write(_HEAD.pack(len(record), zlib.crc32(record)) + record)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for descriptor in (self._writer, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._writer = self._lock = -1


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _scan(data: bytes, at: int) -> tuple[list[bytes], int]:
    """Returns the whole records from a place on, and the place behind them."""
    found = []
    while len(data) - at >= _HEAD.size:
        length, checksum = _HEAD.unpack_from(data, at)
        begin = at + _HEAD.size
        record = data[begin : begin + length]
        if len(record) < length or zlib.crc32(record) != checksum:
            break
        found.append(record)
        at = begin + length
    return found, at
