"""Member of a broker-assigned group, its reconciliation from held to target streams, and its stored form. Streams are
revoked before they are assigned: no other member gets a stream before its owner has revoked it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

import msgspec

from trimq.core.groups.group import MemberDescription, OfferedProtocol
from trimq.model import StreamId

JOINING_EPOCH = 0
LEFT_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # a static member that will return

Streams = frozenset[StreamId]


class ReconciliationState(Enum):
    STABLE = "settled"
    REVOKING = "giving-up"  # holds streams that it was asked to revoke
    AWAITING = "awaiting"  # other members hold streams of its target


@dataclass(slots=True)
class ClassicSide:
    """State of a member that speaks the classic protocol in a broker-assigned group. A member that was asked to rejoin,
    or that has joined and has yet to sync, is removed if it does not do so in time."""

    session_ms: int
    offers: tuple[OfferedProtocol, ...]
    rejoin_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None

    @property
    def strategy(self) -> str:
        """Name of the protocol that its assignments are said to be made with."""
        return self.offers[0].name

    def is_due(self, now_ms: int) -> bool:
        return any(due is not None and due <= now_ms for due in (self.rejoin_deadline_ms, self.sync_deadline_ms))


@dataclass(slots=True)
class AssignedMember:
    """`held` maps each stream to the epoch in which it was assigned. Streams in `giving_up` are being revoked and still
    belong to the member."""

    id: str
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_ms: int = 0
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str | None = None
    epoch: int = JOINING_EPOCH
    previous_epoch: int = LEFT_EPOCH
    progress: ReconciliationState = ReconciliationState.STABLE
    held: dict[StreamId, int] = field(default_factory=dict)
    giving_up: Streams = frozenset()
    target: Streams = frozenset()
    deadline_ms: int = 0
    revocation_deadline_ms: int | None = None
    classic: ClassicSide | None = None

    @property
    def is_away(self) -> bool:
        return self.epoch == STATIC_LEAVE_EPOCH

    def has_reached(self, epoch: int) -> bool:
        return self.progress is ReconciliationState.STABLE and self.epoch == epoch

    def reconcile(self, epoch: int, owned: Streams | None, is_free: Callable[[StreamId], bool], now_ms: int) -> bool:
        """Moves towards the target assignment of `epoch`, as far as other members allow. `owned` lists the streams that
        the client reports. Returns False if nothing changed."""
        if self.has_reached(epoch):
            return False
        if self.progress is ReconciliationState.REVOKING and (owned is None or owned & self.giving_up):
            return False
        kept = self.target & self.held.keys()
        giving_up = frozenset(self.held.keys() - kept)
        if giving_up and (owned is None or owned & giving_up):
            self._hold(kept, self.epoch)
            self.giving_up = giving_up
            self.progress = ReconciliationState.REVOKING
            self.revocation_deadline_ms = now_ms + self.rebalance_ms
            return True
        missing = self.target - kept
        free = frozenset(stream for stream in missing if is_free(stream))
        if self.progress is ReconciliationState.AWAITING and self.epoch == epoch and not free and not giving_up:
            return False
        self._move_to(epoch)
        self._hold(kept | free, epoch)
        self.giving_up = frozenset()
        self.revocation_deadline_ms = None
        self.progress = ReconciliationState.STABLE if free == missing else ReconciliationState.AWAITING
        return True

    def _move_to(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.previous_epoch = self.epoch
            self.epoch = epoch

    def _hold(self, streams: Streams, epoch: int) -> None:
        self.held = {stream: self.held.get(stream, epoch) for stream in sorted(streams)}

    def describe(self) -> MemberDescription:
        return MemberDescription(
            self.id,
            self.instance,
            self.client_id,
            self.host,
            rack=self.rack,
            epoch=self.epoch,
            topics=self.topics,
            pattern=self.pattern,
            streams=frozenset(self.held),
            target=self.target,
            is_classic=self.classic is not None,
        )


class StoredAssignedGroup(msgspec.Struct, frozen=True, tag="broker-assigned"):
    """`topics_seen`: digest of the subscribed topics. `members_seen`: digest of the members, which are stored apart
    from the group, and before it."""

    epoch: int
    assignment_epoch: int
    topics_seen: str
    protocol_type: str = ""
    emptied_ms: int | None = None
    members_seen: str = ""


class StoredClassicSide(msgspec.Struct, frozen=True):
    session_ms: int
    offers: list[tuple[str, bytes]]


class StoredAssignedMember(msgspec.Struct, frozen=True):
    id: str
    instance: str | None
    rack: str | None
    client_id: str
    host: str
    rebalance_ms: int
    topics: list[str]
    pattern: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    progress: str
    held: dict[str, dict[int, int]]  # by topic and stream: epoch of the assignment
    giving_up: dict[str, list[int]]
    target: dict[str, list[int]]
    classic: StoredClassicSide | None = None

    @classmethod
    def of(cls, member: AssignedMember) -> StoredAssignedMember:
        classic = None
        if member.classic is not None:
            offers = [(offer.name, offer.metadata) for offer in member.classic.offers]
            classic = StoredClassicSide(member.classic.session_ms, offers)
        held: dict[str, dict[int, int]] = {}
        for stream, epoch in member.held.items():
            held.setdefault(stream.topic.hex, {})[stream.number] = epoch
        return cls(
            member.id,
            member.instance,
            member.rack,
            member.client_id,
            member.host,
            member.rebalance_ms,
            list(member.topics),
            member.pattern,
            member.assignor,
            member.epoch,
            member.previous_epoch,
            member.progress.value,
            held,
            by_topic(member.giving_up),
            by_topic(member.target),
            classic,
        )

    def restore(self, session_ms: int, now_ms: int) -> AssignedMember:
        """Restarts all timeouts of the member, since the time that had passed is unknown."""
        classic = None
        if self.classic is not None:
            offers = tuple(OfferedProtocol(*offer) for offer in self.classic.offers)
            session_ms = self.classic.session_ms
            classic = ClassicSide(session_ms, offers)
        held = {
            StreamId(UUID(topic), number): epoch
            for topic, numbers in self.held.items()
            for number, epoch in numbers.items()
        }
        return AssignedMember(
            self.id,
            self.instance,
            self.rack,
            self.client_id,
            self.host,
            self.rebalance_ms,
            tuple(self.topics),
            self.pattern,
            self.assignor,
            self.epoch,
            self.previous_epoch,
            ReconciliationState(self.progress),
            held,
            _streams(self.giving_up),
            _streams(self.target),
            now_ms + session_ms,
            now_ms + self.rebalance_ms if self.giving_up else None,
            classic,
        )


def by_topic(streams: Streams) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for stream in sorted(streams):
        topics.setdefault(stream.topic.hex, []).append(stream.number)
    return topics


def _streams(topics: Mapping[str, list[int]]) -> Streams:
    return frozenset(StreamId(UUID(topic), number) for topic, numbers in topics.items() for number in numbers)


def digest_of_topics(shapes: Mapping[str, tuple[UUID, int]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, (id, streams) in sorted(shapes.items()):
        digest.update(f"{name}/{id.hex}/{streams};".encode())
    return digest.hexdigest()


def digest_of_members(members: Iterable[AssignedMember]) -> str:
    """Digest of the members' ids, epochs and targets."""
    digest = hashlib.blake2b(digest_size=8)
    for member in sorted(members, key=lambda member: member.id):
        streams = sum(hash((stream.topic.int, stream.number)) for stream in member.target)  # independent of the order
        digest.update(f"{member.id}/{member.epoch}/{streams};".encode())
    return digest.hexdigest()
