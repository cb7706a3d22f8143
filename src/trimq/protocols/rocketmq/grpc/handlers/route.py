"""QueryRoute and QueryAssignment: queues of a topic with address and permissions, and queues that a consumer reads."""

from __future__ import annotations

import ipaddress
from typing import Any

from trimq.core.commit_log.topics import READABLE, WRITABLE, CommitLogTopic, CommitLogTopicDefinition
from trimq.core.crossing.units import UnitTopic
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call, reply, status
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_group, check_topic
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import AddressScheme, Code, MessageType, Permission

_ANY_HOST = ("0.0.0.0", "::", "")
_TYPES = dict(MessageType.__members__)


def query_route(call: Call, request: Any) -> Reply:
    topic = _known_topic(call, request.topic.name)
    accepted = [accepted_type(topic.definition)]
    broker = _broker(call, request.endpoints)
    queues = [
        wire.MessageQueue(
            topic=request.topic, id=number, permission=permission, broker=broker, accept_message_types=accepted
        )
        for number, permission in enumerate(_permissions(topic.definition))
    ]
    return reply(wire.QueryRouteResponse(status=status(), message_queues=queues))


def query_assignment(call: Call, request: Any) -> Reply:
    """Assigns all queues as one (-1), or each queue by itself to a group that consumes in order."""
    check_topic(call, request.topic.name)
    check_group(request.group.name)
    topic = _known_topic(call, request.topic.name)
    call.commit_log.groups.require_read(call.caller, request.group.name)
    if isinstance(topic, UnitTopic):
        raise GrpcRefusal(Code.FORBIDDEN, not_received(request.topic.name))
    permissions = topic.definition.permissions
    if not permissions & READABLE or not topic.definition.read_streams:
        raise GrpcRefusal(Code.FORBIDDEN, f"the topic {request.topic.name} has no readable queue")
    group = call.commit_log.groups.find(call.caller, request.group.name)
    is_orderly = group is not None and group.is_orderly
    numbers = range(topic.definition.read_streams) if is_orderly else [-1]
    broker = _broker(call, request.endpoints)
    permission = Permission.READ_WRITE if permissions & WRITABLE else Permission.READ
    queues = [
        wire.MessageQueue(topic=request.topic, id=number, permission=permission, broker=broker) for number in numbers
    ]
    assignments = [wire.Assignment(message_queue=queue) for queue in queues]
    return reply(wire.QueryAssignmentResponse(status=status(), assignments=assignments))


def not_received(name: str) -> str:
    """Returns the reason for refusing to receive messages of a topic of another layout."""
    return f"{name} is a topic of another protocol: gRPC consumers receive only from topics of RocketMQ"


def _known_topic(call: Call, name: str) -> CommitLogTopic | UnitTopic:
    check_topic(call, name)
    found = call.commit_log.topics.find(call.caller, name) or call.foreign_topic(name)
    if found is None:
        raise GrpcRefusal(Code.TOPIC_NOT_FOUND, f"there is no topic {name}")
    return found


def accepted_type(definition: CommitLogTopicDefinition) -> MessageType:
    return _TYPES.get(definition.attributes.get("message.type", "NORMAL"), MessageType.MESSAGE_TYPE_UNSPECIFIED)


def _permissions(definition: CommitLogTopicDefinition) -> list[Permission]:
    """Returns the permission of each queue, in the order of the proxy of Apache RocketMQ: read-only, write-only,
    both."""
    if not definition.permissions & (READABLE | WRITABLE):
        return [Permission.NONE] * max(1, definition.read_streams, definition.write_streams)
    reads = definition.read_streams if definition.permissions & READABLE else 0
    writes = definition.write_streams if definition.permissions & WRITABLE else 0
    both = min(reads, writes)
    return [Permission.READ] * (reads - both) + [Permission.WRITE] * (writes - both) + [Permission.READ_WRITE] * both


def _broker(call: Call, asked: Any) -> Any:
    identity = call.services.identity
    host, port = identity.grpc_address
    if host in _ANY_HOST:  # listens on all interfaces: return the address that the client used
        return wire.Broker(name=identity.broker_name, endpoints=asked)
    endpoints = wire.Endpoints(scheme=_scheme(host), addresses=[wire.Address(host=host, port=port)])
    return wire.Broker(name=identity.broker_name, endpoints=endpoints)


def _scheme(host: str) -> AddressScheme:
    try:
        return AddressScheme.IPv4 if ipaddress.ip_address(host).version == 4 else AddressScheme.IPv6
    except ValueError:
        return AddressScheme.DOMAIN_NAME
