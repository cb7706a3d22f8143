"""What a member of a group can be refused, one class per idea. Only front-ends whose clients form groups need codes
for these; refusals about groups that everyone may meet are in `errors`."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.errors import Refusal


@dataclass(eq=False)
class UnknownMember(Refusal):
    """It never was in the group, left it, or was silent for too long."""

    member: str

    def __str__(self) -> str:
        return f"the group has no member {self.member!r}"


@dataclass(eq=False)
class MemberNameNeeded(Refusal):
    """A member must come back with the name that it is given here, so that one that never returns does no harm."""

    member: str
    retriable = True

    def __str__(self) -> str:
        return f"join again as {self.member}"


@dataclass(eq=False)
class InstanceFenced(Refusal):
    """Another process has taken over this named place in the group."""

    instance: str

    def __str__(self) -> str:
        return f"the place of {self.instance!r} has been taken over by another member"


@dataclass(eq=False)
class InstanceInUse(Refusal):
    """The named place is held by a member that has not given it up."""

    instance: str

    def __str__(self) -> str:
        return f"the place of {self.instance!r} is held by another member"


@dataclass(eq=False)
class StaleGeneration(Refusal):
    """The member speaks of another generation of the group than the present one."""

    generation: int
    present: int

    def __str__(self) -> str:
        return f"generation {self.generation} is not the present one, {self.present}"


@dataclass(eq=False)
class Rebalancing(Refusal):
    """The group is being divided anew: join it again."""

    retriable = True

    def __str__(self) -> str:
        return "the group is being divided anew"


@dataclass(eq=False)
class NothingInCommon(Refusal):
    """The member and the group have no way of dividing streams in common."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class MemberEpochFenced(Refusal):
    """A member of a group that the broker divides is ahead of it, or too far behind: it must begin anew."""

    epoch: int
    present: int

    def __str__(self) -> str:
        return f"the member's epoch is {self.present}, not {self.epoch}"


@dataclass(eq=False)
class StaleMemberEpoch(Refusal):
    """The member did not hold the stream in the epoch that it speaks of."""

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
        return f"{self.pattern!r} is no pattern: {self.reason}"


@dataclass(eq=False)
class OldWayOfSpeaking(Refusal):
    """The member's client speaks of generations to a group that has epochs."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group} is divided by the broker: commit with the member's epoch"
