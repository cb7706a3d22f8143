"""The folders of partition logs: which there are, which topic each belongs to, and how they come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID

from trimq.errors import WriteFailed
from trimq.storage.checkpoints import Checkpoints
from trimq.storage.companions import PARTITION_METADATA, Unusable
from trimq.storage.epoch_checkpoint import format_partition_metadata, parse_partition_metadata
from trimq.storage.files import Files
from trimq.storage.partition_log import LogSettings, PartitionLog
from trimq.storage.partition_recovery import open_log
from trimq.storage.passes import Passes

log = logging.getLogger(__name__)

ROOT = "partitions"
_LEAVING = ".leaving"


class PartitionStore:
    def __init__(self, files: Files, passes: Passes, checkpoints: Checkpoints, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._passes = passes
        self._checkpoints = checkpoints
        self._now_ms = now_ms

    def open(
        self, topic: str, index: int, id: UUID, settings: LogSettings, is_new: bool = False, is_adopted: bool = False
    ) -> PartitionLog:
        """The log of one stream, recovered if it is there, made if it is not."""
        folder = f"{ROOT}/{topic}-{index}"
        opened = PartitionLog(self._files, folder, self._passes, settings, self._checkpoints, self._now_ms)
        if is_new or not self._files.names(folder):
            self._make(folder, id, opened)
        else:
            open_log(self._files, opened, self._checkpoints, is_adopted)
        return opened

    def _make(self, folder: str, id: UUID, opened: PartitionLog) -> None:
        try:
            self._files.make_folder(folder)
            metadata = self._files.open(f"{folder}/{PARTITION_METADATA}", create=True)
            metadata.write(0, [format_partition_metadata(id)])
        except OSError as error:
            raise WriteFailed(str(error)) from error
        opened.begin(metadata)

    def remove(self, topic: str, id: UUID, logs: list[PartitionLog]) -> None:
        """Remove the folders of these logs. What a crash leaves of it is removed at the next start."""
        for index, removed in enumerate(logs):
            removed.journal.close()
            self._checkpoints.forget(removed.folder, [segment.segment.base for segment in removed.segments])
            leaving = f"{ROOT}/{id.hex}-{index}{_LEAVING}"
            try:
                self._files.rename(removed.folder, leaving)
                self._remove_folder(leaving)
            except OSError as error:
                log.warning("the folder %s could not be removed, the next start tries again: %s", removed.folder, error)

    def finish_removals(self, deleted: set[UUID]) -> None:
        """Remove what is left of topics that were deleted before a crash."""
        for name in self._files.names(ROOT):
            if name.endswith(_LEAVING) or self._owner(name) in deleted:
                self._remove_folder(f"{ROOT}/{name}")

    def _remove_folder(self, folder: str) -> None:
        # The metadata goes last: until then the folder is known to belong to a deleted topic.
        names = sorted(self._files.names(folder), key=lambda name: name == PARTITION_METADATA)
        for name in names:
            self._files.remove(f"{folder}/{name}")
        with suppress(FileNotFoundError):
            self._files.remove(folder)

    def strangers(self, known: set[str]) -> Iterator[tuple[str, UUID | None, int]]:
        """Topics whose folders are here although nobody knows them: name, id if they say so, number of partitions."""
        found: dict[str, dict[int, UUID | None]] = {}
        for name in self._files.names(ROOT):
            topic, dash, index = name.rpartition("-")
            if dash and index.isdigit() and topic not in known and not name.endswith(_LEAVING):
                found.setdefault(topic, {})[int(index)] = self._owner(name)
        for topic, partitions in sorted(found.items()):
            yield topic, next((id for id in partitions.values() if id), None), max(partitions) + 1

    def _owner(self, name: str) -> UUID | None:
        try:
            file = self._files.open(f"{ROOT}/{name}/{PARTITION_METADATA}")
            return parse_partition_metadata(file.read(0, 4096))
        except (OSError, Unusable):
            return None
