"""TxnOffsetCommit, versions 0 to 5: commits offsets of a group within a transaction; they become visible if it commits.

From version 3 on the member is checked; from version 5 on the request itself adds the group to the transaction.
"""

from __future__ import annotations

from trimq.core.groups.group import Claim
from trimq.core.security.resources import Action
from trimq.core.transactions.transaction import PendingCursor, ProducerIdentity
from trimq.errors import Refusal, UnknownGroup
from trimq.errors.transactions import WrongTransactionState
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from trimq.protocols.kafka.names.codes import (
    Code,
    GroupTicket,
    KafkaRefusal,
    reply_after,
    require_group_id,
    require_transactional_id,
    transaction_code,
)
from trimq.protocols.kafka.wire.connection import Request, encode_response

_METADATA_CHARACTERS = 4096
_JOINS_SINCE = 5
_ABORTS = 4  # clients of this version know TRANSACTION_ABORTABLE


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(TxnOffsetCommitRequest)
    attempt = _TxnCommitAttempt(context, message)
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name, partitions=[attempt.read_partition(topic.name, asked) for asked in topic.partitions]
        )
        for topic in message.topics
    ]
    if any(each.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION for topic in topics for each in topic.partitions):
        topics = _merge_topics(topics)
    ticket = attempt.commit(request.api_version)

    def build(lost: Refusal | None) -> Parts:
        if lost is not None:
            attempt.refuse_all(lost)
        return encode_response(request, TxnOffsetCommitResponse(topics=topics))

    return reply_after(ticket, build)


def _merge_topics(topics: list[TxnOffsetCommitResponseTopic]) -> list[TxnOffsetCommitResponseTopic]:
    """Merges entries of the same topic, as Kafka does if a partition does not exist."""
    merged: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in topics:
        known = merged.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(merged.values())


class _TxnCommitAttempt:
    """Offsets of a request that can be committed, and the results of the partitions that exist."""

    def __init__(self, context: Context, message: TxnOffsetCommitRequest) -> None:
        self._context = context
        self._message = message
        self._cursors: list[PendingCursor] = []
        self._answers: list[TxnOffsetCommitResponsePartition] = []

    def read_partition(self, topic: str, asked: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
        answer = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index)
        metadata = asked.committed_metadata or ""
        broker, caller = self._context.broker, self._context.caller
        try:
            broker.transactions.require_write(caller, self._message.transactional_id)
            broker.groups.require(caller, Action.READ, self._message.group_id)
            found = self._context.readable_topic(topic, b"", Action.READ)
            stream = broker.partitions.readable(caller, found, asked.partition_index)
        except Refusal as refusal:
            answer.error_code = transaction_code(refusal, knows_fencing=False)
            return answer
        self._answers.append(answer)
        if len(metadata) > _METADATA_CHARACTERS:
            answer.error_code = Code.OFFSET_METADATA_TOO_LARGE
            return answer
        self._cursors.append(
            PendingCursor(
                self._message.group_id,
                stream.id,
                asked.committed_offset,
                0,  # the core sets the time
                asked.committed_leader_epoch,
                metadata,
            )
        )
        return answer

    def commit(self, version: int) -> GroupTicket | None:
        if not self._answers:
            return None
        message, caller = self._message, self._context.caller
        transactions = self._context.broker.transactions
        producer = ProducerIdentity(message.producer_id, message.producer_epoch)
        try:
            require_group_id(message.group_id)
            require_transactional_id(message.transactional_id)
            if version >= _JOINS_SINCE:
                transactions.add_group(caller, message.transactional_id, producer, message.group_id)
            else:
                transactions.require_group(caller, message.transactional_id, producer, message.group_id)
            claim = Claim(message.member_id, message.generation_id, message.group_instance_id)
            self._context.broker.groups.check_claim(caller, message.group_id, claim)
            return transactions.commit_cursors(
                caller, message.transactional_id, producer, message.group_id, self._cursors
            )
        except WrongTransactionState as refusal:
            self.refuse_all(KafkaRefusal(Code.TRANSACTION_ABORTABLE, str(refusal)) if version == _ABORTS else refusal)
        except Refusal as refusal:
            self.refuse_all(refusal)
        return None

    def refuse_all(self, refusal: Refusal) -> None:
        code = transaction_code(refusal, knows_fencing=False)
        if isinstance(refusal, UnknownGroup):
            code = Code.ILLEGAL_GENERATION
        for answer in self._answers:
            answer.error_code = code


HANDLERS = {"TxnOffsetCommit": handle}
