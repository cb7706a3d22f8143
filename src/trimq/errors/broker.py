"""Refusals about the broker, its topics and whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.errors.kinds import Refusal


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
    """Writes are refused before the disk is full, and accepted again when there is room."""

    free_bytes: int
    needed_bytes: int
    retriable = True

    def __str__(self) -> str:
        return f"the disk has {self.free_bytes} bytes free; writes are accepted again from {self.needed_bytes} on"


@dataclass(eq=False)
class MemoryFull(Refusal):
    """Writes are refused before the machine runs out of memory, and accepted again when there is room."""

    used_bytes: int
    writable_bytes: int
    retriable = True

    def __str__(self) -> str:
        return (
            f"the broker takes {self.used_bytes} bytes of memory; writes are accepted again from {self.writable_bytes} "
            "downwards"
        )


@dataclass(eq=False)
class WriteFailed(Refusal):
    """The file system did not take the bytes of a pass; nothing of that pass was kept."""

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
        return f"{self.name!r} cannot be a name: {self.reason}"


@dataclass(eq=False)
class InvalidSetting(Refusal):
    """A setting that is unknown, out of range, or that this broker cannot enforce."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(eq=False)
class InvalidCount(Refusal):
    """A number of streams that cannot be served, or that would shrink a topic."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class ReadOnly(Refusal):
    """This topic, or the whole broker, takes no writes now."""

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
        return f"topic {self.topic} exists"


@dataclass(eq=False)
class OtherHome(Refusal):
    """The name belongs to a topic of another protocol, which this front-end cannot serve yet."""

    topic: str
    home: str

    def __str__(self) -> str:
        return f"topic {self.topic} is kept as a {self.home}"


@dataclass(eq=False)
class Busy(Refusal):
    """Too much is under way; the same request may pass later."""

    what: str
    retriable = True

    def __str__(self) -> str:
        return f"busy: {self.what}"


@dataclass(eq=False)
class AccessDenied(Refusal):
    """`resource` says it all; `name` and `namespace` are those of what it is about, for those who say it otherwise."""

    principal: str
    action: str
    resource: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.principal} may not {self.action} {self.resource}"


@dataclass(eq=False)
class Changed(Refusal):
    """A compare-and-set lost the race: the definition is no longer what the caller saw."""

    what: str
    retriable = True

    def __str__(self) -> str:
        return f"{self.what} was changed meanwhile"


@dataclass(eq=False)
class UnknownUser(Refusal):
    name: str

    def __str__(self) -> str:
        return f"there is no user {self.name}"


@dataclass(eq=False)
class LeaseGone(Refusal):
    """A delivery that was settled, came back or expired, or never was."""

    id: int

    def __str__(self) -> str:
        return f"there is no lease {self.id} (any more)"


@dataclass(eq=False)
class AlreadyLeased(Refusal):
    """The message is out for delivery to somebody else."""

    offset: int
    retriable = True

    def __str__(self) -> str:
        return f"offset {self.offset} is out for delivery"


@dataclass(eq=False)
class UnknownFailure(Refusal):
    """It never was, or the ledger no longer keeps it."""

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
