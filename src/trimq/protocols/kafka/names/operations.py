"""Kafka's operations and their numbers, and the authorized operations of a caller as bit fields, for Metadata and the
Describe APIs."""

from __future__ import annotations

from collections.abc import Collection

from trimq.core.api.broker import Broker
from trimq.core.security.resources import BROKER, Action, Resource
from trimq.model import Caller

UNKNOWN = -(1 << 31)  # the request did not ask for the operations

ALL_OPERATIONS = 2
OPERATIONS = {
    Action.READ: 3,
    Action.WRITE: 4,
    Action.CREATE: 5,
    Action.DELETE: 6,
    Action.ALTER: 7,
    Action.DESCRIBE: 8,
    Action.CLUSTER_ACTION: 9,
    Action.DESCRIBE_CONFIGS: 10,
    Action.ALTER_CONFIGS: 11,
    Action.IDEMPOTENT_WRITE: 12,
}

_OF_A_TOPIC = (
    Action.READ,
    Action.WRITE,
    Action.CREATE,
    Action.DELETE,
    Action.ALTER,
    Action.DESCRIBE,
    Action.DESCRIBE_CONFIGS,
    Action.ALTER_CONFIGS,
)
_OF_A_GROUP = (Action.READ, Action.DELETE, Action.DESCRIBE, Action.DESCRIBE_CONFIGS, Action.ALTER_CONFIGS)
_OF_THE_CLUSTER = (
    Action.CREATE,
    Action.ALTER,
    Action.DESCRIBE,
    Action.CLUSTER_ACTION,
    Action.DESCRIBE_CONFIGS,
    Action.ALTER_CONFIGS,
    Action.IDEMPOTENT_WRITE,
)


def topic_operations(broker: Broker, caller: Caller, topic: Resource) -> int:
    return _bits(broker, caller, topic, _OF_A_TOPIC)


def group_operations(broker: Broker, caller: Caller, group: Resource) -> int:
    return _bits(broker, caller, group, _OF_A_GROUP)


def cluster_operations(broker: Broker, caller: Caller) -> int:
    return _bits(broker, caller, BROKER, _OF_THE_CLUSTER)


def _bits(broker: Broker, caller: Caller, resource: Resource, actions: Collection[Action]) -> int:
    return sum(1 << OPERATIONS[action] for action in actions if broker.allowed(caller, action, resource))
