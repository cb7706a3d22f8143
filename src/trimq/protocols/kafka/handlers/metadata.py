"""Metadata, versions 0 to 13: returns nodes, topics and partitions; creates requested topics where that is allowed.

A list of all topics is made in several turns of the event loop, so that it delays no other client.

A topic that is being created is answered as unknown until it is durable; clients retry. If a request has topic ids,
possible from version 12 on, its topic names are ignored. A name that belongs to another protocol is answered with
INVALID_TOPIC_EXCEPTION, which clients do not retry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from trimq.core.security.resources import Action, Resource, ResourceKind
from trimq.errors import InvalidName, NameTooLong, OtherHome, Refusal
from trimq.model import Layout
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableTopic
from trimq.protocols.kafka.handlers.create_topics import refuse_colliding_name
from trimq.protocols.kafka.handlers.long_lists import LongList
from trimq.protocols.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from trimq.protocols.kafka.messages.schema import NO_ID
from trimq.protocols.kafka.names.codes import Code, code_of
from trimq.protocols.kafka.names.internal_topics import IDS, INTERNAL, NAMES, PARTITIONS
from trimq.protocols.kafka.names.operations import cluster_operations, topic_operations
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.connection import Request, encode_response

log = logging.getLogger(__name__)

_BY_ID = 12

# Fields behind the array of topics.
_WITH_OPERATIONS, _OPERATIONS_BYTES = range(8, 11), 4
_ERROR, _ERROR_BYTES = 13, 2

# So many partitions take as long as a topic.
_PARTITIONS_LIKE_A_TOPIC = 10

_MAX_LOGGED = 100


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(MetadataRequest)
    if request.api_version < _BY_ID and any(_has_id(topic) for topic in message.topics or ()):
        return Reply.now(encode_response(request, _refused(message)))
    cluster = context.broker.cluster
    brokers = [
        MetadataResponseBroker(node_id=node.id, host=address.host, port=address.port, rack=node.rack)
        for node in cluster.nodes()
        if (address := node.addresses.get("kafka")) is not None
    ]
    response = MetadataResponse(brokers=brokers, cluster_id=cluster.id, controller_id=cluster.controller.id, topics=[])
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context.broker, context.caller)
    if message.topics is None or (request.api_version == 0 and not message.topics):
        return _all_topics(context, request, message, response)
    response.topics = _topics(context, message, message.topics)
    return Reply.now(encode_response(request, response))


def _all_topics(context: Context, request: Request, message: MetadataRequest, response: MetadataResponse) -> Reply:
    version = request.api_version

    def encode(topics: list[MetadataResponseTopic]) -> bytes:
        response.topics = topics
        return codec.encode(response, version)

    tail_bytes = (_OPERATIONS_BYTES if version in _WITH_OPERATIONS else 0) + (_ERROR_BYTES if version >= _ERROR else 0)
    rows = _describe_all(context, message.include_topic_authorized_operations)
    return LongList(request, rows, encode, tail_bytes, _weight).reply(context)


def _weight(topic: MetadataResponseTopic) -> int:
    return 1 + len(topic.partitions) // _PARTITIONS_LIKE_A_TOPIC


def _describe_all(context: Context, with_operations: bool) -> Iterator[MetadataResponseTopic | None]:
    """Yields None for a topic that the caller may not see."""
    for topic in context.broker.topics.iterate(context.caller):
        is_own = topic is not None and topic.layout is Layout.PARTITION_LOG
        yield _describe(context, topic, with_operations) if topic is not None and is_own else None
    for foreign in context.broker.foreign_topics.batched(context.caller):
        yield None if foreign is None else _describe(context, foreign, with_operations)
    for name in context.internal_topics():
        yield _internal(context, name)


def _topics(
    context: Context, message: MetadataRequest, asked: Sequence[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    with_operations = message.include_topic_authorized_operations
    if any(_has_id(topic) for topic in asked):
        return [_find_id(context, id, with_operations) for id in _ids(asked)]
    may_create = message.allow_auto_topic_creation and context.broker.settings.kafka.auto_create_topics
    names = dict.fromkeys(topic.name or "" for topic in asked)
    found_topics = [_find(context, name, may_create, with_operations) for name in names]
    if with_operations:
        for found_topic in found_topics:
            resource = Resource(ResourceKind.TOPIC, context.caller.namespace, found_topic.name or "")
            found_topic.topic_authorized_operations = topic_operations(context.broker, context.caller, resource)
    return found_topics


def _has_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != NO_ID


def _refused(message: MetadataRequest) -> MetadataResponse:
    """Ids in versions 10 and 11, which have the field, but do not support it."""
    topics = [
        MetadataResponseTopic(name=topic.name or "", topic_id=topic.topic_id, error_code=Code.INVALID_REQUEST)
        for topic in message.topics or ()
    ]
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics)


def _ids(asked: Iterable[MetadataRequestTopic]) -> Iterable[bytes]:
    return dict.fromkeys(topic.topic_id for topic in asked if _has_id(topic))


def _find_id(context: Context, id: bytes, with_operations: bool) -> MetadataResponseTopic:
    try:
        if id in NAMES:
            context.require_topic(Action.DESCRIBE, NAMES[id])
            return _internal(context, NAMES[id])
        return _describe(context, context.readable_topic("", id), with_operations)
    except Refusal as refusal:
        return MetadataResponseTopic(error_code=code_of(refusal), name=None, topic_id=id)


def _find(context: Context, name: str, may_create: bool, with_operations: bool) -> MetadataResponseTopic:
    try:
        if name in INTERNAL:
            context.require_topic(Action.DESCRIBE, name)
            return _internal(context, name)
        return _describe(context, context.readable_topic(name, b""), with_operations)
    except Refusal as refusal:
        code = code_of(refusal)
    if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        code = _create(context, name, may_create)
    return MetadataResponseTopic(error_code=code, name=name)


def _create(context: Context, name: str, may_create: bool) -> Code:
    try:
        context.broker.topics.check_name(name)
        context.broker.topics.check_layout(context.caller, name)
        if may_create:
            refuse_colliding_name(context, name)
            streams = context.broker.settings.kafka.num_partitions
            context.broker.topics.create(context.caller, name, Layout.PARTITION_LOG, streams, {})
    except OtherHome as refusal:
        _log_conflict(context, refusal)
        return code_of(refusal)
    except (InvalidName, NameTooLong) as refusal:
        return code_of(refusal)
    except Refusal as refusal:
        code = code_of(refusal)
        # A name that collides with that of another topic is not created, and stays unknown.
        return Code.UNKNOWN_TOPIC_OR_PARTITION if code == Code.INVALID_TOPIC else code
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _log_conflict(context: Context, refusal: OtherHome) -> None:
    """Logs the reason once per connection: the response has no room for it, and clients ask again."""
    if refusal.topic not in context.logged_conflicts and len(context.logged_conflicts) < _MAX_LOGGED:
        context.logged_conflicts.add(refusal.topic)
        log.warning("Kafka client %s: metadata request refused (%s)", context.caller.address, refusal)


def _describe(context: Context, topic: ReadableTopic, with_operations: bool) -> MetadataResponseTopic:
    cluster = context.broker.cluster
    partitions = [
        _partition(stream.id.number, cluster.owner(stream.id).id, cluster.leader_epoch(stream.id))
        for stream in topic.streams
    ]
    described = MetadataResponseTopic(name=topic.name.name, topic_id=topic.id.bytes, partitions=partitions)
    if with_operations:
        described.topic_authorized_operations = topic_operations(context.broker, context.caller, topic.resource)
    return described


def _partition(index: int, leader: int, epoch: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[leader], isr_nodes=[leader]
    )


def _internal(context: Context, name: str) -> MetadataResponseTopic:
    partitions = [_partition(index, context.broker.cluster.my_id, 0) for index in range(PARTITIONS)]
    return MetadataResponseTopic(name=name, topic_id=IDS[name], is_internal=True, partitions=partitions)


HANDLERS = {"Metadata": handle}
