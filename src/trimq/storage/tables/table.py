"""A small durable map: what changes is appended to a log, and now and then a snapshot takes the place of the logs.
Knows keys and values, never what they are for."""

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
    """The log that is written now. It is created when it is first written to."""

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
        self._synced_bytes = end.size  # a start syncs what it finds
        self._recorded_synced_bytes = 0
        self._follows_synced = end.generation > 0
        self._is_marked = end.is_marked

    def needs_synced_record(self, has_older: bool) -> bool:
        """All of it, or the older logs that it continues, are on disk, and nothing behind its last record says so."""
        if self.size == 0:
            return has_older and self._follows_synced
        return self._synced_bytes == self.size and not self._is_marked

    def append(self, parts: list[bytes], dirty: Dirty) -> int:
        """Write at once. No parts: that all of it is on disk. OSError: an unknown share is written, `cut_back` undoes
        it."""
        file = self._file or self._open()
        is_mark = not parts and self.size > 0
        if self.size == 0:
            told = [encode_record(SYNCED, 0, None)] if self._follows_synced else []
            parts = [encode_record(HEADER, self.generation, self._previous_size), *parts, *told]
        elif self._synced_bytes > self._recorded_synced_bytes:
            # By this a restart knows damage from a hole that a power cut left in what was not synced yet.
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
        """What follows goes to a log of its own, which names the size of this one."""
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
    """A map from names to values. A change is seen at once and durable when the pass of its ticket is.

    After a power cut the changes are there up to one of them, in their order, and never less than was acknowledged.
    Values are kept as they are given and must not be changed afterwards. The order of iteration is not promised.
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
        self._records = found.records  # as they stand in the log, so that a snapshot need not encode them again
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
        """What was written last was not whole when the table was opened: a crash left it so, or damage that cannot be
        told from one."""
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
        """No snapshot is under way. Whether changes are durable is the passes' to say."""
        return self._snapshot is None

    # -- changing

    def put(self, key: str, value: V) -> Ticket:
        """Set `key`. TypeError: the value has no form in the file, and nothing was changed."""
        record = encode_record(PUT, key, value)
        ticket = self._ticket or self._join()
        self._set(key, value, record)
        return ticket

    def put_all(self, keys: Sequence[str], value: V) -> Ticket:
        """As `put`, of several keys that have one value, which is encoded once."""
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
        """Remove `key`. One that is not there is no mistake: the ticket says when its absence is durable."""
        return self.delete_all((key,))

    def delete_all(self, keys: Sequence[str]) -> Ticket:
        """As `delete`, of each."""
        ticket = self._ticket or self._join()
        for key in keys:
            if key in self._values:
                self._remember(key)
                del self._values[key]
                self._live_bytes -= len(self._records.pop(key))
                self._parts.append(encode_record(DELETE, key, None))
        return ticket

    def on_undone(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call `listener` with the keys that went back to what they were, as soon as they have: `get` shows it."""
        self._undone_listeners.append(listener)

    def mark_synced(self) -> bool:
        """Say behind the last record that all is on disk, if it is and nothing says so: without that a restart takes
        damage there for what a crash left. Gives back whether there was anything to say."""
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
        """Fix what is in it: all that is written. It is begun when this pass is settled, whose sync must not wait."""
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
            self._passes.give_up,
        )

    def _finish_snapshot(self, is_durable: bool) -> None:
        self._snapshot = None
        if not is_durable:
            return
        # No log was begun while the snapshot was made, so it has taken in every older one.
        for generation in self._older_logs:
            with suppress(OSError):  # what stays is removed at the next start
                self._files.remove(log_path(self._folder, self._name, generation))
        self._older_logs = []

    def close(self) -> None:
        """Stop taking part. What was not written is lost; a snapshot under way is given up, which loses nothing."""
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
    """The table as it was acknowledged last. Damage or StartupError: its files cannot be taken as they are."""
    files.make_folder(folder)
    found = TableRecovery(files, folder, name, value_type).run()
    return Table(files, folder, name, passes, offload, found, snapshot_above_bytes)
