"""What transactions have promised: readers of what is committed see all of a transaction or nothing, once, and never
one that was aborted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from session_clients import Partition
from simulated_trace import SimulationFailure


class Outcome(Enum):
    OPEN = "nobody has asked for its commit"
    UNKNOWN = "its commit was asked for"
    COMMITTED = "its commit was acknowledged"


class Deal:
    """One transaction: its records, and how far its group has read when it is committed."""

    def __init__(self, serial: int, name: str) -> None:
        self.serial = serial
        self.name = name
        self.outcome = Outcome.OPEN
        self.bodies: list[bytes] = []
        self.moves_cursor = False

    def __str__(self) -> str:
        return f"transaction {self.serial} of {self.name}"


class TransactionPromises:
    def __init__(self) -> None:
        self._deals: list[Deal] = []
        self._of: dict[bytes, Deal] = {}
        self._places: dict[Partition, dict[int, bytes]] = {}  # where records were acknowledged or read
        self._where: dict[bytes, tuple[Partition, int]] = {}
        self._stable: dict[Partition, int] = {}
        self._told: dict[str, int] = {}
        self.open_producers: set[str] = set()

    # -- what producers do and hear

    def begin(self, name: str) -> Deal:
        """Once the broker has said who the producer is: of one name, transactions are committed in this order."""
        deal = Deal(len(self._deals) + 1, name)
        self._deals.append(deal)
        return deal

    def asked(self, deal: Deal, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            deal.bodies.append(body)
            self._of[body] = deal

    def acknowledged(self, partition: Partition, offset: int, bodies: Iterable[bytes]) -> None:
        for at, body in enumerate(bodies, offset):
            self._place(partition, at, body, "acknowledged")

    def _place(self, partition: Partition, at: int, body: bytes, how: str) -> None:
        known = self._places.setdefault(partition, {}).setdefault(at, body)
        where = self._where.setdefault(body, (partition, at))
        if known != body or where != (partition, at):
            raise SimulationFailure(f"{body!r} was {how} at {at} of {partition}, where {known!r} is, and is at {where}")

    # -- what readers of committed records are told

    def stable_end(self, partition: Partition) -> int:
        return self._stable.get(partition, 0)

    def read(
        self, partition: Partition, first: int, end: int, records: Sequence[tuple[int, bytes]], stable: int, least: int
    ) -> None:
        """A reader was shown these of `first` to `end`, and that all before `stable` is decided, which was `least` when
        it asked."""
        if stable < least or end > stable:
            raise SimulationFailure(f"{partition}: all before {least} was decided, now {stable}, shown up to {end}")
        self._stable[partition] = max(self._stable.get(partition, 0), stable)
        for at, body in records:
            deal = self._of.get(body)
            if deal is None:
                raise SimulationFailure(f"{partition}: {body!r} is shown at {at}, which nobody sent")
            if deal.outcome is Outcome.OPEN:
                raise SimulationFailure(f"{partition}: {body!r} is shown, of {deal}: {deal.outcome.value}")
            self._place(partition, at, body, "shown")
        shown = {at for at, _ in records}
        for at, body in self._places.get(partition, {}).items():
            if first <= at < end and at not in shown and self._of[body].outcome is Outcome.COMMITTED:
                raise SimulationFailure(f"{partition}: {body!r} is not shown at {at}, of {self._of[body]}")

    # -- the cursors that they move

    def check_cursor(self, name: str, offset: int, least: int) -> None:
        """The group of this name has read so far, by a transaction that is decided; when that was asked, it was `least`
        at least."""
        deal = self._deals[offset - 1] if 0 < offset <= len(self._deals) else None
        if offset > 0 and (deal is None or deal.name != name or not deal.moves_cursor or deal.outcome is Outcome.OPEN):
            raise SimulationFailure(f"the group of {name} has read to {offset}, which was not committed")
        if offset < least:
            raise SimulationFailure(f"the group of {name} went back from {least} to {offset}")
        self._told[name] = max(offset, self._told.get(name, 0))

    def least_cursor(self, name: str) -> int:
        """How far its group has read at least, by what was acknowledged or told."""
        serials = (deal.serial for deal in self._of_name(name) if deal.outcome is Outcome.COMMITTED)
        return max(self._told.get(name, 0), *serials, 0)

    def _of_name(self, name: str) -> list[Deal]:
        return [deal for deal in self._deals if deal.name == name and deal.moves_cursor]

    # -- when all is quiet

    def check_all(self, shown: set[bytes], cursors: dict[str, int]) -> None:
        """These are all records of committed transactions, and all groups' cursors."""
        for deal in self._deals:
            seen = [body for body in deal.bodies if body in shown]
            is_whole = len(seen) == len(deal.bodies)
            if (seen and not is_whole) or (deal.outcome is Outcome.COMMITTED and not is_whole):
                raise SimulationFailure(f"{len(seen)} of {len(deal.bodies)} records are shown of {deal}")
        for name, offset in cursors.items():
            committed = [deal.serial for deal in self._of_name(name) if deal.bodies and deal.bodies[0] in shown]
            if offset != max(committed, default=0):
                raise SimulationFailure(f"the group of {name} has read to {offset}, of {committed}")
