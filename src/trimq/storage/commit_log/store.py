"""Store folder of RocketMQ: keeps commit log, consume queues and key index consistent. Knows the queue of a unit, never
its meaning."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, QueueTarget
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft, is_queued, topic_field
from trimq.storage.commit_log.adoption import remove_derived_files
from trimq.storage.commit_log.checkpoint import CommitCheckpoints, CommitPoint, PendingCheckpoint, format_times
from trimq.storage.commit_log.commit_pool import CommitPool
from trimq.storage.commit_log.consume_queue import ConsumeQueue, ConsumeQueueState
from trimq.storage.commit_log.key_index import MAX_KEYS_PER_WRITE, KeyIndex
from trimq.storage.commit_log.key_writer import KeyWriter
from trimq.storage.commit_log.log import AppendedUnit, AppendedUnits, CommitLog
from trimq.storage.commit_log.recovery import open_commit_log
from trimq.storage.commit_log.retention import start_after_freeing, start_after_retention
from trimq.storage.commit_log.settings import CommitSettings
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.io.files import Files

log = logging.getLogger(__name__)

ROOT = "store"
LOCK = f"{ROOT}/lock"
_ABORT = f"{ROOT}/abort"
_TIMES = f"{ROOT}/checkpoint"
_QUEUES = f"{ROOT}/consumequeue"

# Keys written to the index together between checkpoints: enough to be cheap, few enough not to delay a pass.
_KEYS_AT_ONCE = 1024

CodeOf = Callable[[Unit], int]
"""Computes the tags code, which readers of a queue compare before they read a unit."""


class CommitStore:
    def __init__(
        self,
        files: Files,
        passes: Passes,
        checkpoints: CommitCheckpoints,
        settings: CommitSettings,
        now_ms: Callable[[], int],
        code_of: CodeOf,
        pool: CommitPool | None = None,
    ) -> None:
        self._files = files
        self._passes = passes
        self._checkpoints = checkpoints
        self.settings = settings
        self._code_of = code_of
        self.log = CommitLog(files, f"{ROOT}/commitlog", passes, settings.file_bytes, now_ms, self, pool)
        self.keys = KeyIndex(files, f"{ROOT}/index", settings.index_slots, settings.index_entries, now_ms)
        self._key_writer = KeyWriter(self.keys)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._touched: dict[ConsumeQueue, int] = {}
        self._recovered: dict[ConsumeQueue, None] = {}
        self._keys_mark = 0
        self._not_yet_durable: deque[list[tuple[ConsumeQueue, int]]] = deque()
        self._unstored: dict[ConsumeQueue, None] = {}
        self._point = CommitPoint()
        self._is_due = self._under_way = False
        self._slots_due: PendingCheckpoint | None = None
        self._has_unwritten_slots = False
        self._has_unsynced_keys = False
        """Key entries were written without waiting for the disk: no slot may point to them yet."""
        self._is_closing = False
        self._is_foreign_store = False

    # -- opening

    def open(self) -> None:
        """Recovers an existing store or begins a new one. It may be used when the current pass is durable."""
        for folder in (ROOT, self.log.folder, _QUEUES, f"{ROOT}/index"):
            self._files.make_folder(folder)
        self._mark_running()
        self._is_foreign_store = self._checkpoints.is_empty()
        if self._is_foreign_store:
            remove_derived_files(self._files, ROOT)
        self._point = point = self._checkpoints.point()
        has_keys = self.keys.load(self._checkpoints.indexes())
        has_queues = self._load_queues()
        if not has_keys or not has_queues:
            log.warning("%s: rebuilding queues and key index from the commit log", ROOT)
            self._is_due = True
        scan_from = point.position if has_keys and has_queues else point.start
        keyed_to = point.position if has_keys else point.start
        dropped = self._checkpoints.dropped()
        open_commit_log(
            self.log, point.start, point.position, scan_from, lambda unit: self._dispatch(unit, keyed_to, dropped)
        )
        self.log.last_store_ms = max(self.log.last_store_ms, point.store_ms)
        self.log.journal.join_pass()

    def _mark_running(self) -> None:
        self._files.open(_ABORT, create=True)
        if "lock" not in self._files.names(ROOT):
            # Only if missing: closing the file would release a lock that this process holds on it.
            lock = self._files.open(LOCK, create=True)
            lock.write(0, [b"lock"])
            lock.close()
        # The log folder too: the names of files that a killed process created may be in the page cache alone.
        for folder in ("", ROOT, self.log.folder):
            self._files.sync_folder(folder)

    def _load_queues(self) -> bool:
        """Returns whether the files of all queues exist; a queue with missing files begins empty."""
        is_whole = True
        for topic, number in self._checkpoints.queues():
            if not self.queue(topic, number).is_stored():
                is_whole = False
                self._queues[topic, number] = self._new_queue(topic, number, ConsumeQueueState(0, 0))
        return is_whole

    def _dispatch(self, unit: Unit, keyed_to: int, dropped: dict[str, int]) -> None:
        """Adds a recovered unit to its queue and the key index, as its append did."""
        topic = unit.topic.decode("utf-8", "replace")
        if unit.position < dropped.get(topic, 0):
            return
        queue = self.queue(topic, unit.queue_id)
        if is_queued(unit.sys_flag):
            if self._is_foreign_store and unit.queue_offset < queue.end:
                # Another broker deleted the topic and created it again; this offset is the only trace of that.
                self._recovered.pop(queue, None)
                queue = self._queues[topic, unit.queue_id] = self._new_queue(
                    topic, unit.queue_id, ConsumeQueueState(0, 0)
                )
            if queue.end == queue.start == 0:
                queue.begin_at(unit.queue_offset)
            if unit.queue_offset == queue.end:
                self._recovered[queue] = None
                queue.add(unit.position, unit.size, self._code_of(unit))
            elif unit.queue_offset > queue.end:
                log.warning("%s: the commit log has no message with offset %d", queue.folder, queue.end)
        if unit.position >= keyed_to:
            self._key_writer.add(topic, unit.sys_flag, unit.properties, unit.position, unit.store_ms)

    # -- queues

    def queue(self, topic: str, number: int) -> ConsumeQueue:
        found = self._queues.get((topic, number))
        if found is None:
            state = self._checkpoints.queue(topic, number) or ConsumeQueueState(0, 0)
            found = self._queues[topic, number] = self._new_queue(topic, number, state)
        return found

    def _new_queue(self, topic: str, number: int, state: ConsumeQueueState) -> ConsumeQueue:
        return ConsumeQueue(self._files, _QUEUES, topic, number, self.settings.queue_file_entries, state)

    def queues(self) -> set[tuple[str, int]]:
        """Returns topic and number of each queue that was ever used."""
        return {*self._queues, *self._checkpoints.queues()}

    # -- appending

    def append(self, queue: ConsumeQueue, draft: UnitDraft, tags_code: int, store_host: bytes) -> AppendedUnit:
        """Assigns the message a place in the log and in its queue. Pending until its pass is durable."""
        has_place = is_queued(draft.sys_flag)
        placed = self.log.append(draft, queue.end if has_place else 0, store_host)
        self._touch((queue,))
        if has_place:
            queue.add(placed.position, placed.size, tags_code)
        self._key_writer.add(queue.topic, draft.sys_flag, draft.properties, placed.position, placed.store_ms)
        return placed

    def lane(self, queue: ConsumeQueue) -> QueueTarget:
        """Returns the values that all messages of this queue share, for `append_batch`."""
        topic_hash = self._key_writer.topic_hash(queue.topic)
        return QueueTarget(queue.add, queue.number, *topic_field(queue.topic.encode()), topic_hash)

    def append_batch(
        self,
        queues: Iterable[ConsumeQueue],
        run: Sequence[BatchMessage],
        keys: Sequence[str],
        more_keys: Mapping[int, str],
        store_host: bytes,
    ) -> AppendedUnits:
        """Like `append`, for several messages to these queues that are not part of a transaction. `keys` are their
        unique keys; `more_keys` holds further keys by message number."""
        self._touch(queues)
        placed = self.log.append_batch(run, store_host)
        self._key_writer.add_batch(run, placed.places, placed.store_ms, keys, more_keys)
        return placed

    def _touch(self, queues: Iterable[ConsumeQueue]) -> None:
        """Remembers the ends of queues that are about to grow, to undo the pass if needed."""
        if not self._touched:
            self._keys_mark = len(self.keys)
        for queue in queues:
            if queue not in self._touched:
                self._touched[queue] = queue.end

    # -- passes

    def pass_written(self, number: int, dirty: Dirty) -> None:
        touched, self._touched = {**self._recovered, **self._touched}, {}
        self._recovered = {}
        self._not_yet_durable.append([(queue, queue.end) for queue in touched])
        self._unstored.update(dict.fromkeys(touched))
        behind, due_bytes = self.log.end - self._point.position, self.settings.checkpoint_bytes
        if self._slots_due is not None:
            self._write_slots(number, self._slots_due, dirty)
        elif self._under_way:
            return
        elif len(self.keys) >= MAX_KEYS_PER_WRITE and not self._is_due and behind < 2 * due_bytes:
            # Spreads the keys over the next passes: a checkpoint would write all of them now. It is not postponed for
            # ever.
            self._write_keys(number, dirty)
        elif self._is_due or behind >= due_bytes:
            self._begin_checkpoint(number, dirty)
        elif len(self.keys) >= _KEYS_AT_ONCE:
            self._write_keys(number, dirty)

    def pass_undone(self) -> None:
        for queue, end in self._touched.items():
            queue.roll_back_to(end)
        if self._touched:
            self.keys.roll_back_to(self._keys_mark)
        self._touched = {}

    def pass_durable(self, number: int) -> None:
        for queue, end in self._not_yet_durable.popleft():
            queue.durable_end = end
            if queue.on_durable_end is not None:
                queue.on_durable_end()

    # -- checkpoints: first the entries, then the slots that point to them, then the record that both are on disk

    def _write_keys(self, number: int, dirty: Dirty) -> None:
        try:
            self.keys.write_some(dirty, are_on_disk=not self._has_unsynced_keys)
        except OSError as error:
            log.warning("commit log: cannot write the key index, will retry: %s", error)
            self._has_unsynced_keys = True  # some entries may have been written
            return
        self._has_unsynced_keys = len(self.keys) >= _KEYS_AT_ONCE
        if self._has_unsynced_keys:
            # Forces another pass even without appends, which writes more keys; they are then synced together.
            self._passes.call_soon(self._touch_log)
            return
        self._under_way = True
        self._passes.on_synced(Ticket(number), lambda _: self._entries_on_disk(None))

    def _begin_checkpoint(self, number: int, dirty: Dirty) -> None:
        queues = list(self._unstored)
        try:
            for queue in queues:
                if not queue.is_removed:
                    queue.write_out(dirty)
            self.keys.write_entries(dirty)
        except OSError as error:
            # Nothing is lost, but a restart reads more. The next pass tries again.
            log.warning("commit log: cannot write a checkpoint, the next pass retries: %s", error)
            self._is_due = True
            return
        self._is_due = self._has_unsynced_keys = False
        self._under_way = True
        self._unstored = {}
        point = CommitPoint(self.log.end, self.log.start, self.log.last_store_ms)
        saved = PendingCheckpoint(point, self.keys.states(), [queue for queue in queues if not queue.is_removed])
        self._passes.on_synced(Ticket(number), lambda _: self._entries_on_disk(saved))

    def _entries_on_disk(self, saved: PendingCheckpoint | None) -> None:
        self._has_unwritten_slots = True
        if saved is None:
            self._under_way = False
            if self._is_closing:
                self._finish_close()
        else:
            self._slots_due = saved
            self.log.journal.join_pass()

    def _write_slots(self, number: int, saved: PendingCheckpoint, dirty: Dirty) -> None:
        try:
            self.keys.write_slots(dirty)
            times = self._files.open(_TIMES, create=True)
            times.write(0, [format_times(saved.point.store_ms, saved.point.position)])
            dirty.files.add(times)
            dirty.folders.add(ROOT)
        except OSError as error:
            log.warning("commit log: cannot write a checkpoint, the next pass retries: %s", error)
            return
        self._has_unwritten_slots = False
        self._slots_due = None
        self._passes.on_synced(Ticket(number), lambda _: self._save(saved))

    def _save(self, saved: PendingCheckpoint) -> None:
        point = saved.point._replace(start=self.log.start)
        ticket = self._checkpoints.save(point, saved.indexes, saved.states)
        self._passes.on_synced(ticket, lambda done: self._saved(done, point, saved.queues))

    def _saved(self, ticket: Ticket, point: CommitPoint, queues: list[ConsumeQueue]) -> None:
        self._under_way = False
        if ticket.refusal is not None:
            # The next checkpoint must include these queues, even if they do not grow.
            self._unstored.update(dict.fromkeys(queue for queue in queues if not queue.is_removed))
            return
        self._point = point
        if self._is_closing:
            self._finish_close()

    def _touch_log(self) -> None:
        self.log.journal.join_pass()

    def checkpoint(self) -> None:
        """Makes a checkpoint with the current pass."""
        self._is_due = True
        self.log.journal.join_pass()

    def close(self) -> None:
        """Starts a final checkpoint. The store is closed when nothing is unwritten or unsynced."""
        self._is_closing = True
        if self._slots_due is not None:
            self.log.journal.join_pass()  # the slots could not be written before
        elif not self._under_way:  # otherwise it is checked again when that checkpoint is done
            self._finish_close()

    def _finish_close(self) -> None:
        if self._point.position < self.log.end or self._unstored or len(self.keys) or self._has_unwritten_slots:
            self.checkpoint()
            return
        try:
            with suppress(FileNotFoundError):
                self._files.remove(_ABORT)
            self._files.sync_folder(ROOT)
        except OSError as error:
            self._passes.stop_acknowledging(error)

    # -- removal

    def expire(self, now_ms: int, kept_from: int | None = None) -> Ticket | None:
        """Removes files that were full longer ago than the retention time, but none from the file of `kept_from` on.
        Returns None if there are none, or if they must wait for the next call."""
        start = start_after_retention(self.log, now_ms, self.settings.retention_ms, kept_from)
        if start > self._point.position:
            self.checkpoint()  # without it they would stay as long as little is written
        return self.remove_head(start) if start > self.log.start else None

    def expire_oldest(self, excess_bytes: int, leaving: Callable[[int], object]) -> int:
        """Removes the oldest full files, however young, until `excess_bytes` are free. Returns the number of bytes
        freed, which is less if a restart still needs some of the files. Calls `leaving` first with the new start of the
        log."""
        before = self.log.start
        start = start_after_freeing(self.log, excess_bytes, self._point.position)
        if start_after_freeing(self.log, excess_bytes, self.log.end) > start:
            self.checkpoint()  # the next call may remove more
        if start == before or self._under_way:
            return 0
        leaving(start)
        self.remove_head(start)
        return start - before

    def remove_head(self, start: int) -> Ticket | None:
        """Removes the files before `start` and their queue and index entries, once the new start is on disk. Returns
        None if that must wait for a checkpoint."""
        if start > self._point.position or self._under_way:
            return None  # a restart would look for them, and the record must not cover data that is not on disk
        point = self._point = self._point._replace(start=start)
        queues = [self.queue(topic, number) for topic, number in self._checkpoints.queues()]
        gone = [name for queue in queues for name in queue.remove_head(queue.find_position(start))]
        gone += self.keys.remove_head(start)
        left = {state.name for state in self.keys.states()}
        states = [(queue.topic, queue.number, ConsumeQueueState(queue.start, queue.stored_end)) for queue in queues]
        self.log.start = start
        indexes = [state for state in self._checkpoints.indexes() if state.name in left]
        ticket = self._checkpoints.save(point, indexes, states)
        self._passes.on_synced(ticket, lambda done: None if done.refusal else self._remove_files(start, gone))
        return ticket

    def _remove_files(self, start: int, names: Iterable[str]) -> None:
        self.log.remove_head(start)
        for name in names:
            with suppress(OSError):
                self._files.remove(name)

    def drop(self, topic: str) -> Ticket:
        """Removes the queues of a deleted topic. Its units stay in the log without an owner."""
        for queue in [queue for queue in self._queues.values() if queue.topic == topic]:
            queue.is_removed = True
            queue.forget_files()
            del self._queues[topic, queue.number]
            self._unstored.pop(queue, None)
        ticket = self._checkpoints.drop(topic, self.log.end)
        self._passes.on_synced(ticket, lambda done: None if done.refusal else self._remove_queues(topic))
        return ticket

    def _remove_queues(self, topic: str) -> None:
        folder = f"{_QUEUES}/{topic}"
        with suppress(OSError):
            for number in self._files.names(folder):
                if (topic, int(number) if number.isdigit() else -1) in self._queues:
                    continue  # the topic was created again in the meantime
                for name in self._files.names(f"{folder}/{number}"):
                    self._files.remove(f"{folder}/{number}/{name}")
                self._files.remove(f"{folder}/{number}")
            self._files.remove(folder)
