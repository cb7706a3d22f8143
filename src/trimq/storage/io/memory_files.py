"""File system in memory with a simulated page cache: `crash` loses all unsynced data except the part that its
`Survivors` keep. Knows no faults; a test double with faults overrides `_file` and other methods as needed."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from trimq.model import Buffer
from trimq.storage.io.files import Memory, Space

_SMALLEST_BUFFER = 4096


class _Change(NamedTuple):
    """Undo entry of one unsynced change: the size before it, and the bytes that it replaced or cut off."""

    serial: int
    position: int
    old: bytes
    old_size: int


class MemoryNode:
    """Contents of one file, and the undo entries back to the synced contents."""

    __slots__ = ("_changes", "_data", "_lock", "_run", "_serial", "size")

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray(data)
        self.size = len(data)
        self._changes: deque[_Change] = deque()
        self._serial = 0
        self._run = 0  # serial of the change that consecutive appends share: keeps a file without syncs cheap
        self._lock = Lock()  # syncs run on another thread

    def write(self, position: int, part: Buffer) -> None:
        end = position + len(part)
        if end == position:
            return  # an empty write past the end does not extend the file
        with self._lock:
            self._note(position, min(end, self.size), is_append=position == self.size)
            if end > len(self._data):
                self._move(max(end, 2 * len(self._data), _SMALLEST_BUFFER), self.size)
            self._data[position:end] = part
            self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        with self._lock:
            self._note(min(size, self.size), self.size, is_append=size > self.size)
            self._move(max(size, _SMALLEST_BUFFER), min(size, self.size))
            self.size = size

    def _note(self, position: int, end: int, is_append: bool) -> None:
        if is_append and self._changes and self._changes[-1].serial == self._run:
            return
        self._serial += 1
        self._run = self._serial if is_append else 0
        self._changes.append(_Change(self._serial, position, bytes(self._data[position:end]), self.size))

    def _move(self, length: int, keep: int) -> None:
        # Views hold the old buffer, so it cannot be resized; the bytes that they show never change.
        moved = bytearray(length)
        moved[:keep] = memoryview(self._data)[:keep]
        self._data = moved

    def read(self, position: int, length: int) -> memoryview:
        return memoryview(self._data)[position : min(position + length, self.size)].toreadonly()

    def mark(self) -> int:
        """Returns a mark of the contents written so far, for `sync`. Later writes are not covered by it."""
        with self._lock:
            self._run = 0
            return self._serial

    def sync(self, mark: int) -> None:
        with self._lock:
            while self._changes and self._changes[0].serial <= mark:
                self._changes.popleft()

    def versions(self) -> list[bytes]:
        """Returns the possible contents after a power cut: first the synced contents, last the newest."""
        version = bytearray(self._data[: self.size])
        versions = [bytes(version)]
        for change in reversed(self._changes):
            version = version[: change.old_size].ljust(change.old_size, b"\0")
            version[change.position : change.position + len(change.old)] = change.old
            versions.append(bytes(version))
        return versions[::-1]


class MemoryFolder:
    """Names in one folder: the current ones, the synced ones, and the changes between them."""

    __slots__ = ("_synced", "_unsynced", "entries")

    def __init__(self, entries: dict[str, MemoryNode | MemoryFolder] | None = None) -> None:
        self.entries = entries or {}
        self._synced = dict(self.entries)
        self._unsynced: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        change.apply(self.entries)
        self._unsynced.append(change)

    def sync(self) -> None:
        self._synced = dict(self.entries)
        self._unsynced = []

    def after_crash(self, path: str, survivors: Survivors) -> MemoryFolder:
        names = dict(self._synced)
        for change in survivors.names(path, self._unsynced) if self._unsynced else ():
            change.apply(names)
        # New nodes, so that holders of the old ones can no longer change the contents.
        entries: dict[str, MemoryNode | MemoryFolder] = {}
        for name, entry in sorted(names.items()):
            inside = f"{path}/{name}" if path else name
            if isinstance(entry, MemoryFolder):
                entries[name] = entry.after_crash(inside, survivors)
            else:
                versions = entry.versions()
                entries[name] = MemoryNode(versions[0] if len(versions) == 1 else survivors.contents(inside, versions))
        return MemoryFolder(entries)


class NameChange(NamedTuple):
    """One atomic change of the names in a folder: a removal, an addition, or both for a rename."""

    removed: str | None
    added: str | None
    entry: MemoryNode | MemoryFolder | None

    def apply(self, names: dict[str, MemoryNode | MemoryFolder]) -> None:
        if self.removed is not None:
            names.pop(self.removed, None)
        if self.added is not None and self.entry is not None:
            names[self.added] = self.entry


class Survivors(Protocol):
    """Decides which unsynced changes survive a simulated power cut."""

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        """Returns the unsynced name changes of a folder that survive, in their order."""

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        """Returns the contents of a file. The first version was synced, the last is the newest."""


class _NoSurvivors:
    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return ()

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return versions[0]


class MemoryFile:
    __slots__ = ("_node", "name")

    def __init__(self, name: str, node: MemoryNode) -> None:
        self.name = name
        self._node = node

    def size(self) -> int:
        return self._node.size

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        for part in parts:
            self._node.write(position, part)
            position += len(part)

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._node.read(position, length))

    def view(self, position: int, length: int) -> memoryview:
        return self._node.read(position, length)

    def begin_warm(self, position: int, length: int) -> Callable[[], None] | None:
        return None

    def begin_sync(self) -> Callable[[], None]:
        mark = self._node.mark()
        return lambda: self._node.sync(mark)

    def begin_reserve(self, size: int) -> Callable[[], None]:
        return lambda: self._node.resize(max(size, self._node.size))

    def begin_fill(self, position: int, length: int) -> Callable[[], None]:
        def fill() -> None:
            self._node.write(position, bytes(length))
            self._node.sync(self._node.mark())

        return fill

    def begin_lock(self, length: int) -> Callable[[], Callable[[], None]]:
        return lambda: lambda: None

    def resize(self, size: int) -> None:
        self._node.resize(size)

    def close(self) -> None:
        """Does nothing: there is no descriptor."""


class MemoryFiles:
    """File system in memory. A name is durable only once its folder is synced, as on disk."""

    def __init__(self, total_bytes: int = 1 << 40) -> None:
        self._total_bytes = total_bytes
        self.taken = Memory(0, 1 << 40)
        """Reported memory use of the process."""
        self._root = MemoryFolder()

    def _file(self, name: str, node: MemoryNode) -> MemoryFile:
        return MemoryFile(name, node)

    def open(self, name: str, create: bool = False) -> MemoryFile:
        folder, short = self._place(name)
        node = folder.entries.get(short)
        if isinstance(node, MemoryFolder):
            raise _failure(errno.EISDIR, name)
        if node is None:
            if not create:
                raise _failure(errno.ENOENT, name)
            node = MemoryNode()
            folder.change(NameChange(None, short, node))
        return self._file(name, node)

    def names(self, folder: str) -> list[str]:
        found = self._find(folder)
        return sorted(found.entries) if isinstance(found, MemoryFolder) else []

    def make_folder(self, name: str) -> None:
        folder = self._root
        for short in name.split("/") if name else ():
            inside = folder.entries.get(short)
            if inside is None:
                inside = MemoryFolder()
                folder.change(NameChange(None, short, inside))
            if not isinstance(inside, MemoryFolder):
                raise _failure(errno.ENOTDIR, name)
            folder = inside

    def remove(self, name: str) -> None:
        folder, short = self._place(name)
        entry = folder.entries.get(short)
        if entry is None:
            raise _failure(errno.ENOENT, name)
        if isinstance(entry, MemoryFolder) and entry.entries:
            raise _failure(errno.ENOTEMPTY, name)
        folder.change(NameChange(short, None, None))

    def rename(self, old: str, new: str) -> None:
        (source, old_short), (target, new_short) = self._place(old), self._place(new)
        entry, replaced = source.entries.get(old_short), target.entries.get(new_short)
        if entry is None:
            raise _failure(errno.ENOENT, old)
        if isinstance(replaced, MemoryFolder) and replaced.entries:
            raise _failure(errno.ENOTEMPTY, new)
        if source is target:
            source.change(NameChange(old_short, new_short, entry))
        else:  # each folder is synced on its own, so a crash may show both names or neither
            target.change(NameChange(None, new_short, entry))
            source.change(NameChange(old_short, None, None))

    def restrict(self, name: str) -> None:
        """Does nothing: nobody else can read the memory."""

    def sync_folder(self, name: str) -> None:
        found = self._find(name)
        if not isinstance(found, MemoryFolder):
            raise _failure(errno.ENOENT, name)
        found.sync()

    def sync_all(self) -> None:
        for entry in list(_walk(self._root)):
            if isinstance(entry, MemoryFolder):
                entry.sync()
            else:
                entry.sync(entry.mark())

    def space(self) -> Space:
        used = sum(entry.size for entry in _walk(self._root) if isinstance(entry, MemoryNode))
        return Space(max(self._total_bytes - used, 0), self._total_bytes)

    def memory(self) -> Memory:
        return self.taken

    def crash(self, survivors: Survivors | None = None) -> None:
        """Drops the page cache, as a power cut would: unsynced names and bytes are lost unless `survivors` keep
        them."""
        self._root = self._root.after_crash("", survivors or _NoSurvivors())

    def close(self) -> None:
        """Does nothing: the contents stay for a restart."""

    def _find(self, name: str) -> MemoryNode | MemoryFolder | None:
        entry: MemoryNode | MemoryFolder | None = self._root
        for short in name.split("/") if name else ():
            entry = entry.entries.get(short) if isinstance(entry, MemoryFolder) else None
        return entry

    def _place(self, name: str) -> tuple[MemoryFolder, str]:
        path, _, short = name.rpartition("/")
        folder = self._find(path)
        if not isinstance(folder, MemoryFolder):
            raise _failure(errno.ENOENT, name)
        return folder, short


def _walk(folder: MemoryFolder) -> Iterator[MemoryNode | MemoryFolder]:
    yield folder
    for entry in list(folder.entries.values()):  # a copy: files are added and removed while another thread syncs
        if isinstance(entry, MemoryFolder):
            yield from _walk(entry)
        else:
            yield entry


def _failure(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
