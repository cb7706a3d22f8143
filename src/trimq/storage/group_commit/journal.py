"""Journal: ordered segments in one folder, with append, read, roll, remove and truncate. Takes part in passes with one
write per segment and pass. Knows bytes and names; the layout on top of it knows offsets and records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from trimq.errors import Refusal, WriteFailed
from trimq.model import Buffer
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import OpenPass, Ticket
from trimq.storage.group_commit.segment import Segment, base_of, segment_name
from trimq.storage.io.files import File, Files


class JournalOwner(Protocol):
    """The layout on top, which keeps its ends, indexes and state consistent with the journal."""

    def pass_written(self, number: int, dirty: Dirty) -> None:
        """Called when the appends of this pass are in the files. The owner may write companion files now and add them
        to `dirty`."""

    def pass_undone(self) -> None:
        """Called when no bytes of this pass were kept: the owner restores its state to the beginning of the pass."""

    def pass_durable(self, number: int) -> None:
        """Called when all appends up to and including this pass are durable."""


_Chunk = tuple[Segment, int, list[Buffer], bool]
"""Appends of one pass to one segment: segment, start position, parts, and whether the segment is new. A plain tuple,
since every pass of every journal creates one."""

# Parts shorter than this on average are joined first: the kernel takes longer for many small buffers than the copy.
_COPY_BELOW = 1024


class Journal:
    __slots__ = (
        "_chunks",
        "_files",
        "_folder",
        "_folder_changed",
        "_full_bytes",
        "_is_first",
        "_is_trimming",
        "_owner",
        "_passes",
        "_suffix",
        "_ticket",
        "mark_pass_durable",
        "may_preallocate",
        "segments",
        "take_prepared_file",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        suffix: str,
        passes: OpenPass,
        owner: JournalOwner,
        full_bytes: int = 0,
        is_first: bool = False,
    ) -> None:
        """`full_bytes`: every file is created with this size, with zeros after its data; 0 if files grow. `is_first`:
        this journal is written before the others in each pass."""
        self._full_bytes = full_bytes
        self._is_trimming = False
        self.may_preallocate = True
        """Whether zeros may be written after the data of a file, so that it does not grow with the next passes and
        syncs faster."""
        self._is_first = is_first
        self._files = files
        self._folder = folder
        self._suffix = suffix
        self._passes = passes
        self._owner = owner
        self.mark_pass_durable = owner.pass_durable
        self.segments: list[Segment] = []
        self.take_prepared_file: Callable[[str], File | None] = lambda name: None
        """Returns an empty file of full size under this name, if one was prepared in advance."""
        self._ticket: Ticket | None = None
        self._chunks: tuple[_Chunk, ...] = ()
        self._folder_changed = False

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def load(self, names: list[str] | None = None) -> list[str]:
        """Opens the segments of the folder. `names`: all files of the folder, if the caller has listed them. Returns
        these names."""
        names = self._files.names(self._folder) if names is None else names
        for name in names:
            base = base_of(name, self._suffix)
            if base is not None:
                file = self._files.open(self.path(name))
                self.segments.append(Segment(base, file, file.size()))
        return names

    def find(self, number: int) -> int:
        """Returns the index in `segments` of the segment whose range includes `number`; -1 if `number` is before the
        first."""
        return bisect_right(self.segments, number, key=_base) - 1

    # -- appending: collected now, written at the end of the pass

    def append(self, part: Buffer, length: int) -> Ticket:
        """Collects `length` bytes for the active segment. The caller must not change them during this pass."""
        ticket = self._ticket
        if ticket is None or not self._chunks:
            _, ticket = self.collect(self.segments[-1])
        segment, _, parts, _ = self._chunks[-1]
        parts.append(part)
        segment.size += length
        return ticket

    def collect(self, active: Segment) -> tuple[list[Buffer], Ticket]:
        """Returns the list in which this pass collects parts for the active segment, for an owner that appends without
        a call per part. The owner must also add the length of each part to the segment's size."""
        chunks, ticket = self._chunks, self._ticket
        if not chunks:
            self._chunks = chunks = ((active, active.size, [], False),)
        if ticket is None:
            self._ticket = ticket = self._passes.join(self, self._is_first)
        return chunks[-1][2], ticket

    def latest_ticket(self) -> Ticket:
        """Returns the ticket of the last append: of this pass, or of the last written pass."""
        return self._ticket or Ticket(self._passes.written)

    def roll(self, base: int) -> Segment:
        """Starts a new segment and makes it the active one."""
        self._join_once()
        name = segment_name(base, self._suffix)
        try:
            file = self.take_prepared_file(self.path(name)) or self._make_file(self.path(name))
        except OSError as error:
            raise WriteFailed(str(error)) from error
        if self.segments and self.segments[-1].preallocated_to and not self._full_bytes:
            self._touch(self.segments[-1])  # a sealed segment ends with its data
        segment = Segment(base, file, 0)
        self.segments.append(segment)
        self._chunks += ((segment, 0, [], True),)
        self._folder_changed = True
        return segment

    def _make_file(self, name: str) -> File:
        file = self._files.open(name, create=True)
        if file.size():
            file.resize(0)  # recovery would read leftover bytes as records after the new ones
        if self._full_bytes:
            file.resize(self._full_bytes)
        return file

    def _join_once(self) -> Ticket:
        if self._ticket is None:
            self._ticket = self._passes.join(self, self._is_first)
        return self._ticket

    # -- the pass

    def write_pass(self, dirty: Dirty) -> None:
        ticket = self._ticket
        assert ticket is not None, "only a journal that joined is written"
        for segment, position, parts, _ in self._chunks:
            file = segment.file
            if len(parts) > 1 and segment.size - position < _COPY_BELOW * len(parts):
                parts = [b"".join(parts)]
            if parts:
                if dirty.should_preallocate and segment.size > segment.preallocated_to and self.may_preallocate:
                    self._write_preallocating(segment, position, parts)
                else:
                    file.write(position, parts)
            if segment.preallocated_to and not self._full_bytes:
                self._trim_if_sealed(segment)
            dirty.files.add(file)
            dirty.size_bytes += segment.size - position
        if self._folder_changed:
            dirty.folders.add(self._folder)
        self._owner.pass_written(ticket.number, dirty)
        self._ticket = None
        self._chunks = ()
        self._folder_changed = False
        self._is_trimming = False

    def _write_preallocating(self, segment: Segment, position: int, parts: list[Buffer]) -> None:
        room = segment.preallocation_after(position, self._full_bytes) if segment is self.segments[-1] else None
        if room:
            try:
                segment.file.write(position, [*parts, room])
            except OSError:  # the free space may suffice for the data alone
                segment.trim_preallocation(self._full_bytes)
            else:
                return
        segment.file.write(position, parts)

    def _trim_if_sealed(self, segment: Segment) -> None:
        if self._is_trimming or segment is not self.segments[-1]:
            segment.trim_preallocation(self._full_bytes)

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        ticket, chunks, folder_changed = self._ticket, self._chunks, self._folder_changed
        self._ticket = None
        self._chunks = ()
        self._folder_changed = False
        if ticket is not None:
            ticket.refusal = refusal
        # The undo must be as durable as the kept data, or a crash could bring back refused bytes.
        if folder_changed:
            dirty.folders.add(self._folder)
        for segment, position, _, is_new in reversed(chunks):
            if is_new and len(self.segments) > 1:
                self.segments.remove(segment)
                self._files.remove(segment.file.name)
                dirty.files.discard(segment.file)
                segment.file.close()
            else:
                segment.size = position
                self._cut_file(segment)
                dirty.files.add(segment.file)
        self._owner.pass_undone()

    def _cut_file(self, segment: Segment) -> None:
        """Removes all bytes after the segment's data."""
        segment.file.resize(segment.size)
        segment.preallocated_to = 0
        if self._full_bytes:
            segment.file.resize(self._full_bytes)

    # -- removing

    def resync(self, first: Segment) -> None:
        """Makes the segments from `first` on durable: the previous process may have crashed while they were only in the
        page cache."""
        self._join_once()
        self._folder_changed = True
        for segment in self.segments[self.segments.index(first) :]:
            self._touch(segment)

    def _touch(self, segment: Segment) -> None:
        self._chunks += ((segment, segment.size, [], False),)

    def trim_preallocation(self) -> None:
        """Makes the files end with their data when the current pass is written."""
        if self.segments and self.segments[-1].preallocated_to > self.segments[-1].size:
            self._join_once()
            self._touch(self.segments[-1])
            self._is_trimming = True

    def join_pass(self) -> Ticket:
        """Joins this pass without appending, so that companion files are written with it."""
        return self._join_once()

    def remove(self, segment: Segment, companions: Iterable[str]) -> None:
        """Removes any sealed segment and its companion files. Views in use stay valid."""
        self._join_once()
        self._folder_changed = True
        self.segments.remove(segment)
        self._chunks = tuple(chunk for chunk in self._chunks if chunk[0] is not segment)
        segment.file.close()
        for suffix in (self._suffix, *companions):
            with suppress(FileNotFoundError):
                self._files.remove(self.path(segment_name(segment.base, suffix)))

    def truncate(self, segment: Segment, size: int, companions: Iterable[str]) -> None:
        """Cuts the tail: `segment` ends at `size` and nothing follows it. For recovery, before any reader exists."""
        while self.segments[-1] is not segment:
            self.remove(self.segments[-1], companions)
        segment.size = size
        if segment.file.size() > size:
            self._cut_file(segment)
        self._join_once()
        self._touch(segment)

    def abandon(self, refusal: Refusal) -> None:
        """Drops the collected appends, because the folder is about to be removed."""
        if self._ticket is not None:
            self._ticket.refusal = refusal
        self._chunks = ()
        self._folder_changed = False
        self.close()

    def close(self) -> None:
        for segment in self.segments:
            segment.file.close()


def _base(segment: Segment) -> int:
    return segment.base
