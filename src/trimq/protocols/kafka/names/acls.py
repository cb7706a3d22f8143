"""Access control entries under Kafka's names and numbers, and the filters over them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from trimq.core.security.acl_entries import EVERYBODY, AclEntry
from trimq.core.security.resources import BROKER, Action, ResourceKind
from trimq.core.security.rights import CONFIGURES, Right
from trimq.model import ANONYMOUS, DEFAULT_NAMESPACE
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal
from trimq.protocols.kafka.names.operations import ALL_OPERATIONS, OPERATIONS

CLUSTER_NAME = "kafka-cluster"
PERMISSION_PREFIX = "regexp:"
"""Begins the names of rows that show RabbitMQ's permissions, whose names are regular expressions."""

_USER = "User:"
_ANONYMOUS = "ANONYMOUS"
_EVERY_NAME = "*"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_ANY_OPERATION = 1
_NOT_SERVED = {13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT"}

_TYPES = {
    ResourceKind.TOPIC: ResourceType.TOPIC,
    ResourceKind.GROUP: ResourceType.GROUP,
    ResourceKind.BROKER: ResourceType.CLUSTER,
    ResourceKind.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}
_KINDS: dict[int, ResourceKind] = {type: kind for kind, type in _TYPES.items()}
_ACTIONS = {number: action for action, number in OPERATIONS.items()}

# Kafka's operations on the resources that RabbitMQ's permissions apply to.
_SHOWN_ACTIONS = {
    ResourceType.TOPIC: frozenset({Action.READ, Action.WRITE}) | CONFIGURES,
    ResourceType.GROUP: frozenset({Action.READ, Action.DELETE, Action.ALTER_CONFIGS}),
    ResourceType.TRANSACTIONAL_ID: frozenset({Action.WRITE}),
}


class Acl(NamedTuple):
    """One row of Kafka's list. `entry` is None if it shows a permission of RabbitMQ."""

    type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int
    entry: AclEntry | None


class AclFilter(NamedTuple):
    """Filter of a Describe or Delete request. None and ANY match everything."""

    type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.type in (ResourceType.ANY, acl.type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (_ANY_OPERATION, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None or self.pattern != PatternType.MATCH:
            return self.name in (None, acl.name)
        if acl.pattern == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, _EVERY_NAME)


# -- to Kafka


def rows_of_entry(entry: AclEntry) -> Iterator[Acl]:
    """Yields nothing for an entry about things that Kafka does not have: exchanges, and other virtual hosts."""
    type = _TYPES.get(entry.kind)
    if type is None or entry.namespace != DEFAULT_NAMESPACE:
        return
    yield Acl(
        type,
        CLUSTER_NAME if entry.kind is ResourceKind.BROKER else entry.name,
        PatternType.PREFIXED if entry.is_prefix else PatternType.LITERAL,
        _USER + (_ANONYMOUS if entry.principal == ANONYMOUS else entry.principal),
        entry.host,
        _operation(entry.action),
        PermissionType.ALLOW if entry.is_allowed else PermissionType.DENY,
        entry,
    )


def _operation(action: Action | None) -> int:
    if action is None:
        return ALL_OPERATIONS
    return OPERATIONS[Action.DESCRIBE if action is Action.LIST else action]


def rows_of_permission(right: Right) -> Iterator[Acl]:
    """Yields one row per operation. Kafka has no regular expressions: their names begin with `regexp:`."""
    if right.namespace != DEFAULT_NAMESPACE:
        return
    patterns = dict.fromkeys(CONFIGURES, right.configure) | {Action.WRITE: right.write, Action.READ: right.read}
    principal = _USER + (_ANONYMOUS if right.principal == ANONYMOUS else right.principal)
    for type, actions in _SHOWN_ACTIONS.items():
        for action in sorted(actions):
            if patterns[action]:
                name = PERMISSION_PREFIX + patterns[action]
                allow = PermissionType.ALLOW
                yield Acl(type, name, PatternType.LITERAL, principal, "*", OPERATIONS[action], allow, None)


# -- from Kafka


def entry_of(
    type: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> AclEntry:
    """Raises KafkaRefusal, with Kafka's words, if there can be no such entry."""
    if type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    kind = _KINDS.get(type)
    if kind is None and type not in (ResourceType.DELEGATION_TOKEN, ResourceType.USER):
        raise _invalid(f"Invalid resourceType {_name(ResourceType, type)}")
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {_name(PatternType, pattern)}")
    action = _ACTIONS.get(operation)
    if action is None and operation not in (ALL_OPERATIONS, *_NOT_SERVED):
        raise _invalid(f"Invalid operation {'ANY' if operation == _ANY_OPERATION else 'UNKNOWN'}")
    if permission not in (PermissionType.ALLOW, PermissionType.DENY):
        raise _invalid(f"Invalid permissionType {_name(PermissionType, permission)}")
    if kind is None:
        raise _invalid(f"resource type {_name(ResourceType, type)} is not served: an entry would have no effect")
    if operation in _NOT_SERVED:
        raise _invalid(f"operation {_NOT_SERVED[operation]} is not served: an entry would have no effect")
    return AclEntry(
        principal=_principal(principal),
        kind=kind,
        name=BROKER.name if kind is ResourceKind.BROKER else name,
        action=action,
        is_allowed=permission == PermissionType.ALLOW,
        is_prefix=pattern == PatternType.PREFIXED,
        host=host,
    )


def _principal(text: str) -> str:
    type, colon, name = text.partition(":")
    if not colon:
        raise _invalid(
            f"Could not parse principal from `{text}` (no colon is present separating the principal type from the "
            "principal name)"
        )
    if type != "User" or not name:
        raise _invalid(f"principal {text!r} is not served: write User:NAME, or User:{EVERYBODY} for everybody")
    return ANONYMOUS if name == _ANONYMOUS else name


def _name(names: type[IntEnum], number: int) -> str:
    try:
        return names(number).name
    except ValueError:
        return "UNKNOWN"


def _invalid(reason: str) -> KafkaRefusal:
    return KafkaRefusal(Code.INVALID_REQUEST, reason)
