"""Member of a classic group, and the stored form of such a group."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from trimq.core.groups.group import JoinRequest, MemberDescription, OfferedProtocol


@dataclass(slots=True)
class ClassicMember:
    """`joining` and `syncing` are waiting requests. A member without a deadline cannot time out: it waits for the
    others."""

    id: str
    instance: str | None
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    offers: tuple[OfferedProtocol, ...]
    assignment: bytes = b""
    joining: object | None = None
    syncing: object | None = None
    is_new: bool = False
    deadline_ms: int | None = None

    @classmethod
    def from_request(cls, id: str, request: JoinRequest) -> ClassicMember:
        return cls(
            id,
            request.instance,
            request.client_id,
            request.host,
            request.session_ms,
            request.rebalance_ms,
            request.offers,
        )

    def update(self, request: JoinRequest) -> None:
        self.offers = request.offers
        self.session_ms = request.session_ms
        self.rebalance_ms = request.rebalance_ms
        self.client_id = request.client_id
        self.host = request.host

    def is_due(self, now_ms: int) -> bool:
        return self.deadline_ms is not None and self.deadline_ms <= now_ms

    def metadata(self, strategy: str | None) -> bytes:
        return next((offer.metadata for offer in self.offers if offer.name == strategy), b"")

    def describe(self, strategy: str | None) -> MemberDescription:
        return MemberDescription(
            self.id,
            self.instance,
            self.client_id,
            self.host,
            self.metadata(strategy),
            self.assignment,
            offered=tuple(offer.metadata for offer in self.offers),
        )


class StoredClassicMember(msgspec.Struct, frozen=True):
    id: str
    instance: str | None
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    offers: list[tuple[str, bytes]]
    assignment: bytes

    @classmethod
    def of(cls, member: ClassicMember) -> StoredClassicMember:
        offers = [(offer.name, offer.metadata) for offer in member.offers]
        return cls(
            member.id,
            member.instance,
            member.client_id,
            member.host,
            member.session_ms,
            member.rebalance_ms,
            offers,
            member.assignment,
        )

    def restore(self) -> ClassicMember:
        return ClassicMember(
            self.id,
            self.instance,
            self.client_id,
            self.host,
            self.session_ms,
            self.rebalance_ms,
            tuple(OfferedProtocol(*offer) for offer in self.offers),
            self.assignment,
        )


class StoredClassicGroup(msgspec.Struct, frozen=True, tag="member-assigned"):
    """Group as its members last agreed on it. `emptied_ms`: time, in message time, since when it has no members.
    `is_divided`: the assignments are known; otherwise the members have to rejoin."""

    generation: int = 0
    protocol_type: str = ""
    strategy: str | None = None
    leader: str | None = None
    members: list[StoredClassicMember] = []
    emptied_ms: int | None = None
    is_divided: bool = True
