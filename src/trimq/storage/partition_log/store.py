"""Folders of partition logs: lists them, knows the topic of each, creates and removes them. Knows topics by name and
id, never their records."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from trimq.errors import Damage, Refusal, WriteFailed
from trimq.storage.checkpoints.file_names import OFFSET_INDEX, PARTITION_METADATA, CorruptCompanion
from trimq.storage.checkpoints.leader_epochs import format_partition_metadata, parse_partition_metadata
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.guards.quarantine import quarantine
from trimq.storage.io.files import File, Files
from trimq.storage.partition_log.expected_segments import require_expected
from trimq.storage.partition_log.index_cache import IndexCache
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.recovery import open_log
from trimq.storage.partition_log.settings import LogSettings

log = logging.getLogger(__name__)

ROOT = "partitions"
_REMOVING = ".leaving"

# Number of folders emptied, or written to, in one loop turn, so that other work gets its turn.
_FOLDERS_PER_TURN = 50
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class PartitionStore:
    def __init__(self, files: Files, passes: Passes, checkpoints: Checkpoints, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._passes = passes
        self._checkpoints = checkpoints
        self._now_ms = now_ms
        self._index_cache = IndexCache()
        self._ticket: Ticket | None = None
        self._folders_to_remove: deque[str] = deque()
        self._is_removing = False

    def open(
        self, topic: str, index: int, id: UUID, settings: LogSettings, is_new: bool = False, is_adopted: bool = False
    ) -> PartitionLog:
        """Opens the log of one stream: recovers it if it exists, creates it otherwise."""
        folder = f"{ROOT}/{topic}-{index}"
        opened = PartitionLog(
            self._files, folder, self._passes, settings, self._checkpoints, self._now_ms, self._index_cache
        )
        if is_new:
            self._make(folder, None, opened)
            self._checkpoints.take(folder, id)
            return opened
        self._checkpoints.take(folder, id)
        if names := self._files.names(folder):
            metadata = self._claim(folder, id, is_adopted)
            open_log(self._files, opened, self._checkpoints, is_adopted, names)
            if metadata is not None:
                opened.note_new(metadata)
        else:
            require_expected(opened.folder, {}, self._checkpoints)
            self._make(folder, id, opened)
        return opened

    # -- creation

    def _make(self, folder: str, id: UUID | None, opened: PartitionLog) -> None:
        """`id` None: `write_topic_ids` records the owner later."""
        try:
            self._clear(folder)
            self._files.make_folder(folder)
            opened.begin(None if id is None else self._write_metadata(folder, id))
        except (OSError, WriteFailed) as error:
            opened.abandon()
            with suppress(OSError):
                self._remove_folder(folder)
            raise WriteFailed(str(error)) from error

    def write_topic_ids(self, id: UUID, logs: Iterable[PartitionLog]) -> None:
        """Records the owner in the folders of new logs, once their topic is on disk. A folder without an owner is the
        leftover of an interrupted creation, and never taken for a topic's. Writes some per loop turn; the next start
        writes those that a stop leaves."""
        self._write_some_topic_ids(id, deque(logs))

    def _write_some_topic_ids(self, id: UUID, left: deque[PartitionLog]) -> None:
        for _ in range(min(_FOLDERS_PER_TURN, len(left))):
            made = left.popleft()
            if made.is_removed:
                continue
            try:
                made.note_new(self._write_metadata(made.folder, id))
            except OSError as error:
                log.warning("%s: cannot write %s, the next start retries: %s", made.folder, PARTITION_METADATA, error)
            else:
                made.journal.join_pass()
        if left:
            self._passes.call_soon(partial(self._write_some_topic_ids, id, left))

    def _clear(self, folder: str) -> None:
        """Removes leftovers of an earlier topic of this name, or of its creation."""
        for name in self._files.names(folder):
            self._files.remove(f"{folder}/{name}")
        if self._checkpoints.knows(folder):
            self._checkpoints.forget(folder)

    def _write_metadata(self, folder: str, id: UUID) -> File:
        metadata = self._files.open(f"{folder}/{PARTITION_METADATA}", create=True)
        metadata.resize(0)
        metadata.write(0, [format_partition_metadata(id)])
        return metadata

    def _claim(self, folder: str, id: UUID, is_adopted: bool) -> File | None:
        """Checks that the folder belongs to this topic. Returns its metadata file if that may be in the page cache
        alone."""
        owner = self._owner(folder)
        if owner == id:
            is_durable = self._checkpoints.point(folder) is not None
            return None if is_durable else self._files.open(f"{folder}/{PARTITION_METADATA}")
        if owner is not None and not is_adopted:
            raise Damage(
                f"{folder}/{PARTITION_METADATA} names topic {owner}, but the folder belongs to {id}: move it away, or"
                " remove this file if the records belong to the topic"
            )
        log.warning("%s: recording topic %s as the owner of the folder", folder, id)
        return self._write_metadata(folder, id)

    # -- removal

    def remove(self, id: UUID, logs: Sequence[PartitionLog]) -> Ticket | None:
        """Removes the folders of these logs. Once the ticket is durable they cannot reappear. Returns None if a folder
        could not be removed, which `finish_removals` tries again."""
        for removed in logs:
            removed.abandon()
            if self._checkpoints.knows(removed.folder):
                self._checkpoints.forget(removed.folder)
        return self._move_away([(removed.folder, id) for removed in logs])

    def finish_removals(self, deleted: Collection[UUID]) -> Ticket | None:
        """Removes leftovers of topics deleted before a crash. Returns like `remove`."""
        names = self._files.names(ROOT)
        self._remove_left([f"{ROOT}/{name}" for name in names if name.endswith(_REMOVING)])
        folders = [f"{ROOT}/{name}" for name in names if deleted and not name.endswith(_REMOVING)]
        gone = [(folder, owner) for folder in folders if (owner := self._owner(folder)) in deleted and owner]
        for folder, _ in gone:
            if self._checkpoints.knows(folder):
                self._checkpoints.forget(folder)
        return self._move_away(gone)

    def _move_away(self, folders: Sequence[tuple[str, UUID]]) -> Ticket | None:
        """Renames the folders, and empties them once the rename is on disk: a crash must not leave a half-emptied
        folder under its original name."""
        left = []
        is_whole = True
        for folder, id in folders:
            leaving = f"{ROOT}/{id.hex}-{folder.rpartition('-')[2]}{_REMOVING}"
            self._remove_left([leaving])
            try:
                self._files.rename(folder, leaving)
            except OSError as error:
                log.warning("%s: cannot remove folder, the next start retries: %s", folder, error)
                is_whole = False
            else:
                left.append(leaving)
        ticket = self._ticket = self._ticket or self._passes.join(self)
        self._passes.on_synced(ticket, lambda _: self._remove_soon(left))
        return ticket if is_whole else None

    def _remove_soon(self, folders: Iterable[str]) -> None:
        """Removes some per loop turn. The next start removes those that a stop leaves."""
        self._folders_to_remove.extend(folders)
        if not self._is_removing:
            self._is_removing = True
            self._remove_some()

    def _remove_some(self) -> None:
        self._remove_left(
            [self._folders_to_remove.popleft() for _ in range(min(_FOLDERS_PER_TURN, len(self._folders_to_remove)))]
        )
        self._is_removing = len(self._folders_to_remove) > 0
        if self._is_removing:
            self._passes.call_soon(self._remove_some)

    def _remove_left(self, folders: Iterable[str]) -> None:
        for folder in folders:
            try:
                self._remove_folder(folder)
            except OSError as error:
                log.warning("%s: cannot remove folder, the next start retries: %s", folder, error)

    def _remove_folder(self, folder: str) -> None:
        for name in self._files.names(folder):
            self._files.remove(f"{folder}/{name}")
        with suppress(FileNotFoundError):
            self._files.remove(folder)

    # -- passes: removed names are synced like appended bytes

    def write_pass(self, dirty: Dirty) -> None:
        self._ticket = None
        dirty.folders.add(ROOT)

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        """Does nothing: no bytes were collected."""

    def mark_pass_durable(self, number: int) -> None:
        """Does nothing: callers wait with their tickets."""

    # -- unknown folders

    def unknown_topics(
        self, known: Collection[str], quarantines_unknown: bool = False
    ) -> Iterator[tuple[str, UUID, int]]:
        """Yields topics with folders here but without a definition: name, id, number of partitions. Leftovers of an
        interrupted creation are removed instead, or, if `quarantines_unknown` because definitions were lost,
        renamed."""
        found: dict[str, dict[int, str]] = {}
        for name in self._files.names(ROOT):
            topic, dash, number = name.rpartition("-")
            if dash and _NUMBER.fullmatch(number) and topic not in known:
                found.setdefault(topic, {})[int(number)] = f"{ROOT}/{name}"
        for topic, folders in sorted(found.items()):
            if all(map(self._is_unfinished_creation, folders.values())):
                if quarantines_unknown:
                    self._quarantine(folders.values())
                    continue
                self._move_away([(folder, self._owner(folder) or UUID(int=0)) for folder in folders.values()])
                continue
            owner = next((owner for owner in map(self._owner, folders.values()) if owner is not None), None)
            if owner is None:
                log.warning("%s-*: ignoring these folders (no %s names their topic)", topic, PARTITION_METADATA)
            else:
                yield topic, owner, max(folders) + 1

    def _quarantine(self, folders: Iterable[str]) -> None:
        for folder in folders:
            quarantine(self._files, folder)
        self._ticket = self._ticket or self._passes.join(self)

    def _is_unfinished_creation(self, folder: str) -> bool:
        """Returns whether the folder has no owner, so that nothing in it was acknowledged. A folder with an index,
        which Kafka creates with every log, is excluded: it may be from an old Kafka version without the metadata
        file."""
        names = self._files.names(folder)
        return self._owner(folder) is None and not any(name.endswith(OFFSET_INDEX) for name in names)

    def _owner(self, folder: str) -> UUID | None:
        try:
            file = self._files.open(f"{folder}/{PARTITION_METADATA}")
            return parse_partition_metadata(file.read(0, 4096))
        except (OSError, CorruptCompanion):
            return None
