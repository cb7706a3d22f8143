"""Timers against a plain dict: every timer fires once, when it is due, in order, unless it was cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from unittest import mock
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from trimq.clock import ManualTime
from trimq.core.scheduling import timer_heap
from trimq.core.scheduling import timers as module
from trimq.core.scheduling.timers import RETRY_MS, PendingTimer, TimerEntry, Timers
from trimq.errors import Busy
from trimq.model import StreamId

DELAYS = st.integers(-5, 40)


class TimersMachine(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        # Low limits, so that sweeps and split turns happen in a short run.
        self.patches = [
            mock.patch.object(timer_heap, "_STALE_KEYS_ALLOWED", 2),
            mock.patch.object(module, "FIRES_PER_TURN", 3),
        ]
        for patch in self.patches:
            patch.start()
        self.time = ManualTime(1_000)
        self.timers = Timers(self.time, self.fire)
        self.model: dict[int, tuple[int, TimerEntry]] = {}
        self.refusals = 0

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()

    def in_order(self) -> list[PendingTimer]:
        pending = [PendingTimer(id, due_ms, entry) for id, (due_ms, entry) in self.model.items()]
        return sorted(pending, key=lambda each: (each.due_ms, each.id))

    def fire(self, pending: PendingTimer) -> None:
        assert pending == self.in_order()[0], "fired out of order, twice, or after it was cancelled"
        assert pending.due_ms <= self.time.now_ms()
        if self.refusals:
            self.refusals -= 1
            self.model[pending.id] = (self.time.now_ms() + RETRY_MS, pending.entry)
            raise Busy("planted")
        del self.model[pending.id]

    @rule(target=ids, delay_ms=DELAYS, topic=st.integers(0, 3), position=st.integers(0, 9))
    def schedule(self, delay_ms: int, topic: int, position: int) -> int:
        entry = TimerEntry(StreamId(UUID(int=topic), 0), position)
        due_ms = self.time.now_ms() + delay_ms
        id = self.timers.schedule(due_ms, entry)
        assert id not in self.model
        self.model[id] = (due_ms, entry)
        return id

    @rule(id=consumes(ids))
    def cancel(self, id: int) -> None:
        assert self.timers.cancel(id) == (self.model.pop(id, None) is not None)

    @rule(id=ids, delay_ms=DELAYS)
    def reschedule(self, id: int, delay_ms: int) -> None:
        due_ms = self.time.now_ms() + delay_ms
        assert self.timers.reschedule(id, due_ms) == (id in self.model)
        if id in self.model:
            self.model[id] = (due_ms, self.model[id][1])

    @rule(passed_ms=st.integers(0, 30))
    def pass_time(self, passed_ms: int) -> None:
        until_ms = self.time.now_ms() + passed_ms
        while self.time.step(until_ms):
            pass
        assert all(due_ms > until_ms for due_ms, _ in self.model.values()), "a due timer has not fired"

    @rule()
    def refuse_next(self) -> None:
        self.refusals += 1

    @invariant()
    def pending_timers_are_listed(self) -> None:
        expected = self.in_order()
        assert len(self.timers) == len(expected)
        assert self.timers.upcoming(1_000) == expected
        assert all(self.timers.get(each.id) == each for each in expected)
        assert self.time.next_due_ms() == (expected[0].due_ms if expected else None)
        for topic in range(4):
            stream = StreamId(UUID(int=topic), 0)
            assert self.timers.upcoming_of(stream, 9) == [each for each in expected if each.entry.stream == stream][:9]


class BatchedTimersMachine(TimersMachine):
    """The same machine with timers that are fired in batches."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers(self.time, self.fire, fire_batch=self.fire_batch)

    def fire_batch(self, row: Sequence[TimerEntry], begin: int) -> int:
        together = list(takewhile(lambda each: each.position % 3, row[begin:]))
        if self.refusals and together:
            self.refusals -= 1
            for pending in self.in_order()[: len(row) - begin]:
                self.model[pending.id] = (self.time.now_ms() + RETRY_MS, pending.entry)
            raise Busy("planted")
        for pending, entry in zip(self.in_order(), together, strict=False):
            assert pending.entry == entry, "fired out of order, twice, or after it was cancelled"
            assert pending.due_ms <= self.time.now_ms()
            del self.model[pending.id]
        return len(together)


TimersMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_timers_behave_as_a_dict_of_due_times = TimersMachine.TestCase
BatchedTimersMachine.TestCase.settings = TimersMachine.TestCase.settings
test_timers_that_fire_rows_behave_so_too = BatchedTimersMachine.TestCase
