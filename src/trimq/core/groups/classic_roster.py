"""Who is in a group whose leading member divides the streams: by name, by the place of a named instance, and which of
them leads. Knows nothing of the group's phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trimq.core.groups.classic_member import ClassicMember
from trimq.core.groups.group import JoinRequest, MemberMetadata
from trimq.errors.groups import InstanceFenced, NothingInCommon, UnknownMember


class Roster:
    """Members in the order in which they came."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._static_members: dict[str, str] = {}  # of named instances: the member that holds each
        self.leader: str | None = None
        self.protocol_type = ""

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(tuple(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str, instance: str | None) -> ClassicMember:
        """The member, if it is who it says."""
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
        """Who holds the place of a named instance."""
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
        """`new` takes the place of the named instance, and the lead if `old` had it."""
        was_leader = self.leader == old.id
        self.remove(old)
        self.add(new)
        if was_leader:
            self.leader = new.id

    def find_leader(self) -> bool:
        """Leave the lead to one who has come. False: nobody has."""
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
        """How long the slowest member may take to come."""
        return max((member.rebalance_ms for member in self._members.values()), default=0)

    def check_offers(self, request: JoinRequest) -> None:
        """Refuse a member with whom the others would have no way of dividing streams."""
        if not request.protocol_type or not request.offers:
            raise NothingInCommon("a member says how streams may be divided")
        if not self._members:
            return
        if request.protocol_type != self.protocol_type:
            raise NothingInCommon(f"the group is of type {self.protocol_type!r}")
        common = self.common_strategies()
        if not any(offer.name in common for offer in request.offers):
            raise NothingInCommon("the group has no way of dividing streams that this member knows")

    def offers(self, strategy: str) -> tuple[MemberMetadata, ...]:
        """What the leading member is told."""
        return tuple(MemberMetadata(each.id, each.instance, each.metadata(strategy)) for each in self)

    def common_strategies(self) -> set[str]:
        offered = [{offer.name for offer in member.offers} for member in self._members.values()]
        return set.intersection(*offered) if offered else set()

    def select_strategy(self) -> str:
        """Each member votes for the first of its offers that all know; the first of the members decides a tie."""
        common = self.common_strategies()
        votes = Counter(
            next(offer.name for offer in member.offers if offer.name in common) for member in self._members.values()
        )
        return votes.most_common(1)[0][0]
