"""ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848): joins, stays in and leaves a group with broker-side assignment.

A member sends only changed fields. It gets its assignment when that changes, when it joins, and when it sends all
fields. A response waits until the state that it reports is durable. Version 1 adds regular expressions and member ids
chosen by the client.
A member that joins a classic group of consumers converts it; the last one that leaves converts it back.
"""

from __future__ import annotations

from uuid import UUID

from trimq.core.groups.assigned_group import HeartbeatResult, MemberHeartbeat
from trimq.core.groups.assigned_member import JOINING_EPOCH, STATIC_LEAVE_EPOCH
from trimq.core.groups.coordinator import HEARTBEAT_MS
from trimq.errors import Refusal
from trimq.formats.kafka_subscription import CONSUMER
from trimq.model import Caller, StreamId
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, group_code, reply_after
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ConsumerGroupHeartbeatRequest)
    group_api, caller, group = context.broker.groups, context.caller, message.group_id
    try:
        _check(request.api_version, message)
        asked = _read_request(caller, message)
        if asked.epoch < JOINING_EPOCH:
            heartbeat, ticket = group_api.leave_assigned(caller, group, asked)
            interval_ms = 0
        else:
            heartbeat, ticket = group_api.heartbeat_assigned(caller, group, asked)
            interval_ms = group_api.heartbeat_ms(group) or HEARTBEAT_MS
    except Refusal as refusal:
        return Reply.now(_refused(request, refusal))

    def build(lost: Refusal | None) -> Parts:
        return (
            encode_response(request, _encode_beat(heartbeat, interval_ms)) if lost is None else _refused(request, lost)
        )

    return reply_after(ticket, build)


def _check(version: int, message: ConsumerGroupHeartbeatRequest) -> None:
    epoch = message.member_epoch
    is_joining = epoch == JOINING_EPOCH
    problems = (
        (not message.group_id, "the group id must not be empty"),
        (not message.member_id and (version >= 1 or not is_joining), "the member id must not be empty"),
        (message.instance_id == "", "the instance id must not be empty"),
        (message.rack_id == "", "the rack id must not be empty"),
        (epoch < STATIC_LEAVE_EPOCH, f"invalid member epoch {epoch}"),
        (epoch == STATIC_LEAVE_EPOCH and message.instance_id is None, "member epoch -2 requires an instance id"),
        (is_joining and message.rebalance_timeout_ms == -1, "a joining member must send a rebalance timeout"),
        (is_joining and message.topic_partitions != [], "a joining member must send an empty list of owned partitions"),
        (
            is_joining and message.subscribed_topic_names is None and message.subscribed_topic_regex is None,
            "a joining member must send a subscription",
        ),
    )
    for is_wrong, reason in problems:
        if is_wrong:
            raise KafkaRefusal(Code.INVALID_REQUEST, reason)


def _read_request(caller: Caller, message: ConsumerGroupHeartbeatRequest) -> MemberHeartbeat:
    owned = None
    if message.topic_partitions is not None:
        owned = frozenset(
            StreamId(UUID(bytes=topic.topic_id), index)
            for topic in message.topic_partitions
            for index in topic.partitions
        )
    names = message.subscribed_topic_names
    return MemberHeartbeat(
        member=message.member_id,
        epoch=message.member_epoch,
        instance=message.instance_id,
        rack=message.rack_id,
        rebalance_ms=None if message.rebalance_timeout_ms == -1 else message.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        pattern=message.subscribed_topic_regex,
        assignor=message.server_assignor,
        owned=owned,
        protocol_type=CONSUMER,
        client_id=caller.client_id,
        host=caller.address.rpartition(":")[0],
    )


def _encode_beat(heartbeat: HeartbeatResult, interval_ms: int) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if heartbeat.streams is not None:
        topics: dict[bytes, list[int]] = {}
        for stream in sorted(heartbeat.streams):
            topics.setdefault(stream.topic.bytes, []).append(stream.number)
        partitions = [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=id, partitions=numbers) for id, numbers in topics.items()
        ]
        assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=partitions)
    return ConsumerGroupHeartbeatResponse(
        member_id=heartbeat.member,
        member_epoch=heartbeat.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )


def _refused(request: Request, refusal: Refusal) -> Parts:
    response = ConsumerGroupHeartbeatResponse(error_code=group_code(refusal), error_message=str(refusal))
    return encode_response(request, response)


HANDLERS = {"ConsumerGroupHeartbeat": handle}
