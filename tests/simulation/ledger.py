"""The smallest layout on a journal: framed, numbered records, and a companion file with the start offset."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest

from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.io.files import File, Files

_HEADER = struct.Struct(">IIQ")  # length of the payload, checksum of index and payload, index
_SUFFIX = ".log"


def frame(index: int, payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), _checksum(index, payload), index) + payload


def _checksum(index: int, payload: bytes) -> int:
    return zlib.crc32(payload, ~index & 0xFFFFFFFF)  # a sector of zeros must not look like a record


def parse(data: bytes, index: int) -> Iterator[tuple[int, bytes]]:
    """Yields whole records from `index` on, each with the position after it. Ends at the first invalid one."""
    position = 0
    while position + _HEADER.size <= len(data):
        length, checksum, found = _HEADER.unpack_from(data, position)
        end = position + _HEADER.size + length
        payload = data[position + _HEADER.size : end]
        if end > len(data) or found != index or _checksum(index, payload) != checksum:
            return
        yield end, payload
        position, index = end, index + 1


class StartFile:
    """The start of a ledger: the last whole frame applies. A torn one after it is overwritten by the next."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._count = 0
        self._size = 0
        self.start = 0

    def load(self, names: list[str]) -> None:
        if self._name.rpartition("/")[2] in names:
            file = self._files.open(self._name)
            for self._size, payload in parse(file.read(0, file.size()), 0):
                self._count += 1
                self.start = int.from_bytes(payload, "big")

    def write(self, start: int) -> File:
        file = self._files.open(self._name, create=True)
        data = frame(self._count, start.to_bytes(8, "big"))
        file.write(self._size, (data,))
        self._count += 1
        self._size += len(data)
        self.start = start
        return file


class Ledger:
    """One stream of records."""

    def __init__(self, files: Files, folder: str, passes: Passes, segment_bytes: int) -> None:
        self.journal = Journal(files, folder, _SUFFIX, passes, self)
        self._folder = folder
        self._numbers = passes
        self._segment_bytes = segment_bytes
        self._start_file = StartFile(files, self.journal.path("start"))
        self._wanted_start: int | None = None
        self.end = 0
        self.durable_end = 0
        self._passes: deque[tuple[int, int]] = deque()  # number, and the end before the pass

    @property
    def start(self) -> int:
        return self._start_file.start

    def append(self, payload: bytes) -> tuple[int, Ticket]:
        data = frame(self.end, payload)
        segments = self.journal.segments
        if not segments or (segments[-1].size and segments[-1].size + len(data) > self._segment_bytes):
            self.journal.roll(self.end)
        ticket = self.journal.append(data, len(data))
        if not self._passes or self._passes[-1][0] != ticket.number:
            self._passes.append((ticket.number, self.end))
        self.end += 1
        return self.end - 1, ticket

    def read(self, index: int, limit: int) -> list[bytes]:
        """Returns durable records from `index` on, from one segment."""
        segment = self.journal.segments[self.journal.find(index)]
        records = [payload for _, payload in parse(segment.read(0, segment.size), segment.base)]
        return records[index - segment.base : min(index + limit, self.durable_end) - segment.base]

    # -- trimming: first the new start is made durable, then segments are removed; they may reach the disk in any order

    def move_start(self) -> Ticket:
        self._wanted_start = self.journal.segments[-2].base
        return self.journal.join_pass()

    def remove_trimmed(self, ticket: Ticket) -> None:
        if ticket.refusal is None:
            self._remove_before_start()

    def _remove_before_start(self) -> None:
        segments = self.journal.segments
        for segment, following in zip(list(segments), list(segments)[1:], strict=False):
            if following.base <= self.start:
                self.journal.remove(segment, ())

    # -- passes

    def pass_written(self, number: int, dirty: Dirty) -> None:
        # Also without need, so that writes of a companion file fail in passes of every kind.
        if self._wanted_start is not None or number % 5 == 0:
            start = self.start if self._wanted_start is None else self._wanted_start
            dirty.files.add(self._start_file.write(start))
            dirty.folders.add(self._folder)
            self._wanted_start = None

    def pass_undone(self) -> None:
        self._wanted_start = None
        if self._passes and self._passes[-1][0] == self._numbers.current - 1:
            self.end = self._passes.pop()[1]

    def pass_durable(self, number: int) -> None:
        while self._passes and self._passes[0][0] <= number:
            self._passes.popleft()
        self.durable_end = self._passes[0][1] if self._passes else self.end

    # -- recovery

    def recover(self) -> None:
        self._start_file.load(self.journal.load())
        self._remove_before_start()
        self.end = self.start
        segments = list(self.journal.segments)
        if segments and segments[0].base > self.start:  # later names reached the disk, the first did not
            for segment in segments:
                self.journal.remove(segment, ())
            return
        self.end = segments[0].base if segments else self.start
        for segment, following in zip_longest(segments, segments[1:]):
            whole = list(parse(segment.read(0, segment.size), segment.base))
            size = whole[-1][0] if whole else 0
            self.end += len(whole)
            if size < segment.size or (following is not None and following.base != self.end):
                self.journal.truncate(segment, size, ())
                return

    def recovered(self) -> list[bytes]:
        """Returns all records from `start` on."""
        records = [
            payload
            for segment in self.journal.segments
            for _, payload in parse(segment.read(0, segment.size), segment.base)
        ]
        return records[self.start - self.journal.segments[0].base :] if records else []
