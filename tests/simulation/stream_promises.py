"""What one stream has promised through its clients: which records must be there and where, and which must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from simulated_trace import SimulationFailure


class StreamPromises:
    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[int, bytes] = {}  # acknowledged, read by somebody, or found by a recovery
        self._where: dict[bytes, int] = {}
        self._open: Counter[bytes] = Counter()  # attempts, in this life of the broker, whose outcome is unknown
        self._refused: Counter[bytes] = Counter()
        self._least_start = 0
        self._latest_start = 0
        self._latest_cut = 0
        self._end_told = 0
        self._floor = 0
        self._recovered_start = 0
        self._unread_end = 0  # where bits were flipped: before this there are records that nobody has seen yet
        self._durable_end = 0

    @property
    def latest_start(self) -> int:
        return self._latest_start

    # -- what clients do and hear

    def asked(self, records: Iterable[bytes]) -> None:
        self._open.update(records)

    def refused(self, records: Iterable[bytes]) -> None:
        """This attempt has left nothing. One of an earlier life of the broker, which a client hears of late, does not
        count: the recovery has said what is there."""
        for record in records:
            if self._open[record] > 0:
                self._open[record] -= 1
                self._refused[record] += 1

    def acknowledged(self, offset: int, records: Iterable[bytes]) -> None:
        for at, record in enumerate(records, offset):
            self._place(at, record, "acknowledged")

    def seen(self, records: Iterable[tuple[int, bytes]]) -> None:
        """A reader was given these."""
        for at, record in records:
            self._place(at, record, "read")

    def end_told(self, readable_end: int) -> None:
        """A reader heard that everything before this may be read."""
        self._end_told = max(self._end_told, readable_end)

    def cut_asked(self, offset: int) -> None:
        self._latest_cut = max(self._latest_cut, offset)

    def cut(self, offset: int) -> None:
        self._least_start = max(self._least_start, offset)

    def _place(self, at: int, record: bytes, how: str) -> None:
        if at in self._known:
            if self._known[at] != record:
                self._fail(f"{record[:30]!r} was {how} at {at}, which was {self._known[at][:30]!r}")
            return
        if at < self._recovered_start:
            return  # late news of what was cut off, unknown, before the broker started
        if self._open[record] <= 0 and at >= self._unread_end:
            where = f"it stands at {self._where[record]}" if record in self._where else "nobody put it there"
            self._fail(f"{record[:30]!r} was {how} at {at}, but {where}, or it was refused")
        if self._where.setdefault(record, at) != at:
            self._fail(f"{record[:30]!r} was {how} at {at}, and stands at {self._where[record]} too")
        self._known[at] = record

    # -- what is true after every pass

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
                self._fail(f"its start went from {self._latest_start} to {start}, which nobody asked for")
            self._latest_start = start

    # -- recovery

    def check_recovered(
        self, start: int, records: Sequence[tuple[int, bytes]], end: int, may_lose: bool, may_uncut: bool
    ) -> None:
        """A recovery found these, all of them durable. They stay, and what was not found never comes back."""
        if not (may_uncut or self._least_start <= start) or not (may_lose or start <= self._latest_start):
            self._fail(f"it starts at {start} after recovery, not between {self._least_start} and {self._latest_start}")
        if [at for at, _ in records] != list(range(start, end)):
            self._fail(f"after recovery it holds {_runs(at for at, _ in records)}, not {start} to {end - 1}")
        self._check_nothing_lost(end, may_lose)
        if may_lose:
            self._open.update(self._refused)  # what was taken back in the page cache may be on the disk
            self._forget_replaced(records)
        for at, record in records:
            self._place(at, record, "recovered")
        self._settle(start, end)

    def _check_nothing_lost(self, end: int, may_lose: bool) -> None:
        if may_lose:
            if end < self._floor:
                self._fail(f"it ends at {end} after recovery, but {self._floor} was durable")
        elif end < self._end_told:
            self._fail(f"it ends at {end} after recovery, but a reader was told of {self._end_told}")
        for at in [at for at in self._known if at >= end]:
            record = self._known.pop(at)
            del self._where[record]
            if not may_lose:
                self._fail(f"record {at} is lost, recovery ends at {end}: {record[:30]!r}")

    def _forget_replaced(self, records: Sequence[tuple[int, bytes]]) -> None:
        """What was not synced may be lost, and what had stood in its place for a moment be there instead."""
        for at, record in records:
            if at >= self._floor and self._known.get(at, record) != record:
                del self._where[self._known.pop(at)]

    def check_damaged(self, start: int, records: Sequence[tuple[int, bytes]], end: int, may_lose: bool) -> None:
        """As `check_recovered` where more is forgiven: records may be missing, but none may be wrong."""
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
        """Nothing is known of it any more but what a recovery found."""
        self._known = dict(records)
        self._where = {record: at for at, record in records}
        self._settle(start, end)
        self._unread_end = end if len(records) < end - start else 0

    def _settle(self, start: int, end: int) -> None:
        self._open.clear()
        self._refused.clear()
        self._recovered_start = self._least_start = self._latest_start = self._latest_cut = start
        self._end_told = self._floor = self._durable_end = end

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
