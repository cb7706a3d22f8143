"""System calls for files that Python's standard library lacks."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple


class Memory(NamedTuple):
    """Memory of this process without the page cache, and the total memory of the machine or container."""

    used_bytes: int
    total_bytes: int


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_of_process() -> Memory:
    """Reports 0 used bytes if the system does not publish the memory use."""
    total_bytes = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        with open("/proc/self/statm", "rb") as statm:
            _, resident, shared, *_ = statm.read().split()
    except OSError:
        return Memory(0, total_bytes)
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", "rb") as limit:
        total_bytes = min(total_bytes, int(limit.read()))  # `max` (no limit) raises ValueError
    return Memory((int(resident) - int(shared)) * _PAGE_BYTES, total_bytes)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
_libc.mlock.argtypes = _libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED = ctypes.c_void_p(-1).value


def syncfs(fd: int) -> None:
    """Returns when everything on the file system of `fd` survives a power cut."""
    if _libc.syncfs(fd) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def lock_pages(fd: int, length: int) -> Callable[[], None]:
    """Locks the first bytes of a file in memory until the returned callable is called. Raises OSError if the system
    does not allow it."""
    address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise _last_error()
    if _libc.mlock(address, length) != 0:
        error = _last_error()
        _libc.munmap(address, length)
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        limit_text = "none" if limit == resource.RLIM_INFINITY else f"{limit} bytes"
        raise OSError(error.errno, f"{error.strerror} (RLIMIT_MEMLOCK is {limit_text}, {length} bytes are needed)")

    def release() -> None:
        _libc.munmap(address, length)

    return release
