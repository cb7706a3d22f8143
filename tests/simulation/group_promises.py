"""Expected state of a group in the simulation: each partition has one owner, and cursors are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from session_clients import ALL_PARTITIONS, Partition
from simulated_trace import SimulationFailure

Share = frozenset[Partition]
NOTHING: Share = frozenset()
NOBODY = "nobody"  # owner of commits to a group without members


class CommitPromises:
    """Cursors of a group in one partition. Every commit has a higher number than all before it."""

    def __init__(self) -> None:
        self.acknowledged: int | None = None
        self._unknown: dict[int, object] = {}  # requested, by owner
        self._last = 0

    def ask(self, owner: object) -> int:
        self._last += 1
        self._unknown[self._last] = owner
        return self._last

    def refused(self, number: int) -> None:
        self._unknown.pop(number, None)

    def confirmed(self, number: int, owner: object) -> None:
        """Earlier commits of other owners can no longer be applied: the owner of this one owns the partition."""
        self._unknown.pop(number, None)
        if self.acknowledged is None or number > self.acknowledged:
            self.acknowledged = number
        for earlier, other in list(self._unknown.items()):
            if earlier < number and other not in (owner, NOBODY):
                del self._unknown[earlier]

    def expectation(self) -> Callable[[int], bool]:
        """Returns a check for a fetch that begins now: valid are the current cursor, pending ones, and those committed
        until the response."""
        least, possible = self.acknowledged or 0, set(self._unknown)
        return lambda number: least <= number <= self._last or number in possible

    def recovered(self, number: int) -> bool:
        is_legal = number == (self.acknowledged or 0) or number in self._unknown
        self.acknowledged = number or None
        self._unknown.clear()
        return is_legal


class GroupPromises:
    def __init__(self, name: str) -> None:
        self.name = name
        self.commits = {partition: CommitPromises() for partition in ALL_PARTITIONS}
        self.is_settled = False
        self.is_seeded = False
        self.seeder: str | None = None
        self._shares: dict[str, tuple[int, Share]] = {}
        self._clients: set[str] = set()

    # -- stable group

    def enter(self, client: str) -> None:
        self._clients.add(client)

    def note_share(self, client: str, settled_by: int, share: Share) -> None:
        """`settled_by`: the generation or epoch that all members of a stable group share."""
        self._shares[client] = (settled_by, share)
        shares = [held for _, held in self._shares.values()]
        is_same = len({number for number, _ in self._shares.values()}) == 1
        is_whole = sum(map(len, shares)) == len(ALL_PARTITIONS) and len(NOTHING.union(*shares)) == len(ALL_PARTITIONS)
        self.is_settled = self._shares.keys() == self._clients and is_same and is_whole

    def forget_share(self, client: str) -> None:
        self._shares.pop(client, None)

    # -- cursors

    def check_recovered(self, found: Mapping[Partition, int]) -> None:
        for partition, commits in self.commits.items():
            before = commits.acknowledged
            if not commits.recovered(found.get(partition, 0)):
                reason = f"recovery found {self.name} at {found.get(partition)} of {partition}, after {before}"
                raise SimulationFailure(reason)


class ClassicPromises(GroupPromises):
    """Expected state of a group with client-side assignment. A static member is identified by its instance id: when it
    rejoins as a new member, it keeps its partitions."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._divided: dict[int, list[Mapping[str, Share]]] = {}
        self._synced: dict[int, dict[str, Share]] = {}
        self.newest = 0

    def divided(self, generation: int, shares: Mapping[str, Share]) -> None:
        """Records an assignment that a leader is about to send."""
        self._divided.setdefault(generation, []).append(shares)

    def synced(self, generation: int, member: str, share: Share) -> None:
        """Checks the assignment that a member got."""
        handed_in = self._divided.get(generation, [])
        if not any(shares.get(member, NOTHING) == share for shares in handed_in):
            raise SimulationFailure(f"{self.name}: {member} got {sorted(share)}, which no leader assigned")
        given = self._synced.setdefault(generation, {})
        for other, held in given.items():
            if other != member and held & share:
                owned = sorted(held & share)
                raise SimulationFailure(f"{self.name}: {other} and {member} both own {owned} in {generation}")
        given[member] = share
        self.newest = max(self.newest, generation)


class Holder:
    """A member of a group with broker-side assignment, as its client knows it: its partitions, and until when its
    session is valid for sure."""

    def __init__(self) -> None:
        self.share: Share = NOTHING
        self.alive_until_ms = 0


class AssignedPromises(GroupPromises):
    """Expected state of a group with broker-side assignment."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._holders: dict[str, Holder] = {}

    def holder(self, member: str) -> Holder:
        return self._holders.setdefault(member, Holder())

    def give(self, member: str, share: Share, now_ms: int) -> None:
        """The broker assigned this to the member."""
        other = self.other_holder(member, share, now_ms)
        if other is not None:
            owned = sorted(self._holders[other].share & share)
            raise SimulationFailure(f"{self.name}: {other} and {member} both hold {owned}")

    def other_holder(self, member: str, share: Share, now_ms: int) -> str | None:
        """Returns another live member that has not released all of this."""
        for other, holder in self._holders.items():
            if other != member and holder.share & share and now_ms < holder.alive_until_ms:
                return other
        return None
