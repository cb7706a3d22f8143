"""Ordered segments in one folder: append, read, roll, remove, truncate. Takes part in passes: one write per segment
and pass. Knows bytes and names; the layout on top of it knows offsets and records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from trimq.errors import Refusal, WriteFailed
from trimq.model import Buffer
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.group_commit.segment import Segment, base_of, segment_name
from trimq.storage.io.files import File, Files


class JournalOwner(Protocol):
    """The layout on top: it keeps ends, indexes and state in step with the journal."""

    def pass_written(self, number: int, dirty: Dirty) -> None:
        """What this pass appended is in the files. Companion files may be written now, and added to `dirty`."""

    def pass_undone(self) -> None:
        """Nothing of this pass was kept: go back to where it began."""

    def pass_durable(self, number: int) -> None:
        """All that was appended up to and in this pass is durable."""


_Chunk = tuple[Segment, int, list[Buffer], bool]
"""What one pass appends to one segment: from which position on, the parts, and whether the segment is new. A plain
tuple, since one is made for every pass of every journal."""

# Parts that are shorter than this on average are copied into one: the kernel takes longer to look at many.
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
        passes: Passes,
        owner: JournalOwner,
        full_bytes: int = 0,
        is_first: bool = False,
    ) -> None:
        """`full_bytes`: every file has this size from the beginning on, and zeros behind its data. 0: it grows.
        `is_first`: it is written before others in each pass."""
        self._full_bytes = full_bytes
        self._is_trimming = False
        self.may_preallocate = True
        """Whether zeros may be written behind the data of a file, which may grow by that for a while: it is quicker to
        sync then."""
        self._is_first = is_first
        self._files = files
        self._folder = folder
        self._suffix = suffix
        self._passes = passes
        self._owner = owner
        self.mark_pass_durable = owner.pass_durable
        self.segments: list[Segment] = []
        self.take_prepared_file: Callable[[str], File | None] = lambda name: None
        """Gives a file under this name that has its full size and nothing in it, if somebody has made one ahead."""
        self._ticket: Ticket | None = None
        self._chunks: tuple[_Chunk, ...] = ()
        self._folder_changed = False

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def load(self, names: list[str] | None = None) -> list[str]:
        """Find the segments of the folder. Gives back the names of all files in it, which the caller may know."""
        names = self._files.names(self._folder) if names is None else names
        for name in names:
            base = base_of(name, self._suffix)
            if base is not None:
                file = self._files.open(self.path(name))
                self.segments.append(Segment(base, file, file.size()))
        return names

    def find(self, number: int) -> int:
        """The place in `segments` of the one that `number` falls into by its base; -1 if it is before all."""
        return bisect_right(self.segments, number, key=_base) - 1

    # -- appending: collected now, written at the end of the pass

    def append(self, part: Buffer, length: int) -> Ticket:
        """Collect `length` bytes for the active segment. They must not change in this pass."""
        ticket = self._ticket
        if ticket is None or not self._chunks:
            _, ticket = self.collect(self.segments[-1])
        segment, _, parts, _ = self._chunks[-1]
        parts.append(part)
        segment.size += length
        return ticket

    def collect(self, active: Segment) -> tuple[list[Buffer], Ticket]:
        """Where this pass collects what goes to the active segment, for an owner that appends without a call for each
        part: whatever is added to the list must be added to the segment's size too."""
        chunks, ticket = self._chunks, self._ticket
        if not chunks:
            self._chunks = chunks = ((active, active.size, [], False),)
        if ticket is None:
            self._ticket = ticket = self._passes.join(self, self._is_first)
        return chunks[-1][2], ticket

    def latest_ticket(self) -> Ticket:
        """The ticket of what was appended last: of this pass, or of the last one that was written."""
        return self._ticket or Ticket(self._passes.written)

    def roll(self, base: int) -> Segment:
        """Start a new segment; what follows is appended to it."""
        self._join_once()
        name = segment_name(base, self._suffix)
        try:
            file = self.take_prepared_file(self.path(name)) or self._make_file(self.path(name))
        except OSError as error:
            raise WriteFailed(str(error)) from error
        if self.segments and self.segments[-1].preallocated_to and not self._full_bytes:
            self._touch(self.segments[-1])  # what is sealed has no room
        segment = Segment(base, file, 0)
        self.segments.append(segment)
        self._chunks += ((segment, 0, [], True),)
        self._folder_changed = True
        return segment

    def _make_file(self, name: str) -> File:
        file = self._files.open(name, create=True)
        if file.size():
            file.resize(0)  # what is there would be taken for records behind the new ones
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
            except OSError:  # there may be enough of the disk left for the data alone
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
        # What is undone must be as durable as what is kept: else a crash brings refused bytes back.
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
        """Nothing is left in the file behind the segment's data."""
        segment.file.resize(segment.size)
        segment.preallocated_to = 0
        if self._full_bytes:
            segment.file.resize(self._full_bytes)

    # -- removing

    def resync(self, first: Segment) -> None:
        """Make what was found from `first` on durable: a process that died may have left it to the page cache alone."""
        self._join_once()
        self._folder_changed = True
        for segment in self.segments[self.segments.index(first) :]:
            self._touch(segment)

    def _touch(self, segment: Segment) -> None:
        self._chunks += ((segment, segment.size, [], False),)

    def trim_preallocation(self) -> None:
        """The files end with their data when the pass that this takes part in is written."""
        if self.segments and self.segments[-1].preallocated_to > self.segments[-1].size:
            self._join_once()
            self._touch(self.segments[-1])
            self._is_trimming = True

    def join_pass(self) -> Ticket:
        """Take part in this pass without appending: companion files will be written with it."""
        return self._join_once()

    def remove(self, segment: Segment, companions: Iterable[str]) -> None:
        """Remove any sealed segment and its companion files. Views that are out stay valid."""
        self._join_once()
        self._folder_changed = True
        self.segments.remove(segment)
        self._chunks = tuple(chunk for chunk in self._chunks if chunk[0] is not segment)
        segment.file.close()
        for suffix in (self._suffix, *companions):
            with suppress(FileNotFoundError):
                self._files.remove(self.path(segment_name(segment.base, suffix)))

    def truncate(self, segment: Segment, size: int, companions: Iterable[str]) -> None:
        """Cut the tail: `segment` ends at `size` and nothing follows it. For recovery, when nothing reads yet."""
        while self.segments[-1] is not segment:
            self.remove(self.segments[-1], companions)
        segment.size = size
        if segment.file.size() > size:
            self._cut_file(segment)
        self._join_once()
        self._touch(segment)

    def abandon(self, refusal: Refusal) -> None:
        """The folder goes: what was collected is not written."""
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
