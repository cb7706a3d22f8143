"""Produce, versions 3 to 13: appends one batch to each partition; acks 1 and all are answered when it is durable.

acks 0 is never answered; an error then closes the connection, so that the client notices.
Not served: transactions, LogAppendTime.
"""

from __future__ import annotations

from typing import NamedTuple

from trimq.core.streams import Appended
from trimq.errors import ProtocolError, Refusal
from trimq.formats.batch import BadBatch, check_sent
from trimq.formats.records import validate_records
from trimq.model import Buffer
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.codes import Code, code_of, code_of_batch
from trimq.protocols.kafka.connection import Request, encode_response
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_ACKS = (-1, 0, 1)

Outcome = tuple[PartitionProduceResponse, Appended | None]


class TopicOutcome(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[Outcome]


def handle(context: Context, request: Request) -> Reply | None:
    message = request.decode(ProduceRequest)
    # The names, not the topics: those hold the batches, and with them the connection's receive buffer.
    outcomes = [_append_topic(context, topic, message.acks) for topic in message.topic_data]
    if message.acks == 0:
        _close_on_error(outcomes)
        return None
    tickets = [appended.ticket for topic in outcomes for _, appended in topic.partitions if appended]
    number = max((ticket.number for ticket in tickets), default=0)
    return Reply.when_durable(number, lambda: _answer(request, outcomes))


def _append_topic(context: Context, topic: TopicProduceData, acks: int) -> TopicOutcome:
    partitions = [
        _append(context, topic, partition.index, partition.records, acks) for partition in topic.partition_data
    ]
    return TopicOutcome(topic.name, topic.topic_id, partitions)


def _append(context: Context, asked: TopicProduceData, index: int, records: Buffer | None, acks: int) -> Outcome:
    try:
        topic = context.topic(asked.name, asked.topic_id)
        stream = topic.stream(index)
        if acks not in _ACKS:
            return _failed(index, Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
        if not records:
            return _failed(index, Code.INVALID_RECORD, "there is no batch")
        header = check_sent(records)
        validate_records(records, max_expanded_bytes=context.broker.settings.limits.batch_expansion_bytes)
        appended = context.broker.append(context.caller, topic, stream, records[: header.size], header)
    except Refusal as refusal:
        return _failed(index, code_of(refusal), str(refusal))
    except BadBatch as error:
        return _failed(index, code_of_batch(error), str(error))
    response = PartitionProduceResponse(
        index=index, base_offset=appended.base_offset, log_append_time_ms=-1, log_start_offset=stream.start
    )
    return response, appended


def _failed(index: int, code: Code, message: str) -> Outcome:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message), None


def _close_on_error(outcomes: list[TopicOutcome]) -> None:
    for topic in outcomes:
        for response, _ in topic.partitions:
            if response.error_code:
                raise ProtocolError(f"a produce request to {topic.name} with acks=0 failed: {response.error_message}")


def _answer(request: Request, outcomes: list[TopicOutcome]) -> Parts:
    """The pass is over: what could not be written is told now."""
    responses = []
    for topic in outcomes:
        told = [_settle(response, appended) for response, appended in topic.partitions]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=told))
    return encode_response(request, ProduceResponse(responses=responses))


def _settle(response: PartitionProduceResponse, appended: Appended | None) -> PartitionProduceResponse:
    if appended is None or appended.ticket.refusal is None:
        return response
    refusal = appended.ticket.refusal
    return _failed(response.index, code_of(refusal), str(refusal))[0]
