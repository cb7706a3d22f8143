"""One broker for each data folder, and no other program in it."""

from __future__ import annotations

import fcntl
import os

from trimq.errors import StartMistake


class FolderLock:
    """One broker per data folder. The lock names its owner's pid and falls with the owner, however that ends."""

    NAME = "broker.lock"

    def __init__(self, root: str) -> None:
        os.makedirs(root, exist_ok=True)
        self._fd = os.open(os.path.join(root, self.NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise StartMistake(f"the data folder {root} is in use by the broker with pid {owner}") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        self._root = root
        self._others: list[int] = []

    def hold(self, name: str) -> None:
        """Hold a file of the folder too, as Java programs do: by its first byte. Nothing is done where it is not there.
        StartMistake: another program holds it."""
        try:
            fd = os.open(os.path.join(self._root, name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            raise StartMistake(f"{self._root}/{name} is held by another program, a RocketMQ broker") from None
        self._others.append(fd)

    def release(self) -> None:
        for fd in self._others:
            os.close(fd)
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
