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
        streams, refused = _find(context, message)
        if refused:
            return Reply.now(_answer(request, message, Code.OPERATION_NOT_ATTEMPTED, refused))
        require_transactional_id(message.v3_and_below_transactional_id)
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
    if not refused:
        return encode_response(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_each(message, code)))
    places = dict.fromkeys((topic.name, index) for topic in message.v3_and_below_topics for index in topic.partitions)
    found: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for name, index in places:
        result = AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=refused.get((name, index), code)
        )
        found.setdefault(name, []).append(result)
    results = [AddPartitionsToTxnTopicResult(name=name, results_by_partition=each) for name, each in found.items()]
    return encode_response(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def _each(message: AddPartitionsToTxnRequest, code: Code) -> list[AddPartitionsToTxnTopicResult]:
    """Returns one result for each entry of the request, also of a partition that is listed twice."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in message.v3_and_below_topics
    ]


HANDLERS = {"AddPartitionsToTxn": handle}
