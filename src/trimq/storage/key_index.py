"""The key index: finds units by the hash of a key, in RocketMQ's index files. The newest keys are in memory; entries
reach a file before the slots that lead to them, so that a crash never leaves a chain that leads nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from struct import Struct
from typing import NamedTuple

from trimq.storage.files import File, Files
from trimq.storage.flusher import Dirty

HEADER = Struct(">qqqqii")  # times and positions of the first and the last key, slots in use, next number
ENTRY = Struct(">iqii")  # hash, position, seconds since the first, number of the previous entry of the slot
SLOT = Struct(">i")

_LARGEST = 2**31 - 1


class Key(NamedTuple):
    hash: int
    position: int
    store_ms: int


class IndexState(NamedTuple):
    """What a checkpoint says of one index file: its name, and its header."""

    name: str
    begin_ms: int = 0
    end_ms: int = 0
    begin_position: int = 0
    end_position: int = 0
    used_slots: int = 0
    next_number: int = 1


class _IndexFile:
    """One file: header, slots, entries."""

    def __init__(self, files: Files, folder: str, slots: int, entries: int, state: IndexState) -> None:
        self._files = files
        self._path = f"{folder}/{state.name}"
        self._slots = slots
        self._entries = entries
        self._entries_at = HEADER.size + slots * SLOT.size
        self._file: File | None = None
        self.state = state
        self.heads: dict[int, int] = {}
        """Of the slots that are not yet written."""

    @property
    def is_full(self) -> bool:
        return self.state.next_number >= self._entries

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
            full = self._entries_at + self._entries * ENTRY.size
            if self._file.size() != full:
                self._file.resize(full)
        return self._file

    def _head(self, slot: int) -> int:
        """The newest entry of a slot that is one of ours: a file may know of later ones, which a crash made void."""
        head = self.heads.get(slot)
        if head is not None:
            return head
        (head,) = SLOT.unpack(self._open().read(HEADER.size + slot * SLOT.size, SLOT.size))
        while head >= self.state.next_number:
            head = self._read(head)[3]
        return head

    def _read(self, number: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = ENTRY.unpack(
            self._open().read(self._entries_at + number * ENTRY.size, ENTRY.size)
        )
        return found

    def add(self, keys: list[Key], dirty: Dirty) -> int:
        """Write as many entries as there is room for. Their slots follow with `write_slots`."""
        before, kept_heads = self.state, dict(self.heads)
        packed = []
        for key in keys[: self._entries - before.next_number]:
            packed.append(self._link(key))
        try:
            file = self._open()
            file.write(self._entries_at + before.next_number * ENTRY.size, [b"".join(packed)])
        except OSError:
            self.state, self.heads = before, kept_heads
            raise
        dirty.files.add(file)
        return len(packed)

    def _link(self, key: Key) -> bytes:
        state = self.state
        number = state.next_number
        begin_ms, begin = (state.begin_ms, state.begin_position) if number > 1 else (key.store_ms, key.position)
        slot = key.hash % self._slots
        previous = self._head(slot)
        self.heads[slot] = number
        seconds = min(max((key.store_ms - begin_ms) // 1000, 0), _LARGEST)
        used = state.used_slots + (previous == 0)
        self.state = IndexState(state.name, begin_ms, key.store_ms, begin, key.position, used, number + 1)
        return ENTRY.pack(key.hash, key.position, seconds, previous)

    def write_slots(self, dirty: Dirty) -> None:
        file = self._open()
        for slot in sorted(self.heads):
            file.write(HEADER.size + slot * SLOT.size, [SLOT.pack(self.heads[slot])])
        file.write(0, [HEADER.pack(*self.state[1:])])
        dirty.files.add(file)
        self.heads = {}

    def find(self, hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of units that may have the key, newest first."""
        state = self.state
        number = self._head(hash % self._slots)
        while number > 0:
            found, position, seconds, previous = self._read(number)
            time_ms = state.begin_ms + seconds * 1000
            if found == hash and begin_ms - 1000 < time_ms <= end_ms:
                yield position
            if not previous < number:
                return  # a chain leads back in time, or it is damaged
            number = previous

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class KeyIndex:
    def __init__(self, files: Files, folder: str, slots: int, entries: int, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._now_ms = now_ms
        self._indexes: list[_IndexFile] = []
        self._pending: list[Key] = []
        self._names_changed = False

    def load(self, states: list[IndexState]) -> bool:
        """Go on with the files of a checkpoint; others are removed. Whether all of them are there."""
        names = set(self._files.names(self._folder))
        known = [state for state in states if state.name in names]
        if len(known) < len(states):
            known = []
        for name in names - {state.name for state in known}:
            self._files.remove(f"{self._folder}/{name}")
            self._names_changed = True
        self._indexes = [_IndexFile(self._files, self._folder, self._slots, self._entries, state) for state in known]
        return len(known) == len(states)

    def __len__(self) -> int:
        """How many keys are in memory alone."""
        return len(self._pending)

    def add(self, hash: int, position: int, store_ms: int) -> None:
        self._pending.append(Key(hash, position, store_ms))

    def back_to(self, count: int) -> None:
        """What was added since is not kept."""
        del self._pending[count:]

    def states(self) -> list[IndexState]:
        return [index.state for index in self._indexes]

    def last(self) -> IndexState | None:
        """Of the newest file: times and positions up to which keys are indexed."""
        return self._indexes[-1].state if self._indexes else None

    # -- writing

    def write_entries(self, dirty: Dirty) -> None:
        """Write the entries of the keys that are in memory. Their slots may be written once this is on disk."""
        while self._pending:
            if not self._indexes or self._indexes[-1].is_full:
                self._indexes.append(self._new_index())
                self._names_changed = True
            count = self._indexes[-1].add(self._pending, dirty)
            del self._pending[:count]
        if self._names_changed:
            dirty.folders.update((self._folder, self._folder.rpartition("/")[0]))
            self._names_changed = False

    def _new_index(self) -> _IndexFile:
        self._files.make_folder(self._folder)
        now_ms = self._now_ms()
        taken = {index.state.name for index in self._indexes}
        while (name := _file_name(now_ms)) in taken:
            now_ms += 1
        return _IndexFile(self._files, self._folder, self._slots, self._entries, IndexState(name))

    def write_slots(self, dirty: Dirty) -> None:
        """Write the slots of entries that are on disk."""
        for index in self._indexes:
            if index.heads:
                index.write_slots(dirty)

    # -- finding

    def find(self, hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Positions of units that may have a key of this hash and were stored between these times, newest first."""
        for key in reversed(self._pending):
            if key.hash == hash and begin_ms <= key.store_ms <= end_ms:
                yield key.position
        for index in reversed(self._indexes):
            if index.state.begin_ms <= end_ms and index.state.end_ms >= begin_ms:
                yield from index.find(hash, begin_ms, end_ms)

    # -- the head

    def remove_head(self, start: int) -> list[str]:
        """Keys of units before `start` are gone. The names of files that hold no others, which the caller removes."""
        gone = [index for index in self._indexes[:-1] if index.state.end_position < start]
        self._indexes = [index for index in self._indexes if index not in gone]
        for index in gone:
            index.close()
        return [f"{self._folder}/{index.state.name}" for index in gone]


def _file_name(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S") + f"{time_ms % 1000:03d}"
