"""Messages that are to come later: where they wait, when they are due, and how they reach their topic then. The topics
in which they wait are the durable truth; the timers are an index on them, built anew at every start."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.core.api.commit_log import Sharing
from trimq.core.commit_log.stream import Appended, AppendedRun, SharedStream
from trimq.core.commit_log.topics import SharedTopic
from trimq.core.failures.ledger import Reason
from trimq.core.scheduling.timers import RETRY_MS, Pending, TimerEntry, Timers
from trimq.errors import OffsetOutOfRange, PropertiesTooLong, Refusal
from trimq.formats.rocketmq_unit.copies import OF_THE_BROKER, copied_properties
from trimq.formats.rocketmq_unit.dead_letters import REAL_QUEUE, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import TAGS, UNIQUE_KEY, read_properties, tags_code
from trimq.formats.rocketmq_unit.schedule import DELAY, SCHEDULE_TOPIC, TIMER_OUT_MS, WHEEL_TOPIC, read_time
from trimq.formats.rocketmq_unit.unit import Draft, Unit
from trimq.model import SYSTEM, StreamId
from trimq.protocols.rocketmq.schedule.batch_delivery import DEQUEUED_MS, ENQUEUED_MS, RECALLED, DueRow
from trimq.protocols.rocketmq.schedule.progress import Batch, Progress
from trimq.protocols.rocketmq.schedule.recall import Recalled, read_handle, write_handle, write_word
from trimq.protocols.rocketmq.schedule.restart_scan import EarlierRuns
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.wire.codes import Code, Failure

log = logging.getLogger(__name__)

_SECONDS, _MILLISECONDS, _AT_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"

DELAYING = (DELAY, _SECONDS, _MILLISECONDS, _AT_MS)
"""The properties that ask for a delay."""

# Under this group it is kept how far the waiting messages of each queue have all been delivered.
GROUP = "CID_RMQ_SYS_DELAY"
_FOR_EVER_MS = 2**62

# So many messages that a full disk has ended are told of one by one: more would stop every connection for long.
_MOST_NOTED = 10_000


class Waiting(NamedTuple):
    """Where a message waits; `code` is when it is due, `handle` what recalls it."""

    topic: SharedTopic
    stream: SharedStream
    code: int
    handle: str


class Delays:
    def __init__(
        self, sharing: Sharing, timeline: Timeline, identity: Identity, levels_ms: Sequence[int], max_delay_ms: int
    ) -> None:
        self._sharing = sharing
        self._timeline = timeline
        self._identity = identity
        self.levels_ms = levels_ms
        self._max_delay_ms = max_delay_ms
        self._timers = Timers(timeline, self._fire, fire_row=self._fire_row)
        self._queues: dict[StreamId, Progress] = {}
        self._earlier = EarlierRuns(sharing, timeline, self._queues)
        self._due_row: DueRow | None = None
        self._recalled = Recalled()
        self._looks: dict[StreamId, Timer] = {}
        """Queues that could not be looked into when something had come."""
        self._is_stopped = False

    def start(self) -> None:
        """Find what waits already, and look at whatever comes to wait."""
        for name in (SCHEDULE_TOPIC, WHEEL_TOPIC):
            if (topic := self._sharing.find(SYSTEM, name)) is None:
                continue
            for stream in topic.streams():
                self._queues[stream.id] = progress = self._find_progress(topic, stream)
                self._index(progress)
                stream.watch(partial(self._grown, progress))
        self._earlier.look()

    def _find_progress(self, topic: SharedTopic, stream: SharedStream) -> Progress:
        number = stream.id.number
        known = self._sharing.cursor(SYSTEM, GROUP, topic, number)
        offset, text = (0, "") if known is None else (known.offset, known.metadata)
        is_timed = topic.name.name == WHEEL_TOPIC
        delay_ms = 0 if is_timed else max(self.levels_ms[min(number, len(self.levels_ms) - 1)], 1)
        progress = Progress(topic, stream, delay_ms, offset, text)
        if progress.forget_note(self._durable_end()):
            self._note(progress)
        return progress

    def count_waiting(self) -> int:
        return len(self._timers)

    def stop(self) -> None:
        """Deliver nothing any more; the next start goes on."""
        self._is_stopped = True
        self._earlier.stop()
        for look in self._looks.values():
            look.cancel()

    def _grown(self, progress: Progress) -> None:
        progress.stream.watch(partial(self._grown, progress))  # whatever happens: what comes later must be timed, too
        if not self._is_stopped:
            self._look(progress)

    def _look(self, progress: Progress) -> None:
        """At what has come to wait: now, or, if that cannot be, in a second."""
        stream = progress.stream.id
        if stream in self._looks:
            self._looks.pop(stream).cancel()
        try:
            self._index(progress)
        except (Refusal, OSError) as error:
            log.warning("what came to wait in %s is looked at again: %s", stream, error)
            retry_ms = self._timeline.now_ms() + RETRY_MS
            self._looks[stream] = self._timeline.call_at(retry_ms, partial(self._look, progress))

    def _index(self, progress: Progress) -> None:
        """Only what is durable is timed: what was refused must not fire."""
        at = self._earlier.last_ms, self._earlier.stored_ms
        for offset, due_ms in progress.stream.codes(progress.indexed_to):
            if offset >= progress.found_to or progress.find(offset, due_ms, *at):
                self._timers.schedule(due_ms, TimerEntry(progress.stream.id, offset))
            progress.indexed_to = offset + 1
        self._note_place(progress)

    def _note_place(self, progress: Progress) -> None:
        """So that a next start has little to look at."""
        if progress.note_place(self._durable_end()):
            self._note(progress)

    def _note(self, progress: Progress) -> None:
        number, text = progress.stream.id.number, progress.write_note()
        self._sharing.commit(SYSTEM, GROUP, progress.topic, number, progress.next_offset, text)
        self._earlier.let_go()

    def _durable_end(self) -> int:
        """Of the log. What stands behind it may be refused, and others get its place."""
        return self._sharing.log_ends()[1]

    # -- coming to wait

    def postpone(self, topic: SharedTopic, queue_id: int, properties: dict[str, str]) -> Waiting | None:
        """Where a message with these properties waits, which then name the topic that it is for. None: it need not
        wait. Failure: for too long, or until no time at all."""
        level = self._level(properties)
        if level > 0:
            properties[DELAY] = str(level)
            for name in (_SECONDS, _MILLISECONDS, _AT_MS):
                properties.pop(name, None)
            _remember(topic, queue_id, properties)
            due_ms = self._timeline.now_ms() + self.levels_ms[level - 1]
            return self._wait_in(SCHEDULE_TOPIC, level - 1, due_ms, "")
        if DELAY in properties:
            return None
        due_ms = self._due_ms(properties)
        if due_ms <= self._timeline.now_ms():
            return None
        _remember(topic, queue_id, properties)
        properties[TIMER_OUT_MS] = str(due_ms)
        handle = self.handle(topic.name.name, due_ms, properties.get(UNIQUE_KEY, ""))
        return self._wait_in(WHEEL_TOPIC, 0, due_ms, handle)

    def _wait_in(self, name: str, number: int, due_ms: int, handle: str) -> Waiting:
        topic = self._sharing.topic(SYSTEM, name)
        return Waiting(topic, topic.stream(number), due_ms, handle)

    def _level(self, properties: dict[str, str]) -> int:
        text = properties.get(DELAY)
        if text is None:
            return 0
        try:
            return min(int(text), len(self.levels_ms))
        except ValueError:
            raise Failure(Code.SYSTEM_ERROR, f"{text[:40]!r} is no level of delay") from None

    def _due_ms(self, properties: dict[str, str]) -> int:
        """0: it names no time."""
        now_ms = self._timeline.now_ms()
        for name, begin_ms, unit_ms in ((_SECONDS, now_ms, 1000), (_MILLISECONDS, now_ms, 1), (_AT_MS, 0, 1)):
            if name in properties:
                try:
                    due_ms = begin_ms + int(properties[name]) * unit_ms
                except ValueError:
                    due_ms = _FOR_EVER_MS
                if due_ms - now_ms > self._max_delay_ms:
                    reason = f"timer message illegal, the delay time should not be bigger than {self._max_delay_ms}ms"
                    raise Failure(Code.MESSAGE_ILLEGAL, reason)
                return due_ms
        return 0

    # -- being due

    def _fire_row(self, row: Sequence[TimerEntry], begin: int) -> int:
        """How many of them, from a number on, were delivered together: all up to one that is special, or of which it is
        not known whether a run before this one has delivered it."""
        if self._is_stopped:
            return len(row) - begin
        due = self._due_row
        if due is None or due.row is not row:
            host, now_ms = self._identity.store_host, self._timeline.now_ms()
            due = DueRow(row, self._sharing, host, now_ms, self._recalled.words, self._earlier.suspects)
        try:
            self._take_row(due, begin)
            count = len(due.entries)
            if count:
                self._deliver_row(due)
        except Exception:
            self._put_off(row[begin:])
            raise
        # Whatever it holds is of use for the rest of its row alone.
        self._due_row = due if begin + count < len(row) - 1 else None
        return count

    def _take_row(self, due: DueRow, begin: int) -> None:
        row = due.row
        while begin < len(row):
            stream, position = row[begin]
            progress = self._queues[stream]
            self._note_place(progress)
            end = due.stretch_end(begin)
            certain = begin + progress.certain_to(position, position + end - begin) - position
            if certain == begin or not due.take_stretch(progress.stream, begin, certain) or certain < end:
                break
            begin = end

    def _deliver_row(self, due: DueRow) -> None:
        """What is refused is tried again, and nothing else: one that was taken back must be dropped in its turn, before
        the word that took it back is."""
        entries = due.entries
        try:
            placed = due.deliver()
        except Refusal as refusal:
            log.warning("%d messages that are due are tried again: %s", len(entries), refusal)
            self._try_again(entries)
            return
        finally:
            due.go_on()
        count = len(placed.places)
        offsets: dict[StreamId, list[int]] = {}
        for stream, position in entries[:count]:
            offsets.setdefault(stream, []).append(position)
        if offsets:
            self._await(placed, [(self._queues[stream], own) for stream, own in offsets.items()])
        if count < len(entries):
            log.warning("%d messages that are due are tried again: %s", len(entries) - count, placed.refusal)
            self._try_again(entries[count:])

    def _await(self, placed: Appended | AppendedRun, delivered: Sequence[tuple[Progress, list[int]]]) -> None:
        """They are done with when their pass is durable."""
        _, _, log_end = self._sharing.log_ends()
        batches = [(progress, progress.begin(offsets, log_end)) for progress, offsets in delivered]
        self._sharing.afterwards(placed.ticket, lambda done: self._delivered(batches, done.refusal))

    def _fire(self, pending: Pending) -> None:
        if self._is_stopped:
            return  # the next start finds it
        try:
            self._fire_alone(pending.entry)
        except Exception:
            self._put_off([pending.entry])
            raise

    def _fire_alone(self, entry: TimerEntry) -> None:
        progress = self._queues[entry.stream]
        self._note_place(progress)
        try:
            unit = progress.stream.unit(entry.position)
        except OffsetOutOfRange:
            self._finish(progress, entry.position)  # it was kept no longer
            return
        properties = read_properties(unit.properties)
        if RECALLED in properties:
            self._finish(progress, entry.position)
            self._recalled.spend(properties[RECALLED], entry.position, progress.is_held_up)
            return
        target = self._sharing.find(SYSTEM, properties.get(REAL_TOPIC, ""))
        is_recalled = self._is_recalled(progress, unit, properties)
        if target is None or is_recalled or self._earlier.was_delivered(progress, unit, properties):
            self._finish(progress, entry.position)
            return
        try:
            placed = self._deliver(target, unit, properties)
        except PropertiesTooLong as refusal:
            log.error("a message that has waited for %s cannot be stored there: %s", target.name.name, refusal)
            self._give_up(unit, properties)
            self._finish(progress, entry.position)
            return
        self._await(placed, [(progress, [entry.position])])

    def _deliver(self, target: SharedTopic, unit: Unit, properties: dict[str, str]) -> Appended:
        if TIMER_OUT_MS in properties:
            properties[ENQUEUED_MS] = str(unit.store_ms)
            properties[DEQUEUED_MS] = str(self._timeline.now_ms())
        queue_id = read_time(properties.get(REAL_QUEUE))
        draft = Draft(
            target.raw_name,
            queue_id,
            unit.body,
            copied_properties(properties, (ENQUEUED_MS, DEQUEUED_MS, *OF_THE_BROKER)),
            unit.flag,
            unit.sys_flag,
            unit.born_ms,
            unit.born_host,
            unit.reconsume_times,
        )
        code, stream = tags_code(properties.get(TAGS, "")), target.kept_stream(queue_id)
        return self._sharing.append(SYSTEM, target, stream, draft, code, self._identity.store_host)

    def _delivered(self, batches: Sequence[tuple[Progress, Batch]], refusal: Refusal | None) -> None:
        for progress, batch in batches:
            if refusal is not None:
                progress.fail(batch)
                self._try_again([TimerEntry(progress.stream.id, offset) for offset in batch.offsets])
            elif progress.finish(batch):
                self._note(progress)

    def _finish(self, progress: Progress, offset: int) -> None:
        """Nothing has to be delivered."""
        if progress.finish(progress.begin([offset], self._durable_end())):
            self._note(progress)

    def _try_again(self, entries: Sequence[TimerEntry]) -> None:
        self._put_off(entries)
        retry_ms = self._timeline.now_ms() + RETRY_MS
        for entry in entries:
            self._timers.schedule(retry_ms, entry)

    def _put_off(self, entries: Sequence[TimerEntry]) -> None:
        for stream, position in entries:
            self._queues[stream].put_off([position])

    # -- files in which messages wait

    def oldest_position(self) -> int | None:
        return min((each.position for queue in self._queues.values() for each in queue.waiting(1)), default=None)

    def let_go(self, start: int) -> None:
        """The disk is nearly full. What will be due later finds nothing any more."""
        count = 0
        for queue in self._queues.values():
            for entry in queue.waiting(_FOR_EVER_MS):
                if entry.position >= start:
                    break
                if queue.is_dealt_with(entry.offset):
                    continue
                unit = queue.stream.unit(entry.offset)
                properties = read_properties(unit.properties)
                if RECALLED in properties or self._is_recalled(queue, unit, properties):
                    continue
                count += 1
                if count <= _MOST_NOTED:
                    self._give_up(unit, properties)
        if count:
            told = "the ledger of failures has them" if count <= _MOST_NOTED else f"the ledger has {_MOST_NOTED}"
            log.error("%d messages that waited for their time go, for the disk is nearly full: %s", count, told)

    def _give_up(self, unit: Unit, properties: dict[str, str]) -> None:
        topic, queue_id = properties.get(REAL_TOPIC, ""), read_time(properties.get(REAL_QUEUE))
        self._sharing.failures.note_gone(SYSTEM, unit, topic, queue_id, Reason.EXPIRED)

    # -- recalling

    def handle(self, topic: str, due_ms: int, unique: str) -> str:
        return write_handle(self._identity.broker_name, topic, due_ms, unique)

    def recall(self, topic: SharedTopic, handle: str) -> tuple[str, Appended]:
        """What takes a waiting message back: its unique key, and the place of the word that it does not count."""
        name = topic.name.name
        due_ms, unique = read_handle(handle, self._identity.broker_name, name, self._timeline.now_ms())
        waiting = self._wait_in(WHEEL_TOPIC, 0, due_ms, "")
        word, written = write_word(name, unique, due_ms)
        host = self._identity.store_host
        draft = Draft(waiting.topic.raw_name, 0, b"0", written, 0, 0, due_ms, host)
        placed = self._sharing.append(SYSTEM, waiting.topic, waiting.stream, draft, due_ms, host)
        offset = placed.queue_offset
        self._queues[waiting.stream.id].add_word(due_ms, offset)
        self._sharing.afterwards(placed.ticket, lambda done: self._recalled.note(word, offset, done.refusal))
        return unique, placed

    def _is_recalled(self, progress: Progress, unit: Unit, properties: dict[str, str]) -> bool:
        """Of what has come since the start it is known; of the rest the key index is asked."""
        unique = properties.get(UNIQUE_KEY)
        if TIMER_OUT_MS not in properties or unique is None:
            return False
        if self._recalled.has(properties.get(REAL_TOPIC, ""), unique, unit.queue_offset):
            return True
        return self._earlier.is_recalled(progress, unit, unique, properties)


def _remember(topic: SharedTopic, queue_id: int, properties: dict[str, str]) -> None:
    properties[REAL_TOPIC] = topic.name.name
    properties[REAL_QUEUE] = str(queue_id)
