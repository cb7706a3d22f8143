"""Small durable map: appends changes to a log, and replaces the logs by a snapshot from time to time. Knows keys and
values, never their meaning."""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterator, Sequence, ValuesView
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from trimq.errors import Refusal
from trimq.offload import Offload
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.io.files import File, Files
from trimq.storage.tables.records import DELETE, HEADER, PUT, SYNCED, encode_record, encode_records
from trimq.storage.tables.recovery import LogEnd, RecoveredTable, TableRecovery, folders_of, log_path
from trimq.storage.tables.snapshot import SnapshotWriter

V = TypeVar("V")

SNAPSHOT_ABOVE_BYTES = 64 * 1024


class _TableLog:
    """The log being written. It is created with the first write."""

    def __init__(self, files: Files, folder: str, name: str, end: LogEnd) -> None:
        self._files = files
        self._folder = folder
        self._name = name
        self._file: File | None = None
        self._exists = end.exists
        self._names_changed = False
        self.generation = end.generation
        self.size = end.size
        self._previous_size = end.previous_size
        self._synced_bytes = end.size  # recovery syncs everything it finds
        self._recorded_synced_bytes = 0
        self._follows_synced = end.generation > 0
        self._is_marked = end.is_marked

    def needs_synced_record(self, has_older: bool) -> bool:
        """Returns whether all of this log, or the older logs that it continues, are on disk and its last record does
        not state that yet."""
        if self.size == 0:
            return has_older and self._follows_synced
        return self._synced_bytes == self.size and not self._is_marked

    def append(self, parts: list[bytes], dirty: Dirty) -> int:
        """Writes at once. Without parts, writes only a SYNCED record. After an OSError an unknown portion is written;
        `cut_back` undoes it."""
        file = self._file or self._open()
        is_mark = not parts and self.size > 0
        if self.size == 0:
            synced = [encode_record(SYNCED, 0, None)] if self._follows_synced else []
            parts = [encode_record(HEADER, self.generation, self._previous_size), *parts, *synced]
        elif self._synced_bytes > self._recorded_synced_bytes:
            # With it a restart can distinguish damage from a gap that a power cut left in unsynced bytes.
            parts = [*parts, encode_record(SYNCED, self._synced_bytes, None)]
            self._recorded_synced_bytes = self._synced_bytes
        data = b"".join(parts)
        file.write(self.size, [data])
        self.size += len(data)
        self._is_marked = is_mark
        dirty.files.add(file)
        if self._names_changed:
            dirty.folders.update(folders_of(self._folder))
            self._names_changed = False
        return len(data)

    def _open(self) -> File:
        self._file = self._files.open(log_path(self._folder, self._name, self.generation), create=not self._exists)
        self._names_changed = self._names_changed or not self._exists
        self._exists = True
        return self._file

    def note_synced(self, generation: int, size: int) -> None:
        if generation == self.generation:
            self._synced_bytes = size
        elif generation == self.generation - 1:
            self._follows_synced = True

    def cut_back(self, dirty: Dirty) -> None:
        self._recorded_synced_bytes = 0
        if self._file is not None:
            self._file.resize(self.size)
            dirty.files.add(self._file)

    def begin_next(self) -> None:
        """Starts a new log for the following records; its header holds the size of this one."""
        self.close()
        self.generation += 1
        self._previous_size = self.size
        self._follows_synced = self._synced_bytes > 0
        self.size = self._synced_bytes = self._recorded_synced_bytes = 0
        self._file = None
        self._exists = self._is_marked = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Table(Generic[V]):
    """Map from names to values. A change is visible at once and durable when the pass of its ticket is.

    After a power cut the table holds a prefix of the changes, in their order, and at least the acknowledged ones.
    Values are stored by reference: callers must not modify them afterwards. The order of iteration is not promised.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        name: str,
        passes: Passes,
        offload: Offload,
        found: RecoveredTable[V],
        snapshot_above_bytes: int,
    ) -> None:
        self._files = files
        self._folder = folder
        self._name = name
        self._passes = passes
        self._offload = offload
        self._snapshot_above_bytes = snapshot_above_bytes
        self._values = found.values
        self._records = found.records  # encoded as in the log, so that a snapshot need not encode them again
        self._live_bytes = sum(map(len, found.records.values()))
        self._log = _TableLog(files, folder, name, found.log)
        self._older_logs = found.older_logs
        self._logged_bytes = found.logged_bytes
        self._snapshot: SnapshotWriter | None = None
        self._ticket: Ticket | None = None
        self._parts: list[bytes] = []
        self._before: dict[str, tuple[V, bytes] | None] = {}
        self._is_marking = False
        self.was_truncated = found.cut_bytes > 0
        """True if the last record was incomplete when the table was opened: left by a crash, or damage that looks the
        same."""
        self._undone_listeners: list[Callable[[Collection[str]], None]] = []

    # -- reading

    def get(self, key: str) -> V | None:
        return self._values.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def items(self) -> ItemsView[str, V]:
        return self._values.items()

    def values(self) -> ValuesView[V]:
        return self._values.values()

    @property
    def is_idle(self) -> bool:
        """True if no snapshot is being written. `Passes` knows whether the changes are durable."""
        return self._snapshot is None

    # -- changing

    def put(self, key: str, value: V) -> Ticket:
        """Sets `key`. Raises TypeError, without a change, if the value cannot be encoded."""
        record = encode_record(PUT, key, value)
        ticket = self._ticket or self._join()
        self._set(key, value, record)
        return ticket

    def put_all(self, keys: Sequence[str], value: V) -> Ticket:
        """Like `put`, for several keys with the same value, which is encoded once."""
        records = encode_records(PUT, keys, value)
        ticket = self._ticket or self._join()
        for key, record in zip(keys, records, strict=True):
            self._set(key, value, record)
        return ticket

    def _set(self, key: str, value: V, record: bytes) -> None:
        self._remember(key)
        self._live_bytes += len(record) - len(self._records.get(key, b""))
        self._values[key] = value
        self._records[key] = record
        self._parts.append(record)

    def delete(self, key: str) -> Ticket:
        """Removes `key`, if it exists. The ticket shows when its absence is durable."""
        return self.delete_all((key,))

    def delete_all(self, keys: Sequence[str]) -> Ticket:
        """Like `delete`, for several keys."""
        ticket = self._ticket or self._join()
        for key in keys:
            if key in self._values:
                self._remember(key)
                del self._values[key]
                self._live_bytes -= len(self._records.pop(key))
                self._parts.append(encode_record(DELETE, key, None))
        return ticket

    def on_undone(self, listener: Callable[[Collection[str]], None]) -> None:
        """Calls `listener` with the keys of an undone pass, once `get` returns their previous values again."""
        self._undone_listeners.append(listener)

    def mark_synced(self) -> bool:
        """Appends a SYNCED record if all of the log is on disk and its last record does not state that. Without it a
        restart would take damage at the end for a torn tail. Returns whether a record was needed."""
        if self._ticket is not None or not self._log.needs_synced_record(bool(self._older_logs)):
            return False
        self._join()
        self._is_marking = True
        return True

    def _join(self) -> Ticket:
        self._ticket = self._passes.join(self)
        return self._ticket

    def _remember(self, key: str) -> None:
        if key not in self._before:
            self._before[key] = (self._values[key], self._records[key]) if key in self._values else None

    # -- the pass

    def write_pass(self, dirty: Dirty) -> None:
        if (self._parts or self._is_marking) and self._ticket is not None:
            self._logged_bytes += self._log.append(self._parts, dirty)
            synced = partial(self._log.note_synced, self._log.generation, self._log.size)
            self._passes.on_synced(self._ticket, lambda _: synced())
        self._forget_pass()
        if self._snapshot is None and self._logged_bytes > max(self._snapshot_above_bytes, 2 * self._live_bytes):
            self._prepare_snapshot()

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        if self._ticket is not None:
            self._ticket.refusal = refusal
        before = self._before
        for key, entry in before.items():
            self._restore(key, entry)
        self._forget_pass()
        for listener in self._undone_listeners:
            listener(before.keys())
        self._log.cut_back(dirty)

    def _restore(self, key: str, entry: tuple[V, bytes] | None) -> None:
        self._live_bytes -= len(self._records.pop(key, b""))
        self._values.pop(key, None)
        if entry is not None:
            self._values[key], self._records[key] = entry
            self._live_bytes += len(entry[1])

    def _forget_pass(self) -> None:
        self._ticket = None
        self._is_marking = False
        self._parts = []
        self._before = {}

    def mark_pass_durable(self, number: int) -> None:
        if self._snapshot is not None:
            self._snapshot.start()

    # -- snapshots

    def _prepare_snapshot(self) -> None:
        """Fixes the contents of the snapshot: all records written. Writing starts when this pass is durable, so as not
        to delay its sync."""
        if self._log.size > 0:
            self._older_logs.append(self._log.generation)
            self._log.begin_next()
        self._logged_bytes = 0
        self._snapshot = SnapshotWriter(
            self._files,
            self._offload,
            self._folder,
            self._name,
            self._log.generation,
            self._records.values(),
            self._live_bytes,
            self._finish_snapshot,
            self._passes.stop_acknowledging,
        )

    def _finish_snapshot(self, is_durable: bool) -> None:
        self._snapshot = None
        if not is_durable:
            return
        # No log was begun while the snapshot was written, so it includes every older one.
        for generation in self._older_logs:
            with suppress(OSError):  # the next start removes leftovers
                self._files.remove(log_path(self._folder, self._name, generation))
        self._older_logs = []

    def close(self) -> None:
        """Leaves the passes. Unwritten changes are lost; an unfinished snapshot is abandoned, which loses nothing."""
        if self._snapshot is not None:
            self._snapshot.stop()
        self._log.close()


def open_table(
    files: Files,
    folder: str,
    name: str,
    passes: Passes,
    value_type: type[V],
    offload: Offload,
    snapshot_above_bytes: int = SNAPSHOT_ABOVE_BYTES,
) -> Table[V]:
    """Opens the table with the last acknowledged contents. Raises Damage or StartupError if its files cannot be
    used."""
    files.make_folder(folder)
    found = TableRecovery(files, folder, name, value_type).run()
    return Table(files, folder, name, passes, offload, found, snapshot_above_bytes)
