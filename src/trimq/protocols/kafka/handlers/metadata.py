"""Metadata, versions 0 to 13: nodes, topics and partitions; creates topics that are asked for, where that is allowed.

A topic that is being created here is answered as unknown until it is durable; clients ask again.
Not served: authorized operations (no rights are defined for Kafka yet).
"""

from __future__ import annotations

from trimq.core.topics import Topic
from trimq.errors import Refusal
from trimq.model import Home
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.codes import Code, code_of
from trimq.protocols.kafka.connection import Request, encode_response
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_NO_ID = bytes(16)


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(MetadataRequest)
    if message.topics is None or (request.api_version == 0 and not message.topics):
        topics = [_describe(context, topic) for topic in context.broker.topics(context.caller, Home.PARTITION_LOG)]
    else:
        may_create = message.allow_auto_topic_creation and context.broker.settings.kafka.auto_create_topics
        topics = [_find(context, asked, may_create) for asked in message.topics]
    cluster = context.broker.cluster
    brokers = [
        MetadataResponseBroker(node_id=node.id, host=address.host, port=address.port)
        for node in cluster.nodes()
        if (address := node.addresses.get("kafka")) is not None
    ]
    response = MetadataResponse(
        brokers=brokers, cluster_id=cluster.id, controller_id=cluster.controller.id, topics=topics
    )
    return Reply.now(encode_response(request, response))


def _find(context: Context, asked: MetadataRequestTopic, may_create: bool) -> MetadataResponseTopic:
    try:
        return _describe(context, context.topic(asked.name or "", asked.topic_id))
    except Refusal as refusal:
        code = code_of(refusal)
    if asked.name is None:
        return MetadataResponseTopic(error_code=Code.UNKNOWN_TOPIC_ID, topic_id=asked.topic_id)
    if may_create and code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        code = _create(context, asked.name)
    return MetadataResponseTopic(error_code=code, name=asked.name)


def _create(context: Context, name: str) -> Code:
    try:
        context.broker.create_topic(
            context.caller, name, Home.PARTITION_LOG, context.broker.settings.kafka.num_partitions, {}
        )
    except Refusal as refusal:
        return code_of(refusal)
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _describe(context: Context, topic: Topic) -> MetadataResponseTopic:
    cluster = context.broker.cluster
    partitions = []
    for stream in topic.streams:
        owner = cluster.owner(stream.id).id
        partitions.append(
            MetadataResponsePartition(
                partition_index=stream.id.number,
                leader_id=owner,
                leader_epoch=cluster.leader_epoch(stream.id),
                replica_nodes=[owner],
                isr_nodes=[owner],
            )
        )
    return MetadataResponseTopic(name=topic.name.name, topic_id=topic.id.bytes, partitions=partitions)
