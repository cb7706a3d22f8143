"""AddPartitionsToTxn, versions 0 to 3: adds partitions to a transaction; answered when that is durable.

All or none: if one partition is refused, the others are answered with OPERATION_NOT_ATTEMPTED.
Not served: versions 4 and 5, which brokers use among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.security.resources import Action
from trimq.core.transactions.transaction import ProducerIdentity
from trimq.errors import Refusal
from trimq.model import StreamId
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from trimq.protocols.kafka.names.codes import (
    Code,
    GroupTicket,
    KafkaRefusal,
    code_of,
    reply_after,
    require_transactional_id,
    transaction_code,
)
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response

_KNOWS_FENCING_SINCE = 2

Codes = Mapping[tuple[str, int], Code]


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(AddPartitionsToTxnRequest)
    try:
        context.broker.transactions.require_write(context.caller, message.v3_and_below_transactional_id)
        require_transactional_id(message.v3_and_below_transactional_id)
        streams, refused = _find(context, message)
        if refused:
            return Reply.now(_answer(request, message, Code.OPERATION_NOT_ATTEMPTED, refused))
        ticket = _add(context, message, streams)
    except Refusal as refusal:
        return Reply.now(_answer(request, message, _code(request, refusal), {}))

    def build(lost: Refusal | None) -> Parts:
        return _answer(request, message, Code.NONE if lost is None else _code(request, lost), {})

    return reply_after(ticket, build)


def _find(context: Context, message: AddPartitionsToTxnRequest) -> tuple[list[StreamId], Codes]:
    """Returns the requested streams, and the error codes of partitions that cannot be added."""
    streams: list[StreamId] = []
    refused: dict[tuple[str, int], Code] = {}
    for topic in message.v3_and_below_topics:
        for index in topic.partitions:
            try:
                if topic.name in INTERNAL:
                    raise KafkaRefusal(Code.TOPIC_AUTHORIZATION_FAILED, f"{topic.name} is an internal topic")
                found = context.topic(topic.name, b"", Action.WRITE)
                streams.append(found.stream(index).id)
            except Refusal as refusal:
                refused[topic.name, index] = code_of(refusal)
    return streams, refused


def _add(context: Context, message: AddPartitionsToTxnRequest, streams: list[StreamId]) -> GroupTicket | None:
    producer = ProducerIdentity(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    name = message.v3_and_below_transactional_id
    return context.broker.transactions.add_streams(context.caller, name, producer, streams)


def _code(request: Request, refusal: Refusal) -> Code:
    return transaction_code(refusal, request.api_version >= _KNOWS_FENCING_SINCE)


def _answer(request: Request, message: AddPartitionsToTxnRequest, code: Code, refused: Codes) -> Parts:
    results = []
    for topic in message.v3_and_below_topics:
        partitions = [
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=refused.get((topic.name, index), code)
            )
            for index in topic.partitions
        ]
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return encode_response(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


HANDLERS = {"AddPartitionsToTxn": handle}
