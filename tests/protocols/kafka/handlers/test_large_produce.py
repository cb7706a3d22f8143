"""Produce requests with large batches: reviewed in a thread, over several turns, in order, and within limits."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.core.partitions import batch_validation
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.records import INLINE_EXPANDED_BYTES, INLINE_RECORDS
from trimq.model import SYSTEM, Record
from trimq.protocols.contract import DeferredReply, Reply
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.names.codes import Code

VERSION = 9
NOW_MS = 1_700_000_000_000


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t", 60)
    return desk


def bomb(size: int = INLINE_EXPANDED_BYTES + 1, codec: Codec = Codec.ZSTD, **producer: Any) -> bytearray:
    return from_records([Record(bytes(size), timestamp_ms=NOW_MS)], codec=codec, **producer)


def small(**producer: Any) -> bytearray:
    return from_records([Record(b"small", timestamp_ms=NOW_MS)], **producer)


def many(count: int = INLINE_RECORDS + 1) -> bytearray:
    return from_records([Record(b"x", b"k" * (n % 5), timestamp_ms=NOW_MS) for n in range(count)], codec=Codec.ZSTD)


def request(*batches: bytearray, acks: int = -1) -> ProduceRequest:
    """Returns a request with one batch for each partition, from 0 on."""
    sent = [PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=sent)])


def codes(response: Any) -> list[tuple[int, int]]:
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


def end(desk: Desk) -> int:
    """Returns the number of records in all partitions."""
    return sum(stream.end for stream in desk.core.broker.topics.get(SYSTEM, "t").streams)


def is_ready(desk: Desk, reply: Reply) -> bool:
    return reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)


@pytest.mark.parametrize("large", [bomb(), many(), bomb(codec=Codec.GZIP), bomb(codec=Codec.LZ4)])
def test_a_large_batch_is_reviewed_off_the_loop_while_its_connection_waits(desk: Desk, large: bytearray) -> None:
    message = request(large)
    reply = desk.begin(message, VERSION)
    assert isinstance(reply, DeferredReply)
    assert desk.way.is_held
    assert (len(desk.runner.offload), end(desk)) == (1, 0)  # nothing was appended in this turn
    desk.runner.settle()
    assert not desk.way.is_held
    assert codes(desk.read_answer(reply, message, VERSION)) == [(0, 0)]
    assert desk.fetch("t").responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("usual", [small(), bomb(INLINE_EXPANDED_BYTES // 2), many(INLINE_RECORDS)])
def test_a_usual_batch_is_appended_at_once(desk: Desk, usual: bytearray) -> None:
    reply = desk.begin(request(usual), VERSION)
    assert not isinstance(reply, DeferredReply)
    assert not desk.way.is_held
    assert end(desk) > 0


def test_a_batch_with_many_headers_is_reviewed_off_the_loop(desk: Desk) -> None:
    headers = tuple(("h", b"v") for _ in range(INLINE_RECORDS))
    batch = from_records([Record(b"x", timestamp_ms=NOW_MS, headers=headers)])
    assert isinstance(desk.begin(request(batch), VERSION), DeferredReply)


def test_the_batches_of_a_request_are_appended_in_its_order(desk: Desk) -> None:
    message = request(small(), bomb(), small(), bomb(), small())
    reply = desk.begin(message, VERSION)
    assert reply is not None
    assert end(desk) == 1  # the batch after a large one waits for it
    desk.runner.offload.run_one()
    assert end(desk) == 3
    assert not is_ready(desk, reply)
    desk.runner.settle()
    assert codes(desk.read_answer(reply, message, VERSION)) == [(0, 0)] * 5


def test_an_idempotent_producer_keeps_its_sequence_over_large_batches(desk: Desk) -> None:
    def numbered(make: Any, sequence: int) -> bytearray:
        return make(producer_id=7, producer_epoch=0, base_sequence=sequence)  # type: ignore[no-any-return]

    for sequence, make in enumerate([bomb, small, bomb]):
        message = request(numbered(make, sequence))
        reply = desk.begin(message, VERSION)
        assert reply is not None
        desk.runner.settle()
        assert codes(desk.read_answer(reply, message, VERSION)) == [(0, sequence)]
    again = request(numbered(bomb, 0))
    assert codes(desk.ask(again, VERSION)) == [(0, 0)]  # found as a duplicate
    assert end(desk) == 3


def test_a_large_batch_that_breaks_a_rule_is_refused_alone(desk: Desk) -> None:
    future = from_records([Record(bytes(INLINE_EXPANDED_BYTES + 1), timestamp_ms=NOW_MS + 10**9)], codec=Codec.ZSTD)
    too_far = bomb(desk.settings.limits.batch_expansion_bytes + 1)
    message = request(bomb(), future, too_far, small())
    reply = desk.begin(message, VERSION)
    assert reply is not None
    desk.runner.settle()
    found = [code for code, _ in codes(desk.read_answer(reply, message, VERSION))]
    assert found == [Code.NONE, Code.INVALID_TIMESTAMP, Code.MESSAGE_TOO_LARGE, Code.NONE]
    assert not desk.way.is_held


def test_a_topic_that_is_deleted_meanwhile_refuses_the_batch(desk: Desk) -> None:
    message = request(bomb())
    reply = desk.begin(message, VERSION)
    assert reply is not None
    desk.core.broker.topics.delete(SYSTEM, desk.core.broker.topics.get(SYSTEM, "t"))
    desk.runner.settle()
    assert codes(desk.read_answer(reply, message, VERSION)) == [(Code.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_rules_that_change_meanwhile_are_applied(desk: Desk) -> None:
    message = request(bomb())
    reply = desk.begin(message, VERSION)
    assert reply is not None
    stream = desk.core.broker.topics.get(SYSTEM, "t").stream(0)
    stream.rules = stream.rules._replace(needs_keys=True)
    desk.runner.settle()
    assert codes(desk.read_answer(reply, message, VERSION)) == [(Code.INVALID_RECORD, -1)]


def test_a_request_expands_to_no_more_than_its_limit() -> None:
    desk = Desk(limits={"expanded_bytes_per_request": 3 * INLINE_EXPANDED_BYTES})
    desk.create("t", 61)
    message = request(*(bomb() for _ in range(60)), small())
    reply = desk.begin(message, VERSION)
    assert reply is not None
    desk.runner.settle()
    found = [code for code, _ in codes(desk.read_answer(reply, message, VERSION))]
    assert found == [Code.NONE] * 3 + [Code.MESSAGE_TOO_LARGE] * 57 + [Code.NONE]


def test_small_bombs_count_against_the_limit_of_a_request_too() -> None:
    desk = Desk(limits={"expanded_bytes_per_request": INLINE_EXPANDED_BYTES})
    desk.create("t", 61)
    message = request(*(bomb(INLINE_EXPANDED_BYTES // 4) for _ in range(20)))
    reply = desk.begin(message, VERSION)
    assert reply is not None
    while not is_ready(desk, reply):
        desk.let_pass(10)
        desk.runner.settle()
    found = [code for code, _ in codes(desk.read_answer(reply, message, VERSION))]
    assert found == [Code.NONE] * 4 + [Code.MESSAGE_TOO_LARGE] * 16


def test_a_request_has_no_more_records_than_its_limit() -> None:
    desk = Desk(limits={"records_per_request": 1000})
    desk.create("t", 61)
    batches = [many(300) for _ in range(5)]
    assert [code for code, _ in codes(desk.ask(request(*batches), VERSION))] == [0, 0, 0, 10, 10]


def test_a_request_that_takes_long_continues_in_a_later_turn(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each reading of the clock is 3 ms later: as if each batch took so long.
    now_ms = desk.liveness._now_ms

    def reading() -> int:
        nonlocal now_ms
        now_ms += 3
        return now_ms

    monkeypatch.setattr(desk.liveness, "now_ms", reading)
    message = request(*(small() for _ in range(20)))
    reply = desk.begin(message, VERSION)
    assert isinstance(reply, DeferredReply)
    assert desk.way.is_held
    assert end(desk) < 10
    turns = 0
    while not is_ready(desk, reply):
        desk.liveness.step(1 << 40)
        desk.runner.settle()
        turns += 1
    assert turns > 3
    assert not desk.way.is_held
    assert codes(desk.read_answer(reply, message, VERSION)) == [(0, 0)] * 20


def test_without_acknowledgements_an_error_in_a_large_batch_closes_the_connection(desk: Desk) -> None:
    desk.way.may_be_closed = True
    good = desk.begin(request(bomb(), acks=0), VERSION)
    assert isinstance(good, DeferredReply)
    desk.runner.settle()
    assert (b"".join(good.take()), end(desk), desk.way.is_closed) == (b"", 1, False)
    bad = desk.begin(request(bomb(desk.settings.limits.batch_expansion_bytes + 1), acks=0), VERSION)
    assert isinstance(bad, DeferredReply)
    desk.runner.settle()
    assert (b"".join(bad.take()), desk.way.is_closed) == (b"", True)


def test_a_lost_connection_gives_up_its_batches(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = desk.begin(request(bomb(), small()), VERSION)
    assert isinstance(reply, DeferredReply)
    assert reply.on_abandon is not None
    reply.on_abandon()

    def refuse(*args: object) -> None:
        raise AssertionError("expanded for nobody")

    monkeypatch.setattr(batch_validation, "validate_checked", refuse)
    desk.runner.settle()
    assert end(desk) == 0


def test_no_more_batches_wait_than_allowed() -> None:
    desk = Desk(limits={"queued_reviews": 1})
    desk.create("t", 61)
    first = desk.begin(request(bomb()), VERSION)
    other = desk.front_end.open_conversation("10.0.0.2:5000", type(desk.way)())
    desk._conversation, mine = other, desk._conversation
    message = request(bomb(), small())
    second = desk.begin(message, VERSION)
    assert first is not None
    assert second is not None
    desk.runner.settle()
    assert codes(desk.read_answer(second, message, VERSION)) == [(Code.REQUEST_TIMED_OUT, -1), (0, 0)]
    assert codes(desk.read_answer(first, request(bomb()), VERSION)) == [(0, 0)]
    desk._conversation = mine


def test_a_batch_larger_than_the_limit_is_refused_before_its_checksum_is_computed(desk: Desk) -> None:
    damaged = from_records([Record(bytes(2_000_000), timestamp_ms=NOW_MS)])
    damaged[-1] ^= 1
    assert codes(desk.ask(request(damaged), VERSION)) == [(Code.MESSAGE_TOO_LARGE, -1)]
