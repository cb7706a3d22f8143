"""ListOffsets, versions 1 to 11: earliest, latest, the latest timestamp, or the first record at or after a time.

Searches go to the record, inside compressed batches too. Not served: tiered storage (answered as without it).
"""

from __future__ import annotations

from trimq.core.streams import Stream
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.codes import Code, code_of
from trimq.protocols.kafka.connection import Request, encode_response
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE_VERSION = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _PENDING_UPLOAD: 11}
_READ_COMMITTED = 1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListOffsetsRequest)
    topics = []
    for topic in message.topics:
        partitions = [
            _answer(context, request.api_version, topic.name, asked, message.isolation_level)
            for asked in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return Reply.now(encode_response(request, ListOffsetsResponse(topics=topics)))


def _answer(
    context: Context, version: int, name: str, asked: ListOffsetsPartition, isolation: int
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    if asked.timestamp < 0 and version < _SINCE_VERSION.get(asked.timestamp, 0):
        return ListOffsetsPartitionResponse(partition_index=index, error_code=Code.UNSUPPORTED_VERSION)
    try:
        topic = context.topic(name, b"")
        stream = context.broker.readable(context.caller, topic, index)
        offset, timestamp = _find(context, stream, asked.timestamp, isolation)
    except Refusal as refusal:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(refusal))
    epoch = context.broker.cluster.leader_epoch(stream.id)
    return ListOffsetsPartitionResponse(partition_index=index, offset=offset, timestamp=timestamp, leader_epoch=epoch)


def _find(context: Context, stream: Stream, timestamp: int, isolation: int) -> tuple[int, int]:
    end = stream.stable_end if isolation == _READ_COMMITTED else stream.readable_end
    if timestamp == _LATEST:
        return end, -1
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return stream.start, -1
    if timestamp in (_LATEST_TIERED, _PENDING_UPLOAD):
        return -1, -1
    limit = context.broker.settings.limits.batch_expansion_bytes
    found = stream.find_latest(limit) if timestamp == _MAX_TIMESTAMP else stream.find_time(timestamp, limit, end)
    return (found.offset, found.timestamp_ms) if found is not None else (-1, -1)
