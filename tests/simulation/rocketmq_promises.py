"""Expected state for RocketMQ clients: offsets of messages, delivery times of delayed ones, and outcomes of half
messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker_promises import CursorPromises
from popping_promises import PoppingPromises
from simulated_trace import SimulationFailure

from trimq.formats.rocketmq_unit.unit import Unit, read_unit

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
PLAIN, DELAYED, HALF = "plain", "delayed", "half"

Queue = tuple[str, int]


@dataclass
class Message:
    """A message that was sent. `counts`: the producer's decision on a half message. `earliest_ms`: not visible in its
    topic before. `offset`: the offset in the response, where the queue is unknown."""

    topic: str
    kind: str
    earliest_ms: int = 0
    counts: bool = True
    is_decided: bool = False
    is_acknowledged: bool = False
    is_refused: bool = False
    is_gone: bool = False
    offset: int | None = None
    place: tuple[str, int, int] | None = None


@dataclass
class Retry:
    """A message that a group sent back: the earliest redelivery for each request."""

    earliest_ms: list[int] = field(default_factory=list)
    acknowledged: int = 0
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    """Copies with their store timestamps."""


class RocketMQPromises:
    def __init__(self) -> None:
        self._messages: dict[bytes, Message] = {}
        self._retries: defaultdict[tuple[str, bytes], Retry] = defaultdict(Retry)
        self._units: defaultdict[Queue, dict[int, bytes]] = defaultdict(dict)
        self._acknowledged: defaultdict[Queue, dict[int, bytes]] = defaultdict(dict)
        self._cursors: defaultdict[tuple[str, str, int], CursorPromises] = defaultdict(CursorPromises)
        self.seen_kinds: Counter[str] = Counter()
        self._popping: dict[str, PoppingPromises] = {}

    # -- POP groups

    def add_pop_group(self, group: PoppingPromises) -> None:
        self._popping[group.group] = group

    def retry_topic(self, group: PoppingPromises, topic: str) -> str:
        return f"{RETRY_PREFIX}{group.group}_{topic}"

    def owed_to(self, group: PoppingPromises) -> list[bytes]:
        """Returns the acknowledged messages that this group must still ack."""
        must = (body for body, message in self._messages.items() if message.is_acknowledged and message.counts)
        return [body for body in must if group.is_owed(body)]

    def _check_popped(self, topic: str, queue: int, unit: Unit) -> bool:
        """Returns whether the topic belongs to a POP group."""
        prefix, _, rest = topic[1:].partition("%")
        group = self._popping.get(rest.partition("_")[0])
        if group is None:
            return False
        see = group.revived if prefix == RETRY_PREFIX.strip("%") else group.dead_lettered
        see(unit, (topic, queue, unit.queue_offset))
        self.seen_kinds[prefix] += 1
        return True

    # -- requests

    def asked(self, body: bytes, message: Message) -> None:
        self._messages[body] = message

    def refused(self, body: bytes) -> None:
        message = self._messages[body]
        message.is_refused = True
        if message.place is not None:
            raise SimulationFailure(f"{body[:30]!r} was refused after it was read")

    def acknowledged(self, body: bytes, queue: int, offset: int) -> None:
        message = self._messages[body]
        message.is_acknowledged = True
        if message.kind == PLAIN:
            place = (message.topic, queue)
            if self._acknowledged[place].setdefault(offset, body) != body:
                raise SimulationFailure(f"offset {offset} of {place} was assigned to two messages")
            self._placed(body, message, (*place, offset))

    def acknowledged_somewhere(self, body: bytes, offset: int) -> None:
        """The producer does not learn the queue."""
        message = self._messages[body]
        message.is_acknowledged, message.offset = True, offset
        if message.place is not None:
            self._placed(body, message, message.place)

    def message(self, body: bytes) -> Message:
        return self._messages[body]

    def decision_asked(self, body: bytes) -> bool:
        """Returns whether this half message is to be committed; its producer is about to say so."""
        message = self._messages.get(body)
        if message is None or message.kind != HALF or message.is_refused or message.is_gone:
            raise SimulationFailure(f"a check-back for {body[:30]!r}, which is no half message")
        message.is_decided = True
        return message.counts

    def retry_asked(self, group: str, body: bytes, earliest_ms: int) -> None:
        self._retries[group, body].earliest_ms.append(earliest_ms)

    def retry_refused(self, group: str, body: bytes, earliest_ms: int) -> None:
        self._retries[group, body].earliest_ms.remove(earliest_ms)

    def retry_acknowledged(self, group: str, body: bytes) -> None:
        self._retries[group, body].acknowledged += 1

    def cursor(self, group: str, topic: str, queue: int) -> CursorPromises:
        return self._cursors[group, topic, queue]

    # -- reads

    def seen(self, topic: str, queue: int, raw: bytes, now_ms: int) -> Unit:
        """A client got this unit."""
        unit = read_unit(raw)
        body = bytes(unit.body)
        if unit.topic.decode() != topic or unit.queue_id != queue:
            raise SimulationFailure(f"{body[:30]!r} of {unit.topic!r}/{unit.queue_id} was read from {topic}/{queue}")
        if self._units[topic, queue].setdefault(unit.queue_offset, raw) != raw:
            raise SimulationFailure(f"other bytes than before at {unit.queue_offset} of {topic}/{queue}")
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) and self._check_popped(topic, queue, unit):
            return unit
        if topic.startswith(RETRY_PREFIX):
            self._check_retry(topic.removeprefix(RETRY_PREFIX), queue, unit, now_ms)
        else:
            self._check_message(topic, queue, unit, now_ms)
        return unit

    def _check_message(self, topic: str, queue: int, unit: Unit, now_ms: int) -> None:
        body = bytes(unit.body)
        message = self._messages.get(body)
        if message is None or message.topic != topic:
            raise SimulationFailure(f"{body[:30]!r} was read from {topic}, but was never sent there")
        if message.is_refused:
            raise SimulationFailure(f"{body[:30]!r} was read, but had been refused")
        if message.is_gone:
            raise SimulationFailure(f"{body[:30]!r} was read, but an earlier recovery did not have it")
        if (came_ms := min(now_ms, unit.store_ms)) < message.earliest_ms:
            raise SimulationFailure(f"{body[:30]!r} was delivered {message.earliest_ms - came_ms} ms early")
        if message.kind == HALF and not (message.counts and message.is_decided):
            raise SimulationFailure(f"the half message {body[:30]!r} was read, but was rolled back")
        self._placed(body, message, (topic, queue, unit.queue_offset))

    def _placed(self, body: bytes, message: Message, place: tuple[str, int, int]) -> None:
        if message.place is None:
            self.seen_kinds[message.kind] += 1
            message.place = place
        if message.offset is not None and message.offset != place[2]:
            raise SimulationFailure(f"{body[:30]!r} is at {place}, but {message.offset} was in the response")
        if message.place != place:
            raise SimulationFailure(f"{body[:30]!r} is at {place} and at {message.place}")

    def _check_retry(self, group: str, queue: int, unit: Unit, now_ms: int) -> None:
        body = bytes(unit.body)
        retry = self._retries[group, body]
        if (queue, unit.queue_offset) not in retry.places:
            self.seen_kinds["retry"] += 1
        retry.places[queue, unit.queue_offset] = min(now_ms, unit.store_ms)
        if len(retry.places) > len(retry.earliest_ms):
            raise SimulationFailure(f"{body[:30]!r} was redelivered more often than {group} sent it back")
        for came_ms, earliest_ms in zip(sorted(retry.places.values()), sorted(retry.earliest_ms), strict=False):
            if came_ms < earliest_ms:
                raise SimulationFailure(f"{body[:30]!r} was redelivered {earliest_ms - came_ms} ms early")
        if unit.reconsume_times != 1:
            raise SimulationFailure(f"{body[:30]!r} was redelivered after {unit.reconsume_times} retries")

    def owed(self) -> list[bytes]:
        """Returns the acknowledged messages that must be delivered, and were not read yet."""
        waiting = [
            body
            for body, message in self._messages.items()
            if message.is_acknowledged and message.counts and message.place is None
        ]
        return waiting + [body for (_, body), retry in self._retries.items() if retry.acknowledged > len(retry.places)]

    # -- recovery

    def check_recovered(self, found: Mapping[Queue, Iterable[bytes]], own: frozenset[str], now_ms: int) -> None:
        """Checks all recovered messages, by queue; `own` are the broker's topics for delayed and half messages."""
        bodies: set[bytes] = set()
        for (topic, queue), raws in found.items():
            ends = 0
            for offset, raw in enumerate(raws):
                unit = read_unit(raw)
                if unit.queue_offset != offset:
                    raise SimulationFailure(f"recovery found {unit.queue_offset} at {offset} of {topic}/{queue}")
                bodies.add(bytes(unit.body))
                if topic not in own:
                    self.seen(topic, queue, raw, now_ms)
                elif self._units[topic, queue].setdefault(offset, raw) != raw:
                    raise SimulationFailure(f"recovery found other bytes at {offset} of {topic}/{queue}")
                ends = offset + 1
            self._check_kept(topic, queue, ends)
        for place in self._units.keys() - found.keys():
            self._check_kept(*place, 0)
        for body, message in self._messages.items():
            if message.is_acknowledged and body not in bodies:
                raise SimulationFailure(f"recovery lost {body[:30]!r}, which was acknowledged")
            message.is_gone = message.is_gone or body not in bodies

    def _check_kept(self, topic: str, queue: int, end: int) -> None:
        known = self._units[topic, queue]
        if any(offset >= end for offset in known):
            raise SimulationFailure(f"recovery found {end} messages in {topic}/{queue}, and {max(known)} was seen")
        for offset, body in self._acknowledged[topic, queue].items():
            if offset >= end or bytes(read_unit(known[offset]).body) != body:
                raise SimulationFailure(f"recovery lost {body[:30]!r}, which was acknowledged at {offset}")

    def check_cursors(self, found: Mapping[tuple[str, str, int], int]) -> None:
        for key, cursor in self._cursors.items():
            if not cursor.recovered(found.get(key), may_lose=False):
                raise SimulationFailure(f"recovery found {key} at {found.get(key)}, which was never committed")
