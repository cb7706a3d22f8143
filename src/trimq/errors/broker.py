"""Refusals about the broker's state, topics, users, leases and access rights."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.errors.kinds import Refusal
from trimq.model import Layout


@dataclass(eq=False)  # exceptions must stay hashable
class NotRunning(Refusal):
    """The broker is starting, draining or stopped."""

    retriable = True

    def __str__(self) -> str:
        return "the broker is not running"


@dataclass(eq=False)
class NotOwner(Refusal):
    """Another node serves this stream."""

    node: int
    retriable = True

    def __str__(self) -> str:
        return f"node {self.node} owns this stream"


@dataclass(eq=False)
class DiskFull(Refusal):
    """The free disk space is below the limit for writes; writes are accepted again once there is enough space."""

    free_bytes: int
    needed_bytes: int
    retriable = True

    def __str__(self) -> str:
        return f"the disk has {self.free_bytes} bytes free; writes are accepted again at {self.needed_bytes} or more"


@dataclass(eq=False)
class DiskStalled(Refusal):
    """The disk does not sync what was written before; writes are accepted again once it has."""

    limit_ms: int
    retriable = True

    def __str__(self) -> str:
        return f"busy: the disk has not synced for more than {self.limit_ms} ms"


@dataclass(eq=False)
class MemoryFull(Refusal):
    """The broker's memory use is above the limit for writes; writes are accepted again once it is low enough."""

    used_bytes: int
    writable_bytes: int
    retriable = True

    def __str__(self) -> str:
        return (
            f"the broker uses {self.used_bytes} bytes of memory; writes are accepted again at {self.writable_bytes} "
            "or less"
        )


@dataclass(eq=False)
class WriteFailed(Refusal):
    """The file system failed to write the bytes of a pass; all appends of that pass were rolled back."""

    reason: str
    retriable = True

    def __str__(self) -> str:
        return f"the write failed: {self.reason}"


@dataclass(eq=False)
class MessageTooLong(Refusal):
    size: int
    limit: int

    def __str__(self) -> str:
        return f"a message of {self.size} bytes exceeds the limit of {self.limit}"


@dataclass(eq=False)
class NameTooLong(Refusal):
    size: int
    limit: int

    def __str__(self) -> str:
        return f"a name of {self.size} characters exceeds the limit of {self.limit}"


@dataclass(eq=False)
class PropertiesTooLong(Refusal):
    size: int
    limit: int

    def __str__(self) -> str:
        return f"properties of {self.size} bytes exceed the limit of {self.limit}"


@dataclass(eq=False)
class InvalidName(Refusal):
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name!r} is not a valid name: {self.reason}"


@dataclass(eq=False)
class InvalidSetting(Refusal):
    """The setting is unknown, out of range, or one that this broker cannot enforce."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(eq=False)
class InvalidCount(Refusal):
    """The number of streams is out of range, or would shrink the topic."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class LimitReached(Refusal):
    """The broker has as many objects of a kind as it may have."""

    what: str
    limit: int
    setting: str

    def __str__(self) -> str:
        return f"the limit of {self.limit} {self.what} is reached ({self.setting})"


@dataclass(eq=False)
class ReadOnly(Refusal):
    """The topic, or the whole broker, accepts no writes at present."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} is read-only"


@dataclass(eq=False)
class UnknownTopic(Refusal):
    topic: str

    def __str__(self) -> str:
        return f"there is no topic {self.topic}"


@dataclass(eq=False)
class UnknownStream(Refusal):
    topic: str
    index: int

    def __str__(self) -> str:
        return f"topic {self.topic} has no stream {self.index}"


@dataclass(eq=False)
class TopicExists(Refusal):
    topic: str

    def __str__(self) -> str:
        return f"topic {self.topic} already exists"


@dataclass(eq=False)
class OtherHome(Refusal):
    """The name belongs to a topic or queue of another protocol, which this front-end cannot serve."""

    topic: str
    home: str

    def __str__(self) -> str:
        owner = f"{_OWNERS.get(self.home, 'topic')} ({self.home})"
        return f"the name {self.topic} belongs to a {owner}: names are unique across protocols, choose another one"


_OWNERS = {
    Layout.PARTITION_LOG.value: "Kafka topic",
    Layout.COMMIT_LOG.value: "RocketMQ topic",
    Layout.QUEUE_LOG.value: "RabbitMQ queue",
}


@dataclass(eq=False)
class Busy(Refusal):
    """The broker is overloaded; the client may retry the same request later."""

    what: str
    retriable = True

    def __str__(self) -> str:
        return f"busy: {self.what}"


@dataclass(eq=False)
class AccessDenied(Refusal):
    """`resource` is the display text. Front-ends with their own wording use `name` and `namespace`."""

    principal: str
    action: str
    resource: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.principal} may not {self.action} {self.resource}"


@dataclass(eq=False)
class LoginFailed(Refusal):
    """The caller is not who it says. The text does not tell why, nor whether there is such a user."""

    def __str__(self) -> str:
        return "check signature failed."


@dataclass(eq=False)
class Changed(Refusal):
    """A compare-and-set failed: the definition has changed since the caller read it."""

    what: str
    retriable = True

    def __str__(self) -> str:
        return f"{self.what} was changed by another request meanwhile"


@dataclass(eq=False)
class UnknownUser(Refusal):
    name: str

    def __str__(self) -> str:
        return f"there is no user {self.name}"


@dataclass(eq=False)
class LeaseGone(Refusal):
    """The delivery was acknowledged or requeued, its lease has expired, or it never existed."""

    id: int

    def __str__(self) -> str:
        return f"lease {self.id} does not exist or has expired"


@dataclass(eq=False)
class AlreadyLeased(Refusal):
    """The message is in flight to another consumer."""

    offset: int
    retriable = True

    def __str__(self) -> str:
        return f"offset {self.offset} is in flight to another consumer"


@dataclass(eq=False)
class UnknownFailure(Refusal):
    """The failure never existed, or the ledger has removed it by its retention."""

    id: int

    def __str__(self) -> str:
        return f"there is no failure {self.id}"


@dataclass(eq=False)
class UnknownGroup(Refusal):
    group: str

    def __str__(self) -> str:
        return f"there is no group {self.group}"


@dataclass(eq=False)
class GroupNotEmpty(Refusal):
    """Only a group without members may be deleted."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group} has members"
