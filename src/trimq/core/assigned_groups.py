"""A group that the broker divides: members say what they want, and hear with each sign of life what they have and what
they must let go. A state machine: an event, the known topics and the time in, an answer out; it keeps no timer and no
file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from trimq.core.assigned_members import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEFT_EPOCH,
    AssignedMember,
    KeptAssignedGroup,
    KeptAssignedMember,
    Streams,
    digest_of_members,
    digest_of_topics,
)
from trimq.core.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Applicant
from trimq.core.group_refusals import (
    InstanceFenced,
    InstanceInUse,
    MemberEpochFenced,
    OldWayOfSpeaking,
    StaleMemberEpoch,
    UnknownAssignor,
    UnknownMember,
)
from trimq.core.groups import Claim, GroupDescription, GroupKind, GroupState
from trimq.core.patterns import PatternCache
from trimq.model import StreamId


class TopicShape(NamedTuple):
    id: UUID
    streams: int


class KnownTopics(NamedTuple):
    """All topics that can be divided, of `total`. `revision` is another one after every change."""

    revision: int
    shapes: Mapping[str, TopicShape]
    total: int = 0


@dataclass(slots=True, frozen=True)
class BeatRequest:
    """What a member says; None is as before. `owned` is what it has, as far as it knows."""

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
        """The member says everything: it has lost an answer, perhaps."""
        says_wishes = self.topics is not None or self.pattern is not None
        return self.rebalance_ms is not None and says_wishes and self.owned is not None


@dataclass(slots=True, frozen=True)
class Beat:
    """What a member hears. `streams` is what it may have from now on; None: as before."""

    member: str
    epoch: int
    streams: Streams | None = None


class AssignedGroup:
    """`must_keep` and `changed` tell what must outlive a restart: the group itself, and members by name, None for one
    that went. Whoever keeps it clears them."""

    kind = GroupKind.BROKER_ASSIGNED

    def __init__(self, name: str, epoch: int = 1) -> None:
        self.name = name
        self.generation = epoch
        self.protocol_type = ""
        self.must_keep = False
        self.changed: dict[str, AssignedMember | None] = {}
        self._assignment_epoch = 0
        self._topics_seen = ""
        self._revision: int | None = None
        self._subscribed: frozenset[str] = frozenset()
        self._members: dict[str, AssignedMember] = {}
        self._places: dict[str, str] = {}  # of named instances: the member that holds each
        self._owners: dict[StreamId, str] = {}
        self._patterns = PatternCache()

    # -- what is kept

    @classmethod
    def restore(
        cls, name: str, kept: KeptAssignedGroup, members: list[KeptAssignedMember], session_ms: int, now_ms: int
    ) -> AssignedGroup:
        """As it was kept. Members have a whole session to show that they are still there."""
        group = cls(name, kept.epoch)
        group._assignment_epoch = kept.assignment_epoch
        group._topics_seen = kept.topics_seen
        group.protocol_type = kept.protocol_type
        for each in members:
            group._add(each.restore(session_ms, now_ms))
        group._subscribed = frozenset(topic for each in members for topic in each.topics)
        if members and digest_of_members(group._members.values()) != kept.members_seen:
            # A power cut has kept some of what was written together: the streams are divided anew.
            group.generation = max(kept.epoch, *(each.epoch for each in members)) + 1
        return group

    def kept(self, emptied_ms: int | None) -> KeptAssignedGroup:
        emptied = None if self._members else emptied_ms
        epochs, members = (self.generation, self._assignment_epoch), digest_of_members(self._members.values())
        return KeptAssignedGroup(*epochs, self._topics_seen, self.protocol_type, emptied, members)

    def keep_all(self, kept: Iterable[str]) -> None:
        """What was to be kept was not: everything is to be kept again, and those of `kept` who went to be forgotten."""
        self.must_keep = True
        self.changed.update({name: self._members.get(name) for name in (*kept, *self._members)})

    # -- what is asked

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
        """When `expire` has something to do, unless something happens before."""
        dues: list[int] = []
        for member in self._members.values():
            dues.append(member.deadline_ms)
            if member.give_up_by_ms is not None:
                dues.append(member.give_up_by_ms)
        return min(dues, default=None)

    # -- events

    def beat(self, asked: BeatRequest, known: KnownTopics, session_ms: int, now_ms: int) -> Beat:
        """The member is alive, wants this, has that."""
        if asked.assignor is not None and asked.assignor not in ASSIGNORS:
            raise UnknownAssignor(asked.assignor, tuple(ASSIGNORS))
        if asked.pattern:
            self._patterns.add(asked.pattern, (member.pattern for member in self._members.values()))
        member, is_new = self._admit(asked)
        wants_otherwise = _update(member, asked)
        if wants_otherwise:
            self.changed[member.id] = member
        self._look_at_topics(known, is_new or wants_otherwise)
        if self.generation > self._assignment_epoch:
            self._divide(known)
        before = member.held
        if member.reconcile(self._assignment_epoch, asked.owned, lambda stream: self._is_free(stream, member), now_ms):
            self._own(member)
            self.changed[member.id] = member
        member.deadline_ms = now_ms + session_ms
        is_told = asked.epoch == JOINING_EPOCH or asked.is_complete or before.keys() != member.held.keys()
        return Beat(member.id, member.epoch, frozenset(member.held) if is_told else None)

    def leave(self, asked: BeatRequest) -> Beat:
        """The member goes; as a named instance perhaps only for a while, in which nobody gets its streams."""
        member = self._member(asked)
        if asked.epoch == AWAY_EPOCH:
            member.epoch = AWAY_EPOCH
            member.giving_up = frozenset()
            member.give_up_by_ms = None
            self._own(member)
            self.changed[member.id] = member
        else:
            self._remove(member)
        return Beat(member.id, asked.epoch)

    def expire(self, now_ms: int) -> None:
        """Members that were silent, or did not let go of streams in time, are members no more."""
        for member in list(self._members.values()):
            is_slow = member.give_up_by_ms is not None and member.give_up_by_ms <= now_ms
            if is_slow or member.deadline_ms <= now_ms:
                self._remove(member)

    def check_claim(self, claim: Claim, stream: StreamId | None, is_transactional: bool) -> None:
        """Refuse a commit by somebody who does not hold the stream, if one is named, or is no member."""
        if claim.generation < 0 and not self._members:
            return
        if is_transactional and claim.is_nobody:
            return
        member = self._members.get(claim.member)
        if member is None:
            raise UnknownMember(claim.member)
        if not is_transactional and not claim.speaks_epochs:
            raise OldWayOfSpeaking(self.name)
        if claim.generation != member.epoch:
            # An older epoch will do for what the member has held since then.
            since = LEFT_EPOCH if stream is None else member.held.get(stream, member.epoch)
            if claim.generation > member.epoch or since > claim.generation:
                raise StaleMemberEpoch(claim.generation, member.epoch)

    def check_reader(self, claim: Claim) -> None:
        """Refuse one who takes itself for a member and is none, or is behind."""
        if claim.is_nobody:
            return
        member = self._members.get(claim.member)
        if member is None:
            raise UnknownMember(claim.member)
        if claim.generation != member.epoch:
            raise StaleMemberEpoch(claim.generation, member.epoch)

    # -- who is who

    def _admit(self, asked: BeatRequest) -> tuple[AssignedMember, bool]:
        """The member, and whether it is new."""
        if asked.epoch != JOINING_EPOCH:
            member = self._member(asked)
            _check_epoch(member, asked)
            return member, False
        holder = None if asked.instance is None else self._places.get(asked.instance)
        if holder is not None and holder != asked.member:
            return self._take_over(self._members[holder], asked.member), False
        known = self._members.get(asked.member)
        if known is None:
            known = AssignedMember(asked.member, asked.instance)
            self.protocol_type = asked.protocol_type
            self._add(known)
            self.changed[known.id] = known
            return known, True
        if known.is_away:
            known.epoch = JOINING_EPOCH
        return known, False

    def _member(self, asked: BeatRequest) -> AssignedMember:
        if asked.instance is not None:
            holder = self._places.get(asked.instance)
            if holder is None:
                raise UnknownMember(asked.member)
            if holder != asked.member:
                raise InstanceFenced(asked.instance)
        member = self._members.get(asked.member)
        if member is None:
            raise UnknownMember(asked.member)
        return member

    def _take_over(self, old: AssignedMember, name: str) -> AssignedMember:
        """A named instance has come back as a new process: it has what the old one had."""
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
            self._places[member.instance] = member.id
        self._own(member)

    def _forget(self, member: AssignedMember) -> None:
        del self._members[member.id]
        if member.instance is not None:
            self._places.pop(member.instance, None)
        self._owners = {stream: owner for stream, owner in self._owners.items() if owner != member.id}
        self.changed[member.id] = None

    def _remove(self, member: AssignedMember) -> None:
        self._forget(member)
        self.generation += 1
        self.must_keep = True

    # -- who has what

    def _is_free(self, stream: StreamId, member: AssignedMember) -> bool:
        return self._owners.get(stream, member.id) == member.id

    def _own(self, member: AssignedMember) -> None:
        owned = member.held.keys() | member.giving_up
        let_go = [stream for stream, owner in self._owners.items() if owner == member.id and stream not in owned]
        for stream in let_go:
            del self._owners[stream]
        self._owners.update(dict.fromkeys(owned, member.id))

    # -- who wants what

    def _look_at_topics(self, known: KnownTopics, wishes_changed: bool) -> None:
        """A new epoch begins when the members' wishes, or the topics that they want, are others than before."""
        if not wishes_changed and known.revision == self._revision:
            return
        self._revision = known.revision
        self._subscribed = frozenset().union(*(self._wishes(each, known) for each in self._members.values()))
        seen = digest_of_topics({name: known.shapes[name] for name in self._subscribed if name in known.shapes})
        if wishes_changed or seen != self._topics_seen:
            self._topics_seen = seen
            self.generation += 1
            self.must_keep = True

    def _wishes(self, member: AssignedMember, known: KnownTopics) -> set[str]:
        names = set(member.topics)
        if member.pattern:
            names |= self._patterns.match(member.pattern, known.shapes, known.revision)
        return names

    def _divide(self, known: KnownTopics) -> None:
        shapes = known.shapes
        applicants = []
        topics: dict[UUID, int] = {}
        for member in self._members.values():
            wanted = [shapes[name] for name in self._wishes(member, known) if name in shapes]
            topics.update({shape.id: shape.streams for shape in wanted})
            ids = frozenset(shape.id for shape in wanted)
            applicants.append(Applicant(member.id, member.instance, ids, member.target))
        shares = ASSIGNORS[self._assignor()](applicants, dict(sorted(topics.items())))
        for member in self._members.values():
            if member.target != shares[member.id]:
                member.target = shares[member.id]
                self.changed[member.id] = member
        self._assignment_epoch = self.generation
        self.must_keep = True

    def _assignor(self) -> str:
        """The one that most members prefer."""
        votes = Counter(member.assignor for member in self._members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR


def _check_epoch(member: AssignedMember, asked: BeatRequest) -> None:
    """One epoch behind is well, if the member has no more than it should: it has lost an answer."""
    if asked.epoch == member.epoch:
        return
    has_no_more = asked.owned is not None and asked.owned <= member.held.keys()
    if asked.epoch != member.previous_epoch or asked.epoch > member.epoch or not has_no_more:
        raise MemberEpochFenced(asked.epoch, member.epoch)


def _update(member: AssignedMember, asked: BeatRequest) -> bool:
    """Take down what the member says. True: it wants other topics, or another assignor."""
    before = member.topics, member.pattern, member.assignor
    member.client_id, member.host = asked.client_id, asked.host
    member.rack = member.rack if asked.rack is None else asked.rack
    member.rebalance_ms = member.rebalance_ms if asked.rebalance_ms is None else asked.rebalance_ms
    if asked.topics is not None:
        member.topics = tuple(sorted(set(asked.topics)))
    member.pattern = member.pattern if asked.pattern is None else asked.pattern
    member.assignor = member.assignor if asked.assignor is None else asked.assignor
    return before != (member.topics, member.pattern, member.assignor)
