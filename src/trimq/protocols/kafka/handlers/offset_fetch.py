"""OffsetFetch, versions 1 to 10: returns committed offsets of groups; -1 for an unknown group or partition.

Returns durable offsets only: the response waits for earlier commits. Version 8 adds several groups per request,
version 9 member epochs, version 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from trimq.core.groups.group import Claim
from trimq.core.metadata.cursors import Cursor
from trimq.errors import AccessDenied, Refusal
from trimq.model import StreamId
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableTopic
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from trimq.protocols.kafka.names.codes import Code, GroupTicket, KafkaRefusal, group_code, reply_after
from trimq.protocols.kafka.wire.connection import Request, encode_response

_GROUPS_SINCE, _IDS_SINCE = 8, 10


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(OffsetFetchRequest)
    attempt = _CursorReader(context, request.api_version, message.require_stable)
    asked = message.groups if request.api_version >= _GROUPS_SINCE else [_as_group(message)]
    groups = [attempt.read_group(group) for group in asked]

    def build(lost: Refusal | None) -> Parts:
        # A commit that was read could not be written: an error replaces the offsets, and the client retries.
        answers = groups if lost is None else [_failed(group, lost) for group in asked]
        return encode_response(request, _response(request.api_version, answers))

    return reply_after(attempt.ticket, build)


def _as_group(message: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = message.topics
    return OffsetFetchRequestGroup(
        group_id=message.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in topics],
    )


class _CursorReader:
    def __init__(self, context: Context, version: int, require_stable: bool) -> None:
        self._context = context
        self._version = version
        self._require_stable = require_stable
        self.ticket: GroupTicket | None = None

    def read_group(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        group_api = self._context.broker.groups
        claim = Claim(asked.member_id or "", asked.member_epoch)
        try:
            cursors, self.ticket = group_api.cursors(self._context.caller, asked.group_id, claim)
        except Refusal as refusal:
            return _failed(asked, refusal)
        if asked.topics is None:
            topics = self._read_all(asked.group_id, cursors)
        else:
            topics = [self._read_topic(asked.group_id, topic, cursors) for topic in asked.topics]
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    def _read_all(self, group: str, cursors: Mapping[StreamId, Cursor]) -> list[OffsetFetchResponseTopics]:
        numbers: dict[UUID, list[int]] = {}
        unstable_offsets = self._context.broker.groups.unstable_offsets(group) if self._require_stable else ()
        for stream in sorted({*cursors, *unstable_offsets}):
            numbers.setdefault(stream.topic, []).append(stream.number)
        topics = []
        for id, indexes in numbers.items():
            try:
                topic = self._context.readable_topic("", id.bytes)
            except Refusal:
                continue  # being deleted, or the caller may not see it
            topics.append(self._answer(group, topic, indexes, cursors))
        return topics

    def _read_topic(
        self, group: str, asked: OffsetFetchRequestTopics, cursors: Mapping[StreamId, Cursor]
    ) -> OffsetFetchResponseTopics:
        try:
            topic = self._context.readable_topic(asked.name, asked.topic_id)
        except Refusal as refusal:
            code = self._code(refusal)
            partitions = [_partition(index, code) for index in asked.partition_indexes]
            return OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
        return self._answer(group, topic, asked.partition_indexes, cursors)

    def _answer(
        self, group: str, topic: ReadableTopic, indexes: list[int], cursors: Mapping[StreamId, Cursor]
    ) -> OffsetFetchResponseTopics:
        partitions = []
        for index in indexes:
            stream = StreamId(topic.id, index)
            if self._require_stable and self._context.broker.groups.is_offset_unstable(group, stream):
                partitions.append(_partition(index, Code.UNSTABLE_OFFSET_COMMIT))
            else:
                partitions.append(_partition(index, Code.NONE, cursors.get(stream)))
        return OffsetFetchResponseTopics(name=topic.name.name, topic_id=topic.id.bytes, partitions=partitions)

    def _code(self, refusal: Refusal) -> Code:
        if isinstance(refusal, AccessDenied):
            return group_code(refusal)
        if isinstance(refusal, KafkaRefusal) and refusal.code is Code.TOPIC_AUTHORIZATION_FAILED:
            return Code.NONE  # internal topic: it exists, and nobody commits offsets for it
        return Code.UNKNOWN_TOPIC_ID if self._version >= _IDS_SINCE else Code.NONE


def _partition(index: int, code: Code, cursor: Cursor | None = None) -> OffsetFetchResponsePartitions:
    if cursor is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=cursor.offset,
        committed_leader_epoch=cursor.leader_epoch,
        metadata=cursor.metadata,
        error_code=code,
    )


def _failed(asked: OffsetFetchRequestGroup, refusal: Refusal) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=group_code(refusal))


def _response(version: int, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if version >= _GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    (only,) = groups
    topics = [
        OffsetFetchResponseTopic(name=topic.name, partitions=[_older(each) for each in topic.partitions])
        for topic in only.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=only.error_code)


def _older(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


HANDLERS = {"OffsetFetch": handle}
