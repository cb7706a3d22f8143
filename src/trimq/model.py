"""The words that every layer shares: records, names and ids. Knows no bytes on disk, no wire, no policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

Buffer = bytes | bytearray | memoryview

DEFAULT_NAMESPACE = ""


class Layout(Enum):
    """The layout in which a topic's messages are kept: that of the protocol whose client made the topic."""

    PARTITION_LOG = "partition-log"
    COMMIT_LOG = "commit-log"
    QUEUE_LOG = "queue-log"


class TopicName(NamedTuple):
    """A topic's full name: unique across homes within its namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class StreamId(NamedTuple):
    """One ordered, offset-numbered sequence of a topic."""

    topic: UUID
    number: int


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True, frozen=True)
class Record:
    """One message, in no protocol's words. `extras` holds what only its producer's protocol has a field for."""

    body: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1
    offset: int = -1
    extras: dict[str, str | int | bytes] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Caller:
    """Who asks: every verb of the broker takes one, and access is decided by it."""

    principal: str
    client_id: str
    address: str
    protocol: str
    namespace: str = DEFAULT_NAMESPACE


SYSTEM = Caller(principal="system", client_id="trimq", address="", protocol="internal")
