"""Locks a data folder, so that one broker and no other program uses it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from trimq.errors import StartupError
from trimq.storage.io.files import FOLDER_MODE


class FolderLock:
    """Exclusive lock of a data folder. The lock file holds the owner's pid; the system releases the lock when the owner
    ends, crash included."""

    NAME = "broker.lock"

    def __init__(self, root: str) -> None:
        os.makedirs(root, FOLDER_MODE, exist_ok=True)
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
        """Also locks a file of the folder by its first byte, as Java programs do. Does nothing if the file does not
        exist. Raises StartupError if another program holds the lock."""
        try:
            fd = os.open(os.path.join(self._root, name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            raise StartupError(
                f"{self._root}/{name} is locked by another program (an Apache RocketMQ broker): stop that program first"
            ) from None
        self._others.append(fd)

    def release(self) -> None:
        for fd in self._others:
            os.close(fd)
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


class ReadOnlyFolderLock:
    """Keeps brokers out of a data folder while a tool reads it. Writes nothing; takes no lock if the folder has no lock
    file or the file cannot be opened."""

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
    """Builds the error. The lock file holds the owner's pid, unless the owner is a read-only tool."""
    owner = os.pread(fd, 64, 0).decode("ascii", "replace").strip()
    os.close(fd)
    by = f"the broker with pid {owner}" if owner else "a tool that is reading it"
    return StartupError(f"the data folder {root} is in use by {by}")
