"""ListOffsets, versions 1 to 11: returns the earliest or latest offset, the offset of the latest timestamp, or that of
the first record at or after a timestamp.

A search by timestamp finds the exact record, also inside compressed batches.
Not served: tiered storage (answered as a broker without it).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from trimq.core.partitions.stream import Stream
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE_VERSION = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15
_READ_COMMITTED = 1
_NOT_CHECKED = -1


class _FoundOffset(NamedTuple):
    offset: int = -1
    timestamp_ms: int = -1
    epoch: int = -1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListOffsetsRequest)
    asked_of = [(topic.name, asked) for topic in message.topics for asked in topic.partitions]
    counts = Counter((name, asked.partition_index) for name, asked in asked_of)
    topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for name, asked in asked_of:
        index = asked.partition_index
        partitions = topics.setdefault(name, {})
        try:
            if counts[name, index] > 1:
                raise KafkaRefusal(Code.INVALID_REQUEST, "the partition is listed more than once in the request")
            place = _answer(context, request.api_version, name, asked, message.isolation_level)
            partitions[index] = _encode_partition(index, place)
        except Refusal as refusal:
            partitions[index] = ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(refusal))
    answers = [ListOffsetsTopicResponse(name=name, partitions=list(found.values())) for name, found in topics.items()]
    return Reply.now(encode_response(request, ListOffsetsResponse(topics=answers)))


def _encode_partition(index: int, place: _FoundOffset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, offset=place.offset, timestamp=place.timestamp_ms, leader_epoch=place.epoch
    )


def _answer(context: Context, version: int, name: str, asked: ListOffsetsPartition, isolation: int) -> _FoundOffset:
    stream = context.broker.partitions.describable(context.caller, context.topic(name, b""), asked.partition_index)
    cluster = context.broker.cluster
    if asked.current_leader_epoch != _NOT_CHECKED:
        cluster.require_epoch(stream.id, asked.current_leader_epoch)
    if asked.timestamp < 0 and version < _SINCE_VERSION.get(asked.timestamp, _NEVER):
        raise KafkaRefusal(Code.UNSUPPORTED_VERSION, f"version {version} has no special timestamp {asked.timestamp}")
    end = stream.stable_end if isolation == _READ_COMMITTED else stream.readable_end
    current = cluster.leader_epoch(stream.id)
    if asked.timestamp == _LATEST:
        return _FoundOffset(end, epoch=current)
    if asked.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return _FoundOffset(stream.start, epoch=_epoch_at(stream, stream.start, current))
    if asked.timestamp in (_LATEST_TIERED, _PENDING_UPLOAD):
        return _FoundOffset()
    limit = context.broker.settings.limits.batch_expansion_bytes
    is_latest = asked.timestamp == _MAX_TIMESTAMP
    found = stream.find_latest(limit) if is_latest else stream.find_time(asked.timestamp, limit, end)
    if found is None:
        return _FoundOffset()
    return _FoundOffset(found.offset, found.timestamp_ms, _epoch_at(stream, found.offset, current))


def _epoch_at(stream: Stream, offset: int, current: int) -> int:
    """Returns the leader epoch of the record at this offset, or of the next append."""
    if offset >= stream.end:
        return current
    found = current
    for epoch, start_offset in stream.log.epochs:
        if start_offset > offset:
            break
        found = epoch
    return found


HANDLERS = {"ListOffsets": handle}
