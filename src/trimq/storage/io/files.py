"""Owns every file-system call of the broker; the one place to inject faults. Names are relative to one root folder."""

from __future__ import annotations

import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from trimq.model import Buffer
from trimq.storage.io.system_calls import Memory, lock_pages, memory_of_process, syncfs

__all__ = ["DiskFiles", "File", "Files", "Memory", "Space", "is_folder", "is_out_of_descriptors", "split_path"]

# IOV_MAX on Linux: the largest number of buffers in one system call.
_MAX_PARTS = 1024

# A view past the end of the map maps the file again. Shorter reads there are copied instead. Reads near the beginning
# of a file without a map are copied too: creating a map costs as much as copying this many bytes.
_COPY_BELOW = 128 * 1024
_UNMAPPED_BELOW = 32 * 1024

_WARM_BYTES = 1024 * 1024

# Linux reads ahead in units of this size: if one byte of a unit is in the page cache, nearly always all of it is.
_PROBE_BYTES = 128 * 1024
_PROBE = [bytearray(1)]


# Neither the process nor the whole system may open another file. The data already written is not affected.
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)

T = TypeVar("T")

_SMALL_FILE_BYTES = 64 * 1024


def read_outside_file(path: str, is_private: bool = False) -> bytes:
    """Returns a small file of the operator, outside the data folder. Raises OSError, also if it must be private and
    users other than its owner may read it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if is_private and os.fstat(fd).st_mode & 0o077:
            raise PermissionError(errno.EPERM, "other users may read the file: chmod 600", path)
        return os.read(fd, _SMALL_FILE_BYTES)
    finally:
        os.close(fd)


def outside_file_mode(path: str) -> int:
    """Returns the permission bits of a file of the operator. Raises OSError."""
    return os.stat(path).st_mode & 0o777


def is_out_of_descriptors(error: OSError) -> bool:
    return error.errno in _NO_DESCRIPTOR


class Space(NamedTuple):
    free_bytes: int
    total_bytes: int


class File(Protocol):
    """One file, opened on first use. All methods run on the event loop; the callables that the `begin_…` methods return
    run off it."""

    @property
    def name(self) -> str: ...

    def size(self) -> int: ...

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        """Writes all parts from `position` on. After an OSError an unknown portion of them is written."""

    def read(self, position: int, length: int) -> bytes:
        """Returns up to `length` bytes; fewer only at the end of the file."""

    def view(self, position: int, length: int) -> memoryview:
        """Returns bytes written before, without a copy where that is cheaper. The view stays valid as long as it is
        held."""

    def begin_warm(self, position: int, length: int) -> Callable[[], None] | None:
        """Returns a callable that loads these bytes into the page cache, to be called once, off the event loop. Returns
        None if they are cached already."""

    def begin_sync(self) -> Callable[[], None]:
        """Returns a callable to be called once, off the event loop. It returns when all bytes written before
        `begin_sync` survive a power cut."""

    def begin_reserve(self, size: int) -> Callable[[], None]:
        """Returns a callable to be called once, off the event loop. It reserves disk space for `size` bytes, all zeros,
        or raises OSError."""

    def begin_fill(self, position: int, length: int) -> Callable[[], None]:
        """Returns a callable to be called once, off the event loop. It writes zeros and syncs them."""

    def begin_lock(self, length: int) -> Callable[[], Callable[[], None]]:
        """Returns a callable to be called once, off the event loop. It locks the first `length` bytes, which must
        exist, in memory and returns a callable that unlocks them. It raises OSError if the system does not allow the
        lock."""

    def resize(self, size: int) -> None: ...

    def close(self) -> None:
        """Closes the descriptor. The next use opens the file again."""


class Files(Protocol):
    def open(self, name: str, create: bool = False) -> File:
        """Returns the file, which must exist unless `create` is set. A new name is durable after `sync_folder`."""

    def names(self, folder: str) -> list[str]:
        """Returns the sorted names of a folder; empty if the folder does not exist."""

    def make_folder(self, name: str) -> None: ...

    def remove(self, name: str) -> None:
        """Removes a file or an empty folder. Views of the file stay valid."""

    def rename(self, old: str, new: str) -> None:
        """Renames atomically, replacing an existing file of the new name."""

    def restrict(self, name: str) -> None:
        """Lets only the broker's own user read and write the file."""

    def sync_folder(self, name: str) -> None:
        """Returns when the names in this folder survive a power cut."""

    def sync_all(self) -> None:
        """Returns when everything under the root survives a power cut: files, names, removals."""

    def space(self) -> Space: ...

    def memory(self) -> Memory: ...


class _DescriptorCache:
    """Limits the number of open files with the second-chance algorithm: closes the file opened longest ago, unless it
    was used since the last look. A use costs only setting a flag on the file."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[DiskFile, None] = OrderedDict()

    def opened(self, file: DiskFile) -> None:
        while len(self._open) >= self._limit:
            oldest = next(iter(self._open))
            if oldest.is_used:
                oldest.is_used = False
                self._open.move_to_end(oldest)
            else:
                oldest.close()
        self._open[file] = None

    def closed(self, file: DiskFile) -> None:
        self._open.pop(file, None)

    def with_descriptor(self, file: DiskFile, take: Callable[[], T]) -> T:
        """Calls `take`, which needs a descriptor for `file`, and returns its result. If no descriptor is left, closes
        other files and tries again."""
        while True:
            try:
                return take()
            except OSError as error:
                other = next((other for other in self._open if other is not file), None)
                if other is None or not is_out_of_descriptors(error):
                    raise
                other.close()

    def close_all(self) -> None:
        for file in list(self._open):
            file.close()


class DiskFile:
    __slots__ = ("_access", "_descriptors", "_fd", "_map", "_path", "is_used", "name")

    def __init__(self, name: str, path: str, descriptors: _DescriptorCache, access: int = os.O_RDWR) -> None:
        self.name = name
        self._access = access
        self._path = path
        self._descriptors = descriptors
        self._fd = -1
        self._map: mmap.mmap | None = None
        self.is_used = False

    def _open(self, flags: int = 0) -> int:
        if self._fd >= 0:
            self.is_used = True
        else:
            self._fd = self._descriptors.with_descriptor(
                self, lambda: os.open(self._path, self._access | os.O_CLOEXEC | flags, 0o640)
            )
            self._descriptors.opened(self)
        return self._fd

    def create(self) -> None:
        self._open(os.O_CREAT)

    def size(self) -> int:
        return os.fstat(self._fd).st_size if self._fd >= 0 else os.stat(self._path).st_size

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        fd = self._fd if self._fd >= 0 else self._open()
        self.is_used = True
        if len(parts) == 1:
            part = parts[0]
            written = os.pwrite(fd, part, position)
            if written < len(part):
                _write_rest(fd, bytes(part)[written:], position + written)
            return
        for first in range(0, len(parts), _MAX_PARTS):
            chunk = parts[first : first + _MAX_PARTS]
            expected = sum(map(len, chunk))
            written = os.pwritev(fd, chunk, position)
            if written < expected:
                _write_rest(fd, b"".join(chunk)[written:], position + written)
            position += expected

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._open(), length, position)

    def view(self, position: int, length: int) -> memoryview:
        end = position + length
        if not length:
            return memoryview(b"")  # an empty file cannot be mapped
        if self._map is None or end > len(self._map):
            if end < _UNMAPPED_BELOW or (length < _COPY_BELOW and self._map is not None):
                return memoryview(self.read(position, length))
            self._remap()
        assert self._map is not None
        return memoryview(self._map)[position:end]

    def _remap(self) -> None:
        # Views hold the old map.
        fd = self._open()
        self._map = self._descriptors.with_descriptor(
            self, lambda: mmap.mmap(fd, 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        )

    def begin_warm(self, position: int, length: int) -> Callable[[], None] | None:
        if self._is_cached(position, length):
            return None

        def warm(fd: int) -> None:
            for at in range(position, position + length, _WARM_BYTES):
                os.pread(fd, min(_WARM_BYTES, position + length - at), at)

        return self._off_the_loop(warm)

    def _is_cached(self, position: int, length: int) -> bool:
        fd = self._open()
        last = position + max(length - 1, 0)
        for at in (*range(position, last, _PROBE_BYTES), last):
            try:
                os.preadv(fd, _PROBE, at, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                    return True  # this file system does not support the probe
                raise
        return True

    def begin_sync(self) -> Callable[[], None]:
        def sync(fd: int) -> None:
            os.fdatasync(fd)

        return self._off_the_loop(sync)

    def begin_reserve(self, size: int) -> Callable[[], None]:
        return self._off_the_loop(lambda fd: os.posix_fallocate(fd, 0, size))

    def begin_fill(self, position: int, length: int) -> Callable[[], None]:
        def fill(fd: int) -> None:
            _write_rest(fd, bytes(length), position)
            os.fdatasync(fd)

        return self._off_the_loop(fill)

    def begin_lock(self, length: int) -> Callable[[], Callable[[], None]]:
        return self._off_the_loop(lambda fd: lock_pages(fd, length))

    def _off_the_loop(self, work: Callable[[int], T]) -> Callable[[], T]:
        # Uses a duplicate descriptor: the cache may close the shared one while the work is running.
        own = self._open()
        fd = self._descriptors.with_descriptor(self, lambda: os.dup(own))

        def run() -> T:
            try:
                return work(fd)
            finally:
                os.close(fd)

        return run

    def resize(self, size: int) -> None:
        fd = self._open()
        # ext4 flushes a file on close if it was truncated to zero, even if it was empty before.
        if os.fstat(fd).st_size != size:
            os.ftruncate(fd, size)
        if self._map is not None and len(self._map) > size:
            self._map = None

    def close(self) -> None:
        self._descriptors.closed(self)
        self._map = None
        self.is_used = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# Names of topics are names of folders: other users of the machine must not list them.
FOLDER_MODE = 0o750


def _write_rest(fd: int, rest: bytes, position: int) -> None:
    while rest:
        written = os.pwrite(fd, rest, position)
        position += written
        rest = rest[written:]


class DiskFiles:
    """Files below one folder of the machine. Creates the folder unless it is opened read-only."""

    def __init__(self, root: str, open_files: int = 512, is_read_only: bool = False) -> None:
        self.root = root
        self._descriptors = _DescriptorCache(open_files)
        self._access = os.O_RDONLY if is_read_only else os.O_RDWR
        if not is_read_only:
            os.makedirs(root, FOLDER_MODE, exist_ok=True)
        # Held open, so that `sync_all` needs no new descriptor and gets every write error since the start reported.
        self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def open(self, name: str, create: bool = False) -> DiskFile:
        file = DiskFile(name, self._path(name), self._descriptors, self._access)
        if create:
            file.create()
        return file

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, name: str) -> None:
        os.makedirs(self._path(name), FOLDER_MODE, exist_ok=True)

    def remove(self, name: str) -> None:
        path = self._path(name)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new))

    def restrict(self, name: str) -> None:
        os.chmod(self._path(name), 0o600)

    def sync_folder(self, name: str) -> None:
        try:
            fd = os.open(self._path(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            self.sync_all()
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        syncfs(self._root_fd)

    def space(self) -> Space:
        found = os.statvfs(self.root)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def memory(self) -> Memory:
        return memory_of_process()

    def close(self) -> None:
        self._descriptors.close_all()
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1


def is_folder(path: str) -> bool:
    return os.path.isdir(path)


def split_path(path: str) -> tuple[str, str]:
    """Returns the folder of a path and the name in it."""
    return os.path.split(os.path.abspath(path))
