"""Types that every layer shares: records, names, ids and callers. Knows no bytes on disk, no wire, no policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

Buffer = bytes | bytearray | memoryview

DEFAULT_NAMESPACE = ""


class Layout(Enum):
    """Storage layout of a topic: that of the protocol whose client created the topic."""

    PARTITION_LOG = "partition-log"
    COMMIT_LOG = "commit-log"
    QUEUE_LOG = "queue-log"


class TopicName(NamedTuple):
    """Full name of a topic, unique across all layouts within its namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class StreamId(NamedTuple):
    """Id of one ordered sequence of messages of a topic, numbered by offsets (Kafka: partition; RocketMQ: queue)."""

    topic: UUID
    number: int


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True, frozen=True)
class Record:
    """One message, independent of any protocol. `extras` holds fields that only the producer's protocol has."""

    body: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1
    offset: int = -1
    extras: dict[str, str | int | bytes] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Caller:
    """Identity of the client of a request. Every API call takes one; access rights are checked against it."""

    principal: str
    client_id: str
    address: str
    protocol: str
    namespace: str = DEFAULT_NAMESPACE


ANONYMOUS = "anonymous"
"""Principal of clients that did not log in."""

SYSTEM = Caller(principal="system", client_id="trimq", address="", protocol="internal")
