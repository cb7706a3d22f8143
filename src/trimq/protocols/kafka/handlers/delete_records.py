"""DeleteRecords, versions 0 to 2: deletes the records before an offset (-1: before the high watermark); answered when
that is durable.

Not served: topics with the cleanup policy compact alone; they would lose keys without a tombstone (refused).
"""

from __future__ import annotations

from typing import NamedTuple

from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topic_settings import is_retention_enabled, needs_keys
from trimq.core.security.resources import Action
from trimq.errors import OffsetOutOfRange, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.logs import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response

_HIGH_WATERMARK = -1


class _Truncation(NamedTuple):
    topic: str
    partition: int
    stream: Stream | None
    refusal: Refusal | None


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DeleteRecordsRequest)
    tickets = ChangeTickets()
    # As in Kafka, the last offset counts for a partition that is listed twice.
    offsets: dict[str, dict[int, int]] = {}
    for topic in message.topics:
        for asked in topic.partitions:
            offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    cuts = {
        name: [_truncate(context, name, index, offset, tickets) for index, offset in wanted.items()]
        for name, wanted in offsets.items()
    }

    def answer() -> Parts:
        topics = [
            DeleteRecordsTopicResult(
                name=name, partitions=[_encode_partition(truncation, tickets) for truncation in of_topic]
            )
            for name, of_topic in cuts.items()
        ]
        return encode_response(request, DeleteRecordsResponse(topics=topics))

    return Reply.when_durable(tickets.number, answer)


def _truncate(context: Context, name: str, index: int, offset: int, tickets: ChangeTickets) -> _Truncation:
    try:
        if name in INTERNAL:
            context.require_topic(Action.DELETE, name)
            raise KafkaRefusal(Code.INVALID_TOPIC, f"{name} is an internal topic")
        topic = context.own_topic(name, b"", Action.DELETE)
        stream = topic.stream(index)
        if needs_keys(topic.settings) and not is_retention_enabled(topic.settings):
            raise KafkaRefusal(Code.POLICY_VIOLATION, f"{name} is compacted: its records cannot be deleted by offset")
        if offset == _HIGH_WATERMARK:
            offset = stream.readable_end
        if offset < 0:
            raise OffsetOutOfRange(offset, stream.start, stream.readable_end)
        if offset > stream.start:
            tickets.add((name, index), context.broker.partitions.cut_head(context.caller, topic, index, offset))
    except Refusal as refusal:
        return _Truncation(name, index, None, refusal)
    return _Truncation(name, index, stream, None)


def _encode_partition(truncation: _Truncation, tickets: ChangeTickets) -> DeleteRecordsPartitionResult:
    refusal = truncation.refusal or tickets.refusal((truncation.topic, truncation.partition))
    if refusal is not None or truncation.stream is None:
        code = Code.UNKNOWN_SERVER_ERROR if refusal is None else code_of(refusal)
        return DeleteRecordsPartitionResult(partition_index=truncation.partition, low_watermark=-1, error_code=code)
    return DeleteRecordsPartitionResult(partition_index=truncation.partition, low_watermark=truncation.stream.start)


HANDLERS = {"DeleteRecords": handle}
