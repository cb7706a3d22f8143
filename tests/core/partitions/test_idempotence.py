"""Idempotent producers: new batches, duplicates and gaps in the sequence."""

from __future__ import annotations

import pytest
from core.core_bench import CoreBench

from trimq.core.partitions.stream import Appended, Stream
from trimq.errors import OutOfOrderSequence, StaleProducer
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent, read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.model import Record

LAST = (1 << 31) - 1


class Producer:
    def __init__(self) -> None:
        self.bench = CoreBench()
        self.bench.create("orders")

    @property
    def stream(self) -> Stream:
        return self.bench.topic("orders").stream(0)

    def begin(self, sequence: int, count: int = 1, epoch: int = 0, **fields: object) -> Appended:
        records = [
            Record(b"%d" % (sequence + number), timestamp_ms=self.bench.time.now_ms()) for number in range(count)
        ]
        batch = from_records(records, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **fields)  # type: ignore[arg-type]
        return self.bench.core.appender.append(self.stream, batch, check_sent(batch))

    def send(self, sequence: int, count: int = 1, epoch: int = 0, **fields: object) -> int:
        appended = self.begin(sequence, count, epoch, **fields)
        self.bench.settle()
        assert appended.ticket.refusal is None
        return appended.base_offset


@pytest.fixture
def producer() -> Producer:
    return Producer()


def test_a_duplicate_batch_gets_the_offset_of_the_first(producer: Producer) -> None:
    offsets = [producer.send(3 * number, 3) for number in range(5)]
    assert offsets == [0, 3, 6, 9, 12]
    assert [producer.send(3 * number, 3) for number in range(5)] == offsets
    assert producer.stream.end == 15


def test_only_the_last_five_batches_are_recognised_as_duplicates(producer: Producer) -> None:
    for number in range(6):
        producer.send(number)
    with pytest.raises(OutOfOrderSequence):
        producer.send(0)
    assert producer.send(1) == 1


def test_a_gap_is_refused(producer: Producer) -> None:
    producer.send(0)
    with pytest.raises(OutOfOrderSequence) as caught:
        producer.send(2)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert producer.send(1) == 1


def test_an_unknown_producer_may_begin_with_any_sequence(producer: Producer) -> None:
    assert producer.send(1000) == 0
    assert producer.send(1001) == 1


def test_sequences_wrap_around(producer: Producer) -> None:
    assert producer.send(LAST - 1, 4) == 0  # LAST - 1, LAST, 0, 1
    assert producer.send(2) == 4
    assert producer.send(LAST - 1, 4) == 0


def test_a_new_epoch_begins_with_sequence_zero_and_fences_the_old_one(producer: Producer) -> None:
    producer.send(0)
    with pytest.raises(OutOfOrderSequence):
        producer.send(1, epoch=1)
    assert producer.send(0, epoch=1) == 1
    with pytest.raises(StaleProducer):
        producer.send(1, epoch=0)


def test_an_epoch_that_a_marker_began_starts_with_sequence_zero(producer: Producer) -> None:
    producer.send(0, transactional=True)
    marker = control_batch(7, 1, 0, True, producer.bench.time.now_ms(), 0)
    producer.stream.append(marker, read_header(marker), 0)
    producer.bench.settle()
    with pytest.raises(OutOfOrderSequence):
        producer.send(1, epoch=1)
    assert producer.send(0, epoch=1) == 2


def test_a_duplicate_in_the_same_pass_has_the_same_result(producer: Producer) -> None:
    first, again = producer.begin(0), producer.begin(0)
    assert first.base_offset == again.base_offset == 0
    producer.bench.fail_writes(".log")
    producer.bench.settle()
    assert first.ticket.refusal is not None
    assert again.ticket.refusal is not None
    producer.bench.mend()
    assert producer.send(0) == 0
    assert producer.stream.end == 1


def test_a_duplicate_is_not_confirmed_before_the_first_is_durable(producer: Producer) -> None:
    first = producer.begin(0)
    producer.bench.runner.end_pass()
    again = producer.begin(0)
    assert again.ticket.number >= first.ticket.number
    assert producer.bench.runner.passes.durable < again.ticket.number


def test_a_batch_of_a_refused_pass_is_not_a_duplicate_when_sent_again(producer: Producer) -> None:
    producer.send(0)
    producer.begin(1)
    producer.begin(2)
    producer.bench.fail_writes(".log")
    producer.bench.settle()
    producer.bench.mend()
    with pytest.raises(OutOfOrderSequence):
        producer.send(2)
    assert producer.send(1) == 1


@pytest.mark.parametrize("again", [CoreBench.crash, CoreBench.kill, CoreBench.restart])
def test_the_last_batch_is_recognised_after_every_restart(producer: Producer, again: object) -> None:
    for number in range(3):
        producer.send(number)
    again(producer.bench)  # type: ignore[operator]
    assert producer.send(2) == 2
    assert producer.send(3) == 3
    with pytest.raises(OutOfOrderSequence):
        producer.send(5)


def test_a_producer_that_was_idle_for_a_day_is_removed(producer: Producer) -> None:
    producer.send(0)
    producer.bench.advance(90_000_000)
    assert len(producer.stream.log.producers) == 0
    assert producer.send(17) == 1
