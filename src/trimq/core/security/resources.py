"""Resources that rights apply to, and the actions on them. Knows no user and no right."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from trimq.model import DEFAULT_NAMESPACE


class Action(IntEnum):
    """Actions as in Kafka's operations. ADMINISTER covers users, rights and the broker itself, and is never granted:
    administrators have it. LIST is RocketMQ's word for DESCRIBE: entries have it, nothing asks for it. (An IntEnum,
    because it hashes as fast as a number.)"""

    READ = 0
    WRITE = 1
    CREATE = 2
    DELETE = 3
    ALTER = 4
    DESCRIBE = 5
    DESCRIBE_CONFIGS = 6
    ALTER_CONFIGS = 7
    CLUSTER_ACTION = 8
    IDEMPOTENT_WRITE = 9
    ADMINISTER = 10
    LIST = 11


class ResourceKind(IntEnum):
    TOPIC = 0
    GROUP = 1
    ROUTE = 2
    TRANSACTION = 3
    BROKER = 4


class Resource(NamedTuple):
    kind: ResourceKind
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f" of {self.namespace}" if self.namespace else ""
        return f"{self.kind.name.lower()} {self.name}{where}"


def group_resource(group: str) -> Resource:
    """Consumer groups are global: their rights are those of the default namespace, whatever virtual host or namespace a
    request names."""
    return Resource(ResourceKind.GROUP, DEFAULT_NAMESPACE, group)


def transaction_resource(name: str) -> Resource:
    """Transactions belong to no virtual host, as groups."""
    return Resource(ResourceKind.TRANSACTION, DEFAULT_NAMESPACE, name)


BROKER = Resource(ResourceKind.BROKER, DEFAULT_NAMESPACE, "trimq")
