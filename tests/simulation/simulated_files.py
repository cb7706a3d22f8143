"""The disk of the simulation: files in memory that fill up, fail to sync, flip bits and lose power by the seed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from simulated_trace import Trace

from trimq.model import Buffer
from trimq.storage.io.files import Space
from trimq.storage.io.memory_files import MemoryFile, MemoryFiles, MemoryFolder, MemoryNode, NameChange

SECTORS = (512, 4096)


class SimulatedFile(MemoryFile):
    """A file as one process sees it: after the death of that process, nothing reaches the disk through it."""

    __slots__ = ("_files", "_generation", "_serial")

    def __init__(self, name: str, node: MemoryNode, files: SimulatedFiles, serial: int) -> None:
        super().__init__(name, node)
        self._files = files
        self._generation = files.generation
        self._serial = serial

    def __hash__(self) -> int:
        # Sets of files are iterated in the order of hashes; memory addresses would differ from run to run.
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        self._check_alive()
        data = b"".join(parts)
        kept = self._files.share_written(self.name, len(data), position + len(data) > self.size())
        super().write(position, (data[:kept],) if kept else ())
        if kept < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)

    def resize(self, size: int) -> None:
        self._check_alive()
        self._files.resizing(self.name)
        super().resize(size)

    def begin_sync(self) -> Callable[[], None]:
        self._check_alive()
        sync = super().begin_sync()

        def sync_or_fail() -> None:
            self._check_alive()
            if self._files.may_sync(self.name):
                sync()

        return sync_or_fail

    def begin_reserve(self, size: int) -> Callable[[], None]:
        reserve = super().begin_reserve(size)

        def reserve_or_fail() -> None:
            self._check_alive()
            self._files.resizing(self.name)
            if self._files.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)
            reserve()

        return reserve_or_fail

    def begin_fill(self, position: int, length: int) -> Callable[[], None]:
        def fill() -> None:
            self.write(position, (bytes(length),))
            self.begin_sync()()

        return fill

    def _check_alive(self) -> None:
        if self._generation != self._files.generation:
            raise OSError(errno.EBADF, "the process that opened this file is dead", self.name)


class SimulatedFiles(MemoryFiles):
    def __init__(self, random: Random, trace: Trace) -> None:
        super().__init__()
        self._random = random
        self._trace = trace
        self._next_serial = 0
        self.generation = 0
        self.is_full = False
        self.has_told_full = False
        self.writes_until_failure: int | None = None
        self.fails_next_sync = False
        self.fails_next_resize = False
        self._failed_syncs: set[str] = set()
        self._copies: list[MemoryFolder] = []

    # -- faults

    def heal(self) -> None:
        self.is_full = self.fails_next_sync = self.fails_next_resize = False
        self.writes_until_failure = None

    def share_written(self, name: str, size: int, grows: bool) -> int:
        """Returns how many of the bytes are written."""
        if self.writes_until_failure is not None:
            self.writes_until_failure -= 1
        if self.writes_until_failure == 0:
            self.writes_until_failure = None
        elif not (self.is_full and grows):
            return size
        kept = self._random.randint(0, max(size - 1, 0))
        self._trace.note(f"a write of {size} bytes to {name} fell short at {kept}")
        return kept

    def may_sync(self, name: str) -> bool:
        """Returns whether a sync has an effect. After a failed sync, the kernel considers the pages clean and reports
        success."""
        if self.fails_next_sync:
            self.fails_next_sync = False
            self._failed_syncs.add(name)
            self._trace.note(f"a sync of {name or 'everything'} failed")
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return name not in self._failed_syncs and "" not in self._failed_syncs

    @property
    def had_failed_sync(self) -> bool:
        return bool(self._failed_syncs)

    def resizing(self, name: str) -> None:
        if self.fails_next_resize:
            self.fails_next_resize = False
            self._trace.note(f"a resize of {name} failed")
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    def flip_bit(self, name: str, position: int, bit: int) -> None:
        """Damages the medium itself: the damage survives every crash."""
        file = MemoryFiles.open(self, name)
        byte = file.read(position, 1)[0]
        MemoryFile.write(file, position, (bytes((byte ^ (1 << bit),)),))
        MemoryFile.begin_sync(file)()
        self._trace.note(f"bit {bit} of byte {position} of {name} flipped")

    def flip_some_bits(self, count: int) -> None:
        """Flips bits at random positions of files that are not empty."""
        self._copies.append(_copy(self._root))
        full = [name for name in self._all_names("") if MemoryFiles.open(self, name).size()]
        for _ in range(count if full else 0):
            name = self._random.choice(full)
            self.flip_bit(name, self._random.randrange(MemoryFiles.open(self, name).size()), self._random.randrange(8))

    def restore(self) -> bool:
        """Restores everything as before the last damage. Returns False if there is no copy."""
        if self._copies:
            self._root = self._copies.pop()
            return True
        return False

    def _all_names(self, folder: str) -> Iterator[str]:
        for short in self.names(folder):
            name = f"{folder}/{short}" if folder else short
            if isinstance(self._find(name), MemoryFolder):
                yield from self._all_names(name)
            else:
                yield name

    def die(self) -> None:
        """The process dies; the page cache survives."""
        self.generation += 1

    def lose_power(self) -> None:
        self.generation += 1
        self._failed_syncs.clear()
        self.crash(SeededSurvivors(self._random, self._trace))

    # -- interface for the broker

    def _file(self, name: str, node: MemoryNode) -> SimulatedFile:
        self._next_serial += 1
        return SimulatedFile(name, node, self, self._next_serial)

    def open(self, name: str, create: bool = False) -> MemoryFile:
        if create and self.is_full and self._random.random() < 0.5:
            self._trace.note(f"{name} could not be made")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return super().open(name, create)

    def sync_folder(self, name: str) -> None:
        if self.may_sync(name):
            super().sync_folder(name)

    def sync_all(self) -> None:
        if self.may_sync(""):
            super().sync_all()

    def space(self) -> Space:
        space = super().space()
        self.has_told_full = self.has_told_full or self.is_full
        return Space(0, space.total_bytes) if self.is_full else space


class SeededSurvivors:
    """Survivors of a power cut: all, nothing, a prefix with a torn end, or sectors in any order."""

    def __init__(self, random: Random, trace: Trace) -> None:
        self._random = random
        self._trace = trace

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        if self._random.random() < 0.5:  # a file system with an ordered journal
            kept = list(changes[: self._random.randint(0, len(changes))])
        else:
            kept = [change for change in changes if self._random.random() < 0.5]
        self._trace.note(f"folder {folder!r} kept {len(kept)} of {len(changes)} changes of names")
        return kept

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        way = self._random.choice(("nothing", "all", "torn", "torn", "sectors", "sectors"))
        if way == "nothing":
            found = versions[0]
        elif way == "all":
            found = versions[-1]
        elif way == "torn":
            found = self._tear(versions)
        else:
            found = self._mix_sectors(versions)
        self._trace.note(f"{name} synced {len(versions[0])} written {len(versions[-1])} kept {way} {len(found)}")
        return found

    def _tear(self, versions: Sequence[bytes]) -> bytes:
        last = self._random.randrange(1, len(versions))
        before, after = versions[last - 1], versions[last]
        if len(after) < len(before):
            return self._random.choice((before, after))  # a truncation is one change of the file size: all or nothing
        at = self._random.randint(_first_difference(before, after), len(after))
        return after[:at] + before[at:]

    def _mix_sectors(self, versions: Sequence[bytes]) -> bytes:
        """Returns each sector as it was at some moment since the last sync; not from before a truncation, which frees
        blocks."""
        cuts = [at for at in range(1, len(versions)) if len(versions[at]) < len(versions[at - 1])]
        bounds = [0, *cuts, len(versions)]
        epoch = self._random.randrange(len(bounds) - 1)
        moments = versions[bounds[epoch] : bounds[epoch + 1]]
        size = self._size_between(min(map(len, moments)), max(map(len, moments)))
        found = bytearray(size)
        sector = self._random.choice(SECTORS)
        for start in range(0, size, sector):
            piece = self._random.choice(moments)[start : min(start + sector, size)]
            found[start : start + len(piece)] = piece
        return bytes(found)

    def _size_between(self, low: int, high: int) -> int:
        return self._random.choice((high, high, self._random.randint(low, high)))


def _copy(folder: MemoryFolder) -> MemoryFolder:
    """Returns a copy of the contents, all of it durable."""
    return MemoryFolder(
        {
            name: _copy(entry) if isinstance(entry, MemoryFolder) else MemoryNode(bytes(entry.read(0, entry.size)))
            for name, entry in folder.entries.items()
        }
    )


def _first_difference(before: bytes, after: bytes) -> int:
    shared = min(len(before), len(after))
    if before[:shared] == after[:shared]:
        return shared
    return next(at for at in range(shared) if before[at] != after[at])
