"""OffsetDelete, version 0: deletes committed offsets of a group for topics that no member subscribes to.

Not served: groups with members whose protocol type is not `consumer`, as their subscriptions are unknown (refused with
NON_EMPTY_GROUP).
"""

from __future__ import annotations

from trimq.core.groups.group import GroupDescription, GroupKind, GroupState
from trimq.core.security.resources import Action
from trimq.errors import GroupNotEmpty, Refusal
from trimq.formats.kafka_subscription import CONSUMER, read_topics
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from trimq.protocols.kafka.names.codes import Code, group_code, require_group_id
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(OffsetDeleteRequest)
    try:
        context.broker.groups.require(context.caller, Action.DELETE, message.group_id)
        require_group_id(message.group_id)
        group = context.broker.groups.describe(context.caller, message.group_id)
        wanted = _wanted_topics(group)
    except Refusal as refusal:
        return Reply.now(encode_response(request, OffsetDeleteResponse(error_code=group_code(refusal))))
    tickets = ChangeTickets()
    topics = _merge_topics([_delete(context, message.group_id, topic, wanted, tickets) for topic in message.topics])

    def build() -> Parts:
        for topic in topics:
            for partition in topic.partitions:
                refusal = tickets.refusal((topic.name, partition.partition_index))
                if refusal is not None:
                    partition.error_code = group_code(refusal)
        return encode_response(request, OffsetDeleteResponse(topics=topics))

    return Reply.when_durable(tickets.number, build)


def _wanted_topics(group: GroupDescription) -> set[str] | None:
    """Returns the topics that members subscribe to, or None if unknown: then every topic counts as subscribed."""
    if group.state is GroupState.EMPTY:
        return set()
    if group.kind is GroupKind.BROKER_ASSIGNED:
        return set(group.subscribed)
    if group.protocol_type != CONSUMER:
        raise GroupNotEmpty(group.name)
    if group.subscriptions is None:
        return None
    wanted: set[str] = set()
    for metadata in group.subscriptions:
        topics = read_topics(metadata)
        if topics is None:
            return None
        wanted |= topics
    return wanted


def _delete(
    context: Context, group: str, topic: OffsetDeleteRequestTopic, wanted: set[str] | None, tickets: ChangeTickets
) -> OffsetDeleteResponseTopic:
    partitions = []
    for asked in topic.partitions:
        index = asked.partition_index
        code = Code.NONE
        try:
            stream = context.readable_topic(topic.name, b"", Action.READ).stream(index)
            if wanted is None or topic.name in wanted:
                code = Code.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                ticket = context.broker.groups.delete_cursor(context.caller, group, stream.id)
                if ticket is not None:
                    tickets.add((topic.name, index), ticket)
        except Refusal as refusal:
            code = group_code(refusal)
        partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def _merge_topics(topics: list[OffsetDeleteResponseTopic]) -> list[OffsetDeleteResponseTopic]:
    """Merges entries of the same topic if a partition does not exist, as Kafka does; otherwise each entry of the
    request has one in the response."""
    if not any(each.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION for topic in topics for each in topic.partitions):
        return topics
    merged: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in topics:
        known = merged.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(merged.values())


HANDLERS = {"OffsetDelete": handle}
