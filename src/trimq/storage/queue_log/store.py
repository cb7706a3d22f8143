"""The folders of queue logs: which there are, and how they come and go. A folder is known by its queue's id; whether
there is such a queue is decided above."""

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

# So many folders are removed in one turn of the loop: a client that ends may leave thousands of queues behind, and to
# unlink their files takes the others' time.
_MAX_REMOVALS_PER_TURN = 32


class QueueStore:
    """A log's name is unique for ever: a folder of no known name is what a crash left behind."""

    def __init__(
        self,
        files: Files,
        passes: Passes,
        checkpoints: Checkpoints,
        segment_bytes: int,
        memory_bytes: int,
        damages: DamageReports | None = None,
    ) -> None:
        """`damages`: where readers tell what they find damaged."""
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
        """To be called once, at the start: what is left of logs that are not known goes, and all volatile ones.
        `quarantines_unknown`: nobody is certain what is known, so that it is kept under another name."""
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
        """A new log, durable with the pass that this takes part in."""
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
        """A log that should be there. Damage: it is not what a crash may have left."""
        return self._recover(self._parts, name)

    def _recover(self, parts: QueueLogServices, name: str) -> QueueLog:
        folder = f"{ROOT}/{name}"
        names = self._files.names(folder)
        if not names and self._checkpoints.marked(folder):
            raise Damage(f"{folder} is missing: put it back from a copy")
        if not names:
            return self._make(parts, name, is_volatile=False)
        opened = QueueLog(parts, folder, is_volatile=False)
        open_queue_log(self._files, opened, self._checkpoints, names)
        return opened

    def sweep(self) -> None:
        """To be called once, when every known log was recovered: shared bodies that none of them has go. They all stay
        as long as a log is set aside, which may have them."""
        if not any_quarantined(self._files.names(ROOT)):
            self.blobs.sweep()

    def names(self) -> list[str]:
        return [name for name in self._files.names(ROOT) if name != BLOBS and not is_quarantined(name)]

    def remove(self, logs: Iterable[QueueLog]) -> None:
        """Their folders go. It must be on disk that nobody knows them any more, or a restart misses them."""
        for removed in logs:
            removed.abandon()
            if not removed.is_volatile:
                self._forget(removed.folder)
            self._folders_to_remove.append(removed.folder)
        if not self._is_removing:
            self._is_removing = True
            self._remove_some()

    def _remove_some(self) -> None:
        """What a stop leaves of them goes with the next start."""
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
            log.warning("the folder %s could not be removed, the next start tries again: %s", folder, error)

    # -- passes: names that go are synced like bytes that come

    def _sync_root(self) -> None:
        if self._ticket is None:
            self._ticket = self._passes.join(self)

    def write_pass(self, dirty: Dirty) -> None:
        self._ticket = None
        dirty.folders.add(ROOT)

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        """Nothing was collected that could be refused."""

    def mark_pass_durable(self, number: int) -> None:
        """Nobody waits for it."""
