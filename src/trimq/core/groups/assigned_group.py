"""Broker-assigned group (KIP-848): with each heartbeat a member sends its subscription and the streams it owns, and
receives its assignment. State machine: an event, the known topics and the time in, a result out. Has no timer and no
file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from trimq.core.groups.assigned_member import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    STATIC_LEAVE_EPOCH,
    AssignedMember,
    StoredAssignedGroup,
    StoredAssignedMember,
    Streams,
    digest_of_members,
    digest_of_topics,
)
from trimq.core.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignorMember
from trimq.core.groups.group import Claim, GroupDescription, GroupKind, GroupState
from trimq.core.groups.topic_patterns import PatternCache
from trimq.errors.groups import (
    InstanceFenced,
    InstanceInUse,
    MemberEpochFenced,
    OldWayOfSpeaking,
    StaleMemberEpoch,
    UnknownAssignor,
    UnknownMember,
)
from trimq.model import StreamId


class AssignableTopic(NamedTuple):
    id: UUID
    streams: int


class KnownTopics(NamedTuple):
    """All assignable topics. `total` also counts the other topics. `revision` differs after every change."""

    revision: int
    shapes: Mapping[str, AssignableTopic]
    total: int = 0


@dataclass(slots=True, frozen=True)
class MemberHeartbeat:
    """Heartbeat of a member; a field that is None is unchanged. `owned` lists the streams that the client believes it
    owns."""

    member: str
    epoch: int
    instance: str | None
    rack: str | None
    rebalance_ms: int | None
    topics: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    owned: Streams | None
    protocol_type: str
    client_id: str
    host: str

    @property
    def is_complete(self) -> bool:
        """True if the client sends all fields, as it does when it may have lost a response."""
        says_wishes = self.topics is not None or self.pattern is not None
        return self.rebalance_ms is not None and says_wishes and self.owned is not None


@dataclass(slots=True, frozen=True)
class HeartbeatResult:
    """Response to a heartbeat. `streams` is the member's assignment from now on, or None if it is unchanged."""

    member: str
    epoch: int
    streams: Streams | None = None


class AssignedGroup:
    """`needs_save` and `changed` name the state that must survive a restart: the group itself, and members by id, None
    for a removed one. The coordinator clears them when it has stored the state."""

    kind = GroupKind.BROKER_ASSIGNED

    def __init__(self, name: str, epoch: int = 1) -> None:
        self.name = name
        self.generation = epoch
        self.protocol_type = ""
        self.needs_save = False
        self.changed: dict[str, AssignedMember | None] = {}
        self._assignment_epoch = 0
        self._topics_seen = ""
        self._revision: int | None = None
        self._subscribed: frozenset[str] = frozenset()
        self._members: dict[str, AssignedMember] = {}
        self._static_members: dict[str, str] = {}  # from instance id to member id
        self._owners: dict[StreamId, str] = {}
        self._patterns = PatternCache()

    # -- stored state

    @classmethod
    def restore(
        cls, name: str, kept: StoredAssignedGroup, members: list[StoredAssignedMember], session_ms: int, now_ms: int
    ) -> AssignedGroup:
        """Restores a stored group. Each member gets a whole session timeout to send a heartbeat."""
        group = cls(name, kept.epoch)
        group._assignment_epoch = kept.assignment_epoch
        group._topics_seen = kept.topics_seen
        group.protocol_type = kept.protocol_type
        for each in members:
            group._add(each.restore(session_ms, now_ms))
        group._subscribed = frozenset(topic for each in members for topic in each.topics)
        if members and digest_of_members(group._members.values()) != kept.members_seen:
            # A power cut kept only a part of a write: compute a new assignment.
            group.generation = max(kept.epoch, *(each.epoch for each in members)) + 1
        return group

    def kept(self, emptied_ms: int | None) -> StoredAssignedGroup:
        emptied = None if self._members else emptied_ms
        epochs, members = (self.generation, self._assignment_epoch), digest_of_members(self._members.values())
        return StoredAssignedGroup(*epochs, self._topics_seen, self.protocol_type, emptied, members)

    def mark_all_changed(self, kept: Iterable[str]) -> None:
        """Marks the group and all members as unsaved after a refused write. `kept` names the stored members; those that
        left the group are marked as removed."""
        self.needs_save = True
        self.changed.update({name: self._members.get(name) for name in (*kept, *self._members)})

    # -- queries

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    @property
    def is_unused(self) -> bool:
        return not self._members

    @property
    def state(self) -> GroupState:
        if not self._members:
            return GroupState.EMPTY
        if self.generation > self._assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.has_reached(self._assignment_epoch) for member in self._members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def describe(self) -> GroupDescription:
        members = tuple(member.describe() for member in self._members.values())
        return GroupDescription(
            self.name,
            self.kind,
            self.state,
            self.protocol_type,
            self._assignor(),
            self.generation,
            members,
            self._assignment_epoch,
            self._subscribed,
        )

    def next_due_ms(self) -> int | None:
        """Returns when `expire` has to be called, unless an event happens before."""
        dues: list[int] = []
        for member in self._members.values():
            dues.append(member.deadline_ms)
            if member.revocation_deadline_ms is not None:
                dues.append(member.revocation_deadline_ms)
        return min(dues, default=None)

    # -- events

    def heartbeat(self, request: MemberHeartbeat, known: KnownTopics, session_ms: int, now_ms: int) -> HeartbeatResult:
        """Updates the member's subscription, recomputes the assignment if needed, and reconciles the member with it."""
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            raise UnknownAssignor(request.assignor, tuple(ASSIGNORS))
        if request.pattern:
            self._patterns.add(request.pattern, (member.pattern for member in self._members.values()))
        member, is_new = self._find_or_add(request)
        wants_otherwise = _update(member, request)
        if wants_otherwise:
            self.changed[member.id] = member
        self._refresh_subscription(known, is_new or wants_otherwise)
        if self.generation > self._assignment_epoch:
            self._assign(known)
        before = member.held
        if member.reconcile(
            self._assignment_epoch, request.owned, lambda stream: self._is_free(stream, member), now_ms
        ):
            self._update_owners(member)
            self.changed[member.id] = member
        member.deadline_ms = now_ms + session_ms
        is_told = request.epoch == JOINING_EPOCH or request.is_complete or before.keys() != member.held.keys()
        return HeartbeatResult(member.id, member.epoch, frozenset(member.held) if is_told else None)

    def leave(self, request: MemberHeartbeat) -> HeartbeatResult:
        """Removes the member. A static member may leave temporarily; no other member gets its streams meanwhile."""
        member = self._member(request)
        if request.epoch == STATIC_LEAVE_EPOCH:
            member.epoch = STATIC_LEAVE_EPOCH
            member.giving_up = frozenset()
            member.revocation_deadline_ms = None
            self._update_owners(member)
            self.changed[member.id] = member
        else:
            self._remove(member)
        return HeartbeatResult(member.id, request.epoch)

    def expire(self, now_ms: int) -> None:
        """Removes members that sent no heartbeat, or did not revoke streams, in time."""
        for member in list(self._members.values()):
            is_slow = member.revocation_deadline_ms is not None and member.revocation_deadline_ms <= now_ms
            if is_slow or member.deadline_ms <= now_ms:
                self._remove(member)

    def check_claim(self, claim: Claim, stream: StreamId | None, is_transactional: bool) -> None:
        """Raises a refusal if the committer is not a member, or does not hold `stream`, if that is given."""
        if claim.generation < 0 and not self._members:
            return
        if is_transactional and claim.is_anonymous:
            return
        member = self._members.get(claim.member)
        if member is None:
            raise UnknownMember(claim.member)
        if not is_transactional and not claim.uses_member_epoch:
            raise OldWayOfSpeaking(self.name)
        if claim.generation != member.epoch:
            # An older epoch is valid for a stream that the member has held since then.
            since = LEFT_EPOCH if stream is None else member.held.get(stream, member.epoch)
            if claim.generation > member.epoch or since > claim.generation:
                raise StaleMemberEpoch(claim.generation, member.epoch)

    def check_reader(self, claim: Claim) -> None:
        """Raises a refusal if the caller claims to be a member but is none, or has a stale epoch."""
        if claim.is_anonymous:
            return
        member = self._members.get(claim.member)
        if member is None:
            raise UnknownMember(claim.member)
        if claim.generation != member.epoch:
            raise StaleMemberEpoch(claim.generation, member.epoch)

    # -- members

    def _find_or_add(self, request: MemberHeartbeat) -> tuple[AssignedMember, bool]:
        """Returns the member, and whether it is new."""
        if request.epoch != JOINING_EPOCH:
            member = self._member(request)
            _check_epoch(member, request)
            return member, False
        holder = None if request.instance is None else self._static_members.get(request.instance)
        if holder is not None and holder != request.member:
            return self._take_over(self._members[holder], request.member), False
        known = self._members.get(request.member)
        if known is None:
            known = AssignedMember(request.member, request.instance)
            self.protocol_type = request.protocol_type
            self._add(known)
            self.changed[known.id] = known
            return known, True
        if known.is_away:
            known.epoch = JOINING_EPOCH
        return known, False

    def _member(self, request: MemberHeartbeat) -> AssignedMember:
        if request.instance is not None:
            holder = self._static_members.get(request.instance)
            if holder is None:
                raise UnknownMember(request.member)
            if holder != request.member:
                raise InstanceFenced(request.instance)
        member = self._members.get(request.member)
        if member is None:
            raise UnknownMember(request.member)
        return member

    def _take_over(self, old: AssignedMember, name: str) -> AssignedMember:
        """Gives the assignment of a static member to its new process."""
        if not old.is_away:
            raise InstanceInUse(old.instance or "")
        self._forget(old)
        old.id = name
        old.epoch = JOINING_EPOCH
        old.previous_epoch = JOINING_EPOCH
        self._add(old)
        self.changed[name] = old
        return old

    def _add(self, member: AssignedMember) -> None:
        self._members[member.id] = member
        if member.instance is not None:
            self._static_members[member.instance] = member.id
        self._update_owners(member)

    def _forget(self, member: AssignedMember) -> None:
        del self._members[member.id]
        if member.instance is not None:
            self._static_members.pop(member.instance, None)
        self._owners = {stream: owner for stream, owner in self._owners.items() if owner != member.id}
        self.changed[member.id] = None

    def _remove(self, member: AssignedMember) -> None:
        self._forget(member)
        self.generation += 1
        self.needs_save = True

    # -- owners of streams

    def _is_free(self, stream: StreamId, member: AssignedMember) -> bool:
        return self._owners.get(stream, member.id) == member.id

    def _update_owners(self, member: AssignedMember) -> None:
        owned = member.held.keys() | member.giving_up
        let_go = [stream for stream, owner in self._owners.items() if owner == member.id and stream not in owned]
        for stream in let_go:
            del self._owners[stream]
        self._owners.update(dict.fromkeys(owned, member.id))

    # -- subscriptions and assignment

    def _refresh_subscription(self, known: KnownTopics, wishes_changed: bool) -> None:
        """Begins a new epoch when the members' subscriptions or the subscribed topics have changed."""
        if not wishes_changed and known.revision == self._revision:
            return
        self._revision = known.revision
        self._subscribed = frozenset().union(*(self._subscribed_topics(each, known) for each in self._members.values()))
        seen = digest_of_topics({name: known.shapes[name] for name in self._subscribed if name in known.shapes})
        if wishes_changed or seen != self._topics_seen:
            self._topics_seen = seen
            self.generation += 1
            self.needs_save = True

    def _subscribed_topics(self, member: AssignedMember, known: KnownTopics) -> set[str]:
        names = set(member.topics)
        if member.pattern:
            names |= self._patterns.match(member.pattern, known.shapes, known.revision)
        return names

    def _assign(self, known: KnownTopics) -> None:
        shapes = known.shapes
        applicants = []
        topics: dict[UUID, int] = {}
        for member in self._members.values():
            wanted = [shapes[name] for name in self._subscribed_topics(member, known) if name in shapes]
            topics.update({shape.id: shape.streams for shape in wanted})
            ids = frozenset(shape.id for shape in wanted)
            applicants.append(AssignorMember(member.id, member.instance, ids, member.target))
        shares = ASSIGNORS[self._assignor()](applicants, dict(sorted(topics.items())))
        for member in self._members.values():
            if member.target != shares[member.id]:
                member.target = shares[member.id]
                self.changed[member.id] = member
        self._assignment_epoch = self.generation
        self.needs_save = True

    def _assignor(self) -> str:
        """Returns the assignor that most members prefer."""
        votes = Counter(member.assignor for member in self._members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR


def _check_epoch(member: AssignedMember, request: MemberHeartbeat) -> None:
    """Accepts the previous epoch if the member owns no more than its assignment: it has lost a response."""
    if request.epoch == member.epoch:
        return
    has_no_more = request.owned is not None and request.owned <= member.held.keys()
    if request.epoch != member.previous_epoch or request.epoch > member.epoch or not has_no_more:
        raise MemberEpochFenced(request.epoch, member.epoch)


def _update(member: AssignedMember, request: MemberHeartbeat) -> bool:
    """Copies the fields of a heartbeat. Returns True if the subscription or the assignor changed."""
    before = member.topics, member.pattern, member.assignor
    member.client_id, member.host = request.client_id, request.host
    member.rack = member.rack if request.rack is None else request.rack
    member.rebalance_ms = member.rebalance_ms if request.rebalance_ms is None else request.rebalance_ms
    if request.topics is not None:
        member.topics = tuple(sorted(set(request.topics)))
    member.pattern = member.pattern if request.pattern is None else request.pattern
    member.assignor = member.assignor if request.assignor is None else request.assignor
    return before != (member.topics, member.pattern, member.assignor)
