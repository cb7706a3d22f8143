"""Scheduler of delayed messages: where they wait, when they are due, and their delivery to the destination topic. The
schedule topics are the durable state; the timers are an index on them, rebuilt at every start."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.stream import Appended, AppendedBatch, MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.failures.ledger import Reason
from trimq.core.scheduling.timers import RETRY_MS, PendingTimer, TimerEntry, Timers
from trimq.errors import OffsetOutOfRange, PropertiesTooLong, Refusal
from trimq.formats.rocketmq_unit.copies import BROKER_PROPERTIES, copied_properties
from trimq.formats.rocketmq_unit.dead_letters import REAL_QUEUE, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import TAGS, UNIQUE_KEY, read_properties, tags_code
from trimq.formats.rocketmq_unit.schedule import DELAY, SCHEDULE_TOPIC, TIMER_OUT_MS, WHEEL_TOPIC, parse_time_ms
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft
from trimq.model import SYSTEM, StreamId
from trimq.protocols.rocketmq.schedule.batch_delivery import DEQUEUED_MS, ENQUEUED_MS, RECALLED, DueBatch
from trimq.protocols.rocketmq.schedule.progress import FiredBatch, ScheduleProgress
from trimq.protocols.rocketmq.schedule.recall import RecallIndex, read_handle, write_handle, write_recall_marker
from trimq.protocols.rocketmq.schedule.restart_scan import RestartScan
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.state.statistics import TrafficCounter
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

log = logging.getLogger(__name__)

_SECONDS, _MILLISECONDS, _AT_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"

DELAY_PROPERTIES = (DELAY, _SECONDS, _MILLISECONDS, _AT_MS)
"""Properties that ask for a delay."""

# The cursors of this group store the delivery progress of each schedule queue.
GROUP = "CID_RMQ_SYS_DELAY"
_FOR_EVER_MS = 2**62

# Maximum number of ledger entries for messages deleted on a full disk: more would block every connection for long.
_MAX_NOTED = 10_000


class ScheduleSlot(NamedTuple):
    """Queue in which a message waits; `code` is its due time, `handle` recalls it."""

    topic: CommitLogTopic
    stream: MessageQueue
    code: int
    handle: str


class DelayScheduler:
    def __init__(
        self,
        commit_log: CommitLogApi,
        timeline: Timeline,
        identity: Identity,
        levels_ms: Sequence[int],
        max_delay_ms: int,
    ) -> None:
        self._topic_api = commit_log.topics
        self._message_api = commit_log.messages
        self._lookup_api = commit_log.lookup
        self._group_api = commit_log.groups
        self._dead_letters = commit_log.dead_letters
        self._timeline = timeline
        self._identity = identity
        self.levels_ms = levels_ms
        self._max_delay_ms = max_delay_ms
        self._timers = Timers(timeline, self._fire, fire_batch=self._fire_batch)
        self._queues: dict[StreamId, ScheduleProgress] = {}
        self._restart_scan = RestartScan(commit_log.lookup, timeline, self._queues)
        self._due_batch: DueBatch | None = None
        self._recalled = RecallIndex()
        self._index_retries: dict[StreamId, Timer] = {}
        """Queues that could not be indexed after an append; by queue, the timer of the retry."""
        self._is_stopped = False
        self.enqueued, self.dequeued = TrafficCounter(), TrafficCounter()
        """Messages with a delivery time, as they are stored and as they are delivered."""

    def start(self) -> None:
        """Loads pending messages and watches the schedule queues for new ones."""
        for name in (SCHEDULE_TOPIC, WHEEL_TOPIC):
            if (topic := self._topic_api.find(SYSTEM, name)) is None:
                continue
            for stream in topic.streams():
                self._queues[stream.id] = progress = self._find_progress(topic, stream)
                self._index(progress)
                stream.watch(partial(self._on_append, progress))
        self._restart_scan.look()

    def _find_progress(self, topic: CommitLogTopic, stream: MessageQueue) -> ScheduleProgress:
        number = stream.id.number
        known = self._group_api.cursor(SYSTEM, GROUP, topic, number)
        offset, text = (0, "") if known is None else (known.offset, known.metadata)
        is_timed = topic.name.name == WHEEL_TOPIC
        delay_ms = 0 if is_timed else max(self.levels_ms[min(number, len(self.levels_ms) - 1)], 1)
        progress = ScheduleProgress(topic, stream, delay_ms, offset, text)
        if progress.discard_checkpoint(self._durable_end()):
            self._save_checkpoint(progress)
        return progress

    def count_waiting(self) -> int:
        return len(self._timers)

    def stop(self) -> None:
        """Stops deliveries; the next start continues."""
        self._is_stopped = True
        self._restart_scan.stop()
        for look in self._index_retries.values():
            look.cancel()

    def _on_append(self, progress: ScheduleProgress) -> None:
        progress.stream.watch(partial(self._on_append, progress))  # first: later appends need timers even if this fails
        if not self._is_stopped:
            self._index_or_retry(progress)

    def _index_or_retry(self, progress: ScheduleProgress) -> None:
        """Sets timers for new messages; on failure, retries in a second."""
        stream = progress.stream.id
        if stream in self._index_retries:
            self._index_retries.pop(stream).cancel()
        try:
            self._index(progress)
        except (Refusal, OSError) as error:
            log.warning("schedule queue %s: reading new delayed messages failed, will be retried (%s)", stream, error)
            retry_ms = self._timeline.now_ms() + RETRY_MS
            self._index_retries[stream] = self._timeline.call_at(retry_ms, partial(self._index_or_retry, progress))

    def _index(self, progress: ScheduleProgress) -> None:
        """Sets timers for durable messages only: a refused message must not fire."""
        at = self._restart_scan.last_due_ms, self._restart_scan.stored_ms
        begin = max(progress.indexed_to, progress.restored_end)
        for offset, due_ms in progress.stream.codes(progress.indexed_to):
            if offset >= progress.restored_end or progress.find(offset, due_ms, *at):
                self._timers.schedule(due_ms, TimerEntry(progress.stream.id, offset))
            progress.indexed_to = offset + 1
        if progress.is_timed and progress.indexed_to > begin:
            self.enqueued.add(self._timeline.now_ms(), progress.indexed_to - begin, 0)
        self._checkpoint_if_due(progress)

    def _checkpoint_if_due(self, progress: ScheduleProgress) -> None:
        """Limits the scan after the next start."""
        if progress.needs_checkpoint(self._durable_end()):
            self._save_checkpoint(progress)

    def _save_checkpoint(self, progress: ScheduleProgress) -> None:
        number, text = progress.stream.id.number, progress.write_checkpoint()
        self._group_api.commit(SYSTEM, GROUP, progress.topic, number, progress.next_offset, text)
        self._restart_scan.release()

    def _durable_end(self) -> int:
        """Durable end of the log. Positions behind it may be refused and used again."""
        return self._lookup_api.log_ends()[1]

    # -- scheduling

    def postpone(self, topic: CommitLogTopic, queue_id: int, properties: dict[str, str]) -> ScheduleSlot | None:
        """Returns the schedule queue for a message with these properties, and adds its destination to them. None: no
        delay. Raises RemotingRefusal if the delay is too long or invalid."""
        level = self._level(properties)
        if level > 0:
            properties[DELAY] = str(level)
            for name in (_SECONDS, _MILLISECONDS, _AT_MS):
                properties.pop(name, None)
            _remember(topic, queue_id, properties)
            due_ms = self._timeline.now_ms() + self.levels_ms[level - 1]
            return self._slot(SCHEDULE_TOPIC, level - 1, due_ms, "")
        if DELAY in properties:
            return None
        due_ms = self._due_ms(properties)
        if due_ms <= self._timeline.now_ms():
            return None
        _remember(topic, queue_id, properties)
        properties[TIMER_OUT_MS] = str(due_ms)
        handle = self.handle(topic.name.name, due_ms, properties.get(UNIQUE_KEY, ""))
        return self._slot(WHEEL_TOPIC, 0, due_ms, handle)

    def _slot(self, name: str, number: int, due_ms: int, handle: str) -> ScheduleSlot:
        topic = self._topic_api.get(SYSTEM, name)
        return ScheduleSlot(topic, topic.stream(number), due_ms, handle)

    def _level(self, properties: dict[str, str]) -> int:
        text = properties.get(DELAY)
        if text is None:
            return 0
        try:
            return min(int(text), len(self.levels_ms))
        except ValueError:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"{text[:40]!r} is not a delay level") from None

    def _due_ms(self, properties: dict[str, str]) -> int:
        """Returns 0 if the properties name no time."""
        now_ms = self._timeline.now_ms()
        for name, begin_ms, unit_ms in ((_SECONDS, now_ms, 1000), (_MILLISECONDS, now_ms, 1), (_AT_MS, 0, 1)):
            if name in properties:
                try:
                    due_ms = begin_ms + int(properties[name]) * unit_ms
                except ValueError:
                    due_ms = _FOR_EVER_MS
                if due_ms - now_ms > self._max_delay_ms:
                    reason = f"timer message illegal, the delay time should not be bigger than {self._max_delay_ms}ms"
                    raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, reason)
                return due_ms
        return 0

    # -- delivery

    def _fire_batch(self, fired: Sequence[TimerEntry], begin: int) -> int:
        """Delivers a batch from index `begin` on: all messages up to one that needs special treatment, or that may have
        been delivered before the restart. Returns their number."""
        if self._is_stopped:
            return len(fired) - begin
        due = self._due_batch
        if due is None or due.fired is not fired:
            host, now_ms = self._identity.store_host, self._timeline.now_ms()
            due = DueBatch(
                fired,
                self._topic_api,
                self._message_api,
                host,
                now_ms,
                self._recalled.markers,
                self._restart_scan.suspect_keys,
            )
        try:
            self._take_batch(due, begin)
            count = len(due.entries)
            if count:
                self._deliver_batch(due)
        except Exception:
            self._mark_delayed(fired[begin:])
            raise
        # The data it holds is useful only for the rest of this sequence.
        self._due_batch = due if begin + count < len(fired) - 1 else None
        return count

    def _take_batch(self, due: DueBatch, begin: int) -> None:
        fired = due.fired
        while begin < len(fired):
            stream, position = fired[begin]
            progress = self._queues[stream]
            self._checkpoint_if_due(progress)
            end = due.range_end(begin)
            certain = begin + progress.certain_end(position, position + end - begin) - position
            if certain == begin or not due.take_range(progress.stream, begin, certain) or certain < end:
                break
            begin = end

    def _deliver_batch(self, due: DueBatch) -> None:
        """Appends the batch. Only refused messages are retried: a recalled message must be dropped in its turn, before
        its recall marker is."""
        entries = due.entries
        try:
            placed = due.deliver()
        except Refusal as refusal:
            log.warning("%d delayed messages: delivery refused, will be retried (%s)", len(entries), refusal)
            self._retry(entries)
            return
        finally:
            due.reset()
        count = len(placed.places)
        offsets: dict[StreamId, list[int]] = {}
        for stream, position in entries[:count]:
            offsets.setdefault(stream, []).append(position)
        if offsets:
            self._track_delivery(placed, [(self._queues[stream], own) for stream, own in offsets.items()])
        if count < len(entries):
            log.warning(
                "%d delayed messages: delivery refused, will be retried (%s)", len(entries) - count, placed.refusal
            )
            self._retry(entries[count:])

    def _track_delivery(
        self, placed: Appended | AppendedBatch, delivered: Sequence[tuple[ScheduleProgress, list[int]]]
    ) -> None:
        """Marks the messages as done when their pass is durable."""
        _, _, log_end = self._lookup_api.log_ends()
        batches = [(progress, progress.begin(offsets, log_end)) for progress, offsets in delivered]
        self._message_api.on_durable(placed.ticket, lambda done: self._delivered(batches, done.refusal))

    def _fire(self, pending: PendingTimer) -> None:
        if self._is_stopped:
            return  # the next start delivers it
        try:
            self._fire_one(pending.entry)
        except Exception:
            self._mark_delayed([pending.entry])
            raise

    def _fire_one(self, entry: TimerEntry) -> None:
        progress = self._queues[entry.stream]
        self._checkpoint_if_due(progress)
        try:
            unit = progress.stream.unit(entry.position)
        except OffsetOutOfRange:
            self._finish(progress, entry.position)  # deleted by retention
            return
        properties = read_properties(unit.properties)
        if RECALLED in properties:
            self._finish(progress, entry.position)
            self._recalled.spend(properties[RECALLED], entry.position, progress.has_delayed)
            return
        target = self._topic_api.find(SYSTEM, properties.get(REAL_TOPIC, ""))
        is_recalled = self._is_recalled(progress, unit, properties)
        if target is None or is_recalled or self._restart_scan.was_delivered(progress, unit, properties):
            self._finish(progress, entry.position)
            return
        try:
            placed = self._deliver(target, unit, properties)
        except PropertiesTooLong as refusal:
            log.error(
                "delayed message for topic %s: cannot be delivered, recorded as failed (%s)", target.name.name, refusal
            )
            self._record_failure(unit, properties)
            self._finish(progress, entry.position)
            return
        self._track_delivery(placed, [(progress, [entry.position])])

    def _deliver(self, target: CommitLogTopic, unit: Unit, properties: dict[str, str]) -> Appended:
        if TIMER_OUT_MS in properties:
            properties[ENQUEUED_MS] = str(unit.store_ms)
            properties[DEQUEUED_MS] = str(self._timeline.now_ms())
        queue_id = parse_time_ms(properties.get(REAL_QUEUE))
        draft = UnitDraft(
            target.raw_name,
            queue_id,
            unit.body,
            copied_properties(properties, (ENQUEUED_MS, DEQUEUED_MS, *BROKER_PROPERTIES)),
            unit.flag,
            unit.sys_flag,
            unit.born_ms,
            unit.born_host,
            unit.reconsume_times,
        )
        code, stream = tags_code(properties.get(TAGS, "")), target.stream_or_retired(queue_id)
        return self._message_api.append(SYSTEM, target, stream, draft, code, self._identity.store_host)

    def _delivered(self, batches: Sequence[tuple[ScheduleProgress, FiredBatch]], refusal: Refusal | None) -> None:
        for progress, batch in batches:
            if refusal is not None:
                progress.fail(batch)
                self._retry([TimerEntry(progress.stream.id, offset) for offset in batch.offsets])
                continue
            if progress.is_timed:
                self.dequeued.add(self._timeline.now_ms(), len(batch.offsets), 0)
            if progress.finish(batch):
                self._save_checkpoint(progress)

    def _finish(self, progress: ScheduleProgress, offset: int) -> None:
        """Marks a message as done without a delivery."""
        if progress.finish(progress.begin([offset], self._durable_end())):
            self._save_checkpoint(progress)

    def _retry(self, entries: Sequence[TimerEntry]) -> None:
        self._mark_delayed(entries)
        retry_ms = self._timeline.now_ms() + RETRY_MS
        for entry in entries:
            self._timers.schedule(retry_ms, entry)

    def _mark_delayed(self, entries: Sequence[TimerEntry]) -> None:
        for stream, position in entries:
            self._queues[stream].put_off([position])

    # -- retention of schedule queues

    def oldest_position(self) -> int | None:
        return min((each.position for queue in self._queues.values() for each in queue.waiting(1)), default=None)

    def release(self, start: int) -> None:
        """Records pending messages as failed before their files are deleted on a nearly full disk. Their timers will
        find nothing."""
        count = 0
        for queue in self._queues.values():
            for entry in queue.waiting(_FOR_EVER_MS):
                if entry.position >= start:
                    break
                if queue.is_handled(entry.offset):
                    continue
                unit = queue.stream.unit(entry.offset)
                properties = read_properties(unit.properties)
                if RECALLED in properties or self._is_recalled(queue, unit, properties):
                    continue
                count += 1
                if count <= _MAX_NOTED:
                    self._record_failure(unit, properties)
        if count:
            ledger_note = (
                "the ledger of failures has all"
                if count <= _MAX_NOTED
                else f"the ledger of failures has only {_MAX_NOTED}"
            )
            log.error("%d delayed messages: deleted before delivery (disk nearly full), %s", count, ledger_note)

    def _record_failure(self, unit: Unit, properties: dict[str, str]) -> None:
        topic, queue_id = properties.get(REAL_TOPIC, ""), parse_time_ms(properties.get(REAL_QUEUE))
        self._dead_letters.record_removed_message(SYSTEM, unit, topic, queue_id, Reason.EXPIRED)

    # -- recall

    def handle(self, topic: str, due_ms: int, unique: str) -> str:
        return write_handle(self._identity.broker_name, topic, due_ms, unique)

    def recall(self, topic: CommitLogTopic, handle: str) -> tuple[str, Appended]:
        """Recalls a pending message. Returns its unique key and the position of the recall marker."""
        name = topic.name.name
        due_ms, unique = read_handle(handle, self._identity.broker_name, name, self._timeline.now_ms())
        waiting = self._slot(WHEEL_TOPIC, 0, due_ms, "")
        marker, written = write_recall_marker(name, unique, due_ms)
        host = self._identity.store_host
        draft = UnitDraft(waiting.topic.raw_name, 0, b"0", written, 0, 0, due_ms, host)
        placed = self._message_api.append(SYSTEM, waiting.topic, waiting.stream, draft, due_ms, host)
        offset = placed.queue_offset
        self._queues[waiting.stream.id].add_recall(due_ms, offset)
        self._message_api.on_durable(placed.ticket, lambda done: self._recalled.note(marker, offset, done.refusal))
        return unique, placed

    def _is_recalled(self, progress: ScheduleProgress, unit: Unit, properties: dict[str, str]) -> bool:
        """Recalls since the start are in memory; earlier ones are looked up in the key index."""
        unique = properties.get(UNIQUE_KEY)
        if TIMER_OUT_MS not in properties or unique is None:
            return False
        if self._recalled.has(properties.get(REAL_TOPIC, ""), unique, unit.queue_offset):
            return True
        return self._restart_scan.is_recalled(progress, unit, unique, properties)


def _remember(topic: CommitLogTopic, queue_id: int, properties: dict[str, str]) -> None:
    properties[REAL_TOPIC] = topic.name.name
    properties[REAL_QUEUE] = str(queue_id)
