"""Recovers a table from its snapshot and logs after any end of the process. Distinguishes a torn tail, which is cut,
from damage, which stops the start. Knows values by their type alone."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from trimq.errors import Damage, StartupError
from trimq.storage.io.files import Files
from trimq.storage.tables.records import (
    DELETE,
    END,
    HEADER,
    PUT,
    SYNCED,
    VERSION,
    RecordFrame,
    frames_after,
    iterate_frames,
)
from trimq.storage.tables.snapshot import snapshot_path, unfinished_path

log = logging.getLogger(__name__)

V = TypeVar("V")


def log_path(folder: str, name: str, generation: int) -> str:
    return f"{folder}/{name}.{generation}.log"


def folders_of(folder: str) -> Iterator[str]:
    """Yields a folder and its parents: the name of a folder is stored in its parent."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


class DamagedTable(Damage):
    def __init__(self, file: str, position: int, problem: str) -> None:
        super().__init__(f"{file} is damaged at byte {position}: {problem}; restore it from a backup")
        self.file = file
        self.position = position
        self.problem = problem


class LogEnd(NamedTuple):
    """End of the whole records of a log, where appending continues. `is_marked`: the last record states that all
    records before it are on disk."""

    generation: int
    size: int
    previous_size: int
    exists: bool
    is_marked: bool = False


@dataclass(slots=True)
class RecoveredTable(Generic[V]):
    """Contents of the files: the entries, the newest log, and older logs that no snapshot includes yet. `cut_bytes`
    counts the bytes cut after the last whole record."""

    values: dict[str, V] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)
    log: LogEnd = field(default_factory=lambda: LogEnd(0, size=0, previous_size=0, exists=False))
    older_logs: list[int] = field(default_factory=list)
    logged_bytes: int = 0
    cut_bytes: int = 0


class TableRecovery(Generic[V]):
    def __init__(self, files: Files, folder: str, name: str, value_type: type[V], is_copy: bool = False) -> None:
        """`is_copy`: works on a copy of the files, so cuts are not logged."""
        self._is_copy = is_copy
        self._files = files
        self._folder = folder
        self._name = name
        self._decode_put = msgspec.msgpack.Decoder(tuple[int, str, value_type]).decode  # type: ignore[valid-type]
        self._decode = msgspec.msgpack.Decoder(tuple[int, Any, Any]).decode
        self._found: RecoveredTable[V] = RecoveredTable()

    def run(self) -> RecoveredTable[V]:
        """Reads everything, then tidies up: changes no file before all relevant data was found valid."""
        names = set(self._files.names(self._folder))
        first = self._read_snapshot() if _last(snapshot_path(self._folder, self._name)) in names else 0
        generations = self._generations(names)
        live = [generation for generation in generations if generation >= first]
        self._found.log = LogEnd(first, size=0, previous_size=0, exists=False)
        joined = self._read_logs(live, first)
        stale = [self._log_path(generation) for generation in generations if generation < first]
        unfinished = unfinished_path(self._folder, self._name)
        if _last(unfinished) in names:
            stale.append(unfinished)
        self._tidy(stale, live[:joined], live[joined:])
        return self._found

    # -- the snapshot

    def _read_snapshot(self) -> int:
        """Returns the generation of the log that follows the snapshot."""
        path = snapshot_path(self._folder, self._name)
        data = self._read(path)
        position, generation, count, is_whole = 0, -1, -1, False
        for frame in self._frames(path, data):
            kind = frame.payload[1]  # msgpack encodes a small integer as its own byte
            if (kind == HEADER) != (frame.position == 0) or kind not in (HEADER, PUT, END) or is_whole:
                raise _damage(path, frame.position, "unexpected kind of record")
            if kind == PUT:
                self._put(path, data, frame)
            elif kind == HEADER:
                _, generation, count = self._fields(path, frame)
            else:
                _, *ending = self._fields(path, frame)
                is_whole = ending == [generation, count] and len(self._found.values) == count
            position = frame.end
        if not is_whole or position != len(data):
            raise _damage(path, position, "the snapshot is incomplete")
        return generation

    # -- the logs

    def _log_path(self, generation: int) -> str:
        return log_path(self._folder, self._name, generation)

    def _generations(self, names: set[str]) -> list[int]:
        prefix, suffix = f"{self._name}.", ".log"
        middles = [
            name[len(prefix) : -len(suffix)] for name in names if name.startswith(prefix) and name.endswith(suffix)
        ]
        return sorted(int(middle) for middle in middles if middle.isascii() and middle.isdigit())

    def _read_logs(self, generations: list[int], first: int) -> int:
        """Replays the logs that continue each other. Returns their number."""
        for place, generation in enumerate(generations):
            if generation != first + place:
                if not any(map(self._follows_synced, generations[place:])):
                    return place  # a power cut kept the name of this log, but not of the log before it
                raise Damage(
                    f"{self._log_path(generation)} continues a missing file, {self._log_path(first + place)} or"
                    f" {snapshot_path(self._folder, self._name)}; restore the missing file from a backup"
                )
            if not self._read_log(generation, is_first=place == 0):
                self._require_unsynced(generations[place:])
                return place
        return len(generations)

    def _read_log(self, generation: int, is_first: bool) -> bool:
        """Returns False if this log was written after a tail that is lost, so that nothing in it was ever
        acknowledged."""
        path = self._log_path(generation)
        data = self._read(path)
        size = previous_size = 0
        is_marked = False
        for frame in self._frames(path, data):
            if size == 0:
                previous_size = self._previous_size(path, frame, generation)
                if not is_first and not self._continues(path, previous_size):
                    return False
            else:
                self._replay(path, data, frame)
            is_marked = self._marked_bytes(path, frame) == frame.position > 0
            size = frame.end
        if size == 0 and not is_first:
            return False
        if size < len(data) and self._synced_bytes(path, data, size) > size:
            raise _damage(path, size, f"whole records follow; cutting the file to {size} bytes would lose them")
        found = self._found
        if not is_first:
            found.older_logs.append(found.log.generation)
        found.log = LogEnd(generation, size, previous_size, exists=True, is_marked=is_marked)
        found.logged_bytes += size
        return True

    def _follows_synced(self, generation: int) -> bool:
        data = self._read(self._log_path(generation))
        return any(frame.payload[1] == SYNCED for frame in itertools.chain(iterate_frames(data), frames_after(data, 0)))

    def _synced_bytes(self, path: str, data: bytes, size: int) -> int:
        """Returns the size of the log that was on disk, according to its SYNCED records. After the first `size` bytes,
        which are whole, a power cut may have kept any unsynced bytes: later records without earlier ones."""
        frames = itertools.chain(iterate_frames(data), frames_after(data, size))
        return max((self._marked_bytes(path, frame) for frame in frames), default=0)

    def _marked_bytes(self, path: str, frame: RecordFrame) -> int:
        """Returns the size of the log that was on disk according to this record; 0 if it is not a SYNCED record."""
        return int(self._fields(path, frame)[1]) if frame.payload[1] == SYNCED else 0

    def _require_unsynced(self, generations: list[int]) -> None:
        """Raises Damage if one of these logs has a SYNCED record: they continue missing bytes that were therefore on
        disk."""
        before = self._found.log
        for path in map(self._log_path, generations):
            if self._synced_bytes(path, self._read(path), 0):
                raise _damage(
                    self._log_path(before.generation), before.size, f"the records before those of {path} are missing"
                )

    def _previous_size(self, path: str, frame: RecordFrame, generation: int) -> int:
        kind, own, previous_size = self._fields(path, frame)
        if kind != HEADER or own != generation:
            raise _damage(path, 0, "header and file name do not match")
        return int(previous_size)

    def _continues(self, path: str, previous_size: int) -> bool:
        if previous_size < self._found.log.size:
            raise _damage(path, 0, "the previous log has records appended after this one was begun")
        return previous_size == self._found.log.size

    def _replay(self, path: str, data: bytes, frame: RecordFrame) -> None:
        kind = frame.payload[1]
        if kind == PUT:
            self._put(path, data, frame)
        elif kind == DELETE:
            _, key, _ = self._fields(path, frame)
            self._found.values.pop(key, None)
            self._found.records.pop(key, None)
        elif kind != SYNCED:
            raise _damage(path, frame.position, "unexpected kind of record")

    def _put(self, path: str, data: bytes, frame: RecordFrame) -> None:
        try:
            _, key, value = self._decode_put(frame.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _damage(path, frame.position, f"a value is not of the expected type ({error})") from error
        self._found.values[key] = value
        self._found.records[key] = data[frame.position : frame.end]

    # -- tidying

    def _tidy(self, stale: list[str], kept: list[int], lost: list[int]) -> None:
        """Removes and cuts files in an order in which a power cut between two steps leaves files that read the same."""
        if stale or kept or lost:
            # Data just read may be in the page cache alone: it must be durable before the files it replaces are
            # removed.
            for folder in folders_of(self._folder):
                self._files.sync_folder(folder)
        for path in stale:
            self._files.remove(path)
        for generation in reversed(lost):
            path = self._log_path(generation)
            self._note_cut(path, 0, self._files.open(path).size())
            self._files.remove(path)
        if lost:
            # Appends now continue the log before them: a power cut must not bring them back after it.
            self._files.sync_folder(self._folder)
        for generation in kept:
            file = self._files.open(self._log_path(generation))
            if generation == kept[-1] and file.size() > self._found.log.size:
                self._note_cut(file.name, self._found.log.size, file.size())
                file.resize(self._found.log.size)
            file.begin_sync()()
            file.close()

    def _note_cut(self, path: str, position: int, size: int) -> None:
        cut_bytes = size - position
        self._found.cut_bytes += cut_bytes
        if cut_bytes and not self._is_copy:
            log.warning(
                "%s: cutting %d bytes from byte %d on (incomplete record, left by a crash)",
                path,
                cut_bytes,
                position,
            )

    # -- reading

    def _read(self, path: str) -> bytes:
        file = self._files.open(path)
        data = file.read(0, file.size())
        file.close()
        return data

    def _frames(self, path: str, data: bytes) -> Iterator[RecordFrame]:
        for frame in iterate_frames(data):
            if frame.version > VERSION:
                raise StartupError(
                    f"{path} was written by a newer version (format {frame.version}, this one reads up to {VERSION}):"
                    " start that version, or restore an older backup"
                )
            yield frame

    def _fields(self, path: str, frame: RecordFrame) -> tuple[int, Any, Any]:
        try:
            return self._decode(frame.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _damage(path, frame.position, f"a record cannot be read ({error})") from error


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _damage(path: str, position: int, reason: str) -> DamagedTable:
    return DamagedTable(path, position, reason)
