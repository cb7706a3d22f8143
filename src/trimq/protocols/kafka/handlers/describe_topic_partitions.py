"""DescribeTopicPartitions, version 0: describes the named topics, or all, page by page.

A page has at most `response_partition_limit` partitions (never more than 2,000) and a cursor for the next request.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimq.core.security.resources import Action, Resource, ResourceKind
from trimq.errors import Refusal
from trimq.model import Layout
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableTopic
from trimq.protocols.kafka.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from trimq.protocols.kafka.names.codes import Code, code_of
from trimq.protocols.kafka.names.internal_topics import IDS, INTERNAL, PARTITIONS
from trimq.protocols.kafka.names.operations import topic_operations
from trimq.protocols.kafka.wire.connection import Request, encode_response

_MAX_PARTITIONS = 2000


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeTopicPartitionsRequest)
    if _is_refused(message):
        refused = [
            DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=Code.INVALID_REQUEST)
            for topic in message.topics
        ]
        return Reply.now(encode_response(request, DescribeTopicPartitionsResponse(topics=refused)))
    left = min(max(message.response_partition_limit, 1), _MAX_PARTITIONS)
    topics = []
    next_cursor = None
    for name, first in _names(context, message):
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        described = _describe(context, name, first, left)
        topics.append(described)
        left -= len(described.partitions)
        reached = first + len(described.partitions)
        if left == 0 and reached < _count(context, name):
            next_cursor = Cursor(topic_name=name, partition_index=reached)
            break
    response = DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)
    return Reply.now(encode_response(request, response))


def _is_refused(message: DescribeTopicPartitionsRequest) -> bool:
    """Returns whether the cursor names a partition that no page can begin with."""
    cursor = message.cursor
    if cursor is None:
        return False
    is_named = not message.topics or any(topic.name == cursor.topic_name for topic in message.topics)
    return cursor.partition_index < 0 or not is_named


def _names(context: Context, message: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
    """Yields topic names in order, each with its first partition; starts at the cursor."""
    names = {topic.name for topic in message.topics}
    if not names:
        names = {topic.name.name for topic in context.broker.topics.all(context.caller, Layout.PARTITION_LOG)}
        foreign = context.broker.foreign_topics.batched(context.caller)
        names.update(topic.name.name for topic in foreign if topic is not None)
        names |= set(context.internal_topics())
    cursor = message.cursor
    for name in sorted(names):
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, cursor.partition_index


def _count(context: Context, name: str) -> int:
    if name in INTERNAL:
        return PARTITIONS
    try:
        return len(context.readable_topic(name, b"").streams)
    except Refusal:
        return 0


def _describe(context: Context, name: str, first: int, most: int) -> DescribeTopicPartitionsResponseTopic:
    described = _describe_partitions(context, name, first, most)
    resource = Resource(ResourceKind.TOPIC, context.caller.namespace, name)
    described.topic_authorized_operations = topic_operations(context.broker, context.caller, resource)
    return described


def _describe_partitions(context: Context, name: str, first: int, most: int) -> DescribeTopicPartitionsResponseTopic:
    try:
        context.require_topic(Action.DESCRIBE, name)
    except Refusal as refusal:
        return DescribeTopicPartitionsResponseTopic(name=name, error_code=code_of(refusal))
    if name in INTERNAL:
        me = context.broker.cluster.my_id
        numbers = range(PARTITIONS)[first : first + most]
        partitions = [_partition(index, me, 0) for index in numbers]
        return DescribeTopicPartitionsResponseTopic(
            name=name, topic_id=IDS[name], is_internal=True, partitions=partitions
        )
    try:
        context.broker.topics.check_name(name)
        topic = context.readable_topic(name, b"")
    except Refusal as refusal:
        return DescribeTopicPartitionsResponseTopic(name=name, error_code=code_of(refusal))
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id.bytes,
        partitions=_partitions(context, topic, first, most),
    )


def _partitions(
    context: Context, topic: ReadableTopic, first: int, most: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    cluster = context.broker.cluster
    return [
        _partition(stream.id.number, cluster.owner(stream.id).id, cluster.leader_epoch(stream.id))
        for stream in topic.streams[first : first + most]
    ]


def _partition(index: int, leader: int, epoch: int) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[leader],
        isr_nodes=[leader],
        # Empty lists: the Java client fails on null.
        eligible_leader_replicas=[],
        last_known_elr=[],
    )


HANDLERS = {"DescribeTopicPartitions": handle}
