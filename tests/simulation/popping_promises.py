"""What a broker has promised a group that pops: what is out is nobody else's until its time is over, what was settled
never comes again, and what was not comes back, once for each time, or lies with the dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulated_trace import SimulationFailure

from trimq.formats.rocketmq_unit.unit import Unit

Place = tuple[str, int, int]
"""The topic that it stands in, and where there."""


@dataclass(eq=False)
class Receipt:
    """One that somebody was given; `deadline_ms`: until then the message is theirs for sure. `level` is how often it
    had come back. `is_sure` is lost when nobody knows whether another receipt has taken its place."""

    body: bytes
    place: Place
    level: int
    text: str
    deadline_ms: int
    is_sure: bool = True


@dataclass
class Taken:
    """A message as the group had it: its receipts by how often it had come back, which of its copies stand where, and
    whether it was settled. What was taken before `last_ms` is of the past: its answer was on the way for long."""

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
        self.given_levels: set[int] = set()
        self._taken: dict[bytes, Taken] = {}
        self._done: set[Place] = set()
        self._given: set[Place] = set()

    def _of(self, body: bytes) -> Taken:
        return self._taken.setdefault(body, Taken())

    # -- what is given

    def given(self, receipts: list[Receipt], pop_time_ms: int) -> None:
        """All of one answer."""
        for receipt in receipts:
            taken, body = self._of(receipt.body), receipt.body
            if not self.is_ordered and receipt.place in self._given:
                raise SimulationFailure(f"{body[:30]!r} was given to {self.group} twice at {receipt.place}")
            self._given.add(receipt.place)
            self.given_levels.add(receipt.level)
            self._copied(taken, body, receipt.level, receipt.place)
            if pop_time_ms < taken.last_ms:
                return
            if taken.is_settled:
                raise SimulationFailure(f"{body[:30]!r} was given to {self.group} after it was settled")
            self._check_lease(taken, receipt, pop_time_ms)
            taken.may_be_settled = False
            self._done.discard(receipt.place)
            taken.receipts[receipt.level] = receipt
            taken.last_ms = pop_time_ms
        if self.is_ordered:
            self._check_order({receipt.place for receipt in receipts})

    def _check_lease(self, taken: Taken, receipt: Receipt, pop_time_ms: int) -> None:
        known = taken.receipts.get(receipt.level)
        if known is not None and pop_time_ms < known.deadline_ms:
            reason = f"{known.deadline_ms - pop_time_ms} ms before its time was over"
            raise SimulationFailure(f"{receipt.body[:30]!r} was given to {self.group} again, {reason}")

    def _check_order(self, places: set[Place]) -> None:
        for topic, queue, offset in places:
            for before in range(offset):
                if (topic, queue, before) not in places and (topic, queue, before) not in self._done:
                    reason = f"before {before} was settled"
                    raise SimulationFailure(f"{offset} of {topic}/{queue} was given to {self.group} {reason}")

    # -- what clients ask for

    def ack_asked(self, receipt: Receipt) -> None:
        self._of(receipt.body).may_be_settled = True
        self._done.add(receipt.place)

    def acked(self, receipt: Receipt, now_ms: int) -> None:
        """Of one whose time is over it is told as well, and means nothing."""
        if receipt.is_sure and now_ms < receipt.deadline_ms:
            taken = self._of(receipt.body)
            taken.is_settled, taken.last_ms = True, max(taken.last_ms, now_ms)

    def change_asked(self, receipt: Receipt, now_ms: int, invisible_ms: int) -> int:
        """Until the answer its time may be over earlier. What it was, in case the change is refused."""
        before_ms = receipt.deadline_ms
        receipt.deadline_ms = min(before_ms, now_ms + invisible_ms)
        receipt.is_sure = False
        return before_ms

    def change_refused(self, receipt: Receipt, before_ms: int) -> None:
        receipt.deadline_ms, receipt.is_sure = before_ms, True

    def change_in_vain(self, receipt: Receipt, before_ms: int, now_ms: int) -> None:
        """The broker says that it is not out under this receipt."""
        taken = self._of(receipt.body)
        is_current = taken.receipts[receipt.level] is receipt
        if is_current and now_ms < before_ms and not taken.may_be_settled:
            raise SimulationFailure(
                f"{receipt.body[:30]!r} was not out {before_ms - now_ms} ms before its time was over"
            )

    def changed(self, receipt: Receipt, text: str, deadline_ms: int) -> None:
        receipt.text, receipt.deadline_ms, receipt.is_sure = text, deadline_ms, True

    # -- what is seen in the topics of the group's own

    def came_back(self, unit: Unit, place: Place) -> None:
        """A copy of a message was seen where those wait that came back."""
        level, body = unit.reconsume_times, bytes(unit.body)
        self._check_over(body, level - 1, unit.store_ms)
        if level > self.limit:
            raise SimulationFailure(f"{body[:30]!r} came back to {self.group} {level} times, and {self.limit} may be")
        self._copied(self._of(body), body, level, place)

    def buried(self, unit: Unit, place: Place) -> None:
        """A copy was seen among the dead letters."""
        level, body = unit.reconsume_times, bytes(unit.body)
        self._check_over(body, level - 1, unit.store_ms)
        if level <= self.limit:
            raise SimulationFailure(f"{body[:30]!r} of {self.group} is dead after {level - 1} of {self.limit} tries")
        taken = self._of(body)
        taken.is_dead = True
        self._copied(taken, body, level, place)

    def _check_over(self, body: bytes, level: int, store_ms: int) -> None:
        taken = self._of(body)
        receipt = taken.receipts.get(level)
        if receipt is None:
            return  # whoever had it did not hear of it
        if store_ms < receipt.deadline_ms:
            early_ms = receipt.deadline_ms - store_ms
            raise SimulationFailure(f"{body[:30]!r} came back to {self.group} {early_ms} ms before its time was over")
        if taken.is_settled and level == max(taken.receipts):
            raise SimulationFailure(f"{body[:30]!r} came back to {self.group} after it was settled")

    def _copied(self, taken: Taken, body: bytes, level: int, place: Place) -> None:
        if taken.copies.setdefault(level, place) != place:
            raise SimulationFailure(f"{body[:30]!r} came back to {self.group} twice, {taken.copies[level]} and {place}")

    def is_owed(self, body: bytes) -> bool:
        """Whether it must come yet."""
        taken = self._of(body)
        return not (taken.is_settled or taken.may_be_settled or taken.is_dead)
