"""Finds deliveries and recalls of delayed messages that were not checkpointed before the restart. Scans once, in small
steps after the start. Afterwards most pending messages are known to be undelivered; the others, and all until then, are
looked up in the key index one by one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from trimq.clock import Timeline, Timer
from trimq.core.api.commit_log_lookup import CommitLogLookupApi
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.dead_letters import REAL_QUEUE, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import NAME_ENDS, UNIQUE_KEY, find_property, read_properties
from trimq.formats.rocketmq_unit.schedule import SCHEDULE_TOPIC, TIMER_OUT_MS, WHEEL_TOPIC, parse_time_ms
from trimq.formats.rocketmq_unit.unit import Unit, read_unit
from trimq.model import SYSTEM, StreamId
from trimq.protocols.rocketmq.schedule.batch_delivery import RECALLED, units_at
from trimq.protocols.rocketmq.schedule.progress import ScheduleProgress

log = logging.getLogger(__name__)

# A message is stored with the start time of its pass, and delivered when it is due: a pass, which is one turn of the
# loop, never takes this long.
_LONGEST_PASS_MS = 10_000

# Limits of one turn, which takes 1 to 2 ms: messages and bytes.
_AT_ONCE = 256
_BYTES_AT_ONCE = 1 << 20

# Up to this many messages are looked up one by one, and more log than this is not scanned: scanning would take longer.
_MAX_SINGLE_LOOKUPS = 256
_MAX_BYTES = 256 << 20

_FOR_EVER_MS = 2**62
_WAITING = (SCHEDULE_TOPIC.encode(), WHEEL_TOPIC.encode())
_WORD = f"{RECALLED}{NAME_ENDS}".encode()
_DELIVERED = f"{REAL_TOPIC}{NAME_ENDS}".encode()


class RestartScan:
    """`suspect_keys`: unique keys of messages that may have been delivered or recalled. Contains all that were, and a
    few others."""

    def __init__(
        self, lookup_api: CommitLogLookupApi, timeline: Timeline, queues: Mapping[StreamId, ScheduleProgress]
    ) -> None:
        self._lookup_api = lookup_api
        self._timeline = timeline
        self._queues = queues
        self.stored_ms = lookup_api.last_store_ms
        self.last_due_ms = self.stored_ms + _LONGEST_PASS_MS
        """Nothing with a later due time was delivered before the restart."""
        self.suspect_keys: set[str] = set()
        self._steps: Iterator[None] = iter(())
        self._timer: Timer | None = None

    # -- scan

    def look(self) -> None:
        """Starts the scan, after all pending messages are in the queues."""
        self._steps = self._scan()
        self._run_step()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _run_step(self) -> None:
        self._timer = None
        try:
            for _ in self._steps:
                self._timer = self._timeline.call_at(self._timeline.now_ms(), self._run_step)
                return
        except (Refusal, OSError) as error:
            log.warning(
                "delayed messages: cannot scan for deliveries before the restart, looking them up one by one (%s)",
                error,
            )

    def _scan(self) -> Iterator[None]:
        for queue in self._queues.values():
            if not queue.knows_recalls:
                yield from self._find_recalls(queue)
        many = [queue for queue in self._queues.values() if len(queue.maybe_delivered) > _MAX_SINGLE_LOOKUPS]
        start, end, _ = self._lookup_api.log_ends()
        near = [queue for queue in many if end - max(queue.checkpoint.log_position, start) <= _MAX_BYTES]
        if near:
            yield from self._find_deliveries(min(queue.checkpoint.log_position for queue in near))
            for queue in near:
                queue.maybe_delivered.clear()
        self.release()

    def release(self) -> None:
        """Forgets the suspects once all messages found at start are done. Call from time to time."""
        if self.suspect_keys and all(queue.next_offset >= queue.restored_end for queue in self._queues.values()):
            self.suspect_keys.clear()

    def _find_recalls(self, queue: ScheduleProgress) -> Iterator[None]:
        """Finds the recall markers."""
        recalls: list[tuple[int, int]] = []
        offset = max(queue.checkpoint.recalls_from, queue.next_offset)
        while offset < queue.restored_end:
            count = min(_AT_ONCE, queue.restored_end - offset)
            seen = size = 0
            for unit in units_at(queue.stream, offset, count):
                if _WORD in bytes(unit):
                    properties = read_properties(read_unit(unit).properties)
                    self.suspect_keys.add(properties.get(UNIQUE_KEY, ""))
                    recalls.append((parse_time_ms(properties.get(TIMER_OUT_MS)), offset + seen))
                seen += 1
                size += len(unit)
                if size >= _BYTES_AT_ONCE:
                    count = seen
                    break
            if seen < count and offset + seen >= queue.stream.start:
                log.warning(
                    "%s: offset %d cannot be read, looking up recalls one by one", queue.topic.name.name, offset + seen
                )
                return  # it may be a recall marker
            offset = max(offset + seen, queue.stream.start)
            yield
        queue.set_recalls(recalls)

    def _find_deliveries(self, position: int) -> Iterator[None]:
        """Finds delivered messages in the log from this position on."""
        seen = size = 0
        for unit in self._lookup_api.units_from(SYSTEM, position):
            if _DELIVERED in unit.properties and unit.topic not in _WAITING:
                self.suspect_keys.add(find_property(unit.properties, UNIQUE_KEY) or "")
            seen += 1
            size += len(unit.body)
            if seen >= _AT_ONCE or size >= _BYTES_AT_ONCE:
                seen = size = 0
                yield

    # -- lookup of one message

    def needs_lookup(self, progress: ScheduleProgress, offset: int, unique: str) -> bool:
        """Whether the key index must be searched for this message."""
        if offset >= progress.restored_end:
            return False
        return unique in self.suspect_keys or progress.certain_end(offset, offset + 1) == offset

    def was_delivered(self, progress: ScheduleProgress, unit: Unit, properties: Mapping[str, str]) -> bool:
        """Whether the message was delivered before the restart without a checkpoint of it, so that it is not delivered
        twice. A message that its group returned several times waits several times; then the number of deliveries
        decides."""
        unique = properties.get(UNIQUE_KEY)
        if unique is None or not self.needs_lookup(progress, unit.queue_offset, unique):
            return False
        mark = _delivery_identity(unit, properties)
        delivered = sum(
            _delivery_identity(each, read_properties(each.properties)) == mark
            for each in self._lookup_api.find_key(SYSTEM, properties[REAL_TOPIC], unique, 0, _FOR_EVER_MS)
        )
        if not delivered:
            return False
        waiting = self._lookup_api.find_key(SYSTEM, progress.topic.name.name, unique, 0, _FOR_EVER_MS)
        others = [
            each
            for each in waiting
            if each.position != unit.position and _delivery_identity(each, read_properties(each.properties)) == mark
        ]
        return delivered > sum(self._is_dealt_with(progress, each) for each in others)

    def _is_dealt_with(self, waited: ScheduleProgress, unit: Unit) -> bool:
        progress = self._queues.get(waited.topic.stream(unit.queue_id).id)
        return progress is not None and progress.is_handled(unit.queue_offset)

    def is_recalled(self, progress: ScheduleProgress, unit: Unit, unique: str, properties: Mapping[str, str]) -> bool:
        """Whether the message was recalled before the restart."""
        if not self.needs_lookup(progress, unit.queue_offset, unique):
            return False
        wanted = recall_marker(properties.get(REAL_TOPIC, ""), unique)
        found = self._lookup_api.find_key(SYSTEM, WHEEL_TOPIC, unique, unit.store_ms, _FOR_EVER_MS)
        return any(read_properties(each.properties).get(RECALLED) == wanted for each in found)


def recall_marker(topic: str, unique: str) -> str:
    """Identifies a recalled message."""
    return f"{topic}+{unique}"


def _delivery_identity(unit: Unit, properties: Mapping[str, str]) -> tuple[object, ...]:
    """Properties that a delayed message shares with its delivered copy, and with no other message."""
    recalled = properties.get(RECALLED)
    names = (REAL_TOPIC, REAL_QUEUE, TIMER_OUT_MS)
    return (unit.reconsume_times, recalled, *(properties.get(name) for name in names))
