"""One consume queue: a fixed-size entry per message with position and size of its unit and its tags code. The newest
entries are in memory and are written to the files at a checkpoint. They can be rebuilt from the commit log, which is
authoritative."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from trimq.errors import ColdRead, OffsetOutOfRange
from trimq.model import Buffer
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.segment import base_of, segment_name
from trimq.storage.io.files import File, Files
from trimq.storage.io.page_cache import find_cold

ENTRY = Struct(">qiq")  # position of the unit, its size, its tags code
ENTRY_BYTES = ENTRY.size

# RocketMQ writes this in place of removed entries at the head of a file: zeros would end its recovery.
BLANK_SIZE = 2**31 - 1
_BLANK = ENTRY.pack(0, BLANK_SIZE, 0)

_pack = ENTRY.pack


class ConsumeQueueEntry(NamedTuple):
    position: int
    size: int
    tags_code: int


class ConsumeQueueState(NamedTuple):
    """State of a queue in a checkpoint: the offsets that are in its files."""

    start: int
    end: int


class ConsumeQueue:
    """`start` <= `durable_end` <= `end` are offsets. Entries before `stored_end` are in the files."""

    __slots__ = (
        "_file",
        "_file_entries",
        "_file_index",
        "_files",
        "_new_folder",
        "_tail",
        "durable_end",
        "end",
        "folder",
        "is_removed",
        "number",
        "on_durable_end",
        "start",
        "stored_end",
        "topic",
    )

    def __init__(
        self, files: Files, root: str, topic: str, number: int, file_entries: int, state: ConsumeQueueState
    ) -> None:
        self._files = files
        self.topic = topic
        self.number = number
        self.folder = f"{root}/{topic}/{number}"
        self._file_entries = file_entries
        self.start = state.start
        self.end = self.durable_end = self.stored_end = state.end
        self._tail = bytearray()
        self._file: File | None = None
        self._file_index = -1
        self._new_folder = True
        self.is_removed = False
        self.on_durable_end: Callable[[], None] | None = None

    # -- growing

    def add(self, position: int, size: int, tags_code: int) -> int:
        """Adds the message at `position` and returns its offset."""
        offset = self.end
        self._tail += _pack(position, size, tags_code)
        self.end = offset + 1
        return offset

    def begin_at(self, offset: int) -> None:
        """Makes `offset` the offset of the queue's first remaining message."""
        self.start = self.end = self.durable_end = self.stored_end = offset

    def roll_back_to(self, end: int) -> None:
        """Drops the entries from offset `end` on."""
        del self._tail[(end - self.stored_end) * ENTRY_BYTES :]
        self.end = end

    def write_out(self, dirty: Dirty) -> None:
        """Writes the entries in memory to the files. After an OSError they stay in memory."""
        written = self.stored_end
        with memoryview(self._tail) as tail:
            while written < self.end:
                index, within = divmod(written, self._file_entries)
                count = min(self._file_entries - within, self.end - written)
                begin = (written - self.stored_end) * ENTRY_BYTES
                file = self._open(index, dirty)
                file.write(within * ENTRY_BYTES, [bytes(tail[begin : begin + count * ENTRY_BYTES])])
                dirty.files.add(file)
                written += count
        self.stored_end = written
        self._tail = bytearray()

    def _open(self, index: int, dirty: Dirty | None) -> File:
        """Opens one of the files; with `dirty` it is created if missing."""
        if self._file is None or self._file_index != index:
            full = self._file_entries * ENTRY_BYTES
            name = f"{self.folder}/{segment_name(index * full, '')}"
            if dirty is None:
                file = self._files.open(name)
            else:
                self._make_folders(dirty)
                file = self._files.open(name, create=True)
                if file.size() != full:
                    file.resize(full)
                    if (blanks := self.start - index * self._file_entries) > 0:
                        file.write(0, [_BLANK * blanks])
                dirty.folders.add(self.folder)
            if self._file is not None:
                self._file.close()
            self._file, self._file_index = file, index
        return self._file

    def _make_folders(self, dirty: Dirty) -> None:
        if self._new_folder:
            self._files.make_folder(self.folder)
            topic = self.folder.rpartition("/")[0]
            dirty.folders.update((topic, topic.rpartition("/")[0]))
            self._new_folder = False

    # -- reading

    def entries(self, offset: int, count: int) -> Buffer:
        """Returns at least one and up to `count` entries from `offset` on, as many as one file or the memory holds."""
        if not self.start <= offset < self.end:
            raise OffsetOutOfRange(offset, self.start, self.end)
        if offset >= self.stored_end:
            begin = (offset - self.stored_end) * ENTRY_BYTES
            return bytes(self._tail[begin : begin + count * ENTRY_BYTES])
        index, within = divmod(offset, self._file_entries)
        count = min(count, self._file_entries - within, self.stored_end - offset)
        return self._open(index, None).read(within * ENTRY_BYTES, count * ENTRY_BYTES)

    def find_cold(self, offset: int, count: int) -> ColdRead | None:
        """Returns the read that `entries` would have to wait for, if any."""
        if not self.start <= offset < self.stored_end:
            return None
        index, within = divmod(offset, self._file_entries)
        count = min(count, self._file_entries - within, self.stored_end - offset)
        return find_cold(self._open(index, None), within * ENTRY_BYTES, count * ENTRY_BYTES)

    def entry(self, offset: int) -> ConsumeQueueEntry:
        return ConsumeQueueEntry._make(ENTRY.unpack(self.entries(offset, 1)))

    def find_position(self, position: int) -> int:
        """Returns the first offset whose unit is at or after `position`; `end` if there is none."""
        low, high = self.start, self.end
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).position < position:
                low = middle + 1
            else:
                high = middle
        return low

    # -- the head, and removal

    def is_stored(self) -> bool:
        """Returns whether the files hold the entries that the checkpoint states."""
        if self.stored_end == self.start:
            return True
        full = self._file_entries * ENTRY_BYTES
        wanted = {offset // self._file_entries * full for offset in (self.start, self.stored_end - 1)}
        there = {base: name for name in self._files.names(self.folder) if (base := base_of(name, "")) is not None}
        # Files of another size were written with another setting: the same entries are at other positions.
        return wanted <= there.keys() and all(
            self._files.open(f"{self.folder}/{there[base]}").size() == full for base in wanted
        )

    def remove_head(self, start: int) -> list[str]:
        """Removes the offsets before `start`. Returns the names of files without remaining entries, which the caller
        removes."""
        self.start = max(self.start, min(start, self.end))
        full = self._file_entries * ENTRY_BYTES
        first = self.start // self._file_entries * full
        names = self._files.names(self.folder)
        return [f"{self.folder}/{name}" for name in names if (base := base_of(name, "")) is not None and base < first]

    def forget_files(self) -> None:
        """Closes the queue's files, which are removed or about to be removed."""
        if self._file is not None:
            self._file.close()
        self._file, self._file_index = None, -1
        self._new_folder = True
