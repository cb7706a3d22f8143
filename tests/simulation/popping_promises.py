"""Expected state of a POP group: a leased message is delivered to nobody else, an acked one is never delivered again,
and any other is revived once per expired lease, or dead-lettered."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulated_trace import SimulationFailure

from trimq.formats.rocketmq_unit.unit import Unit

Place = tuple[str, int, int]
"""Topic, queue and offset of a message."""


@dataclass(eq=False)
class Receipt:
    """A receipt that a client got; `deadline_ms`: until then the lease is valid for sure. `level` is the number of
    revivals. `is_sure` is False while another receipt may have replaced it."""

    body: bytes
    place: Place
    level: int
    text: str
    deadline_ms: int
    is_sure: bool = True


@dataclass
class PoppedState:
    """State of a popped message: its receipts by number of revivals, the places of its copies, and whether it was
    acked. Deliveries before `last_ms` are outdated: their response was late."""

    receipts: dict[int, Receipt] = field(default_factory=dict)
    copies: dict[int, Place] = field(default_factory=dict)
    last_ms: int = 0
    is_settled: bool = False
    may_be_settled: bool = False
    is_dead: bool = False


class PoppingPromises:
    def __init__(self, group: str, is_ordered: bool, limit: int) -> None:
        self.group = group
        self.is_ordered = is_ordered
        self.limit = limit
        self.delivered_levels: set[int] = set()
        self._popped: dict[bytes, PoppedState] = {}
        self._done: set[Place] = set()
        self._delivered: set[Place] = set()

    def _of(self, body: bytes) -> PoppedState:
        return self._popped.setdefault(body, PoppedState())

    # -- deliveries

    def delivered(self, receipts: list[Receipt], pop_time_ms: int) -> None:
        """Checks all messages of one response."""
        for receipt in receipts:
            popped, body = self._of(receipt.body), receipt.body
            if not self.is_ordered and receipt.place in self._delivered:
                raise SimulationFailure(f"{body[:30]!r} was delivered to {self.group} twice at {receipt.place}")
            self._delivered.add(receipt.place)
            self.delivered_levels.add(receipt.level)
            self._copied(popped, body, receipt.level, receipt.place)
            if pop_time_ms < popped.last_ms:
                return
            if popped.is_settled:
                raise SimulationFailure(f"{body[:30]!r} was delivered to {self.group} after it was acked")
            self._check_lease(popped, receipt, pop_time_ms)
            popped.may_be_settled = False
            self._done.discard(receipt.place)
            popped.receipts[receipt.level] = receipt
            popped.last_ms = pop_time_ms
        if self.is_ordered:
            self._check_order({receipt.place for receipt in receipts})

    def _check_lease(self, popped: PoppedState, receipt: Receipt, pop_time_ms: int) -> None:
        known = popped.receipts.get(receipt.level)
        if known is not None and pop_time_ms < known.deadline_ms:
            reason = f"{known.deadline_ms - pop_time_ms} ms before its lease expired"
            raise SimulationFailure(f"{receipt.body[:30]!r} was delivered to {self.group} again, {reason}")

    def _check_order(self, places: set[Place]) -> None:
        for topic, queue, offset in places:
            for before in range(offset):
                if (topic, queue, before) not in places and (topic, queue, before) not in self._done:
                    reason = f"before {before} was acked"
                    raise SimulationFailure(f"{offset} of {topic}/{queue} was delivered to {self.group} {reason}")

    # -- requests

    def ack_asked(self, receipt: Receipt) -> None:
        self._of(receipt.body).may_be_settled = True
        self._done.add(receipt.place)

    def acked(self, receipt: Receipt, now_ms: int) -> None:
        """Records an ack. An ack of an expired lease is confirmed as well, without effect."""
        if receipt.is_sure and now_ms < receipt.deadline_ms:
            popped = self._of(receipt.body)
            popped.is_settled, popped.last_ms = True, max(popped.last_ms, now_ms)

    def change_asked(self, receipt: Receipt, now_ms: int, invisible_ms: int) -> int:
        """The lease may end earlier until the response. Returns the old deadline, in case the change is refused."""
        before_ms = receipt.deadline_ms
        receipt.deadline_ms = min(before_ms, now_ms + invisible_ms)
        receipt.is_sure = False
        return before_ms

    def change_refused(self, receipt: Receipt, before_ms: int) -> None:
        receipt.deadline_ms, receipt.is_sure = before_ms, True

    def change_without_lease(self, receipt: Receipt, before_ms: int, now_ms: int) -> None:
        """The broker found no lease for this receipt."""
        popped = self._of(receipt.body)
        is_current = popped.receipts[receipt.level] is receipt
        if is_current and now_ms < before_ms and not popped.may_be_settled:
            raise SimulationFailure(
                f"{receipt.body[:30]!r} was not in flight {before_ms - now_ms} ms before its lease expired"
            )

    def changed(self, receipt: Receipt, text: str, deadline_ms: int) -> None:
        receipt.text, receipt.deadline_ms, receipt.is_sure = text, deadline_ms, True

    # -- retry and dead-letter topics of the group

    def revived(self, unit: Unit, place: Place) -> None:
        """A copy of a message was read from the retry topic."""
        level, body = unit.reconsume_times, bytes(unit.body)
        self._check_lease_expired(body, level - 1, unit.store_ms)
        if level > self.limit:
            raise SimulationFailure(
                f"{body[:30]!r} was revived for {self.group} {level} times, {self.limit} are allowed"
            )
        self._copied(self._of(body), body, level, place)

    def dead_lettered(self, unit: Unit, place: Place) -> None:
        """A copy was read from the dead-letter topic."""
        level, body = unit.reconsume_times, bytes(unit.body)
        self._check_lease_expired(body, level - 1, unit.store_ms)
        if level <= self.limit:
            raise SimulationFailure(
                f"{body[:30]!r} of {self.group} was dead-lettered after {level - 1} of {self.limit} retries"
            )
        popped = self._of(body)
        popped.is_dead = True
        self._copied(popped, body, level, place)

    def _check_lease_expired(self, body: bytes, level: int, store_ms: int) -> None:
        popped = self._of(body)
        receipt = popped.receipts.get(level)
        if receipt is None:
            return  # the response with the lease was lost
        if store_ms < receipt.deadline_ms:
            early_ms = receipt.deadline_ms - store_ms
            raise SimulationFailure(
                f"{body[:30]!r} was revived for {self.group} {early_ms} ms before its lease expired"
            )
        if popped.is_settled and level == max(popped.receipts):
            raise SimulationFailure(f"{body[:30]!r} was revived for {self.group} after it was acked")

    def _copied(self, popped: PoppedState, body: bytes, level: int, place: Place) -> None:
        if popped.copies.setdefault(level, place) != place:
            raise SimulationFailure(
                f"{body[:30]!r} was revived for {self.group} twice, {popped.copies[level]} and {place}"
            )

    def is_owed(self, body: bytes) -> bool:
        """Returns whether the message must still be delivered."""
        popped = self._of(body)
        return not (popped.is_settled or popped.may_be_settled or popped.is_dead)
