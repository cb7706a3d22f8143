from __future__ import annotations

from core.transacting_core import TransactingCore

from trimq.errors.transactions import TransactionUnderWay
from trimq.storage.partition_log.aborted_index import AbortedTransaction


def test_a_marker_carries_the_leader_epoch_and_the_present_epoch_of_the_producer() -> None:
    core = TransactingCore()
    producer = core.init_producer()
    core.add(producer, 0)
    core.cut_power()
    try:
        core.init_producer()
    except TransactionUnderWay:
        core.settle()
    (part,) = core.stream().read(0, 1 << 20).parts
    state = core.stream().log.producers.get(producer.id)
    assert state is not None
    assert (state.epoch, state.coordinator_epoch) == (producer.epoch + 1, 1)
    assert len(part) == 78


def test_aborted_transactions_are_found_across_segments() -> None:
    core = TransactingCore()
    long_one, short_one = core.init_producer("long"), core.init_producer("short")
    core.add(long_one, 0, name="long")
    core.write(long_one, b"0", name="long")
    for sequence in range(3):
        core.add(short_one, 0, name="short")
        core.write(short_one, b"x", sequence=sequence, name="short")
        core.settle()
        core.end(short_one, is_commit=sequence == 1, name="short")
        core.stream().log.roll()
        core.settle()
    core.end(long_one, is_commit=False, name="long")
    aborted = [
        AbortedTransaction(short_one.id, 1, 2, 0),
        AbortedTransaction(short_one.id, 5, 6, 0),
        AbortedTransaction(long_one.id, 0, 7, 8),
    ]
    stream = core.stream()
    assert len(stream.log.segments) == 4
    assert stream.aborted(0, 8) == aborted
    assert stream.aborted(0, 1) == [aborted[2]]
    assert stream.aborted(3, 5) == [aborted[2]]
    assert stream.aborted(7, 8) == [aborted[2]]
    assert stream.aborted(8, 8) == []
