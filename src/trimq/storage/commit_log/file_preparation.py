"""Keeps the files of the commit log ready: makes the next one before the present one is full, so that nobody waits when
it is, and holds the present one in memory. All of it off the event loop, a piece at a time; what cannot be done is told
and left out. Knows files and their sizes, never what is in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from trimq.errors import StartupError
from trimq.offload import Offload
from trimq.storage.io.files import File, Files

log = logging.getLogger(__name__)

# Others wait for the same thread.
_PIECE_BYTES = 8 << 20

Release = Callable[[], None]


class PreparedFile:
    """A file that waits under a name of its own, beside the log, until it is needed: work that is under way when the
    present file is full must not reach one that is written to. `warms`: its pages are in memory too."""

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
        """What an earlier run has left goes."""
        with suppress(FileNotFoundError):
            self._files.remove(self._name)

    def prepare(self) -> None:
        """It will be needed. Once it has failed, not again before the next file is begun."""
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
        log.warning("the next file of the commit log is made only when it is needed: %s", error)
        self._has_failed = True
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._is_ready = None, False
        with suppress(OSError):
            self._files.remove(self._name)

    def take(self, name: str) -> File | None:
        """The file, under this name from now on. None: there is none yet."""
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
    """The file that is appended to stays in memory, whole."""

    def __init__(self, file_bytes: int, offload: Offload) -> None:
        self._file_bytes = file_bytes
        self._offload = offload
        self._file: File | None = None
        self._release: Release | None = None
        self._is_under_way = False

    def begin(self, file: File) -> None:
        """At the start. StartupError: the system does not allow it."""
        try:
            self._release = file.begin_lock(self._file_bytes)()
        except OSError as error:
            raise StartupError(
                f"rocketmq.commit_lock_memory: {file.name} cannot be held in memory: {error.strerror}. Raise the limit"
                " (ulimit -l, LimitMEMLOCK), use a smaller rocketmq.commit_file_bytes, or leave it off"
            ) from None
        self._file = file

    def switch_to(self, file: File) -> None:
        """This one is appended to: the one before goes first, for the limit need not have room for two."""
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
            log.warning("a file of the commit log cannot be held in memory: %s", error)
        else:
            self._release = cast("Release", release)

    def close(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None


class FilePreparation:
    """Either may be missing."""

    def __init__(self, file_bytes: int, next_file: PreparedFile | None, locked: MemoryLockedFile | None) -> None:
        self._file_bytes = file_bytes
        self._next = next_file
        self._locked = locked

    def open(self) -> None:
        if self._next is not None:
            self._next.clear()

    def begin(self, file: File) -> None:
        """The log is open, and this file is appended to. StartupError: it cannot be held in memory, and should be."""
        if self._locked is not None:
            self._locked.begin(file)

    def note_size(self, file: File, size: int) -> None:
        """So much is in the file that is appended to. The next is made when this one is half full."""
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
    """None: nothing of it is wanted. A file that is to be warm is made ahead."""
    if not (preallocates or warms or locks):
        return None
    ahead = PreparedFile(files, f"{folder}/next", file_bytes, offload, warms) if preallocates or warms else None
    return FilePreparation(file_bytes, ahead, MemoryLockedFile(file_bytes, offload) if locks else None)
