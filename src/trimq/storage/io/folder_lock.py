"""One broker for each data folder, and no other program in it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from trimq.errors import StartupError


class FolderLock:
    """One broker per data folder. The lock names its owner's pid and falls with the owner, however that ends."""

    NAME = "broker.lock"

    def __init__(self, root: str) -> None:
        os.makedirs(root, exist_ok=True)
        self._fd = os.open(os.path.join(root, self.NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(root, self._fd) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        self._root = root
        self._others: list[int] = []

    def hold(self, name: str) -> None:
        """Hold a file of the folder too, as Java programs do: by its first byte. Nothing is done where it is not there.
        StartupError: another program holds it."""
        try:
            fd = os.open(os.path.join(self._root, name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            raise StartupError(f"{self._root}/{name} is held by another program, a RocketMQ broker") from None
        self._others.append(fd)

    def release(self) -> None:
        for fd in self._others:
            os.close(fd)
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


class ReadOnlyFolderLock:
    """Keeps brokers out of a data folder while others look at it. Writes nothing: a folder that cannot be written, or
    has no lock, is looked at without."""

    def __init__(self, root: str) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(os.path.join(root, FolderLock.NAME), os.O_RDONLY | os.O_CLOEXEC)
        if self._fd < 0:
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(root, self._fd) from None

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _in_use(root: str, fd: int) -> StartupError:
    """Whoever holds the lock says its pid in it, unless it only looks."""
    owner = os.pread(fd, 64, 0).decode("ascii", "replace").strip()
    os.close(fd)
    by = f"the broker with pid {owner}" if owner else "a program that looks through it"
    return StartupError(f"the data folder {root} is in use by {by}")
