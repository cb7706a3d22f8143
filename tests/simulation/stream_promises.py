"""Expected state of one stream, from the responses to its clients: records that must exist at their offsets, and
records that must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from simulated_trace import SimulationFailure


class StreamPromises:
    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[int, bytes] = {}  # acknowledged, read by a client, or found by a recovery
        self._where: dict[bytes, int] = {}
        self._open: Counter[bytes] = Counter()  # requests of this run of the broker with an unknown outcome
        self._refused: Counter[bytes] = Counter()
        self._min_start = 0
        self._latest_start = 0
        self._latest_cut = 0
        self._end_reported = 0
        self._floor = 0
        self._recovered_start = 0
        self._unread_end = 0  # with flipped bits: before this offset there are records that were never read
        self._durable_end = 0

    @property
    def latest_start(self) -> int:
        return self._latest_start

    # -- requests and responses

    def asked(self, records: Iterable[bytes]) -> None:
        self._open.update(records)

    def refused(self, records: Iterable[bytes]) -> None:
        """This request has left nothing. A late refusal from an earlier run of the broker does not count: the recovery
        has shown the state."""
        for record in records:
            if self._open[record] > 0:
                self._open[record] -= 1
                self._refused[record] += 1

    def acknowledged(self, offset: int, records: Iterable[bytes]) -> None:
        for at, record in enumerate(records, offset):
            self._place(at, record, "acknowledged")

    def seen(self, records: Iterable[tuple[int, bytes]]) -> None:
        """A reader got these records."""
        for at, record in records:
            self._place(at, record, "read")

    def end_reported(self, readable_end: int) -> None:
        """A reader learned that everything before this offset is readable."""
        self._end_reported = max(self._end_reported, readable_end)

    def cut_asked(self, offset: int) -> None:
        self._latest_cut = max(self._latest_cut, offset)

    def cut(self, offset: int) -> None:
        self._min_start = max(self._min_start, offset)

    def _place(self, at: int, record: bytes, how: str) -> None:
        if at in self._known:
            if self._known[at] != record:
                self._fail(f"{record[:30]!r} was {how} at {at}, which was {self._known[at][:30]!r}")
            return
        if at < self._recovered_start:
            return  # late response about records deleted before the broker started
        if self._open[record] <= 0 and at >= self._unread_end:
            where = f"it is at {self._where[record]}" if record in self._where else "it was never appended"
            self._fail(f"{record[:30]!r} was {how} at {at}, but {where}, or it was refused")
        if self._where.setdefault(record, at) != at:
            self._fail(f"{record[:30]!r} was {how} at {at}, but is at {self._where[record]} too")
        self._known[at] = record

    # -- invariants after every pass

    def check_ends(
        self, start: int, readable_end: int, durable_end: int, end: int, may_go: Callable[[Sequence[bytes]], bool]
    ) -> None:
        if not start <= readable_end <= durable_end <= end or durable_end < self._durable_end:
            self._fail(
                f"its ends are {start} start, {readable_end} readable, {durable_end} durable, {end} appended,"
                f" after {self._durable_end} durable"
            )
        self._durable_end = durable_end
        if start > self._latest_start:
            gone = range(max(self._latest_start, self._latest_cut), start)
            if gone and not may_go([self._known[at] for at in gone if at in self._known]):
                self._fail(f"its start went from {self._latest_start} to {start} without a request")
            self._latest_start = start

    # -- recovery

    def check_recovered(
        self, start: int, records: Sequence[tuple[int, bytes]], end: int, may_lose: bool, may_uncut: bool
    ) -> None:
        """A recovery found these records, all of them durable. They must exist from now on, and the others must never
        exist again."""
        if not (may_uncut or self._min_start <= start) or not (may_lose or start <= self._latest_start):
            self._fail(f"it starts at {start} after recovery, not between {self._min_start} and {self._latest_start}")
        if [at for at, _ in records] != list(range(start, end)):
            self._fail(f"after recovery it holds {_runs(at for at, _ in records)}, not {start} to {end - 1}")
        self._check_nothing_lost(end, may_lose)
        if may_lose:
            self._open.update(self._refused)  # records that were undone in the page cache may be on disk
            self._forget_replaced(records)
        for at, record in records:
            self._place(at, record, "recovered")
        self._settle(start, end)

    def _check_nothing_lost(self, end: int, may_lose: bool) -> None:
        if may_lose:
            if end < self._floor:
                self._fail(f"it ends at {end} after recovery, but {self._floor} was durable")
        elif end < self._end_reported:
            self._fail(f"it ends at {end} after recovery, but a reader got {self._end_reported}")
        for at in [at for at in self._known if at >= end]:
            record = self._known.pop(at)
            del self._where[record]
            if not may_lose:
                self._fail(f"record {at} is lost, recovery ends at {end}: {record[:30]!r}")

    def _forget_replaced(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Unsynced records may be lost, and records that they had replaced may exist instead."""
        for at, record in records:
            if at >= self._floor and self._known.get(at, record) != record:
                del self._where[self._known.pop(at)]

    def check_damaged(self, start: int, records: Sequence[tuple[int, bytes]], end: int, may_lose: bool) -> None:
        """As `check_recovered`, but more tolerant: records may be missing, but none may be wrong."""
        self._open.update(self._refused)
        if may_lose:
            self._forget_replaced(records)
        for at in [at for at in self._known if at >= end]:
            del self._where[self._known.pop(at)]
        for at, record in records:
            self._place(at, record, "recovered")
        self._settle(start, end)
        self._unread_end = end if len(records) < end - start else 0

    def relearn(self, start: int, records: Sequence[tuple[int, bytes]], end: int) -> None:
        """Drops all expectations in favour of the recovered records."""
        self._known = dict(records)
        self._where = {record: at for at, record in records}
        self._settle(start, end)
        self._unread_end = end if len(records) < end - start else 0

    def _settle(self, start: int, end: int) -> None:
        self._open.clear()
        self._refused.clear()
        self._recovered_start = self._min_start = self._latest_start = self._latest_cut = start
        self._end_reported = self._floor = self._durable_end = end

    def _fail(self, reason: str) -> None:
        raise SimulationFailure(f"{self._name}: {reason}")


def _runs(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first} to {last}" for first, last in runs) or "nothing"
