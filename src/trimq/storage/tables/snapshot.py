"""Writes one snapshot of a table slice by slice, syncs each slice off the event loop, then renames the file into place.
Knows records as bytes; the table knows which logs the snapshot replaces."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from trimq.offload import Offload
from trimq.storage.io.files import File, Files
from trimq.storage.tables.records import END, HEADER, encode_record

log = logging.getLogger(__name__)

# Approximate bytes written at once on the event loop: less than a millisecond.
_SLICE_BYTES = 512 * 1024

Finished = Callable[[bool], None]


def snapshot_path(folder: str, name: str) -> str:
    return f"{folder}/{name}.snapshot"


def unfinished_path(folder: str, name: str) -> str:
    return f"{folder}/{name}.snapshot.tmp"


class SnapshotWriter:
    """Calls `finished(True)` when the snapshot survives a power cut, and `finished(False)` if it may not but the logs
    do. Calls `failed` if unsynced names of the folder are lost, which the broker cannot recover from without a
    restart."""

    def __init__(
        self,
        files: Files,
        offload: Offload,
        folder: str,
        name: str,
        generation: int,
        records: Collection[bytes],
        records_bytes: int,
        finished: Finished,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._files = files
        self._offload = offload
        self._folder = folder
        self._path = snapshot_path(folder, name)
        self._unfinished_path = unfinished_path(folder, name)
        count = len(records)
        self._records = [encode_record(HEADER, generation, count), *records, encode_record(END, generation, count)]
        # By the mean record size: adding up the sizes of a slice takes longer than writing it.
        self._slice_records = max(count * _SLICE_BYTES // max(records_bytes, 1), 1)
        self._finished = finished
        self._failed = failed
        self._next = 0
        self._position = 0
        self._file: File | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Writes the first slice. Does nothing if already started."""
        if self._file is not None:
            return
        try:
            file = self._file = self._files.open(self._unfinished_path, create=True)
            file.resize(0)  # left over from an abandoned snapshot
            self._write_slice(file)
        except OSError as error:
            self._give_up(error)

    def stop(self) -> None:
        """Ignores results of work still running off the loop, because the table is closed."""
        self._is_stopped = True

    def _write_slice(self, file: File) -> None:
        piece = b"".join(self._records[self._next : self._next + self._slice_records])
        self._next += self._slice_records
        file.write(self._position, [piece])
        self._position += len(piece)
        self._offload(file.begin_sync(), self._slice_synced)

    def _slice_synced(self, _: object, error: BaseException | None) -> None:
        if self._is_stopped:
            return
        assert self._file is not None
        try:
            if error is not None:
                raise error
            if self._next < len(self._records):
                self._write_slice(self._file)
            else:
                self._move_into_place(self._file)
        except OSError as caught:
            self._give_up(caught)

    def _move_into_place(self, file: File) -> None:
        file.close()
        self._files.rename(self._unfinished_path, self._path)
        self._offload(lambda: self._files.sync_folder(self._folder), self._moved)

    def _moved(self, _: object, error: BaseException | None) -> None:
        if self._is_stopped:
            return
        # After a power cut either snapshot may be there, so the logs after the older one must stay.
        self._finished(error is None)
        if error is not None:
            # It is also unknown which log names are durable: the next sync of this folder would confirm lost ones.
            self._failed(error)

    def _give_up(self, error: BaseException) -> None:
        log.warning("%s: cannot write snapshot, keeping the logs: %s", self._path, error)
        if self._file is not None:
            self._file.close()
        with suppress(OSError):
            self._files.remove(self._unfinished_path)
        self._finished(False)
