from __future__ import annotations

from uuid import UUID

import pytest

from trimq.clock import ManualTime
from trimq.core.scheduling.leases import Lease, Leases
from trimq.core.scheduling.timers import RETRY_MS
from trimq.errors import AlreadyLeased, Busy, LeaseGone
from trimq.model import StreamId

STREAM, OTHER = StreamId(UUID(int=1), 0), StreamId(UUID(int=1), 1)


def run(time: ManualTime, until_ms: int) -> None:
    while time.step(until_ms):
        pass


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(1_000)


@pytest.fixture
def expired() -> list[Lease]:
    return []


@pytest.fixture
def leases(time: ManualTime, expired: list[Lease]) -> Leases:
    return Leases(time, expired.append)


def test_an_acked_lease_is_removed_and_never_expires(time: ManualTime, leases: Leases, expired: list[Lease]) -> None:
    id = leases.grant(STREAM, 5, "a", 2_000, 1)
    assert leases.settle(id) == Lease(id, STREAM, 5, "a", 2_000, 1)
    with pytest.raises(LeaseGone, match=str(id)):
        leases.settle(id)
    assert time.next_due_ms() is None, "a timer is still armed"
    run(time, 9_000)
    assert expired == []
    assert len(leases) == 0


def test_a_lease_expires_at_its_deadline_and_cannot_be_acked_then(
    time: ManualTime, leases: Leases, expired: list[Lease]
) -> None:
    id = leases.grant(STREAM, 5, "a", 2_000, 3)
    run(time, 1_999)
    assert expired == []
    run(time, 2_000)
    assert expired == [Lease(id, STREAM, 5, "a", 2_000, 3)]
    for refused in (leases.settle, leases.get, lambda id: leases.extend(id, 9_000)):
        with pytest.raises(LeaseGone):
            refused(id)


@pytest.mark.parametrize("deadline_ms", [5_000, 1_500])
def test_an_extended_lease_expires_at_its_new_deadline(
    time: ManualTime, leases: Leases, expired: list[Lease], deadline_ms: int
) -> None:
    id = leases.grant(STREAM, 5, "a", 2_000, 1)
    assert leases.extend(id, deadline_ms).deadline_ms == deadline_ms
    run(time, deadline_ms - 1)
    assert expired == []
    run(time, deadline_ms)
    assert [lease.deadline_ms for lease in expired] == [deadline_ms]


def test_leases_of_a_disconnected_holder_are_released_in_order(
    time: ManualTime, leases: Leases, expired: list[Lease]
) -> None:
    for stream, offset, holder in [(OTHER, 1, "a"), (STREAM, 9, "a"), (STREAM, 4, "b"), (STREAM, 2, "a")]:
        leases.grant(stream, offset, holder, 2_000, 1)
    assert [(lease.stream, lease.offset) for lease in leases.release("a")] == [(STREAM, 2), (STREAM, 9), (OTHER, 1)]
    assert leases.release("a") == []
    assert (leases.count_of_holder("a"), leases.count_of_holder("b")) == (0, 1)
    run(time, 9_000)
    assert [lease.offset for lease in expired] == [4]


def test_the_lowest_leased_offset_of_each_stream_is_known(leases: Leases) -> None:
    ids = {offset: leases.grant(STREAM, offset, "a", 2_000, 1) for offset in (7, 3, 5)}
    leases.grant(OTHER, 1, "a", 2_000, 1)
    assert (leases.lowest(STREAM), leases.count_of_stream(STREAM)) == (3, 3)
    leases.settle(ids[5])
    assert leases.lowest(STREAM) == 3
    leases.settle(ids[3])
    assert leases.lowest(STREAM) == 7
    leases.settle(ids[7])
    assert (leases.lowest(STREAM), leases.count_of_stream(STREAM)) == (None, 0)
    assert leases.lowest(OTHER) == 1


def test_a_message_has_one_lease_at_a_time(leases: Leases) -> None:
    id = leases.grant(STREAM, 5, "a", 2_000, 1)
    with pytest.raises(AlreadyLeased):
        leases.grant(STREAM, 5, "b", 2_000, 1)
    assert leases.is_leased(STREAM, 5)
    assert not leases.is_leased(OTHER, 5)
    leases.settle(id)
    assert leases.grant(STREAM, 5, "b", 2_000, 2) != id


def test_an_expired_message_may_be_granted_to_the_next_holder_at_once(time: ManualTime) -> None:
    log: list[tuple[int, object, int]] = []
    leases: Leases

    def give_to_next(lease: Lease) -> None:
        log.append((time.now_ms(), lease.holder, lease.attempts))
        leases.grant(lease.stream, lease.offset, "b", time.now_ms() + 500, lease.attempts + 1)

    leases = Leases(time, give_to_next)
    leases.grant(STREAM, 5, "a", 2_000, 1)
    run(time, 2_600)
    assert log == [(2_000, "a", 1), (2_500, "b", 2)]
    assert len(leases) == 1


def test_a_lease_whose_expiry_is_refused_expires_later(time: ManualTime) -> None:
    log: list[int] = []

    def refuse_once(lease: Lease) -> None:
        log.append(time.now_ms())
        if len(log) == 1:
            raise Busy("planted")

    leases = Leases(time, refuse_once)
    leases.grant(STREAM, 5, "a", 2_000, 1)
    run(time, 2_000)
    assert (len(leases), leases.lowest(STREAM), leases.count_of_holder("a")) == (1, 5, 1)
    run(time, 9_000)
    assert log == [2_000, 2_000 + RETRY_MS]
    assert len(leases) == 0


def test_leases_granted_and_acked_behind_an_old_one_use_bounded_memory(leases: Leases) -> None:
    leases.grant(STREAM, 0, "a", 2_000, 1)
    for attempt in range(5_000):
        leases.settle(leases.grant(STREAM, 5, "b", 2_000, attempt))
    assert len(leases._by_stream[STREAM]._heap) < 200
    assert leases.lowest(STREAM) == 0


def test_leases_granted_and_acked_in_a_batch_equal_those_granted_one_by_one(
    time: ManualTime, leases: Leases, expired: list[Lease]
) -> None:
    one = Leases(time, expired.append)
    ids = leases.grant_all(STREAM, [7, 3, 5], "a", 2_000, 1) + leases.grant_all(OTHER, [3], "b", 3_000, 2)
    for stream, offset, holder, deadline_ms, attempts in [
        *((STREAM, offset, "a", 2_000, 1) for offset in (7, 3, 5)),
        (OTHER, 3, "b", 3_000, 2),
    ]:
        one.grant(stream, offset, holder, deadline_ms, attempts)
    assert [leases.get(id) for id in ids] == [one.get(id) for id in ids]
    leases.ack_all([ids[1], ids[3]])
    for id in (ids[1], ids[3]):
        one.settle(id)
    for each in (leases, one):
        assert (len(each), each.lowest(STREAM), each.lowest(OTHER)) == (2, 5, None)
        assert (each.count_of_holder("a"), each.count_of_holder("b")) == (2, 0)
    run(time, 9_000)
    assert sorted(lease.offset for lease in expired) == [5, 5, 7, 7]


def test_a_batch_of_grants_or_acks_fails_as_a_whole(leases: Leases) -> None:
    (id,) = leases.grant_all(STREAM, [5], "a", 2_000, 1)
    with pytest.raises(AlreadyLeased):
        leases.grant_all(STREAM, [4, 5], "a", 2_000, 1)
    assert (len(leases), leases.lowest(STREAM)) == (1, 5)
    with pytest.raises(LeaseGone):
        leases.ack_all([id, 1])
    assert leases.get(id).offset == 5
