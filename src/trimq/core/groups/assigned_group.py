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
    ClassicSide,
    ReconciliationState,
    StoredAssignedGroup,
    StoredAssignedMember,
    Streams,
    digest_of_members,
    digest_of_topics,
)
from trimq.core.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignorMember
from trimq.core.groups.group import (
    Claim,
    GroupDescription,
    GroupKind,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    SyncRequest,
    SyncResult,
)
from trimq.core.groups.topic_patterns import PatternCache
from trimq.errors import Refusal
from trimq.errors.groups import (
    InstanceFenced,
    InstanceInUse,
    MemberEpochFenced,
    MemberNameNeeded,
    NothingInCommon,
    OldWayOfSpeaking,
    Rebalancing,
    StaleGeneration,
    StaleMemberEpoch,
    UnknownMember,
)
from trimq.formats.kafka_subscription import (
    CONSUMER,
    BadMetadata,
    PartitionsByTopic,
    Subscription,
    read_subscription,
    write_assignment,
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

    def streams(self, partitions: PartitionsByTopic) -> Streams:
        """Returns the streams of these partitions, without those that do not exist."""
        return frozenset(
            StreamId(self.shapes[name].id, number)
            for name, numbers in partitions.items()
            if name in self.shapes
            for number in numbers
            if 0 <= number < self.shapes[name].streams
        )


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
        self._topics_seen = digest_of_topics({})
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
            later = [member.revocation_deadline_ms]
            if member.classic is not None:
                later += [member.classic.rejoin_deadline_ms, member.classic.sync_deadline_ms]
            dues += [due for due in later if due is not None]
        return min(dues, default=None)

    # -- events

    def heartbeat(self, request: MemberHeartbeat, known: KnownTopics, session_ms: int, now_ms: int) -> HeartbeatResult:
        """Updates the member's subscription, recomputes the assignment if needed, and reconciles the member with it."""
        if request.pattern:
            self._patterns.add(request.pattern, (member.pattern for member in self._members.values()))
        member = self._find_or_add(request)
        before_assignor = member.assignor
        wants_otherwise = _update(member, request)
        was_classic, member.classic = member.classic is not None, None  # a static member changes its protocol
        if wants_otherwise or was_classic or member.assignor != before_assignor:
            self.changed[member.id] = member
        self._refresh_subscription(known, wants_otherwise)
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
            is_late = member.classic is not None and member.classic.is_due(now_ms)
            if is_slow or is_late or member.deadline_ms <= now_ms:
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
        if not is_transactional and not claim.uses_member_epoch and member.classic is None:
            raise OldWayOfSpeaking(self.name)
        if claim.generation != member.epoch:
            # An older epoch is valid for a stream that the member has held since then.
            since = LEFT_EPOCH if stream is None else member.held.get(stream, member.epoch)
            if claim.generation > member.epoch or since > claim.generation:
                refusal = StaleMemberEpoch if member.classic is None else StaleGeneration
                raise refusal(claim.generation, member.epoch)

    def check_reader(self, claim: Claim) -> None:
        """Raises a refusal if the caller claims to be a member but is none, or has a stale epoch."""
        if claim.is_anonymous:
            return
        member = self._members.get(claim.member)
        if member is None:
            raise UnknownMember(claim.member)
        if claim.generation != member.epoch:
            raise StaleMemberEpoch(claim.generation, member.epoch)

    # -- members that speak the classic protocol (KIP-848, online migration): they join, sync and send heartbeats as in
    # a classic group, and the broker assigns their streams. They are asked to rejoin when their assignment changes.

    @classmethod
    def upgrade(
        cls, name: str, generation: int, members: Iterable[AssignedMember], known: KnownTopics, now_ms: int
    ) -> AssignedGroup:
        """Returns the broker-assigned group that a classic group becomes, with the assignments that it had."""
        group = cls(name, generation)
        group.protocol_type = CONSUMER
        group._assignment_epoch = generation
        for member in members:
            assert member.classic is not None
            member.deadline_ms = now_ms + member.classic.session_ms
            group._add(member)
        group._topics_seen = group._digest_subscription(known)
        group.mark_all_changed(())
        return group

    @property
    def is_all_classic(self) -> bool:
        """True if no member is left that speaks the newer protocol."""
        return bool(self._members) and all(member.classic is not None for member in self._members.values())

    @property
    def members(self) -> list[AssignedMember]:
        return list(self._members.values())

    def join_classic(self, request: JoinRequest, new_name: str, known: KnownTopics, now_ms: int) -> JoinResult:
        """Adds or updates a member and reconciles it with the assignment; answered at once, without a leader."""
        subscription = self._check_offers(request)
        if not request.member and request.instance is None and request.requires_member_id:
            raise MemberNameNeeded(new_name)
        member = self._find_or_add_classic(request, new_name)
        before = member.topics, member.pattern
        member.client_id, member.host = request.client_id, request.host
        member.rack, member.rebalance_ms = subscription.rack, request.rebalance_ms
        member.topics, member.pattern, member.assignor = tuple(sorted(set(subscription.topics))), "", None
        member.classic = ClassicSide(request.session_ms, request.offers, None, now_ms + request.rebalance_ms)
        self.changed[member.id] = member
        self._refresh_subscription(known, before != (member.topics, member.pattern))
        if self.generation > self._assignment_epoch:
            self._assign(known)
        owned = known.streams(subscription.owned)
        if member.reconcile(self._assignment_epoch, owned, lambda stream: self._is_free(stream, member), now_ms):
            self._update_owners(member)
        member.deadline_ms = now_ms + request.session_ms
        return JoinResult(member.id, member.epoch, CONSUMER, member.classic.strategy, leader="")

    def sync_classic(self, request: SyncRequest, known: KnownTopics, now_ms: int) -> SyncResult:
        member, classic = self._classic_member(request.member, request.instance, request.generation)
        if request.protocol_type not in (None, CONSUMER) or request.strategy not in (None, classic.strategy):
            raise NothingInCommon(f"the member uses the protocol {classic.strategy!r}")
        if self.generation > member.epoch and member.progress is not ReconciliationState.REVOKING:
            self._ask_to_rejoin(member, classic, now_ms)
            raise Rebalancing
        classic.sync_deadline_ms = None
        member.deadline_ms = now_ms + classic.session_ms
        return SyncResult(CONSUMER, classic.strategy, encode_assignment(member, member.held.keys(), known))

    def heartbeat_classic(self, name: str, instance: str | None, generation: int, now_ms: int) -> None:
        """Extends the member's session. Raises a refusal if the member has to rejoin."""
        member, classic = self._classic_member(name, instance, generation)
        member.deadline_ms = now_ms + classic.session_ms
        missing = member.target - member.held.keys()
        if (
            member.epoch < self.generation
            or member.progress is ReconciliationState.REVOKING
            or (
                member.progress is ReconciliationState.AWAITING
                and all(self._is_free(stream, member) for stream in missing)
            )
        ):
            self._ask_to_rejoin(member, classic, now_ms)
            raise Rebalancing

    def leave_classic(self, leavers: Iterable[LeaveRequest]) -> list[Refusal | None]:
        """Removes members of either protocol. Returns for each None or a refusal."""
        refusals: list[Refusal | None] = []
        for leaver in leavers:
            name = leaver.member
            if not name and leaver.instance is not None:
                name = self._static_members.get(leaver.instance, "")
            try:
                member = self._named(name, leaver.instance)
            except Refusal as refusal:
                refusals.append(refusal)
                continue
            self._remove(member)
            refusals.append(None)
        return refusals

    def _check_offers(self, request: JoinRequest) -> Subscription:
        """Raises a refusal if the member is no consumer, or has no protocol in common with the classic members."""
        if request.protocol_type != CONSUMER or not request.offers:
            raise NothingInCommon("the group is broker-assigned (consumer protocol)")
        others = [each.classic for each in self._members.values() if each.classic and each.id != request.member]
        common = {offer.name for offer in request.offers}
        for other in others:
            common &= {offer.name for offer in other.offers}
        if not common:
            raise NothingInCommon("the member offers no protocol that all classic members of the group support")
        try:
            return read_subscription(request.offers[0].metadata)
        except BadMetadata as error:
            raise NothingInCommon(f"the subscription cannot be read ({error})") from None

    def _find_or_add_classic(self, request: JoinRequest, new_name: str) -> AssignedMember:
        """Returns the member, which may be new. A static member may be replaced, whatever protocol it spoke."""
        name = request.member or new_name
        holder = None if request.instance is None else self._static_members.get(request.instance)
        if request.instance is not None and request.member:
            return self._named(request.member, request.instance)
        if holder is not None:
            return self._rename(self._members[holder], name)
        known = self._members.get(name)
        if known is not None:
            return known
        member = AssignedMember(name, request.instance)
        self.protocol_type = CONSUMER
        self._add(member)
        return member

    def _classic_member(self, name: str, instance: str | None, generation: int) -> tuple[AssignedMember, ClassicSide]:
        member = self._named(name, instance)
        if member.classic is None:
            raise UnknownMember(name)
        if generation != member.epoch:
            raise StaleGeneration(generation, member.epoch)
        return member, member.classic

    @staticmethod
    def _ask_to_rejoin(member: AssignedMember, classic: ClassicSide, now_ms: int) -> None:
        if classic.rejoin_deadline_ms is None:
            classic.rejoin_deadline_ms = now_ms + member.rebalance_ms

    # -- members

    def _find_or_add(self, request: MemberHeartbeat) -> AssignedMember:
        """Returns the member, which may be new."""
        if request.epoch != JOINING_EPOCH:
            member = self._member(request)
            _check_epoch(member, request)
            return member
        holder = None if request.instance is None else self._static_members.get(request.instance)
        if holder is not None and (holder != request.member or not self._members[holder].is_away):
            return self._take_over(self._members[holder], request.member)
        known = self._members.get(request.member)
        if known is None:
            known = AssignedMember(request.member, request.instance)
            self.protocol_type = request.protocol_type
            self._add(known)
            self.changed[known.id] = known
            return known
        if known.is_away:
            known.epoch = JOINING_EPOCH
        return known

    def _member(self, request: MemberHeartbeat) -> AssignedMember:
        return self._named(request.member, request.instance)

    def _named(self, name: str, instance: str | None) -> AssignedMember:
        if instance is not None:
            holder = self._static_members.get(instance)
            if holder is None:
                raise UnknownMember(name)
            if holder != name:
                raise InstanceFenced(instance)
        member = self._members.get(name)
        if member is None:
            raise UnknownMember(name)
        return member

    def _take_over(self, old: AssignedMember, name: str) -> AssignedMember:
        """Gives the assignment of a static member to its new process."""
        if not old.is_away and old.classic is None:
            raise InstanceInUse(old.instance or "")
        return self._rename(old, name)

    def _rename(self, old: AssignedMember, name: str) -> AssignedMember:
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
        seen = self._digest_subscription(known)
        if wishes_changed or seen != self._topics_seen:
            self._topics_seen = seen
            self.generation += 1
            self.needs_save = True

    def _digest_subscription(self, known: KnownTopics) -> str:
        self._revision = known.revision
        self._subscribed = frozenset().union(*(self._subscribed_topics(each, known) for each in self._members.values()))
        return digest_of_topics({name: known.shapes[name] for name in self._subscribed if name in known.shapes})

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


def encode_assignment(member: AssignedMember, streams: Iterable[StreamId], known: KnownTopics) -> bytes:
    """Returns streams of a classic member in the form that its protocol has for assignments."""
    assert member.classic is not None
    names = {known.shapes[name].id: name for name in member.topics if name in known.shapes}
    partitions: dict[str, list[int]] = {}
    for stream in sorted(streams):
        if stream.topic in names:
            partitions.setdefault(names[stream.topic], []).append(stream.number)
    return write_assignment(read_subscription(member.classic.offers[0].metadata).version, partitions)


def _check_epoch(member: AssignedMember, request: MemberHeartbeat) -> None:
    """Accepts the previous epoch if the member owns no more than its assignment: it has lost a response."""
    if request.epoch == member.epoch:
        return
    has_no_more = request.owned is not None and request.owned <= member.held.keys()
    if request.epoch != member.previous_epoch or request.epoch > member.epoch or not has_no_more:
        raise MemberEpochFenced(request.epoch, member.epoch)


def _update(member: AssignedMember, request: MemberHeartbeat) -> bool:
    """Copies the fields of a heartbeat. Returns True if the subscription changed."""
    before = member.topics, member.pattern
    member.client_id, member.host = request.client_id, request.host
    member.rack = member.rack if request.rack is None else request.rack
    member.rebalance_ms = member.rebalance_ms if request.rebalance_ms is None else request.rebalance_ms
    if request.topics is not None:
        member.topics = tuple(sorted(set(request.topics)))
    member.pattern = member.pattern if request.pattern is None else request.pattern
    member.assignor = member.assignor if request.assignor is None else request.assignor
    return before != (member.topics, member.pattern)
