"""Failed messages of RocketMQ groups in the failure ledger: with their dead letters, after a crash, and redriven."""

from __future__ import annotations

import pytest
from core.core_bench import AnyChanges
from core.pop.test_pop import SECOND, PopBench, bodies_of

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.failures.ledger import Failure, Reason
from trimq.errors import Changed, UnknownFailure
from trimq.model import SYSTEM

LEDGER = "00000000000000000000000000000001-0"


def failures(bench: PopBench) -> list[Failure]:
    return list(bench.bench.core.broker.failures.all(SYSTEM))


def redrive(bench: PopBench, id: int) -> None:
    bench.bench.core.broker.failures.redrive(SYSTEM, id)
    bench.bench.settle()


def bench_without_retries(*bodies: bytes) -> PopBench:
    """A bench with a group without retries: an expired message is dead-lettered at once."""
    bench = PopBench()
    bench.commit_log.groups.define(SYSTEM, CommitLogGroup("g", retry_limit=0))
    bench.send(*bodies)
    return bench


def let_the_lease_expire(bench: PopBench) -> None:
    bench.receive()
    bench.bench.advance(10 * SECOND)


def test_a_dead_letter_is_listed_with_its_origin_and_its_body_is_not_stored_twice() -> None:
    body = b"x" * 5000
    bench = bench_without_retries(b"0", body)
    let_the_lease_expire(bench)
    _, failure = failures(bench)
    entry = failure.entry
    assert (entry.record.body, entry.reason, entry.attempts) == (body, Reason.DELIVERY_LIMIT, 1)
    assert (entry.origin.topic.name, entry.origin.stream.number, entry.origin.offset) == ("t", 0, 1)
    assert entry.origin.group == "g"
    assert not failure.is_redriven
    (ledger,) = bench.bench.core.queues.ledger.logs
    assert sum(segment.segment.size for segment in ledger.segments) < 2000


def test_a_rejected_message_is_listed_as_rejected() -> None:
    bench = PopBench()
    bench.send(b"0")
    (popped,) = bench.receive().messages
    bench.pop_service.dead_letters(SYSTEM, "g", bench.topic, popped.receipt)
    bench.bench.settle()
    bench.pop_service.forward_to_dlq(SYSTEM, "g", bench.topic, popped.receipt)
    bench.bench.settle()
    assert [failure.entry.reason for failure in failures(bench)] == [Reason.REJECTED]


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_dead_letter_is_redriven_once_to_its_group_with_all_its_retries(is_ordered: bool) -> None:
    bench = bench_without_retries(b"0")
    bench.receive(is_ordered=is_ordered)
    bench.bench.advance(10 * SECOND)
    redrive(bench, failures(bench)[0].id)
    (popped,) = bench.receive(is_ordered=is_ordered).messages
    assert (bodies_of([popped]), popped.unit().reconsume_times) == ([b"0"], 0)
    with pytest.raises(Changed):
        redrive(bench, failures(bench)[0].id)
    bench.bench.restart()
    with pytest.raises(Changed):
        redrive(bench, failures(bench)[0].id)


def test_a_message_that_fails_again_after_a_redrive_is_listed_again() -> None:
    bench = bench_without_retries(b"0")
    let_the_lease_expire(bench)
    redrive(bench, failures(bench)[0].id)
    let_the_lease_expire(bench)
    assert [failure.is_redriven for failure in failures(bench)] == [True, False]


def test_an_entry_is_not_listed_once_its_dead_letter_is_deleted() -> None:
    bench = bench_without_retries(b"0")
    let_the_lease_expire(bench)
    (failure,) = failures(bench)
    bench.commit_log.topics.delete(SYSTEM, bench.commit_log.topics.get(SYSTEM, "%DLQ%g"))
    bench.bench.settle()
    assert failures(bench) == []
    with pytest.raises(UnknownFailure):
        redrive(bench, failure.id)


def test_a_dead_letter_whose_write_failed_is_listed_once_it_is_written() -> None:
    bench = bench_without_retries(b"0")
    bench.receive()
    bench.bench.fail_writes("commitlog")
    bench.bench.advance(10 * SECOND)
    assert failures(bench) == []
    bench.bench.mend()
    bench.bench.advance(2 * SECOND)
    assert [failure.entry.record.body for failure in failures(bench)] == [b"0"]


def test_a_dead_letter_without_an_entry_gets_exactly_one_at_the_next_start() -> None:
    bench = bench_without_retries(b"0", b"1")
    bench.receive(1)
    bench.bench.advance(10 * SECOND)
    bench.receive(1)
    bench.bench.fail_writes(LEDGER)
    bench.bench.advance(10 * SECOND)
    assert [failure.entry.record.body for failure in failures(bench)] == [b"0"]
    for _ in range(2):
        bench.bench.crash()
        bench.begin()
        found = [(failure.entry.record.body, failure.entry.origin.offset) for failure in failures(bench)]
        assert found == [(b"0", 0), (b"1", 1)]


@pytest.mark.parametrize("seed", range(12))
def test_dead_letters_and_entries_match_after_a_power_cut_at_any_moment(seed: int) -> None:
    bench = bench_without_retries(b"0", b"1", b"2")
    bench.receive(1, 5 * SECOND)
    bench.receive(2, 10 * SECOND)
    bench.bench.advance(6 * SECOND)
    while bench.bench.time.step(bench.bench.time.now_ms() + 4 * SECOND):
        pass
    bench.bench.runner.passes.finish()  # written but not synced
    bench.bench.crash(AnyChanges(seed))
    bench.begin()
    dead = bench.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0)
    letters = [bytes(dead.unit(offset).body) for offset in range(dead.readable_end)]
    assert b"0" in letters
    assert [failure.entry.record.body for failure in failures(bench)] == letters
