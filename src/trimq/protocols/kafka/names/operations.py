"""Authorized operations of a caller as Kafka's bit fields, for Metadata and the Describe APIs."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.api.broker import Broker
from trimq.core.security.access import BROKER, Action, Resource
from trimq.model import Caller

UNKNOWN = -(1 << 31)  # the request did not ask for the operations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)

_OF_A_TOPIC = {
    _READ: Action.READ,
    _WRITE: Action.WRITE,
    _CREATE: Action.CONFIGURE,
    _DELETE: Action.CONFIGURE,
    _ALTER: Action.CONFIGURE,
    _DESCRIBE: Action.DESCRIBE,
    _DESCRIBE_CONFIGS: Action.DESCRIBE,
    _ALTER_CONFIGS: Action.CONFIGURE,
}
_OF_A_GROUP = {
    _READ: Action.READ,
    _DELETE: Action.CONFIGURE,
    _DESCRIBE: Action.DESCRIBE,
    _DESCRIBE_CONFIGS: Action.DESCRIBE,
    _ALTER_CONFIGS: Action.CONFIGURE,
}
_OF_THE_CLUSTER = {
    _CREATE: Action.CONFIGURE,
    _ALTER: Action.ADMINISTER,
    _DESCRIBE: Action.DESCRIBE,
    _CLUSTER_ACTION: Action.ADMINISTER,
    _DESCRIBE_CONFIGS: Action.DESCRIBE,
    _ALTER_CONFIGS: Action.ADMINISTER,
    _IDEMPOTENT_WRITE: Action.WRITE,
}


def topic_operations(broker: Broker, caller: Caller, topic: Resource) -> int:
    return _bits(broker.actions(caller, topic), _OF_A_TOPIC)


def group_operations(broker: Broker, caller: Caller, group: Resource) -> int:
    return _bits(broker.actions(caller, group), _OF_A_GROUP)


def cluster_operations(broker: Broker, caller: Caller) -> int:
    return _bits(broker.actions(caller, BROKER), _OF_THE_CLUSTER)


def _bits(allowed: set[Action], operations: Mapping[int, Action]) -> int:
    return sum(1 << operation for operation, action in operations.items() if action in allowed)
