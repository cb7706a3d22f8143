"""Messages as applications see them: to be sent, sent, and received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from trimq.client.timing import Duration

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker: str
    id: int


class Message(msgspec.Struct, frozen=True):
    """A message to be sent. `body` is bytes, or any value that the client's serializer takes.

    `key` decides about the queue (see `ByKey`) and travels with the message; `keys` are found by `admin.find`; `tag` is
    for filters; `headers` are free. `delay` or `deliver_at` postpone the delivery, `level` does so by one of the
    broker's delay levels (1 to 18); `ttl` lets consumers drop the message when it is that old. `once`: TriMQ stores the
    message once, however often it is sent with this id. `priority` tells `Drop` and `BacklogBrake` what to drop first;
    higher is more important."""

    body: Any
    key: str | None = None
    tag: str | None = None
    keys: Sequence[str] = ()
    headers: Mapping[str, str] = NO_HEADERS
    delay: Duration | None = None
    deliver_at: datetime | None = None
    level: int | None = None
    ttl: Duration | None = None
    id: str | None = None
    """Made by the client unless given: 32 characters that identify the message through retries and redelivery."""

    once: bool = False
    priority: int = 0


class SendStatus(Enum):
    """Safety of a message when its broker responded."""

    OK = "OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class Sent(NamedTuple):
    """Result of a send. `offset_id` names broker and position; `recall` cancels a delayed message."""

    id: str
    queue: MessageQueue
    offset: int
    status: SendStatus
    offset_id: str
    recall: str = ""
