"""Readership against a dictionary of states: nothing is lost, nothing is in flight twice, and a restart gives back what
was in flight."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trimq.core.readership import MOST_OUT, Readership


class ReadershipMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.readership = Readership(0)
        self.end = 0
        self.visible: set[int] = set()
        self.settled: set[int] = set()
        self.out: set[int] = set()
        self.tries: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.passed = 0
        self.now_ms = 0

    @rule(gaps=st.lists(st.booleans(), max_size=12))
    def append(self, gaps: list[bool]) -> None:
        for is_gap in gaps:
            if not is_gap:
                self.visible.add(self.end)
            self.end += 1

    @rule(most=st.integers(1, 6))
    def take(self, most: int) -> None:
        start = self.readership.next_new()
        if start >= self.end:
            return
        found = sorted(each for each in self.visible if each >= start)[:most]
        next_offset = found[-1] + 1 if len(found) == most else self.end
        taken = self.readership.take(found, next_offset)
        self.passed = max(self.passed, next_offset)
        expected = [each for each in found if each not in self.settled]
        assert [each.offset for each in taken] == expected
        assert [each.tries for each in taken] == [self.tries.get(each, 0) for each in expected]
        assert not self.out.intersection(expected)
        self.out.update(expected)

    @rule(most=st.integers(1, 6))
    def take_back(self, most: int) -> None:
        self.readership.wake(self.now_ms)
        ready = sorted(each for each, due_ms in self.waiting.items() if due_ms <= self.now_ms)[:most]
        taken = self.readership.take_back(most)
        assert [(each.offset, each.tries) for each in taken] == [(each, self.tries.get(each, 0)) for each in ready]
        for each in ready:
            del self.waiting[each]
        self.out.update(ready)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        offsets = data.draw(st.lists(st.sampled_from(sorted(self.out)), unique=True))
        assert self.readership.settle([*offsets, self.end + 5]) == len(offsets)
        self._settled(offsets)

    def _settled(self, offsets: list[int]) -> None:
        self.settled.update(offsets)
        self.out.difference_update(offsets)
        for offset in offsets:
            self.tries.pop(offset, None)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), wait_ms=st.sampled_from([0, 0, 10]), counts=st.booleans())
    def release(self, data: st.DataObject, wait_ms: int, counts: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        not_before_ms = self.now_ms + wait_ms if wait_ms else 0
        assert self.readership.release(offset, counts, not_before_ms) == self.tries.get(offset, 0) + 1
        assert self.readership.release(offset) == 0
        self.out.discard(offset)
        self.waiting[offset] = not_before_ms
        if counts or offset in self.tries:
            self.tries[offset] = self.tries.get(offset, 0) + 1

    @rule(ms=st.integers(1, 20))
    def advance(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def restart(self) -> None:
        self.readership = Readership(self.readership.start, self.readership.row)
        self.out.clear()
        self.waiting.clear()

    @rule(count=st.integers(0, 5))
    def trim(self, count: int) -> None:
        start = min(self.readership.start + count, self.end)
        self.readership.skip_to(start)
        gone = list(range(start))
        self._settled(gone)
        for each in gone:
            self.waiting.pop(each, None)
        self.passed = max(self.passed, start)

    @invariant()
    def start_is_the_lowest_unsettled_offset(self) -> None:
        readership = self.readership
        passed = [each for each in self.visible if each not in self.settled and each < self.passed]
        assert readership.start == min(passed, default=self.passed)

    @invariant()
    def counts_agree(self) -> None:
        readership = self.readership
        assert set(readership.out) == self.out
        assert readership.back == len(self.waiting)
        assert readership.room == MOST_OUT - len(self.out)
        unsettled = [each for each in self.visible if each not in self.settled and each not in self.out]
        assert readership.lag(self.end) >= len(unsettled)
        if readership.next >= self.end:
            assert readership.lag(self.end) == len(unsettled)


TestReadership = ReadershipMachine.TestCase


def test_what_was_settled_before_a_restart_is_not_taken_again() -> None:
    readership = Readership(0, "1-2;0:1")
    assert [tuple(each) for each in readership.take([0], 1)] == [(0, 1)]
    readership.settle([0])
    assert (readership.start, readership.next_new(), readership.lag(3)) == (2, 2, 1)


def test_a_row_of_another_writer_is_only_an_offset() -> None:
    readership = Readership(7, "metadata of a client")
    assert (readership.start, readership.next, readership.row) == (7, 7, "")
