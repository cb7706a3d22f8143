"""Types that all kinds of groups share: states, members, requests and results. A group divides streams among its
members; either its leader or the broker computes the assignment. Knows no clock and no disk."""

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
    PREPARING_REBALANCE = "gathering"  # members have to rejoin
    ASSIGNING = "assigning"  # all have joined; no assignment yet
    RECONCILING = "reconciling"  # assigned; some members have yet to revoke or receive streams
    STABLE = "stable"


class OfferedProtocol(NamedTuple):
    """Assignment protocol that a member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinRequest:
    """`requires_member_id`: a new member is refused once, with the member id to use. `may_skip_assignment`: a returning
    leader understands that it need not compute an assignment."""

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
    """Metadata of one member, as the leader receives it."""

    member: str
    instance: str | None
    metadata: bytes


@dataclass(slots=True, frozen=True)
class JoinResult:
    """`members` is filled for the leader only."""

    member: str
    generation: int
    protocol_type: str
    strategy: str
    leader: str
    members: tuple[MemberMetadata, ...] = ()
    skips_assignment: bool = False


@dataclass(slots=True, frozen=True)
class SyncRequest:
    """`assignments` is sent by the leader. `protocol_type` and `strategy` are None if the client does not send them."""

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
    """Result for a waiting request. `waiter` is the object that was passed with the request."""

    waiter: object
    outcome: JoinResult | SyncResult | Refusal


class LeaveRequest(NamedTuple):
    """Member that leaves, by its id or, if that is empty, by its instance id."""

    member: str
    instance: str | None


class Claim(NamedTuple):
    """Identity under which a cursor is committed or read. The default is a reader outside of the group."""

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
    """Members of classic groups have `metadata` and `assignment`, which the broker cannot read, and `offered`, the
    metadata of each protocol that the member supports; the fields from `rack` to `target` are for broker-assigned
    groups. `is_classic`: a member that speaks the classic protocol in such a group."""

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
    offered: tuple[bytes, ...] = ()
    is_classic: bool = False


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """`strategy`: protocol or assignor in use; empty while there is none. For broker-assigned groups, `generation` is
    the group epoch, `assignment_epoch` that of the latest assignment, and `subscribed` the subscribed topics."""

    name: str
    kind: GroupKind
    state: GroupState
    protocol_type: str
    strategy: str
    generation: int
    members: tuple[MemberDescription, ...]
    assignment_epoch: int = 0
    subscribed: frozenset[str] = frozenset()
    subscriptions: tuple[bytes, ...] | None = ()
    """Metadata with which the members of a classic group joined the latest generation; None before the first one."""
