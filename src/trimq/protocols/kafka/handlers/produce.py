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
from trimq.core.partitions.topics import Topic
from trimq.core.security.resources import Action
from trimq.errors import MessageTooLong, MissingKey, ProtocolError, RecordFault, Refusal, UntimelyRecord
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import (
    LENGTH_ENDS_AT,
    TRANSACTIONAL_BIT,
    BadBatch,
    BadFraming,
    BatchHeader,
    UnsupportedMagic,
    check_alone,
    check_base_offset,
    check_bounds,
    check_content,
)
from trimq.model import Buffer
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
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
_NO_START = -1
# Kafka names the first offset of the partition in other refusals.
_WITHOUT_START = (
    Code.CORRUPT_MESSAGE,
    Code.MESSAGE_TOO_LARGE,
    Code.KAFKA_STORAGE_ERROR,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
)
# Kafka looks for transactional batches in the whole request first, which fails if a batch has no framing.
_REFUSES_REQUEST = (BadFraming, UnsupportedMagic)

Outcome = tuple[PartitionProduceResponse, Appended | None]
Topics = dict[tuple[str, bytes], dict[int, Outcome]]
"""Outcome of each partition, by name and id of its topic: a partition that is named twice has one outcome."""
_Place = tuple[str, bytes, int]


class _NoWrite(KafkaRefusal):
    """The request has nothing to write; not counted as a refused write."""


class _Batch(NamedTuple):
    """Batch that may be appended, as far as its framing and its place tell."""

    topic: Topic
    stream: Stream
    records: Buffer
    header: BatchHeader


def handle(context: Context, request: Request) -> Reply | None:
    message = request.decode(ProduceRequest)
    topics = message.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1 and message.acks != 0:
        return _handle_single_partition(context, request, message, topics[0])
    # Outcomes hold names, not the topics of the request: those would keep the receive buffer of the connection in use.
    outcomes = _append_all(context, request.api_version, message)
    throttle_ms = context.charge_write(_size(message))
    if message.acks == 0:
        _close_on_error(outcomes)
        return None
    return _reply(context.counts, request, outcomes, throttle_ms)


def _reply(counts: Counts, request: Request, outcomes: Topics, throttle_ms: int) -> Reply:
    written = (appended for topic in outcomes.values() for _, appended in topic.values() if appended)
    number = max((appended.number for appended in written), default=0)
    return Reply.when_durable(number, lambda: _answer(counts, request, outcomes, throttle_ms))


def _handle_single_partition(
    context: Context, request: Request, message: ProduceRequest, topic: TopicProduceData
) -> Reply:
    """Fast path of `handle` for one partition, the usual request, if acks is not 0. Falls back to `_answer` on errors
    and before the flexible versions."""
    sent = topic.partition_data[0]
    name, topic_id, index, size = topic.name, topic.topic_id, sent.index, len(sent.records or b"")
    start = _NO_START
    try:
        batch = _find_batch(context, request.api_version, message, topic, sent)
        start = batch.stream.start
        appended = _append(context, request.api_version, message, batch)
    except (Refusal, BadBatch) as error:
        refused = {(name, topic_id): {index: _refuse(context, index, error, start)}}
        return _reply(context.counts, request, refused, context.charge_write(size))
    start = batch.stream.start
    throttle_ms = context.charge_write(size)

    def answer() -> Parts:
        if request.api_version >= FLEXIBLE and appended.refusal is None:
            return [write_single_append(request.correlation_id, request.api_version, name, topic_id, index,
                                       appended.base_offset, appended.append_time_ms, start, throttle_ms)]  # fmt: skip
        outcomes: Topics = {(name, topic_id): {index: (_appended_response(index, appended, start), appended)}}
        return _answer(context.counts, request, outcomes, throttle_ms)

    return Reply(build=answer, number=appended.number)


def _size(message: ProduceRequest) -> int:
    return sum(len(partition.records or b"") for topic in message.topic_data for partition in topic.partition_data)


def _append_all(context: Context, version: int, message: ProduceRequest) -> Topics:
    """Appends the batches of all partitions. As in Kafka, a partition that is named twice gets the last of its batches,
    and its outcome is the refusal of the other, if there is one."""
    sent = [(topic, each) for topic in message.topic_data for each in topic.partition_data]
    try:
        for _, each in sent:
            _check_framing(message, each.records)
    except (Refusal, BadBatch) as error:
        return _refuse_all(context, message, error)
    batches: dict[_Place, _Batch] = {}
    refused: dict[_Place, Outcome] = {}
    for topic, each in sent:
        place = (topic.name, topic.topic_id, each.index)
        try:
            batches[place] = _find_batch(context, version, message, topic, each)
        except (Refusal, BadBatch) as error:
            refused[place] = _refuse(context, each.index, error)
    found = {place: _try_append(context, version, message, place[2], batch) for place, batch in batches.items()}
    found |= refused
    outcomes: Topics = {}
    for topic, each in sent:
        outcomes.setdefault((topic.name, topic.topic_id), {})[each.index] = found[
            topic.name, topic.topic_id, each.index
        ]
    return outcomes


def _refuse_all(context: Context, message: ProduceRequest, error: Refusal | BadBatch) -> Topics:
    outcomes: Topics = {}
    for topic in message.topic_data:
        for each in topic.partition_data:
            outcomes.setdefault((topic.name, topic.topic_id), {})[each.index] = _refuse(context, each.index, error)
    return outcomes


def _check_framing(message: ProduceRequest, records: Buffer | None) -> None:
    """Raises if the whole request is refused because of this batch."""
    if not records:
        return
    try:
        header = check_bounds(records)
    except BadBatch as error:
        if type(error) in _REFUSES_REQUEST:
            raise
        return
    if header.attributes & TRANSACTIONAL_BIT:
        _name(message)


def _find_batch(
    context: Context, version: int, message: ProduceRequest, topic: TopicProduceData, sent: PartitionProduceData
) -> _Batch:
    """Returns the batch and its place. Raises Refusal or BadBatch if it must not even be tried."""
    records = sent.records
    fault: BadBatch | None = None
    if records:
        try:
            header = check_alone(records)
            if header.attributes & TRANSACTIONAL_BIT:
                _name(message)
        except BadBatch as error:
            if type(error) in _REFUSES_REQUEST:
                raise
            fault = error
    if topic.name in INTERNAL:
        raise KafkaRefusal(Code.INVALID_TOPIC, f"{topic.name} is an internal topic")
    found = context.topic(topic.name, topic.topic_id if version >= _BY_ID else b"", Action.WRITE)
    stream = found.stream(sent.index)
    if fault is not None:
        raise fault
    if not records:
        raise _NoWrite(Code.INVALID_RECORD, "the request has no batch for this partition")
    if version < _ZSTD_SINCE and header.codec == Codec.ZSTD:
        raise KafkaRefusal(Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce version {_ZSTD_SINCE} or later")
    if message.acks not in _ACKS:
        raise _NoWrite(Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    return _Batch(found, stream, records[: LENGTH_ENDS_AT + header.length], header)


def _try_append(context: Context, version: int, message: ProduceRequest, index: int, batch: _Batch) -> Outcome:
    try:
        appended = _append(context, version, message, batch)
    except (Refusal, BadBatch) as error:
        return _refuse(context, index, error, batch.stream.start)
    return _appended_response(index, appended, batch.stream.start), appended


def _append(context: Context, version: int, message: ProduceRequest, batch: _Batch) -> Appended:
    """Appends a batch. Raises Refusal or BadBatch if it is not accepted."""
    topic, stream, records, header = batch
    check_base_offset(header)
    if len(records) > stream.message_bytes:
        raise MessageTooLong(len(records), stream.message_bytes)
    check_content(records, header)
    partitions = context.broker.partitions
    if not header.attributes & TRANSACTIONAL_BIT:
        return partitions.append(context.caller, topic, stream, records, header)
    may_join = version >= _JOINS_SINCE
    joined = context.broker.transactions.check_append(context.caller, _name(message), stream, header, may_join)
    return partitions.append(context.caller, topic, stream, records, header)._replace(joined=joined)


def _refuse(context: Context, index: int, error: Refusal | BadBatch, start: int = _NO_START) -> Outcome:
    """`start`: first offset of the partition, if it was found."""
    if isinstance(error, BadBatch):
        context.counts.refused_write(type(error).__name__)
        return _failed(index, code_of_batch(error), str(error), start)
    if not isinstance(error, _NoWrite):
        context.counts.refused_write(error.code.name if isinstance(error, KafkaRefusal) else type(error).__name__)
    faults = error.faults if isinstance(error, MissingKey | UntimelyRecord) else ()
    return _failed(index, code_of(error), str(error), start, faults)


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


def _failed(
    index: int, code: Code, message: str, start: int = _NO_START, faults: Sequence[RecordFault] = ()
) -> Outcome:
    response = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
    response.log_start_offset = _NO_START if code in _WITHOUT_START else start
    response.record_errors = [BatchIndexAndErrorMessage(fault.index, fault.reason) for fault in faults]
    return response, None


def _close_on_error(outcomes: Topics) -> None:
    for (name, _), partitions in outcomes.items():
        for response, _ in partitions.values():
            if response.error_code:
                raise ProtocolError(f"a produce request to {name} with acks=0 failed: {response.error_message}")


def _answer(counts: Counts, request: Request, outcomes: Topics, throttle_ms: int) -> Parts:
    """Encodes the response after the pass, with an error for each batch that could not be written."""
    responses = []
    for (name, topic_id), outcome in outcomes.items():
        partitions = [_with_write_result(counts, response, appended) for response, appended in outcome.values()]
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions))
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
