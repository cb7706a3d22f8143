"""Refusals to members of a consumer group, one class per idea. Only front-ends whose clients form groups need codes
for these; refusals about groups that every front-end needs are in `errors.broker`."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.errors import Refusal


@dataclass(eq=False)
class UnknownMember(Refusal):
    """The member never joined the group, left it, or exceeded its session time-out."""

    member: str

    def __str__(self) -> str:
        return f"the group has no member {self.member!r}"


@dataclass(eq=False)
class MemberNameNeeded(Refusal):
    """The client must join again with the member id given here, so that a client that never returns leaves no member
    behind (KIP-394)."""

    member: str
    retriable = True

    def __str__(self) -> str:
        return f"join again with the member id {self.member}"


@dataclass(eq=False)
class InstanceFenced(Refusal):
    """Another process has joined with the same static member id (`group.instance.id`) and replaced this one. `member`:
    id that this one had, if its client waits for the answer to its join and does not know it yet."""

    instance: str
    member: str = ""

    def __str__(self) -> str:
        return f"the static member id {self.instance!r} has been taken over by another member"


@dataclass(eq=False)
class InstanceInUse(Refusal):
    """The static member id (`group.instance.id`) belongs to a member that has not left the group."""

    instance: str

    def __str__(self) -> str:
        return f"the static member id {self.instance!r} is in use by another member"


@dataclass(eq=False)
class StaleGeneration(Refusal):
    """The request names a generation of the group that is not the current one."""

    generation: int
    present: int

    def __str__(self) -> str:
        return f"generation {self.generation} is not the current one, {self.present}"


@dataclass(eq=False)
class Rebalancing(Refusal):
    """The group is rebalancing; the member must join again. `member`: its id, if its client waits for the answer to its
    join and does not know it yet."""

    member: str = ""
    retriable = True

    def __str__(self) -> str:
        return "the group is rebalancing: join again"


@dataclass(eq=False)
class NothingInCommon(Refusal):
    """The member and the group have no assignment strategy (protocol) in common."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class MemberEpochFenced(Refusal):
    """The epoch of the member is ahead of the broker's, or too far behind; the member must join again (KIP-848)."""

    epoch: int
    present: int

    def __str__(self) -> str:
        return f"the member's epoch is {self.present}, not {self.epoch}"


@dataclass(eq=False)
class StaleMemberEpoch(Refusal):
    """The member did not own the stream in the epoch that the request names."""

    epoch: int
    present: int
    retriable = True

    def __str__(self) -> str:
        return f"the member's epoch is {self.present}, not {self.epoch}"


@dataclass(eq=False)
class UnknownAssignor(Refusal):
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no assignor {self.name!r}, only {', '.join(self.known)}"


@dataclass(eq=False)
class InvalidPattern(Refusal):
    pattern: str
    reason: str

    def __str__(self) -> str:
        return f"{self.pattern!r} is not a valid pattern: {self.reason}"


@dataclass(eq=False)
class OldWayOfSpeaking(Refusal):
    """The client commits with a generation (classic protocol) to a group that has member epochs (KIP-848)."""

    group: str

    def __str__(self) -> str:
        return f"the broker assigns the streams of group {self.group}: commit with the member's epoch"


@dataclass(eq=False)
class GroupOfOtherProtocol(Refusal):
    """The group has members that use another protocol."""

    group: str
    protocol: str

    def __str__(self) -> str:
        return f"group {self.group} has members that use {self.protocol}: stop them first, or choose another group name"
