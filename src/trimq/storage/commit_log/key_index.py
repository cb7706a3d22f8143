"""Key index: finds units by the hash of a key, in RocketMQ's index files. The newest keys are in memory. Entries are
written before the slots that point to them, so that a crash never leaves a dangling chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from struct import Struct
from typing import NamedTuple

from trimq.formats.rocketmq_unit.key_hashes import TopicKey, key_hashes
from trimq.storage.commit_log.key_slots import SLOT, KeySlots
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.io.files import File, Files

HEADER = Struct(">qqqqii")  # store time of first and last key, position of first and last key, used slots, next number
ENTRY = Struct(">iqii")  # hash, position, seconds since the first key, number of the previous entry of the slot

_LARGEST = 2**31 - 1

# Writing this many keys takes a few milliseconds, during which other connections wait.
MAX_KEYS_PER_WRITE = 4096
_UNWRITTEN_SLOTS = 16 * 1024

# Reading this many entries takes one or two milliseconds.
MAX_ENTRIES_PER_STEP = 512

HashedKey = tuple[int, int, int]
"""Hash, position and store time. A plain tuple, since nearly every message creates one."""


class KeyIndexState(NamedTuple):
    """State of one index file in a checkpoint: its name and its header."""

    name: str
    begin_ms: int = 0
    end_ms: int = 0
    begin_position: int = 0
    end_position: int = 0
    used_slots: int = 0
    next_number: int = 1


class _IndexFile:
    """One index file: header, slots, entries."""

    def __init__(self, files: Files, folder: str, slots: int, entries: int, state: KeyIndexState) -> None:
        self._files = files
        self._path = f"{folder}/{state.name}"
        self._slots = slots
        self._entries = entries
        self._entries_at = HEADER.size + slots * SLOT.size
        self._file: File | None = None
        self.state = state
        self.heads = KeySlots(HEADER.size, slots)
        self.is_header_due = False
        """Slots were written, but not yet the header that counts them."""
        self._is_gone = False

    @property
    def is_full(self) -> bool:
        return self.state.next_number >= self._entries

    def _open(self) -> File:
        if self._file is None:
            file = self._files.open(self._path, create=self.state.next_number == 1)
            full = self._entries_at + self._entries * ENTRY.size
            if file.size() != full:
                file.resize(full)
            self._file = file  # only once it has its full size
        return self._file

    def head(self, hash: int) -> int:
        """Returns the newest valid entry of a slot. After a crash the file may point to later entries that are void."""
        if self.state.next_number == 1 or self._is_gone:
            return 0  # the file may not exist yet
        slot = hash % self._slots
        head = self.heads.unwritten(slot)
        if head is not None:
            return head
        head = self.heads.read(self._open(), slot)
        while head >= self.state.next_number:
            head = self._read(head)[3]
        return head

    def _read(self, number: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = ENTRY.unpack(
            self._open().read(self._entries_at + number * ENTRY.size, ENTRY.size)
        )
        return found

    def add(self, keys: list[HashedKey], dirty: Dirty) -> int:
        """Writes as many entries as fit. `write_slots` writes their slots later."""
        taken = keys[: self._entries - self.state.next_number]
        packed, heads, used_slots = self._link(taken)
        state, (_, position, store_ms) = self.state, taken[-1]
        file = self._open()
        file.write(self._entries_at + state.next_number * ENTRY.size, [packed])
        begin_ms, begin = self._begin(taken)
        next_number = state.next_number + len(taken)
        self.state = KeyIndexState(state.name, begin_ms, store_ms, begin, position, used_slots, next_number)
        self.heads.change(heads)
        dirty.files.add(file)
        return len(taken)

    def _begin(self, keys: list[HashedKey]) -> tuple[int, int]:
        """Returns store time and position of the first key."""
        state = self.state
        return (state.begin_ms, state.begin_position) if state.next_number > 1 else (keys[0][2], keys[0][1])

    def _link(self, keys: list[HashedKey]) -> tuple[bytes, dict[int, int], int]:
        """Returns the encoded entries, each linked to the previous entry of its slot; the changed slots; and the new
        number of used slots."""
        first = number = self.state.next_number
        used_slots = self.state.used_slots
        begin_ms, _ = self._begin(keys)
        slots, changed, width = self._slots, self.heads.changed, self.heads.width
        stored = self.heads.stored(self._open())
        in_use = stored.cast("i")  # compares with zero only, so the byte order does not matter
        fields: list[int] = []
        heads: dict[int, int] = {}
        last_ms = seconds = -1
        for hash, position, store_ms in keys:
            slot = hash % slots
            previous = heads.get(slot) or changed[slot // width].get(slot)
            if previous is None:
                previous = 0
                if in_use[slot]:
                    (previous,) = SLOT.unpack_from(stored, slot * SLOT.size)
                    while previous >= first:  # an entry made void by a crash
                        previous = self._read(previous)[3]
            if not previous:
                used_slots += 1
            heads[slot] = number
            if store_ms != last_ms:
                last_ms, seconds = store_ms, min(max((store_ms - begin_ms) // 1000, 0), _LARGEST)
            fields += (hash, position, seconds, previous)
            number += 1
        return Struct(">" + "iqii" * len(keys)).pack(*fields), heads, used_slots

    def write_slots(self, dirty: Dirty) -> None:
        self._write_with_header(self.heads.write, dirty)

    def write_some_slots(self, dirty: Dirty) -> None:
        self._write_with_header(self.heads.write_some, dirty)

    def _write_with_header(self, write: Callable[[File], object], dirty: Dirty) -> None:
        """Marks the file dirty even if a later step fails, because part of it may be written."""
        file = self._open()
        dirty.files.add(file)
        self.is_header_due = True
        write(file)
        file.write(0, [HEADER.pack(*self.state[1:])])
        self.is_header_due = False

    def find(self, hash: int, head: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yields positions of units that may have the key, from the entry `head` of its slot on, newest first. Yields
        None after a bounded number of entries. Ends if the file is removed."""
        first_ms, number, looked_at = self.state.begin_ms, head, 0
        while number > 0 and not self._is_gone:
            if looked_at == MAX_ENTRIES_PER_STEP:
                looked_at = 0
                yield None
                continue
            looked_at += 1
            found, position, seconds, previous = self._read(number)
            time_ms = first_ms + seconds * 1000
            if found == hash and begin_ms - 1000 < time_ms <= end_ms:
                yield position
            if not previous < number:
                return  # a chain leads to older entries only; otherwise it is damaged
            number = previous

    def close(self) -> None:
        """Closes the file, which is about to be removed."""
        self._is_gone = True
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
        self._pending: list[HashedKey] = []
        self._unhashed: list[TopicKey] = []
        self._names_changed = False

    def load(self, states: list[KeyIndexState]) -> bool:
        """Loads the files of a checkpoint and removes all others. Returns whether all files of the checkpoint exist."""
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
        """Number of keys that are in memory only."""
        return len(self._pending) + len(self._unhashed)

    def add(self, topic_hash: int, key: str, position: int, store_ms: int) -> None:
        """Adds a key. `topic_hash` is the hash of the topic name followed by '#'. The key is hashed later, together
        with others."""
        self._unhashed.append((topic_hash, key, position, store_ms))

    def add_all(self, keys: Iterable[TopicKey]) -> None:
        self._unhashed.extend(keys)

    def _hash(self, count: int | None = None) -> None:
        """Hashes the oldest `count` keys; all if None."""
        unhashed = self._unhashed[:count]
        del self._unhashed[:count]
        for hash, (_, _, position, store_ms) in zip(key_hashes(unhashed), unhashed, strict=True):
            self._pending.append((hash, position, store_ms))

    def roll_back_to(self, count: int) -> None:
        """Drops the keys added after the first `count`."""
        del self._unhashed[max(count - len(self._pending), 0) :]
        del self._pending[count:]

    def states(self) -> list[KeyIndexState]:
        return [index.state for index in self._indexes]

    def last(self) -> KeyIndexState | None:
        """Returns the state of the newest file: times and positions up to which keys are indexed."""
        return self._indexes[-1].state if self._indexes else None

    # -- writing

    def write_entries(self, dirty: Dirty) -> None:
        """Writes the entries of all keys in memory. Their slots may be written once the entries are on disk."""
        self._hash()
        self._write_pending(len(self._pending), dirty)

    def write_some(self, dirty: Dirty, are_on_disk: bool) -> None:
        """Like `write_entries`, for the oldest keys only, so that no pass takes long. If the entries written before
        `are_on_disk`, also writes some of their slots once enough have changed: slots are scattered over a table of 20
        MB, and many changed slots lie close together."""
        if are_on_disk and sum(len(index.heads) for index in self._indexes) >= _UNWRITTEN_SLOTS:
            for index in self._indexes:
                if index.heads:
                    index.write_some_slots(dirty)
        self._hash(max(MAX_KEYS_PER_WRITE - len(self._pending), 0))
        self._write_pending(MAX_KEYS_PER_WRITE, dirty)

    def _write_pending(self, most: int, dirty: Dirty) -> None:
        keys = self._pending[:most]
        while keys:
            if not self._indexes or self._indexes[-1].is_full:
                self._indexes.append(self._new_index())
                self._names_changed = True
            count = self._indexes[-1].add(keys, dirty)
            del keys[:count], self._pending[:count]
        if self._names_changed:
            dirty.folders.update((self._folder, self._folder.rpartition("/")[0]))
            self._names_changed = False

    def _new_index(self) -> _IndexFile:
        self._files.make_folder(self._folder)
        now_ms = self._now_ms()
        taken = {index.state.name for index in self._indexes}
        while (name := _file_name(now_ms)) in taken:
            now_ms += 1
        return _IndexFile(self._files, self._folder, self._slots, self._entries, KeyIndexState(name))

    def write_slots(self, dirty: Dirty) -> None:
        """Writes the slots of entries that are on disk."""
        for index in self._indexes:
            if index.heads or index.is_header_due:
                index.write_slots(dirty)

    # -- finding

    def find(self, hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yields positions of units that may have a key of this hash and were stored between these times, newest first.
        Yields None after a bounded amount of work, so that the caller may pause and continue later. Does not find keys
        added after the start of the search."""
        self._hash()
        fresh = [
            position
            for found, position, store_ms in reversed(self._pending)
            if found == hash and begin_ms <= store_ms <= end_ms
        ]
        indexes = [
            index
            for index in reversed(self._indexes)
            if index.state.begin_ms <= end_ms and index.state.end_ms >= begin_ms
        ]
        newest = [index.head(hash) for index in indexes[:1]]  # no keys are added to the others
        yield from fresh
        for number, index in enumerate(indexes):
            yield from index.find(hash, newest[0] if number == 0 else index.head(hash), begin_ms, end_ms)

    # -- the head

    def remove_head(self, start: int) -> list[str]:
        """Removes the keys of units before `start`. Returns the names of files without other keys, which the caller
        removes."""
        gone = [index for index in self._indexes[:-1] if index.state.end_position < start]
        self._indexes = [index for index in self._indexes if index not in gone]
        for index in gone:
            index.close()
        return [f"{self._folder}/{index.state.name}" for index in gone]


def _file_name(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S") + f"{time_ms % 1000:03d}"
