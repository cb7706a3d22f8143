"""Messages whose producer decides later whether they count: how they come to wait, how they are decided, and what
becomes of them then."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from itertools import takewhile

from trimq.clock import Timeline
from trimq.core.api.commit_log import CommitLogApi, OutgoingMessage
from trimq.core.commit_log.stream import Appended, MessageQueue, QueueEntry
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.failures.ledger import Reason
from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.copies import WAIT
from trimq.formats.rocketmq_unit.dead_letters import (
    CHECK_MAX_TOPIC,
    CHECKED_TIMES,
    HALF_FIRST,
    PRODUCER_GROUP,
    REAL_QUEUE,
    REAL_TOPIC,
)
from trimq.formats.rocketmq_unit.properties import TAGS, UNIQUE_KEY, tags_code
from trimq.formats.rocketmq_unit.schedule import parse_time_ms
from trimq.formats.rocketmq_unit.unit import TRANSACTION_COMMIT, Unit
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.clients.registry import ClientRegistry
from trimq.protocols.rocketmq.schedule.scheduler import DelayScheduler
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.state.system_topics import HALF_TOPIC
from trimq.protocols.rocketmq.transactions.check_back import IMMUNITY_S, CheckBackSettings, TransactionChecker
from trimq.protocols.rocketmq.transactions.half_messages import HalfMessages, copy_half, read_half
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

log = logging.getLogger(__name__)

_ID = "__transactionId__"
_NOT_PUT_BACK = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed"


class Transactions:
    def __init__(
        self,
        commit_log_api: CommitLogApi,
        timeline: Timeline,
        identity: Identity,
        delays: DelayScheduler,
        clients: ClientRegistry,
        rng: random.Random,
        check_settings: CheckBackSettings,
    ) -> None:
        self._commit_log_api = commit_log_api
        self._timeline = timeline
        self._identity = identity
        self._delays = delays
        self._halves = HalfMessages(
            commit_log_api,
            timeline,
            identity,
            lambda: self._checker.check_settings.timeout_ms,
            lambda: self._checker.arm(),
        )
        self._checker = TransactionChecker(
            commit_log_api, timeline, identity, self._halves, clients, rng, check_settings
        )
        self._resuming: set[int] = set()  # positions of what was set aside and is becoming a half again

    def start(self) -> None:
        """Find the halves that no word decides."""
        self._halves.start()

    def stop(self) -> None:
        """Ask nobody any more; the next start goes on."""
        self._halves.stop()
        self._checker.stop()

    def update_check_settings(self, check_settings: CheckBackSettings) -> None:
        """From now on; the next look is an interval away."""
        self._checker.update_check_settings(check_settings)

    # -- halves come

    def prepare(
        self, topic: CommitLogTopic, queue_id: int, properties: dict[str, str]
    ) -> tuple[CommitLogTopic, MessageQueue]:
        """Where a half waits, whose properties then name the topic that it is for."""
        properties[REAL_TOPIC] = topic.name.name
        properties[REAL_QUEUE] = str(queue_id)
        properties[_ID] = properties[UNIQUE_KEY]
        properties.pop(HALF_FIRST, None)  # the broker's own word
        return self._halves.stream(HALF_TOPIC)

    def resume(self, letter: Unit) -> Appended:
        """A half that was set aside is a half again, as if nobody had been asked for it. Failure: it was not, or it is
        one already."""
        if letter.topic != CHECK_MAX_TOPIC.encode():
            raise RemotingRefusal(
                ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: not set aside"
            )
        position = letter.position
        if position in self._resuming or self._halves.has_copy_in(letter, HALF_TOPIC):
            raise RemotingRefusal(
                ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: it was put back before"
            )
        half = self._halves.rewrite(letter, {**read_half(letter), CHECKED_TIMES: "0"})
        host = self._identity.store_host
        placed = self._commit_log_api.append(SYSTEM, half.topic, half.stream, half.draft, half.code, host)
        self._resuming.add(position)
        self._commit_log_api.on_durable(placed.ticket, lambda done: self._resuming.discard(position))
        return placed

    # -- and are decided

    def decide(self, group: str, offset: int, position: int, is_commit: bool, is_answer: bool) -> Appended:
        """The producer's word: the half counts, or does not. `is_answer`: the broker had asked."""
        unit = self._half(position)
        properties = read_half(unit)
        if properties.get(PRODUCER_GROUP) != group:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if unit.queue_offset != offset:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        standing = self._halves.current_copy(unit)
        if standing is None:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "this transaction is decided already")
        self._refuse_late(unit, properties, is_answer)
        becomes = self._committed(standing, properties) if is_commit else None
        return self._halves.resolve(standing.queue_offset, becomes)[-1]

    def _half(self, position: int) -> Unit:
        try:
            unit = self._commit_log_api.unit_at(SYSTEM, position)
        except OffsetOutOfRange:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed") from None
        if unit.topic != HALF_TOPIC.encode():
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return unit

    def _refuse_late(self, unit: Unit, properties: dict[str, str], is_answer: bool) -> None:
        """Who asked to be left alone for a while must decide within it, or when it is asked."""
        if IMMUNITY_S not in properties or is_answer:
            return
        limit_ms = max(parse_time_ms(properties[IMMUNITY_S]) * 1000, self._checker.check_settings.timeout_ms)
        if self._timeline.now_ms() - unit.born_ms > limit_ms:
            raise RemotingRefusal(
                ResponseCode.ILLEGAL_OPERATION, "the transaction is decided too late: it will be asked for"
            )

    def _committed(self, unit: Unit, properties: dict[str, str]) -> OutgoingMessage:
        """The message that a half becomes."""
        name, queue_id = properties.pop(REAL_TOPIC, ""), parse_time_ms(properties.pop(REAL_QUEUE, None))
        if properties.get(WAIT) == "false":
            del properties[WAIT]
        topic = self._commit_log_api.topic(SYSTEM, name)
        stream, code = topic.stream_or_retired(queue_id), tags_code(properties.get(TAGS, ""))
        waiting = self._delays.postpone(topic, queue_id, properties)
        if waiting is not None:
            topic, stream, code = waiting.topic, waiting.stream, waiting.code
        return copy_half(topic, stream, unit, properties, code, TRANSACTION_COMMIT)

    # -- files in which halves wait

    def oldest_position(self) -> int | None:
        return next((entry.position for entry in self._waiting()), None)

    def _waiting(self) -> Iterator[QueueEntry]:
        """Oldest first; without those that are kept no longer."""
        halves = self._halves.stream(HALF_TOPIC)[1]
        offsets = (offset for offset in self._halves if offset >= halves.start)
        return (entry for offset in offsets for entry in halves.entries(offset, 1))

    def let_go(self, start: int) -> None:
        """The disk is nearly full. What goes can be decided no more."""
        before = takewhile(lambda entry: entry.position < start, self._waiting())
        going = [entry.offset for entry in before if self._halves.since_ms(entry.offset) is not None]
        for offset in going:
            unit = self._halves.unit(offset)
            properties = read_half(unit)
            topic, queue_id = properties.get(REAL_TOPIC, ""), parse_time_ms(properties.get(REAL_QUEUE))
            self._commit_log_api.failures.record_removed_message(SYSTEM, unit, topic, queue_id, Reason.UNDECIDED)
        self._halves.forget(going)
        if going:
            log.error("%d transactions that waited to be decided go, for the disk is nearly full", len(going))
