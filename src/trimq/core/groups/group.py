"""The words about groups that every kind of group shares: states, members, what is asked and what is decided. A group
divides streams among its members, either by its leading member or by the broker. Knows no clock and no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trimq.core.metadata.cursors import NO_LEADER_EPOCH
from trimq.errors import Refusal
from trimq.model import StreamId

NO_GENERATION = -1


class GroupKind(Enum):
    MEMBER_ASSIGNED = "member-assigned"
    BROKER_ASSIGNED = "broker-assigned"


class GroupState(Enum):
    EMPTY = "empty"
    PREPARING_REBALANCE = "gathering"  # members are called together
    ASSIGNING = "assigning"  # all are here; who gets what is not decided
    RECONCILING = "reconciling"  # decided; some have not given up or not got their streams
    STABLE = "stable"


class OfferedProtocol(NamedTuple):
    """A way of dividing streams that a member knows, and what it tells the leading member about itself."""

    name: str
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinRequest:
    """`requires_member_id`: a new member is sent back once, with the name to use. `may_skip_assignment`: a returning
    leading member understands that it need not divide anything."""

    member: str
    instance: str | None
    protocol_type: str
    offers: tuple[OfferedProtocol, ...]
    session_ms: int
    rebalance_ms: int
    client_id: str
    host: str
    requires_member_id: bool = True
    may_skip_assignment: bool = False


class MemberMetadata(NamedTuple):
    """What the leading member is told about each member."""

    member: str
    instance: str | None
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinResult:
    """`members` is for the leading member only."""

    member: str
    generation: int
    protocol_type: str
    strategy: str
    leader: str
    members: tuple[MemberMetadata, ...] = ()
    skips_assignment: bool = False


@dataclass(slots=True, frozen=True)
class SyncRequest:
    """`assignments` comes from the leading member. None as type or strategy: the client does not say."""

    member: str
    instance: str | None
    generation: int
    protocol_type: str | None
    strategy: str | None
    assignments: Mapping[str, bytes]


@dataclass(slots=True, frozen=True)
class SyncResult:
    protocol_type: str
    strategy: str
    assignment: bytes


class WaiterResult(NamedTuple):
    """Who waited gets this. `waiter` is whatever came with the question."""

    waiter: object
    outcome: JoinResult | SyncResult | Refusal


class LeaveRequest(NamedTuple):
    """A member that goes; without a name, whoever holds the place of `instance`."""

    member: str
    instance: str | None


class Claim(NamedTuple):
    """On whose behalf a cursor is committed or asked for. The default is nobody's: a reader outside of the group."""

    member: str = ""
    generation: int = NO_GENERATION
    instance: str | None = None
    uses_member_epoch: bool = True

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member and self.instance is None


NO_MEMBER = Claim()


class CursorChange(NamedTuple):
    stream: StreamId
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(slots=True, frozen=True)
class MemberDescription:
    """Groups whose leading member divides have `metadata` and `assignment`, which the broker cannot read; others have
    what the broker knows."""

    id: str
    instance: str | None
    client_id: str
    host: str
    metadata: bytes = b""
    assignment: bytes = b""
    rack: str | None = None
    epoch: int = 0
    topics: tuple[str, ...] = ()
    pattern: str = ""
    streams: frozenset[StreamId] = frozenset()
    target: frozenset[StreamId] = frozenset()


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """`strategy`: by which assignor the streams are divided; empty while nobody is there. `generation` is the epoch of
    a group that the broker divides, `assignment_epoch` the one of its latest division, and `subscribed` what it
    divides."""

    name: str
    kind: GroupKind
    state: GroupState
    protocol_type: str
    strategy: str
    generation: int
    members: tuple[MemberDescription, ...]
    assignment_epoch: int = 0
    subscribed: frozenset[str] = frozenset()
