"""Transactional messages: prepares half messages, and commits or rolls them back when the producer decides."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from itertools import takewhile

from trimq.clock import Timeline
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.api.commit_log_messages import OutgoingMessage
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
from trimq.model import SYSTEM, Caller
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
        commit_log: CommitLogApi,
        timeline: Timeline,
        identity: Identity,
        delays: DelayScheduler,
        clients: ClientRegistry,
        rng: random.Random,
        check_settings: CheckBackSettings,
    ) -> None:
        self._topic_api = commit_log.topics
        self._message_api = commit_log.messages
        self._lookup_api = commit_log.lookup
        self._dead_letters = commit_log.dead_letters
        self._timeline = timeline
        self._identity = identity
        self._delays = delays
        self._halves = HalfMessages(
            commit_log.topics,
            commit_log.messages,
            commit_log.lookup,
            commit_log.groups,
            timeline,
            identity,
            lambda: self._checker.check_settings.timeout_ms,
            lambda: self._checker.arm(),
        )
        self._checker = TransactionChecker(
            commit_log.messages.on_durable,
            commit_log.dead_letters,
            timeline,
            identity,
            self._halves,
            clients,
            commit_log.messages.may_write_to,
            rng,
            check_settings,
        )
        self._resuming: set[int] = set()  # positions of discarded half messages being put back

    def start(self) -> None:
        """Loads the undecided half messages."""
        self._halves.start()

    def stop(self) -> None:
        """Stops check-back; the next start continues."""
        self._halves.stop()
        self._checker.stop()

    def update_check_settings(self, check_settings: CheckBackSettings) -> None:
        """Effective at once; the next check-back round begins one interval from now."""
        self._checker.update_check_settings(check_settings)

    # -- prepare

    def prepare(
        self, topic: CommitLogTopic, queue_id: int, properties: dict[str, str]
    ) -> tuple[CommitLogTopic, MessageQueue]:
        """Returns the half topic and queue, and adds the destination to the properties."""
        properties[REAL_TOPIC] = topic.name.name
        properties[REAL_QUEUE] = str(queue_id)
        properties[_ID] = properties[UNIQUE_KEY]
        properties.pop(HALF_FIRST, None)  # set by the broker only
        return self._halves.stream(HALF_TOPIC)

    def resume(self, letter: Unit) -> Appended:
        """Puts a discarded half message back into the half topic, with a check count of 0. Raises RemotingRefusal if it
        is not a discarded half message, or was put back already."""
        if letter.topic != CHECK_MAX_TOPIC.encode():
            raise RemotingRefusal(
                ResponseCode.SYSTEM_ERROR,
                "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: the message is not in TRANS_CHECK_MAX_TIME_TOPIC",
            )
        position = letter.position
        if position in self._resuming or self._halves.has_copy_in(letter, HALF_TOPIC):
            raise RemotingRefusal(
                ResponseCode.SYSTEM_ERROR,
                "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: it was put back already",
            )
        half = self._halves.rewrite(letter, {**read_half(letter), CHECKED_TIMES: "0"})
        host = self._identity.store_host
        placed = self._message_api.append(SYSTEM, half.topic, half.stream, half.draft, half.code, host)
        self._resuming.add(position)
        self._message_api.on_durable(placed.ticket, lambda done: self._resuming.discard(position))
        return placed

    # -- commit and rollback

    def decide(
        self, caller: Caller, group: str, offset: int, position: int, is_commit: bool, is_answer: bool
    ) -> Appended:
        """Commits or rolls back a half message for its producer, which needs the right to write to its topic.
        `is_answer`: in response to a check-back."""
        unit = self._half(position)
        properties = read_half(unit)
        self._message_api.require_write(caller, properties.get(REAL_TOPIC, ""))
        if properties.get(PRODUCER_GROUP) != group:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if unit.queue_offset != offset:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        standing = self._halves.current_copy(unit)
        if standing is None:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "the transaction is already committed or rolled back")
        self._refuse_late(unit, properties, is_answer)
        becomes = self._committed(standing, properties) if is_commit else None
        return self._halves.resolve(standing.queue_offset, becomes)[-1]

    def _half(self, position: int) -> Unit:
        try:
            unit = self._lookup_api.unit_at(SYSTEM, position)
        except OffsetOutOfRange:
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed") from None
        if unit.topic != HALF_TOPIC.encode():
            raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return unit

    def _refuse_late(self, unit: Unit, properties: dict[str, str], is_answer: bool) -> None:
        """Raises RemotingRefusal if a producer that asked for an immunity time decides after it, other than in response
        to a check-back."""
        if IMMUNITY_S not in properties or is_answer:
            return
        limit_ms = max(parse_time_ms(properties[IMMUNITY_S]) * 1000, self._checker.check_settings.timeout_ms)
        if self._timeline.now_ms() - unit.born_ms > limit_ms:
            raise RemotingRefusal(
                ResponseCode.ILLEGAL_OPERATION,
                "the transaction is decided after its immunity time; wait for the check-back",
            )

    def _committed(self, unit: Unit, properties: dict[str, str]) -> OutgoingMessage:
        """The message that a committed half message becomes."""
        name, queue_id = properties.pop(REAL_TOPIC, ""), parse_time_ms(properties.pop(REAL_QUEUE, None))
        if properties.get(WAIT) == "false":
            del properties[WAIT]
        topic = self._topic_api.get(SYSTEM, name)
        stream, code = topic.stream_or_retired(queue_id), tags_code(properties.get(TAGS, ""))
        waiting = self._delays.postpone(topic, queue_id, properties)
        if waiting is not None:
            topic, stream, code = waiting.topic, waiting.stream, waiting.code
        return copy_half(topic, stream, unit, properties, code, TRANSACTION_COMMIT)

    # -- retention of the half topic

    def oldest_position(self) -> int | None:
        return next((entry.position for entry in self._waiting()), None)

    def _waiting(self) -> Iterator[QueueEntry]:
        """Entries of undecided half messages, oldest first, without those deleted by retention."""
        halves = self._halves.stream(HALF_TOPIC)[1]
        offsets = (offset for offset in self._halves if offset >= halves.start)
        return (entry for offset in offsets for entry in halves.entries(offset, 1))

    def release(self, start: int) -> None:
        """Records half messages as failed before their files are deleted on a nearly full disk. They can no longer be
        decided."""
        before = takewhile(lambda entry: entry.position < start, self._waiting())
        going = [entry.offset for entry in before if self._halves.since_ms(entry.offset) is not None]
        for offset in going:
            unit = self._halves.unit(offset)
            properties = read_half(unit)
            topic, queue_id = properties.get(REAL_TOPIC, ""), parse_time_ms(properties.get(REAL_QUEUE))
            self._dead_letters.record_removed_message(SYSTEM, unit, topic, queue_id, Reason.UNDECIDED)
        self._halves.forget(going)
        if going:
            log.error(
                "%d undecided half messages: deleted (disk nearly full), all in the ledger of failures", len(going)
            )
