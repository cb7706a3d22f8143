"""Leases against a plain dict: each ends in exactly one way, and the counts always agree."""

from __future__ import annotations

from collections import Counter
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from trimq.clock import ManualTime
from trimq.core.scheduling import leases as module
from trimq.core.scheduling.leases import Lease, Leases
from trimq.errors import AlreadyLeased, LeaseGone
from trimq.model import StreamId

STREAMS = [StreamId(UUID(int=1), 0), StreamId(UUID(int=1), 1), StreamId(UUID(int=2), 0)]
HOLDERS = ["a", "b", ("c", 1)]
LASTS_MS = st.integers(-5, 40)


class LeasesMachine(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.object(module, "_STALE_OFFSETS_ALLOWED", 2)
        self.patch.start()
        self.time = ManualTime(1_000)
        self.leases = Leases(self.time, self.expire)
        self.model: dict[int, Lease] = {}

    def teardown(self) -> None:
        self.patch.stop()

    def expire(self, lease: Lease) -> None:
        earliest = min(self.model.values(), key=lambda each: (each.deadline_ms, each.id))
        assert lease == earliest, "expired out of order, twice, or after it was acked"
        assert lease.deadline_ms <= self.time.now_ms()
        del self.model[lease.id]

    @rule(
        target=ids,
        stream=st.sampled_from(STREAMS),
        offset=st.integers(0, 12),
        holder=st.sampled_from(HOLDERS),
        lasts_ms=LASTS_MS,
        attempts=st.integers(1, 3),
    )
    def grant(self, stream: StreamId, offset: int, holder: object, lasts_ms: int, attempts: int) -> int:
        deadline_ms = self.time.now_ms() + lasts_ms
        out = next((each for each in self.model.values() if (each.stream, each.offset) == (stream, offset)), None)
        if out is not None:
            with pytest.raises(AlreadyLeased):
                self.leases.grant(stream, offset, holder, deadline_ms, attempts)
            return out.id
        id = self.leases.grant(stream, offset, holder, deadline_ms, attempts)
        assert id not in self.model
        self.model[id] = Lease(id, stream, offset, holder, deadline_ms, attempts)
        return id

    @rule(id=ids)
    def settle(self, id: int) -> None:
        if id in self.model:
            assert self.leases.settle(id) == self.model.pop(id)
        else:
            with pytest.raises(LeaseGone):
                self.leases.settle(id)

    @rule(id=ids, lasts_ms=LASTS_MS)
    def extend(self, id: int, lasts_ms: int) -> None:
        deadline_ms = self.time.now_ms() + lasts_ms
        if id in self.model:
            self.model[id].deadline_ms = deadline_ms
            assert self.leases.extend(id, deadline_ms) == self.model[id]
        else:
            with pytest.raises(LeaseGone):
                self.leases.extend(id, deadline_ms)

    @rule(holder=st.sampled_from(HOLDERS))
    def release(self, holder: object) -> None:
        expected = [each for each in self.model.values() if each.holder == holder]
        for each in expected:
            del self.model[each.id]
        assert self.leases.release(holder) == sorted(expected, key=lambda each: (each.stream, each.offset))

    @rule(passed_ms=st.integers(0, 30))
    def pass_time(self, passed_ms: int) -> None:
        until_ms = self.time.now_ms() + passed_ms
        while self.time.step(until_ms):
            pass
        assert all(each.deadline_ms > until_ms for each in self.model.values()), "a due lease has not expired"

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.leases) == len(self.model)
        assert self.time.next_due_ms() == min((each.deadline_ms for each in self.model.values()), default=None)
        by_holder = Counter(each.holder for each in self.model.values())
        assert all(self.leases.count_of_holder(holder) == by_holder[holder] for holder in HOLDERS)
        for stream in STREAMS:
            offsets = [each.offset for each in self.model.values() if each.stream == stream]
            assert self.leases.count_of_stream(stream) == len(offsets)
            assert self.leases.lowest(stream) == min(offsets, default=None)
            assert all(self.leases.is_leased(stream, offset) == (offset in offsets) for offset in range(13))


LeasesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_leases_behave_as_a_dict = LeasesMachine.TestCase
