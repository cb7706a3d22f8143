"""Prepares files of the commit log: creates the next file before the current one is full, so that no append waits for
it, and locks the current file in memory. Works off the event loop in pieces; failures are logged and otherwise ignored.
Knows files and their sizes, never their contents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from trimq.errors import StartupError
from trimq.offload import Offload
from trimq.storage.io.files import File, Files

log = logging.getLogger(__name__)

# Other work waits for the same thread.
_PIECE_BYTES = 8 << 20

Release = Callable[[], None]


class PreparedFile:
    """A file under a temporary name beside the log until it is needed: preparation still running when the current file
    is full must not touch a file being written. `warms`: its pages are loaded into memory too."""

    def __init__(self, files: Files, name: str, file_bytes: int, offload: Offload, warms: bool) -> None:
        self._files = files
        self._name = name
        self._file_bytes = file_bytes
        self._offload = offload
        self._warms = warms
        self._file: File | None = None
        self._is_ready = False
        self._has_failed = False
        self._is_closed = False

    def clear(self) -> None:
        """Removes a leftover of an earlier process."""
        with suppress(FileNotFoundError):
            self._files.remove(self._name)

    def prepare(self) -> None:
        """Starts to prepare the file. After a failure it does nothing until the next file is begun."""
        if self._file is not None or self._has_failed or self._is_closed:
            return
        try:
            self._file = self._files.open(self._name, create=True)
            self._offload(self._file.begin_reserve(self._file_bytes), self._reserved)
        except OSError as error:
            self._failed(error)

    def _reserved(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
        elif self._warms:
            self._fill(0)
        else:
            self._is_ready = True

    def _fill(self, position: int) -> None:
        if position >= self._file_bytes or self._file is None:
            self._is_ready = self._file is not None
            return
        if self._is_closed:
            return
        length = min(_PIECE_BYTES, self._file_bytes - position)

        def filled(_: object, error: BaseException | None) -> None:
            if error is None:
                self._fill(position + length)
            else:
                self._failed(error)

        try:
            self._offload(self._file.begin_fill(position, length), filled)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        log.warning("commit log: cannot prepare the next file in advance, creating it when needed: %s", error)
        self._has_failed = True
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._is_ready = None, False
        with suppress(OSError):
            self._files.remove(self._name)

    def take(self, name: str) -> File | None:
        """Renames the prepared file to `name` and returns it, or None if there is none yet."""
        self._has_failed = False
        if not self._is_ready or self._file is None:
            return None
        self._file.close()
        self._file, self._is_ready = None, False
        self._files.rename(self._name, name)
        return self._files.open(name)

    def close(self) -> None:
        self._is_closed = True
        if self._is_ready:
            self._drop()


class MemoryLockedFile:
    """Keeps the whole file being appended to in memory."""

    def __init__(self, file_bytes: int, offload: Offload) -> None:
        self._file_bytes = file_bytes
        self._offload = offload
        self._file: File | None = None
        self._release: Release | None = None
        self._is_under_way = False

    def begin(self, file: File) -> None:
        """Locks the first file. Raises StartupError if the system does not allow it."""
        try:
            self._release = file.begin_lock(self._file_bytes)()
        except OSError as error:
            raise StartupError(
                f"rocketmq.commit_lock_memory: cannot lock {file.name} in memory: {error.strerror}. Raise the limit"
                " (ulimit -l, LimitMEMLOCK), use a smaller rocketmq.commit_file_bytes, or switch the setting off"
            ) from None
        self._file = file

    def switch_to(self, file: File) -> None:
        """Locks the file being appended to. Unlocks the previous file first, since the limit may not allow two."""
        if file is self._file or self._is_under_way:
            return
        self._file, release, self._release = file, self._release, None
        try:
            lock = file.begin_lock(self._file_bytes)
        except OSError as error:
            self._locked(None, error)
            return
        self._is_under_way = True

        def change() -> Release:
            if release is not None:
                release()
            return lock()

        self._offload(change, self._locked)

    def _locked(self, release: object, error: BaseException | None) -> None:
        self._is_under_way = False
        if error is not None:
            log.warning("commit log: cannot lock the current file in memory: %s", error)
        else:
            self._release = cast("Release", release)

    def close(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None


class FilePreparation:
    """Combines both parts; either may be missing."""

    def __init__(self, file_bytes: int, next_file: PreparedFile | None, locked: MemoryLockedFile | None) -> None:
        self._file_bytes = file_bytes
        self._next = next_file
        self._locked = locked

    def open(self) -> None:
        if self._next is not None:
            self._next.clear()

    def begin(self, file: File) -> None:
        """Called when the log is open and appends to `file`. Raises StartupError if the file must be locked in memory
        and cannot be."""
        if self._locked is not None:
            self._locked.begin(file)

    def note_size(self, file: File, size: int) -> None:
        """Called with the size of the data in the file being appended to. Prepares the next file when this one is half
        full."""
        if self._next is not None and 2 * size >= self._file_bytes:
            self._next.prepare()
        if self._locked is not None:
            self._locked.switch_to(file)

    def take(self, name: str) -> File | None:
        return None if self._next is None else self._next.take(name)

    def close(self) -> None:
        for each in (self._next, self._locked):
            if each is not None:
                each.close()


def prepare_files(
    files: Files, folder: str, file_bytes: int, offload: Offload, *, preallocates: bool, warms: bool, locks: bool
) -> FilePreparation | None:
    """Returns None if no preparation is wanted. `warms` implies that the next file is created in advance."""
    if not (preallocates or warms or locks):
        return None
    ahead = PreparedFile(files, f"{folder}/next", file_bytes, offload, warms) if preallocates or warms else None
    return FilePreparation(file_bytes, ahead, MemoryLockedFile(file_bytes, offload) if locks else None)
