from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from uuid import UUID

import pytest

from trimq.clock import Callback, ManualTime, Timer
from trimq.core.scheduling import timer_heap
from trimq.core.scheduling.timers import (
    FIRES_PER_TURN,
    RETRY_MS,
    TURN_MS,
    FiredTimers,
    PendingTimer,
    TimerEntry,
    Timers,
)
from trimq.errors import Busy
from trimq.model import StreamId

STREAM, OTHER = StreamId(UUID(int=1), 0), StreamId(UUID(int=1), 1)


class CountingTime(ManualTime):
    """A manual clock that counts armed timers."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.calls = 0

    def call_at(self, due_ms: int, callback: Callback) -> Timer:
        self.calls += 1
        return super().call_at(due_ms, callback)


def entry(position: int, stream: StreamId = STREAM) -> TimerEntry:
    return TimerEntry(stream, position)


def run(time: ManualTime, until_ms: int) -> None:
    while time.step(until_ms):
        pass


@pytest.fixture
def time() -> CountingTime:
    return CountingTime(1_000)


@pytest.fixture
def fired() -> list[tuple[int, int]]:
    """(when, position)"""
    return []


@pytest.fixture
def timers(time: CountingTime, fired: list[tuple[int, int]]) -> Timers:
    return Timers(time, lambda pending: fired.append((time.now_ms(), pending.entry.position)))


def test_timers_fire_when_due_and_equal_ones_in_the_order_of_scheduling(
    time: CountingTime, timers: Timers, fired: list[tuple[int, int]]
) -> None:
    for position, due_ms in enumerate([3_000, 2_000, 3_000, 2_000, 1_500]):
        timers.schedule(due_ms, entry(position))
    run(time, 2_999)
    assert fired == [(1_500, 4), (2_000, 1), (2_000, 3)]
    assert len(timers) == 2
    run(time, 9_000)
    assert fired[3:] == [(3_000, 0), (3_000, 2)]
    assert len(timers) == 0


def test_an_overdue_timer_fires_in_the_next_turn_not_inside_the_call(
    time: CountingTime, timers: Timers, fired: list[tuple[int, int]]
) -> None:
    timers.schedule(-5, entry(1))
    assert fired == []
    run(time, 1_000)
    assert fired == [(1_000, 1)]


def test_one_timer_of_the_clock_is_armed_and_none_while_nothing_is_pending(time: CountingTime, timers: Timers) -> None:
    assert time.next_due_ms() is None
    late = timers.schedule(9_000, entry(1))
    calls = time.calls
    for position in range(100):
        timers.schedule(9_000 + position, entry(position))
    assert time.calls == calls, "more than one timer of the clock is armed"
    early = timers.schedule(5_000, entry(2))
    assert time.next_due_ms() == 5_000
    timers.cancel(early)
    assert time.next_due_ms() == 9_000
    timers.cancel(late)
    assert time.next_due_ms() == 9_000
    for pending in timers.upcoming(200):
        timers.cancel(pending.id)
    assert time.next_due_ms() is None


def test_a_cancelled_timer_does_not_fire_and_is_cancelled_once(
    time: CountingTime, timers: Timers, fired: list[tuple[int, int]]
) -> None:
    id = timers.schedule(2_000, entry(1))
    assert timers.cancel(id)
    assert not timers.cancel(id)
    assert timers.get(id) is None
    run(time, 9_000)
    assert fired == []


def test_an_old_id_never_refers_to_a_later_timer_in_the_same_slot(time: CountingTime, timers: Timers) -> None:
    old = timers.schedule(2_000, entry(1))
    timers.cancel(old)
    new = timers.schedule(2_000, entry(2))
    assert not timers.cancel(old)
    assert not timers.reschedule(old, 1)
    assert timers.get(new) == PendingTimer(new, 2_000, entry(2))


@pytest.mark.parametrize("id", [0, -1, 5, 1 << 32, 1 << 90])
def test_an_unknown_id_is_not_pending(timers: Timers, id: int) -> None:
    assert timers.get(id) is None
    timers.schedule(2_000, entry(1))
    assert not timers.cancel(id) or id == 1 << 32
    assert not timers.reschedule(id, 0)


@pytest.mark.parametrize("moves", [[5_000], [1_500], [5_000, 2_000], [1_500, 5_000, 1_500]])
def test_a_rescheduled_timer_fires_once_at_its_last_time(
    time: CountingTime, timers: Timers, fired: list[tuple[int, int]], moves: list[int]
) -> None:
    id = timers.schedule(2_000, entry(1))
    for due_ms in moves:
        assert timers.reschedule(id, due_ms)
    assert [pending.due_ms for pending in timers.upcoming(9)] == moves[-1:]
    assert time.next_due_ms() == moves[-1]
    run(time, 9_000)
    assert fired == [(moves[-1], 1)]
    assert not timers.reschedule(id, 9_500)


def test_upcoming_timers_are_listed_in_the_order_in_which_they_will_fire(timers: Timers) -> None:
    dues = [(number * 7919) % 1009 for number in range(300)]
    for position, due_ms in enumerate(dues):
        timers.schedule(due_ms, entry(position, OTHER if position % 3 else STREAM))
    expected = sorted(range(300), key=lambda position: (dues[position], position))
    assert [pending.entry.position for pending in timers.upcoming(20)] == expected[:20]
    assert [pending.entry.position for pending in timers.upcoming(1_000)] == expected
    of_stream = [position for position in expected if position % 3 == 0]
    assert [pending.entry.position for pending in timers.upcoming_of(STREAM, 10)] == of_stream[:10]
    assert timers.upcoming_of(StreamId(UUID(int=9), 0), 10) == []


def test_a_turn_of_the_loop_fires_a_bounded_number_and_the_rest_follows(
    time: CountingTime, timers: Timers, fired: list[tuple[int, int]]
) -> None:
    for position in range(2 * FIRES_PER_TURN + 1):
        timers.schedule(2_000, entry(position))
    turns = []
    while time.step(2_000):
        turns.append(len(fired))
    assert turns == [FIRES_PER_TURN, 2 * FIRES_PER_TURN, 2 * FIRES_PER_TURN + 1]
    assert [position for _, position in fired] == list(range(2 * FIRES_PER_TURN + 1))


def test_a_firing_may_schedule_and_cancel(time: CountingTime) -> None:
    log: list[tuple[int, int]] = []
    ids: dict[int, int] = {}
    timers: Timers

    def fire(pending: PendingTimer) -> None:
        log.append((time.now_ms(), pending.entry.position))
        if pending.entry.position == 1:
            timers.cancel(ids[2])
            timers.schedule(2_000, entry(3))
            timers.schedule(4_000, entry(4))

    timers = Timers(time, fire)
    for position in (1, 2):
        ids[position] = timers.schedule(2_000, entry(position))
    run(time, 9_000)
    assert log == [(2_000, 1), (2_000, 3), (4_000, 4)]
    assert len(timers) == 0


def test_a_refused_firing_is_retried_with_the_same_id_and_blocks_no_other(time: CountingTime) -> None:
    log: list[tuple[int, int, int]] = []

    def fire(pending: PendingTimer) -> None:
        log.append((time.now_ms(), pending.entry.position, pending.id))
        if pending.entry.position == 1 and len(log) < 4:
            raise Busy("planted")

    timers = Timers(time, fire)
    first = timers.schedule(2_000, entry(1))
    second = timers.schedule(2_000, entry(2))
    run(time, 9_000)
    retries = [2_000 + RETRY_MS, 2_000 + 2 * RETRY_MS]
    assert log == [(2_000, 1, first), (2_000, 2, second), *((when, 1, first) for when in retries)]
    assert len(timers) == 0


def test_a_firing_that_fails_by_a_bug_is_logged_and_dropped(
    time: CountingTime, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[int] = []

    def fire(pending: PendingTimer) -> None:
        log.append(pending.entry.position)
        if pending.entry.position == 1:
            raise RuntimeError("planted")

    timers = Timers(time, fire)
    for position in (1, 2):
        timers.schedule(2_000, entry(position))
    run(time, 9_000)
    assert log == [1, 2]
    assert len(timers) == 0
    assert "planted" in caplog.text


def test_a_timer_whose_effect_was_found_after_a_crash_is_dropped_when_due(time: CountingTime) -> None:
    log: list[TimerEntry] = []
    fired = FiredTimers()
    fired.note(entry(1))
    fired.note(entry(2, OTHER))
    timers = Timers(time, lambda pending: log.append(pending.entry), fired)
    for position in (1, 2):
        timers.schedule(2_000, entry(position))
        timers.schedule(2_000, entry(position, OTHER))
    run(time, 2_000)
    assert log == [entry(1, OTHER), entry(2)]
    fired.forget(STREAM)
    timers.schedule(3_000, entry(1))
    timers.schedule(3_000, entry(2, OTHER))
    run(time, 3_000)
    assert log[2:] == [entry(1)]


def test_removed_streams_leave_no_trace(time: CountingTime, timers: Timers) -> None:
    for number in range(1_000):
        stream = StreamId(UUID(int=number), number)
        id = timers.schedule(9_000, entry(number, stream))
        assert timers.get(id) == PendingTimer(id, 9_000, TimerEntry(stream, number))
        timers.cancel(id)
    assert len(timers._streams._names) == 1


def test_a_due_time_beyond_the_maximum_is_clamped(time: CountingTime, timers: Timers) -> None:
    id = timers.schedule(1 << 80, entry(1))
    assert timers.get(id) == PendingTimer(id, (1 << 63) - 1, entry(1))


def keys_held(timers: Timers) -> int:
    return len(timers._keys._keys) + len(timers._keys._unswept)


@pytest.mark.parametrize("due_ms", [lambda number: 9_000_000, lambda number: 9_000_000 - number])
def test_timers_that_are_cancelled_or_rescheduled_use_bounded_memory(
    timers: Timers, monkeypatch: pytest.MonkeyPatch, due_ms: Callable[[int], int]
) -> None:
    monkeypatch.setattr(timer_heap, "_STALE_KEYS_ALLOWED", 16)
    kept = [timers.schedule(5_000 + number, entry(number)) for number in range(50)]
    moved = timers.schedule(8_000_000, entry(0, OTHER))
    most = 0
    for number in range(5_000):
        timers.cancel(timers.schedule(due_ms(number), entry(number)))
        timers.reschedule(moved, 8_000_000 + number)
        most = max(most, keys_held(timers))
    assert most < 500
    assert [pending.id for pending in timers.upcoming(60)] == [*kept, moved]


def test_a_pending_timer_takes_at_most_150_bytes(timers: Timers) -> None:
    count = 20_000
    for position in range(count):
        timers.schedule(1_700_000_000_000 + position * 7919 % 1_000_003, entry(1 << 40 | position))
    columns = (timers._numbers, timers._dues_ms, timers._positions, timers._stream_numbers)
    keys = timers._keys._keys
    held = sys.getsizeof(keys) + sum(map(sys.getsizeof, keys)) + sum(map(sys.getsizeof, columns))
    assert held / count <= 150


# -- batches


def batched_timers(time: CountingTime, special: set[int]) -> tuple[Timers, list[list[int]]]:
    """Timers that fire special positions one by one, and the lists of positions that were fired together."""
    rows: list[list[int]] = []

    def fire_batch(row: Sequence[TimerEntry], begin: int) -> int:
        taken = [each.position for each in row[begin:]]
        together = list(takewhile(lambda position: position not in special, taken))
        if together:
            rows.append(together)
        return len(together)

    return Timers(time, lambda pending: rows.append([pending.entry.position]), fire_batch=fire_batch), rows


def test_timers_due_together_are_fired_in_a_batch_except_special_ones(time: CountingTime) -> None:
    timers, rows = batched_timers(time, {2, 3, 6})
    for position in range(7):
        timers.schedule(2_000, entry(position))
    timers.schedule(2_001, entry(7))
    moved = timers.schedule(9_000, entry(8))
    for due_ms in (2_000, 2_500, 2_000):
        timers.reschedule(moved, due_ms)
    run(time, 2_000)
    assert rows == [[0, 1], [2], [3], [4, 5], [6], [8]]
    assert len(timers) == 1
    run(time, 9_000)
    assert rows[6:] == [[7]]
    assert (len(timers), time.next_due_ms()) == (0, None)


def test_a_turn_fires_a_bounded_number_in_batches(time: CountingTime) -> None:
    timers, rows = batched_timers(time, set())
    for position in range(FIRES_PER_TURN + 1):
        timers.schedule(2_000, entry(position))
    run(time, 2_000)
    assert [len(row) for row in rows] == [FIRES_PER_TURN, 1]


def test_a_turn_that_takes_long_leaves_the_rest_to_the_next(time: CountingTime) -> None:
    log: list[int] = []

    def fire(pending: PendingTimer) -> None:
        log.append(pending.entry.position)
        time._now_ms += TURN_MS

    timers = Timers(time, fire, fire_batch=lambda row, begin: 0)
    for position in range(3):
        timers.schedule(2_000, entry(position))
    for turn in range(1, 4):
        assert time.step(2_000)
        assert log == list(range(turn))
    assert len(timers) == 0


def test_a_refused_batch_is_retried_as_a_whole(time: CountingTime, caplog: pytest.LogCaptureFixture) -> None:
    log: list[tuple[int, list[int]]] = []

    def fire_batch(row: Sequence[TimerEntry], begin: int) -> int:
        log.append((time.now_ms(), [each.position for each in row[begin:]]))
        if len(log) == 1:
            raise Busy("planted")
        return len(row) - begin

    timers = Timers(time, pytest.fail, fire_batch=fire_batch)
    for position in range(3):
        timers.schedule(2_000, entry(position))
    run(time, 9_000)
    assert log == [(2_000, [0, 1, 2]), (2_000 + RETRY_MS, [0, 1, 2])]
    assert (len(timers), "planted" in caplog.text) == (0, True)


def test_a_batch_that_fails_by_a_bug_is_logged_and_dropped(
    time: CountingTime, caplog: pytest.LogCaptureFixture
) -> None:
    def fire_batch(row: Sequence[TimerEntry], begin: int) -> int:
        raise RuntimeError("planted")

    timers = Timers(time, pytest.fail, fire_batch=fire_batch)
    timers.schedule(2_000, entry(0))
    run(time, 9_000)
    assert (len(timers), "planted" in caplog.text) == (0, True)


def test_timers_scheduled_and_cancelled_in_a_batch_equal_those_scheduled_one_by_one() -> None:
    log: list[tuple[int, TimerEntry]] = []
    together, alone = CountingTime(1_000), CountingTime(1_000)
    many = Timers(together, lambda pending: log.append((together.now_ms(), pending.entry)))
    one = Timers(alone, lambda pending: log.append((alone.now_ms(), pending.entry)))
    rows = [(3_000, STREAM, range(5)), (2_000, OTHER, range(5, 9)), (3_000, OTHER, range(9, 11)), (4_000, STREAM, [])]
    ids = [many.schedule_all(due_ms, stream, [*positions]) for due_ms, stream, positions in rows]
    single = [[one.schedule(due_ms, entry(at, stream)) for at in positions] for due_ms, stream, positions in rows]
    assert ids == single
    assert together.calls < alone.calls + len(rows)
    gone = [*ids[1], ids[0][2], ids[0][2], -1]
    many.cancel_all(gone)
    for id in gone:
        one.cancel(id)
    many.cancel_all([])
    assert (len(many), many.upcoming(20)) == (len(one), one.upcoming(20))
    run(together, 5_000)
    fired, log[:] = [*log], []
    run(alone, 5_000)
    assert fired == log
    assert together.next_due_ms() is None


def test_timers_cancelled_in_a_batch_leave_few_keys(time: CountingTime, timers: Timers) -> None:
    for _ in range(400):
        timers.cancel_all(timers.schedule_all(2_000, STREAM, range(64)))
    assert len(timers._keys._keys) + len(timers._keys._unswept) <= 3 * timer_heap._STALE_KEYS_ALLOWED
    assert (len(timers), time.next_due_ms()) == (0, None)


def test_timers_of_a_later_batch_may_be_due_earlier() -> None:
    time, log = CountingTime(1_000), []
    many = Timers(time, lambda pending: log.append(time.now_ms()))
    many.schedule_all(3_000, STREAM, [1])
    many.schedule_all(2_000, STREAM, [2])
    run(time, 5_000)
    assert log == [2_000, 3_000]
