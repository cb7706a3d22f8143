"""Messages whose producer decides later whether they count: halves wait in a topic of the broker's own, a word in
another says which are decided. Both topics are the durable truth; what is kept here is an index of them."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.config import RocketMQ as RocketMQSettings
from trimq.core.failures import Reason
from trimq.core.shared_streams import Appended, Entry, SharedStream
from trimq.core.shared_topics import SharedTopic
from trimq.core.sharing import Outgoing, Sharing
from trimq.errors import OffsetOutOfRange, PropertiesTooLong, Refusal
from trimq.formats.unit import TRANSACTION_BITS, TRANSACTION_COMMIT, Draft, Unit, encode_unit
from trimq.formats.unit_copies import OF_THE_BROKER, WAIT, copied_properties
from trimq.formats.unit_hosts import offset_message_id
from trimq.formats.unit_letters import CHECK_MAX_TOPIC, CHECKED_TIMES, PRODUCER_GROUP, REAL_QUEUE, REAL_TOPIC
from trimq.formats.unit_properties import TAGS, UNIQUE_KEY, read_properties, tags_code, write_properties
from trimq.formats.unit_schedule import SCHEDULE_TOPIC, WHEEL_TOPIC, read_time
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.consumers import Client, Clients
from trimq.protocols.rocketmq.delays import Delays
from trimq.protocols.rocketmq.dialects import Question
from trimq.protocols.rocketmq.identity import Identity
from trimq.protocols.rocketmq.system_topics import HALF_TOPIC, OP_TOPIC

log = logging.getLogger(__name__)

_ID = "__transactionId__"
IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"

_GROUP = "CID_RMQ_SYS_TRANS"
_DECIDED = "d"
_OPTIONAL = (*OF_THE_BROKER, WAIT)
_FOR_EVER_MS = 2**62


class Patience(NamedTuple):
    """How long a half is left alone, how often is looked, how often its producer is asked, and after what time it is
    given up though nobody could be."""

    timeout_ms: int
    interval_ms: int
    max_checks: int
    longest_ms: int


def patience_of(settings: RocketMQSettings) -> Patience:
    return Patience(
        settings.transaction_timeout_ms,
        settings.transaction_check_interval_ms,
        settings.transaction_check_max,
        settings.retention_ms,
    )


class Transactions:
    def __init__(
        self,
        sharing: Sharing,
        timeline: Timeline,
        identity: Identity,
        delays: Delays,
        clients: Clients,
        chance: random.Random,
        patience: Patience,
    ) -> None:
        self._sharing = sharing
        self._timeline = timeline
        self._identity = identity
        self._delays = delays
        self._clients = clients
        self._chance = chance
        self._patience = patience
        self._undecided: dict[int, int] = {}  # offset in the half topic, and when it was stored there
        self._decided: set[int] = set()  # whose word is on its way to the disk
        self._indexed_to = 0
        self._timer: Timer | None = None
        self._is_stopped = False

    # -- starting

    def start(self) -> None:
        """Find the halves that no word decides."""
        half_topic, halves = self._stream(HALF_TOPIC)
        op_topic, ops = self._stream(OP_TOPIC)
        cursors = [self._sharing.cursor(SYSTEM, _GROUP, topic, 0) for topic in (half_topic, op_topic)]
        half_start, op_start = (0 if cursor is None else cursor.offset for cursor in cursors)
        decided = {offset for record in ops.records(op_start) for offset in _offsets(record.body or b"")}
        self._indexed_to = max(half_start, halves.start)
        self._index(halves)
        for offset in list(self._undecided):
            if offset in decided or self._was_committed(halves.unit(offset)):
                del self._undecided[offset]
        self._forget_asked(halves, max(half_start, halves.start))

    def stop(self) -> None:
        """Ask nobody any more; the next start goes on."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def be_patient(self, patience: Patience) -> None:
        """From now on; the next look is an interval away."""
        self._patience = patience
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._arm()

    def _stream(self, name: str) -> tuple[SharedTopic, SharedStream]:
        topic = self._sharing.topic(SYSTEM, name)
        return topic, topic.stream(0)

    def _index(self, halves: SharedStream) -> None:
        """Only what is durable is waited for."""
        for offset, _ in halves.codes(self._indexed_to):
            self._undecided[offset] = halves.unit(offset).store_ms
            self._indexed_to = offset + 1
        halves.watch(lambda: self._index(halves))
        self._arm()

    def _forget_asked(self, halves: SharedStream, first: int) -> None:
        """A half whose producer is asked is stored anew: a crash may have kept that and lost the word that the one
        before it does not count any more."""
        latest: dict[tuple[str, int], int] = {}
        for offset in range(first, self._indexed_to):
            properties = read_properties(halves.unit(offset).properties)
            key, times = properties.get(UNIQUE_KEY, ""), read_time(properties.get(CHECKED_TIMES))
            self._undecided.pop(latest.pop((key, times - 1), -1), None)
            latest[key, times] = offset

    def _was_committed(self, unit: Unit) -> bool:
        """A crash may have kept the message and lost the word that it was decided."""
        properties = read_properties(unit.properties)
        unique = properties.get(UNIQUE_KEY)
        if unique is None:
            return False
        return any(
            each.prepared_position == unit.position
            for topic in (properties.get(REAL_TOPIC, ""), SCHEDULE_TOPIC, WHEEL_TOPIC)
            for each in self._sharing.find_key(SYSTEM, topic, unique, unit.store_ms, _FOR_EVER_MS)
        )

    # -- halves come

    def prepare(
        self, topic: SharedTopic, queue_id: int, properties: dict[str, str]
    ) -> tuple[SharedTopic, SharedStream]:
        """Where a half waits, whose properties then name the topic that it is for."""
        properties[REAL_TOPIC] = topic.name.name
        properties[REAL_QUEUE] = str(queue_id)
        properties[_ID] = properties[UNIQUE_KEY]
        return self._stream(HALF_TOPIC)

    # -- and are decided

    def decide(self, group: str, offset: int, position: int, is_commit: bool, is_answer: bool) -> Appended:
        """The producer's word: the half counts, or does not. `is_answer`: the broker had asked."""
        halves = self._stream(HALF_TOPIC)[1]
        unit = self._half(halves, position)
        properties = read_properties(unit.properties)
        if properties.get(PRODUCER_GROUP) != group:
            raise Failure(Code.SYSTEM_ERROR, "The producer group wrong")
        if unit.queue_offset != offset:
            raise Failure(Code.SYSTEM_ERROR, "The transaction state table offset wrong")
        if offset not in self._undecided or offset in self._decided:
            raise Failure(Code.SYSTEM_ERROR, "this transaction is decided already")
        self._refuse_late(unit, properties, is_answer)
        return self._close(offset, self._committed(unit, properties) if is_commit else None)[-1]

    def _half(self, halves: SharedStream, position: int) -> Unit:
        try:
            unit = self._sharing.unit_at(SYSTEM, position)
        except OffsetOutOfRange:
            raise Failure(Code.SYSTEM_ERROR, "Find prepared transaction message failed") from None
        if unit.topic != HALF_TOPIC.encode():
            raise Failure(Code.SYSTEM_ERROR, "Find prepared transaction message failed")
        return unit

    def _refuse_late(self, unit: Unit, properties: dict[str, str], is_answer: bool) -> None:
        """Who asked to be left alone for a while must decide within it, or when it is asked."""
        if IMMUNITY_S not in properties or is_answer:
            return
        limit_ms = max(read_time(properties[IMMUNITY_S]) * 1000, self._patience.timeout_ms)
        if self._timeline.now_ms() - unit.born_ms > limit_ms:
            raise Failure(Code.ILLEGAL_OPERATION, "the transaction is decided too late: it will be asked for")

    def _committed(self, unit: Unit, properties: dict[str, str]) -> Outgoing:
        """The message that a half becomes."""
        name, queue_id = properties.pop(REAL_TOPIC, ""), read_time(properties.pop(REAL_QUEUE, None))
        if properties.get(WAIT) == "false":
            del properties[WAIT]
        topic = self._sharing.topic(SYSTEM, name)
        stream, code = topic.kept_stream(queue_id), tags_code(properties.get(TAGS, ""))
        waiting = self._delays.postpone(topic, queue_id, properties)
        if waiting is not None:
            topic, stream, code = waiting.topic, waiting.stream, waiting.code
        sys_flag = unit.sys_flag & ~TRANSACTION_BITS | TRANSACTION_COMMIT
        return self._again(topic, stream, unit, properties, code, sys_flag, unit.position)

    def _again(
        self,
        topic: SharedTopic,
        stream: SharedStream,
        unit: Unit,
        properties: dict[str, str],
        code: int,
        sys_flag: int = 0,
        prepared_position: int = 0,
    ) -> Outgoing:
        draft = Draft(
            topic.raw_name,
            stream.id.number,
            unit.body,
            copied_properties(properties, _OPTIONAL),
            unit.flag,
            sys_flag,
            unit.born_ms,
            unit.born_host,
            unit.reconsume_times,
            prepared_position,
        )
        return Outgoing(topic, stream, draft, code)

    def _close(self, offset: int, becomes: Outgoing | None) -> list[Appended]:
        """What the half becomes, if anything, and the word that it is decided: both, or none."""
        topic, stream = self._stream(OP_TOPIC)
        host = self._identity.store_host
        properties = write_properties({TAGS: _DECIDED})
        draft = Draft(topic.raw_name, 0, b"%d," % offset, properties, 0, 0, self._timeline.now_ms(), host)
        word = Outgoing(topic, stream, draft, tags_code(_DECIDED))
        placed = self._sharing.append_all(SYSTEM, [word] if becomes is None else [becomes, word], host)
        self._decided.add(offset)
        self._sharing.afterwards(placed[-1].ticket, lambda done: self._closed(offset, done.refusal is None))
        return placed

    def _closed(self, offset: int, is_durable: bool) -> None:
        self._decided.discard(offset)
        if is_durable:
            self._undecided.pop(offset, None)
            if not self._undecided:
                self._save()

    def _save(self) -> None:
        """Everything is decided: a restart need not look at what came before."""
        for name in (HALF_TOPIC, OP_TOPIC):
            topic, stream = self._stream(name)
            self._sharing.commit(SYSTEM, _GROUP, topic, 0, stream.readable_end)

    # -- producers are asked

    def _arm(self) -> None:
        if self._timer is None and self._undecided and not self._is_stopped:
            self._timer = self._timeline.call_at(self._timeline.now_ms() + self._patience.interval_ms, self._check)

    def _check(self) -> None:
        self._timer = None
        halves = self._stream(HALF_TOPIC)[1]
        now_ms = self._timeline.now_ms()
        refusals: list[Refusal] = []
        for offset, store_ms in list(self._undecided.items()):
            if offset in self._decided or now_ms - store_ms < self._patience.timeout_ms:
                continue
            try:
                self._check_one(halves, offset, now_ms - store_ms)
            except OffsetOutOfRange:
                self._forget(offset)
            except Refusal as refusal:
                refusals.append(refusal)
            except Exception:  # the others must be looked at all the same
                log.exception("the undecided transaction %d could not be looked at", offset)
        if refusals:
            log.warning("%d undecided transactions are looked at again later: %s", len(refusals), refusals[-1])
        self._arm()

    def _check_one(self, halves: SharedStream, offset: int, age_ms: int) -> None:
        unit = halves.unit(offset)
        properties = read_properties(unit.properties)
        times = read_time(properties.get(CHECKED_TIMES))
        producers = self._clients.producers(properties.get(PRODUCER_GROUP, ""))
        if times >= self._patience.max_checks or age_ms >= self._patience.longest_ms:
            self._set_aside(offset, unit)
        elif age_ms < read_time(properties.get(IMMUNITY_S)) * 1000 and not times:
            return
        elif producers:
            try:
                self._ask_for(self._chance.choice(producers), halves, offset, unit, properties, times)
            except PropertiesTooLong:
                self._set_aside(offset, unit)  # there is no room to count how often it was asked for

    def _ask_for(
        self, producer: Client, halves: SharedStream, offset: int, unit: Unit, properties: dict[str, str], times: int
    ) -> None:
        topic = self._stream(HALF_TOPIC)[0]
        properties[CHECKED_TIMES], properties[WAIT] = str(times + 1), "false"
        half = self._again(topic, halves, unit, properties, tags_code(properties.get(TAGS, "")))
        placed = self._close(offset, half)[0]
        question = self._question(unit, properties, placed)
        self._sharing.afterwards(placed.ticket, lambda done: None if done.refusal else self._ask(producer, question))

    def _set_aside(self, offset: int, unit: Unit) -> None:
        topic, stream = self._stream(CHECK_MAX_TOPIC)
        properties = read_properties(unit.properties)
        properties.pop(WAIT, None)
        becomes = self._again(topic, stream, unit, properties, 0)
        placed = self._close(offset, becomes)[0]
        self._sharing.failures.note(SYSTEM, topic, placed, becomes.draft, Reason.UNDECIDED)

    def resume(self, unit: Unit) -> Appended:
        """A half that was set aside is a half again, as if nobody had been asked for it. Failure: it was not."""
        if unit.topic != CHECK_MAX_TOPIC.encode():
            raise Failure(Code.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: not set aside")
        topic, halves = self._stream(HALF_TOPIC)
        properties = {**read_properties(unit.properties), CHECKED_TIMES: "0"}
        half = self._again(topic, halves, unit, properties, tags_code(properties.get(TAGS, "")))
        return self._sharing.append(SYSTEM, topic, halves, half.draft, half.code, self._identity.store_host)

    def _forget(self, offset: int) -> None:
        """It is kept no longer."""
        self._undecided.pop(offset, None)
        if not self._undecided:
            self._save()

    # -- files in which halves wait

    def oldest_position(self) -> int | None:
        return next((entry.position for entry in self._waiting()), None)

    def _waiting(self) -> Iterator[Entry]:
        """Oldest first; without those that are kept no longer."""
        halves = self._stream(HALF_TOPIC)[1]
        offsets = (offset for offset in self._undecided if offset >= halves.start)
        return (entry for offset in offsets for entry in halves.entries(offset, 1))

    def let_go(self, start: int) -> None:
        """The disk is nearly full. What goes can be decided no more."""
        halves = self._stream(HALF_TOPIC)[1]
        before = takewhile(lambda entry: entry.position < start, self._waiting())
        going = [entry.offset for entry in before if entry.offset not in self._decided]
        for offset in going:
            unit = halves.unit(offset)
            properties = read_properties(unit.properties)
            topic, queue_id = properties.get(REAL_TOPIC, ""), read_time(properties.get(REAL_QUEUE))
            self._sharing.failures.note_gone(SYSTEM, unit, topic, queue_id, Reason.UNDECIDED)
            self._forget(offset)
        if going:
            log.error("%d transactions that waited to be decided go, for the disk is nearly full", len(going))

    def _ask(self, producer: Client, question: Question) -> None:
        producer.outlet.send(producer.dialect.check_back(question, self._clients.next_opaque()))

    def _question(self, unit: Unit, properties: dict[str, str], placed: Appended) -> Question:
        """What a producer is asked: about the half in its new place, shown as the message that it will be."""
        host = self._identity.store_host
        draft = Draft(
            properties.get(REAL_TOPIC, "").encode(),
            read_time(properties.get(REAL_QUEUE)),
            bytes(unit.body),
            copied_properties(properties, _OPTIONAL),
            unit.flag,
            unit.sys_flag,
            unit.born_ms,
            unit.born_host,
            unit.reconsume_times,
        )
        return Question(
            encode_unit(draft, placed.queue_offset, placed.position, placed.store_ms, host),
            properties.get(UNIQUE_KEY, ""),
            placed.position,
            placed.queue_offset,
            offset_message_id(host, placed.position),
            self._identity.broker_name,
        )


def _offsets(body: bytes) -> list[int]:
    """The halves that a word is about."""
    return [int(word) for word in body.split(b",") if word.isdigit() and len(word) < 19]
