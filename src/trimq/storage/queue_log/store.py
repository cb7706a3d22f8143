"""Folders of queue logs: creates, recovers and removes them. Knows a folder by its name; the queue registry decides
which folders belong to a queue."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress

from trimq.errors import Damage, Refusal, WriteFailed
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.guards.damages import DamageReports
from trimq.storage.guards.quarantine import any_quarantined, is_quarantined, quarantine
from trimq.storage.io.files import Files
from trimq.storage.queue_log.ack_writer import AckWriter
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.reader import MemoryBudget
from trimq.storage.queue_log.recovery import open_queue_log
from trimq.storage.queue_log.services import QueueLogServices
from trimq.storage.queue_log.shared_bodies import SharedBodyStore

log = logging.getLogger(__name__)

ROOT = "queues"
VOLATILE_ROOT = "volatile"
BLOBS = "shared"

# Folders removed in one turn of the loop: a client that disconnects may leave thousands of queues, and removing all
# their files at once would block the event loop.
_MAX_REMOVALS_PER_TURN = 32


class QueueStore:
    """Names of logs are never reused: a folder with an unknown name was left by a crash."""

    def __init__(
        self,
        files: Files,
        passes: Passes,
        checkpoints: Checkpoints,
        segment_bytes: int,
        memory_bytes: int,
        damages: DamageReports | None = None,
    ) -> None:
        """`damages` collects reports of damaged data that a read finds."""
        self._files = files
        self._passes = passes
        self._checkpoints = checkpoints
        acks = AckWriter(files, passes)
        self._blob_parts = QueueLogServices(
            files, passes, checkpoints, acks, MemoryBudget(0), segment_bytes, None, damages or DamageReports()
        )
        self.blobs = SharedBodyStore(passes, lambda is_volatile: self._make(self._blob_parts, BLOBS, is_volatile))
        self._parts = self._blob_parts._replace(budget=MemoryBudget(memory_bytes), bodies=self.blobs)
        self._ticket: Ticket | None = None
        self._folders_to_remove: deque[str] = deque()
        self._is_removing = False

    def open(self, known: Collection[str], quarantines_unknown: bool = False) -> None:
        """Removes all volatile logs, and logs whose names are not in `known`. Called once, at start.
        `quarantines_unknown`: renames unknown logs instead, because definitions may have been lost."""
        for name in self._files.names(VOLATILE_ROOT):
            self._remove_folder(f"{VOLATILE_ROOT}/{name}")
        for name in self.names():
            if name in known:
                continue
            if quarantines_unknown:
                quarantine(self._files, f"{ROOT}/{name}")
            else:
                self._forget(f"{ROOT}/{name}")
                self._remove_folder(f"{ROOT}/{name}")
        for root in (ROOT, VOLATILE_ROOT):
            self._files.make_folder(root)
        self._sync_root()
        if BLOBS in self._files.names(ROOT):
            self.blobs.open(self._recover(self._blob_parts, BLOBS))

    def make(self, name: str, is_volatile: bool) -> QueueLog:
        """Creates a log, durable with the pass that this call joins."""
        return self._make(self._parts, name, is_volatile)

    def _make(self, parts: QueueLogServices, name: str, is_volatile: bool) -> QueueLog:
        folder = f"{VOLATILE_ROOT if is_volatile else ROOT}/{name}"
        made = QueueLog(parts, folder, is_volatile)
        try:
            self._files.make_folder(folder)
            made.begin()
        except (OSError, WriteFailed) as error:
            made.abandon()
            with suppress(OSError):
                self._remove_folder(folder)
            raise WriteFailed(str(error)) from error
        return made

    def recover(self, name: str) -> QueueLog:
        """Opens a log at start. Damage: its files are in a state that a crash cannot cause."""
        return self._recover(self._parts, name)

    def _recover(self, parts: QueueLogServices, name: str) -> QueueLog:
        folder = f"{ROOT}/{name}"
        names = self._files.names(folder)
        if not names and self._checkpoints.marked(folder):
            raise Damage(f"{folder} is missing: restore it from a copy")
        if not names:
            return self._make(parts, name, is_volatile=False)
        opened = QueueLog(parts, folder, is_volatile=False)
        open_queue_log(self._files, opened, self._checkpoints, names)
        return opened

    def sweep(self) -> None:
        """Removes shared bodies that no log refers to. Called once, after every known log was recovered. Keeps all of
        them while a log is in quarantine: it may refer to them."""
        if any_quarantined(self._files.names(ROOT)):
            self.blobs.keep_all()
        else:
            self.blobs.sweep()

    def names(self) -> list[str]:
        return [name for name in self._files.names(ROOT) if name != BLOBS and not is_quarantined(name)]

    def remove(self, logs: Iterable[QueueLog], refusal: Refusal | None = None) -> None:
        """Removes the folders of logs. The deletion of their queues must be on disk already, or a restart would report
        the folders as missing. `refusal` is set on the tickets of messages that are not written yet."""
        for removed in logs:
            removed.abandon(refusal)
            if not removed.is_volatile:
                self._forget(removed.folder)
            self._folders_to_remove.append(removed.folder)
        if not self._is_removing:
            self._is_removing = True
            self._remove_some()

    def _remove_some(self) -> None:
        """Removes a bounded number of folders. The next start removes those that a stop leaves."""
        for _ in range(min(_MAX_REMOVALS_PER_TURN, len(self._folders_to_remove))):
            self._remove_folder(self._folders_to_remove.popleft())
        self._sync_root()
        self._passes.call_soon(self._remove_more)

    def _remove_more(self) -> None:
        if self._folders_to_remove:
            self._remove_some()
        else:
            self._is_removing = False

    def _forget(self, folder: str) -> None:
        if self._checkpoints.knows(folder):
            self._checkpoints.forget(folder)

    def _remove_folder(self, folder: str) -> None:
        try:
            for name in self._files.names(folder):
                self._files.remove(f"{folder}/{name}")
            with suppress(FileNotFoundError):
                self._files.remove(folder)
        except OSError as error:
            log.warning("%s: folder could not be removed, the next start will retry: %s", folder, error)

    # -- passes: removals are synced as appends are

    def _sync_root(self) -> None:
        if self._ticket is None:
            self._ticket = self._passes.join(self)

    def write_pass(self, dirty: Dirty) -> None:
        self._ticket = None
        dirty.folders.add(ROOT)

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        """Does nothing: a removal is not undone."""

    def mark_pass_durable(self, number: int) -> None:
        """Does nothing: nothing waits for this pass."""
