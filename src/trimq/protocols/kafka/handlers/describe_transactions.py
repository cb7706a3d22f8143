"""DescribeTransactions, version 0: returns the state of transactions, and the partitions of those that are open."""

from __future__ import annotations

from uuid import UUID

from trimq.core.transactions.transaction import Transaction
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    TopicData,
)
from trimq.protocols.kafka.names.codes import require_transactional_id, transaction_code
from trimq.protocols.kafka.names.internal_topics import OFFSETS, PARTITIONS
from trimq.protocols.kafka.names.states import STATE_NAMES
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeTransactionsRequest)
    states = [_describe(context, name) for name in message.transactional_ids]
    return Reply.now(encode_response(request, DescribeTransactionsResponse(transaction_states=states)))


def _describe(context: Context, name: str) -> DescribeTransactionsTransactionState:
    try:
        require_transactional_id(name)
        known = context.broker.transactions.describe(context.caller, name)
    except Refusal as refusal:
        code = transaction_code(refusal, knows_fencing=True)
        return DescribeTransactionsTransactionState(transactional_id=name, error_code=code)
    return DescribeTransactionsTransactionState(
        transactional_id=name,
        transaction_state=STATE_NAMES[known.state],
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=_topics(context, known),
    )


def _topics(context: Context, known: Transaction) -> list[TopicData]:
    numbers: dict[UUID, list[int]] = {}
    for stream in sorted(known.streams):
        numbers.setdefault(stream.topic, []).append(stream.number)
    topics = []
    for id, indexes in numbers.items():
        try:
            topic = context.broker.topics.by_id(context.caller, id)
        except Refusal:
            continue  # deleted, or the caller may not see it
        topics.append(TopicData(topic=topic.name.name, partitions=indexes))
    if known.groups:
        partitions = sorted({_offsets_partition(group) for group in known.groups})
        topics.append(TopicData(topic=OFFSETS, partitions=partitions))
    return topics


def _offsets_partition(group: str) -> int:
    """Returns the partition of __consumer_offsets in which Kafka keeps a group: by Java's hash code of its name."""
    code = 0
    encoded = group.encode("utf-16-be")
    for position in range(0, len(encoded), 2):
        code = (31 * code + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF if code < 1 << 31 else _absolute(code)) % PARTITIONS


def _absolute(code: int) -> int:
    """Kafka's absolute value of a negative int: that of the least one is 0."""
    return 0 if code == 1 << 31 else (1 << 32) - code


HANDLERS = {"DescribeTransactions": handle}
