"""Readership: which messages of one stream a group of competing consumers has taken, settled and given back. Knows
places, never a message, nor who holds one. Its durable form is one text for each group and stream.

Offsets without a visible message (gaps) count as settled once a reader has passed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

MOST_OUT = 2000
"""Messages of one stream that a group may have in flight: a reader waits before it takes more."""


class Taken(NamedTuple):
    """`tries`: deliveries of this message before this one."""

    offset: int
    tries: int


class Readership:
    """`start`: lowest offset that is not settled. `next`: first offset that was never taken."""

    __slots__ = (
        "_begins",
        "_delayed",
        "_ends",
        "_ready",
        "_recovered_end",
        "_tries",
        "is_dirty",
        "next",
        "out",
        "start",
    )

    def __init__(self, start: int, row: str = "") -> None:
        """`row`: as `row` returned it."""
        self.start = self.next = start
        self.out: dict[int, None] = {}
        """Offsets in flight."""
        self._ready: list[int] = []  # a heap: what came back
        self._delayed: list[tuple[int, int]] = []  # a heap: what comes back later, by time
        self._tries: dict[int, int] = {}  # of unsettled messages that came back
        self._begins: dict[int, int] = {}  # runs of settled offsets above `start`: begin to end
        self._ends: dict[int, int] = {}  # and end to begin
        self._recovered_end = 0  # up to here, messages may have been settled or delivered before the restart
        self.is_dirty = False
        """Whether `row` or `start` has changed since this was last set to False."""
        if row:
            self._read(row)

    # -- durable form

    @property
    def row(self) -> str:
        """Runs of settled offsets above `start`, and numbers of deliveries, as text: `5-7,9-9;4:2`."""
        if not self._begins and not self._tries:
            return ""
        runs = ",".join([f"{begin}-{self._begins[begin]}" for begin in sorted(self._begins)])
        return f"{runs};" + ",".join([f"{offset}:{tries}" for offset, tries in self._tries.items()])

    def _read(self, row: str) -> None:
        """Continues from a row. What was in flight is available again: `next` goes back to `start`."""
        runs, _, tries = row.partition(";")
        try:
            for run in filter(None, runs.split(",")):
                begin, _, end = run.partition("-")
                if self.start < int(begin) < int(end):
                    self._add_run(int(begin), int(end))
            pairs = [each.partition(":") for each in filter(None, tries.split(","))]
            self._tries = {int(offset): int(count) for offset, _, count in pairs if int(offset) >= self.start}
        except ValueError:
            return  # text of another writer: only the offset counts
        self._recovered_end = max((*self._ends, *(offset + 1 for offset in self._tries)), default=0)

    # -- taking

    @property
    def room(self) -> int:
        """Number of messages that may be taken now."""
        return MOST_OUT - len(self.out)

    @property
    def back(self) -> int:
        """Number of messages that came back, also of those that have to wait."""
        return len(self._ready) + len(self._delayed)

    def lag(self, end: int) -> int:
        """Returns the number of offsets up to `end` that are neither settled nor in flight, gaps included."""
        ahead = max(end - self.next, 0) + self.back
        if self.next >= self._recovered_end:
            return ahead
        return max(ahead - sum([end - max(begin, self.next) for begin, end in self._recovered() if end > self.next]), 0)

    def _recovered(self) -> list[tuple[int, int]]:
        """Settled runs in order; used while `next` has not passed those that a restart has found."""
        return sorted(self._begins.items())

    def next_new(self) -> int:
        """Returns the offset to read new messages from."""
        if self.next < self._recovered_end and self.next in self._begins:
            self.next = self._begins[self.next]
        return self.next

    def take(self, offsets: Sequence[int], next_offset: int) -> list[Taken]:
        """Puts new messages in flight: those that a read from `next_new` on has found, up to `next_offset`. Returns
        those that were not settled before."""
        if self.next < self._recovered_end:
            return self._take_again(offsets, next_offset)
        if next_offset - self.next != len(offsets):
            at = self.next
            for offset in (*offsets, next_offset):
                if at < offset:
                    self._settle_run(at, offset)
                at = offset + 1
        self.out.update(dict.fromkeys(offsets))
        self.next = next_offset
        return [Taken(offset, 0) for offset in offsets]

    def _take_again(self, offsets: Sequence[int], next_offset: int) -> list[Taken]:
        """As `take`, where messages were taken before the restart."""
        runs = [run for run in self._recovered() if run[0] < next_offset and run[1] > self.next]
        taken: list[Taken] = []
        at = self.next
        for offset in (*offsets, next_offset):
            while runs and runs[0][0] <= offset:
                begin, end = runs.pop(0)
                if at < begin:
                    self._settle_run(at, begin)
                at = max(at, end)
            if at < offset:
                self._settle_run(at, offset)
            if at <= offset < next_offset:
                self.out[offset] = None
                taken.append(Taken(offset, self._tries.get(offset, 0)))
            at = max(at, offset + 1)
        self.next = max(next_offset, self.next)
        return taken

    def take_back(self, most: int) -> list[Taken]:
        """Puts messages in flight that came back, the lowest offsets first."""
        taken: list[Taken] = []
        while self._ready and len(taken) < most:
            offset = heappop(self._ready)
            self.out[offset] = None
            taken.append(Taken(offset, self._tries.get(offset, 0)))
        return taken

    def wake(self, now_ms: int) -> int | None:
        """Makes messages available whose wait is over. Returns the time of the next; None if none waits."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            heappush(self._ready, heappop(self._delayed)[1])
        return self._delayed[0][0] if self._delayed else None

    @property
    def has_back(self) -> bool:
        return bool(self._ready)

    # -- settling

    def settle(self, offsets: Iterable[int]) -> int:
        """Settles messages in flight. Returns the number of those that were."""
        out, count = self.out, 0
        for offset in offsets:
            if offset in out:
                del out[offset]
                if self._tries:
                    self._tries.pop(offset, None)
                self._settle_run(offset, offset + 1)
                count += 1
        return count

    def release(self, offset: int, counts: bool = True, not_before_ms: int = 0) -> int:
        """Gives a message in flight back. `counts`: as a delivery that failed. Returns the number of its deliveries; 0
        if it was not in flight."""
        if offset not in self.out:
            return 0
        del self.out[offset]
        tries = self._tries.get(offset, 0) + 1
        if counts or offset in self._tries:
            self._tries[offset] = tries
            self.is_dirty = True
        if not_before_ms:
            heappush(self._delayed, (not_before_ms, offset))
        else:
            heappush(self._ready, offset)
        return tries

    def skip_to(self, start: int) -> None:
        """Settles everything before `start`: the stream has deleted it."""
        if start <= self.start:
            return
        for offset in [each for each in self.out if each < start]:
            del self.out[offset]
        self._ready = sorted([each for each in self._ready if each >= start])
        self._delayed = sorted([each for each in self._delayed if each[1] >= start])
        self._tries = {offset: tries for offset, tries in self._tries.items() if offset >= start}
        for begin in [each for each in self._begins if each <= start]:
            start = max(start, self._remove_run(begin))
        self.start = start
        self.next = max(self.next, start)
        self.is_dirty = True

    def _settle_run(self, begin: int, end: int) -> None:
        """Settles offsets of which none was settled."""
        self.is_dirty = True
        if begin == self.start:
            while end in self._begins:
                end = self._remove_run(end)
            self.start = end
            if self.next < end:  # what follows was settled before the restart
                self.next = end
        else:
            self._add_run(begin, end)

    def _remove_run(self, begin: int) -> int:
        end = self._begins.pop(begin)
        del self._ends[end]
        return end

    def _add_run(self, begin: int, end: int) -> None:
        """Adds a run above `start`, joined with those beside it."""
        earlier = self._ends.get(begin)
        if earlier is not None:
            self._remove_run(earlier)
            begin = earlier
        if end in self._begins:
            end = self._remove_run(end)
        self._begins[begin] = end
        self._ends[end] = begin
