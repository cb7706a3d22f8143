"""Produce, versions 3 to 13: appends one batch per partition; acks 1 and all (-1) are answered when it is durable.

acks 0 is never answered; an error then closes the connection, so that the client notices it. The core checks records
against the topic's settings and may rewrite a batch. A client over quota gets `throttle_time_ms`, and so does every
client while memory or disk space is short; the broker stops reading from its connection for that long. A transactional
batch needs an open transaction; from version 12 on the batch adds its partition to the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimq.core.partitions.stream import Appended, Stream
from trimq.core.security.resources import Action
from trimq.errors import MissingKey, ProtocolError, RecordFault, Refusal, UntimelyRecord
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import LENGTH_ENDS_AT, TRANSACTIONAL_BIT, BadBatch, check_sent
from trimq.model import Buffer
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of, code_of_batch
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response
from trimq.protocols.kafka.wire.fast_produce import FLEXIBLE, write_single_append

_ACKS = (-1, 0, 1)
_ZSTD_SINCE = 7
_JOINS_SINCE = 12
_BY_ID = 13

Outcome = tuple[PartitionProduceResponse, Appended | None]


class _NoWrite(KafkaRefusal):
    """The request has nothing to write; not counted as a refused write."""


class TopicOutcome(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[Outcome]


def handle(context: Context, request: Request) -> Reply | None:
    message = request.decode(ProduceRequest)
    topics = message.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1 and message.acks != 0:
        return _handle_single_partition(context, request, message, topics[0])
    # Outcomes hold names, not the topics of the request: those would keep the receive buffer of the connection in use.
    outcomes = [_append_topic(context, request, message, topic) for topic in topics if topic.partition_data]
    throttle_ms = context.charge_write(_size(message))
    if message.acks == 0:
        _close_on_error(outcomes)
        return None
    number = max((appended.number for topic in outcomes for _, appended in topic.partitions if appended), default=0)
    return Reply.when_durable(number, lambda: _answer(context.counts, request, outcomes, throttle_ms))


def _handle_single_partition(
    context: Context, request: Request, message: ProduceRequest, topic: TopicProduceData
) -> Reply:
    """Fast path of `handle` for one partition, the usual request, if acks is not 0. Falls back to `_answer` on errors
    and before the flexible versions."""
    sent = topic.partition_data[0]
    name, topic_id, index, records = topic.name, topic.topic_id, sent.index, sent.records
    try:
        stream, appended = _try_append(context, request.api_version, message, topic, index, records)
    except (Refusal, BadBatch) as error:
        outcome = _refuse(context, index, error)
        throttle_ms = context.charge_write(len(records or b""))
        refused = [TopicOutcome(name, topic_id, [outcome])]
        return Reply.when_durable(0, lambda: _answer(context.counts, request, refused, throttle_ms))
    start = stream.start
    throttle_ms = context.charge_write(len(records or b""))

    def answer() -> Parts:
        if request.api_version >= FLEXIBLE and appended.refusal is None:
            return [write_single_append(request.correlation_id, request.api_version, name, topic_id, index,
                                       appended.base_offset, appended.append_time_ms, start, throttle_ms)]  # fmt: skip
        outcome = (_appended_response(index, appended, start), appended)
        return _answer(context.counts, request, [TopicOutcome(name, topic_id, [outcome])], throttle_ms)

    return Reply(build=answer, number=appended.number)


def _size(message: ProduceRequest) -> int:
    return sum(len(partition.records or b"") for topic in message.topic_data for partition in topic.partition_data)


def _append_topic(context: Context, request: Request, message: ProduceRequest, topic: TopicProduceData) -> TopicOutcome:
    partitions = [
        _append(context, request, message, topic, partition.index, partition.records)
        for partition in topic.partition_data
    ]
    return TopicOutcome(topic.name, topic.topic_id, partitions)


def _append(
    context: Context,
    request: Request,
    message: ProduceRequest,
    asked: TopicProduceData,
    index: int,
    records: Buffer | None,
) -> Outcome:
    try:
        stream, appended = _try_append(context, request.api_version, message, asked, index, records)
    except (Refusal, BadBatch) as error:
        return _refuse(context, index, error)
    return _appended_response(index, appended, stream.start), appended


def _try_append(
    context: Context, version: int, message: ProduceRequest, asked: TopicProduceData, index: int, records: Buffer | None
) -> tuple[Stream, Appended]:
    """Appends a batch. Raises Refusal or BadBatch if it is not accepted."""
    if asked.name in INTERNAL:
        raise KafkaRefusal(Code.INVALID_TOPIC, f"{asked.name} is an internal topic")
    topic = context.topic(asked.name, asked.topic_id if version >= _BY_ID else b"", Action.WRITE)
    stream = topic.stream(index)
    if message.acks not in _ACKS:
        raise _NoWrite(Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    if not records:
        raise _NoWrite(Code.INVALID_RECORD, "the request has no batch for this partition")
    header = check_sent(records)
    if version < _ZSTD_SINCE and header.codec == Codec.ZSTD:
        raise KafkaRefusal(Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce version {_ZSTD_SINCE} or later")
    records = records[: LENGTH_ENDS_AT + header.length]
    if not header.attributes & TRANSACTIONAL_BIT:
        return stream, context.broker.partitions.append(context.caller, topic, stream, records, header)
    may_join = version >= _JOINS_SINCE
    joined = context.broker.transactions.check_append(context.caller, _name(message), stream, header, may_join)
    appended = context.broker.partitions.append(context.caller, topic, stream, records, header)
    return stream, appended._replace(joined=joined)


def _refuse(context: Context, index: int, error: Refusal | BadBatch) -> Outcome:
    if isinstance(error, BadBatch):
        context.counts.refused_write(type(error).__name__)
        return _failed(index, code_of_batch(error), str(error))
    if not isinstance(error, _NoWrite):
        context.counts.refused_write(error.code.name if isinstance(error, KafkaRefusal) else type(error).__name__)
    faults = error.faults if isinstance(error, MissingKey | UntimelyRecord) else ()
    return _failed(index, code_of(error), str(error), faults)


def _appended_response(index: int, appended: Appended, start: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=start,
    )


def _name(message: ProduceRequest) -> str:
    if message.transactional_id is None:
        raise KafkaRefusal(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch needs a transactional id")
    return message.transactional_id


def _failed(index: int, code: Code, message: str, faults: Sequence[RecordFault] = ()) -> Outcome:
    response = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
    response.record_errors = [BatchIndexAndErrorMessage(fault.index, fault.reason) for fault in faults]
    return response, None


def _close_on_error(outcomes: list[TopicOutcome]) -> None:
    for topic in outcomes:
        for response, _ in topic.partitions:
            if response.error_code:
                raise ProtocolError(f"a produce request to {topic.name} with acks=0 failed: {response.error_message}")


def _answer(counts: Counts, request: Request, outcomes: list[TopicOutcome], throttle_ms: int) -> Parts:
    """Encodes the response after the pass, with an error for each batch that could not be written."""
    responses = []
    for topic in outcomes:
        partitions = [_with_write_result(counts, response, appended) for response, appended in topic.partitions]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    return encode_response(request, ProduceResponse(responses=responses, throttle_time_ms=throttle_ms))


def _with_write_result(
    counts: Counts, response: PartitionProduceResponse, appended: Appended | None
) -> PartitionProduceResponse:
    refusal = None if appended is None else appended.refusal
    if refusal is None:
        return response
    counts.refused_write(type(refusal).__name__)
    return _failed(response.index, code_of(refusal), str(refusal))[0]


HANDLERS = {"Produce": handle}
