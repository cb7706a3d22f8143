"""DeleteRecords, versions 0 to 2: records before an offset are gone; -1 means before the high watermark. Answered when
that is durable.

Refused for topics that are only compacted, which would otherwise lose keys without a tombstone.
"""

from __future__ import annotations

from typing import NamedTuple

from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topic_settings import may_lose_head, needs_keys
from trimq.errors import OffsetOutOfRange, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import Tickets
from trimq.protocols.kafka.messages.logs import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from trimq.protocols.kafka.names.codes import Code, Failure, code_of
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response

_HIGH_WATERMARK = -1


class _Cut(NamedTuple):
    topic: str
    partition: int
    stream: Stream | None
    refusal: Refusal | None


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DeleteRecordsRequest)
    tickets = Tickets()
    cuts = [
        [_cut(context, topic.name, asked.partition_index, asked.offset, tickets) for asked in topic.partitions]
        for topic in message.topics
    ]
    names = [topic.name for topic in message.topics]

    def answer() -> Parts:
        topics = [
            DeleteRecordsTopicResult(name=name, partitions=[_tell(cut, tickets) for cut in of_topic])
            for name, of_topic in zip(names, cuts, strict=True)
        ]
        return encode_response(request, DeleteRecordsResponse(topics=topics))

    return Reply.when_durable(tickets.number, answer)


def _cut(context: Context, name: str, index: int, offset: int, tickets: Tickets) -> _Cut:
    try:
        if name in INTERNAL:
            raise Failure(Code.INVALID_TOPIC, f"{name} is an internal topic")
        topic = context.topic(name, b"")
        stream = topic.stream(index)
        if needs_keys(topic.settings) and not may_lose_head(topic.settings):
            raise Failure(Code.POLICY_VIOLATION, f"{name} is compacted, and its records are not deleted by offset")
        if offset == _HIGH_WATERMARK:
            offset = stream.readable_end
        if offset < 0:
            raise OffsetOutOfRange(offset, stream.start, stream.readable_end)
        if offset > stream.start:
            tickets.add((name, index), context.broker.cut_head(context.caller, topic, index, offset))
    except Refusal as refusal:
        return _Cut(name, index, None, refusal)
    return _Cut(name, index, stream, None)


def _tell(cut: _Cut, tickets: Tickets) -> DeleteRecordsPartitionResult:
    refusal = cut.refusal or tickets.refusal((cut.topic, cut.partition))
    if refusal is not None or cut.stream is None:
        code = Code.UNKNOWN_SERVER_ERROR if refusal is None else code_of(refusal)
        return DeleteRecordsPartitionResult(partition_index=cut.partition, low_watermark=-1, error_code=code)
    return DeleteRecordsPartitionResult(partition_index=cut.partition, low_watermark=cut.stream.start)
