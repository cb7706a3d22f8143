"""ConsumerGroupDescribe, versions 0 and 1 (KIP-848): state, epochs, members and assignments of groups with broker-side
assignment. Classic groups are answered as unknown."""

from __future__ import annotations

from trimq.core.groups.assigned_member import Streams
from trimq.core.groups.group import GroupDescription, GroupKind, MemberDescription
from trimq.core.security.access import group_resource
from trimq.core.security.resources import Action
from trimq.errors import AccessDenied, Refusal, UnknownGroup
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    DescribedGroup,
    Member,
)
from trimq.protocols.kafka.names.codes import Code, group_code, require_group_id
from trimq.protocols.kafka.names.operations import group_operations
from trimq.protocols.kafka.names.states import state_name
from trimq.protocols.kafka.wire.connection import Request, encode_response

_CLASSIC, _OF_THE_NEWER_PROTOCOL = 0, 1
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."  # Kafka's words


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ConsumerGroupDescribeRequest)
    groups = []
    for name in message.group_ids:
        group = _describe(context, name)
        if message.include_authorized_operations and not group.error_code:
            resource = group_resource(name)
            group.authorized_operations = group_operations(context.broker, context.caller, resource)
        groups.append(group)
    return Reply.now(encode_response(request, ConsumerGroupDescribeResponse(groups=groups)))


def _describe(context: Context, name: str) -> DescribedGroup:
    try:
        require_group_id(name)
        group = context.broker.groups.describe(context.caller, name)
        if group.kind is not GroupKind.BROKER_ASSIGNED:
            raise UnknownGroup(name)
    except Refusal as refusal:
        return DescribedGroup(error_code=group_code(refusal), error_message=str(refusal), group_id=name)
    if not all(_may_describe(context, topic) for topic in group.subscribed):
        return DescribedGroup(error_code=Code.TOPIC_AUTHORIZATION_FAILED, error_message=_HIDDEN, group_id=name)
    return _described(context, group)


def _may_describe(context: Context, topic: str) -> bool:
    try:
        context.require_topic(Action.DESCRIBE, topic)
    except AccessDenied:
        return False
    return True


def _described(context: Context, group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.name,
        group_state=state_name(group),
        group_epoch=group.generation,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.strategy,
        members=[_member(context, member) for member in group.members],
    )


def _member(context: Context, member: MemberDescription) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.instance,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=f"/{member.host}",
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(context, member.streams),
        target_assignment=_assignment(context, member.target),
        member_type=_CLASSIC if member.is_classic else _OF_THE_NEWER_PROTOCOL,
    )


def _assignment(context: Context, streams: Streams) -> ConsumerGroupDescribeAssignment:
    topics: dict[bytes, ConsumerGroupDescribeTopicPartitions] = {}
    for stream in sorted(streams):
        id = stream.topic.bytes
        if id not in topics:
            try:
                name = context.readable_topic("", stream.topic.bytes).name.name
            except Refusal:
                continue  # deleted; members lose it with their next heartbeat
            topics[id] = ConsumerGroupDescribeTopicPartitions(topic_id=id, topic_name=name)
        topics[id].partitions.append(stream.number)
    return ConsumerGroupDescribeAssignment(topic_partitions=list(topics.values()))


HANDLERS = {"ConsumerGroupDescribe": handle}
