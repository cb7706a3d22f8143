"""Members of a classic group, by member id and by instance id, and their leader. Knows nothing of the group's
states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trimq.core.groups.classic_member import ClassicMember
from trimq.core.groups.group import JoinRequest, MemberMetadata
from trimq.errors.groups import InstanceFenced, NothingInCommon, UnknownMember


class Roster:
    """Members in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._static_members: dict[str, str] = {}  # from instance id to member id
        self.leader: str | None = None
        self.protocol_type = ""

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(tuple(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str, instance: str | None) -> ClassicMember:
        """Returns the member. Raises UnknownMember, or InstanceFenced if another member has the instance id."""
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

    def holder(self, instance: str | None) -> ClassicMember | None:
        """Returns the static member with this instance id."""
        name = None if instance is None else self._static_members.get(instance)
        return None if name is None else self._members[name]

    def add(self, member: ClassicMember) -> None:
        self._members[member.id] = member
        if member.instance is not None:
            self._static_members[member.instance] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.id]
        if member.instance is not None:
            self._static_members.pop(member.instance, None)
        if self.leader == member.id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replaces a static member; `new` becomes the leader if `old` was."""
        was_leader = self.leader == old.id
        self.remove(old)
        self.add(new)
        if was_leader:
            self.leader = new.id

    def find_leader(self) -> bool:
        """Passes the leadership to a member that has rejoined. Returns False if none has."""
        leader = self._members.get(self.leader or "")
        if leader is None or leader.joining is None:
            leader = next((member for member in self if member.joining is not None), None)
        if leader is None:
            return False
        self.leader = leader.id
        return True

    @property
    def all_joined(self) -> bool:
        return all(member.joining is not None for member in self._members.values())

    @property
    def rebalance_ms(self) -> int:
        """Longest rebalance timeout of all members."""
        return max((member.rebalance_ms for member in self._members.values()), default=0)

    def check_offers(self, request: JoinRequest) -> None:
        """Raises a refusal if the member has no protocol in common with all others."""
        if not request.protocol_type or not request.offers:
            raise NothingInCommon("a member must offer a protocol type and at least one protocol")
        if not self._members:
            return
        if request.protocol_type != self.protocol_type:
            raise NothingInCommon(f"the group has the protocol type {self.protocol_type!r}")
        common = self.common_strategies()
        if not any(offer.name in common for offer in request.offers):
            raise NothingInCommon("the member offers no protocol that all members of the group support")

    def offers(self, strategy: str) -> tuple[MemberMetadata, ...]:
        """Returns the metadata of all members, for the leader."""
        return tuple(MemberMetadata(each.id, each.instance, each.metadata(strategy)) for each in self)

    def common_strategies(self) -> set[str]:
        offered = [{offer.name for offer in member.offers} for member in self._members.values()]
        return set.intersection(*offered) if offered else set()

    def select_strategy(self) -> str:
        """Returns the protocol with the most votes. Each member votes for the first of its protocols that all support;
        in a tie, the earliest member's vote wins."""
        common = self.common_strategies()
        votes = Counter(
            next(offer.name for offer in member.offers if offer.name in common) for member in self._members.values()
        )
        return votes.most_common(1)[0][0]
