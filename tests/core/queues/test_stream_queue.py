"""Stream queues: non-destructive reads from a chosen offset."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, World

from trimq.core.queues.stream_offsets import find_time
from trimq.errors.queues import AcknowledgementNeeded, InvalidArgument, NotForStreams, PrefetchNeeded
from trimq.formats.amqp_content.field_tables import Timestamp, Value
from trimq.formats.amqp_content.property_list import read_headers
from trimq.storage.queue_log.log import QueueLog

FIVE = [b"0", b"1", b"2", b"3", b"4"]


def stream_world(**arguments: Value) -> World:
    world = World()
    world.queue("s", queue_type="stream", **arguments)
    return world


def read_from(world: World, offset: Value, prefetch: int = 100) -> list[bytes]:
    channel, consumer = world.consume("s", prefetch=prefetch, arguments={"x-stream-offset": offset})
    world.broker.queues.unsubscribe(consumer)
    return channel.bodies()


@pytest.mark.parametrize(
    ("offset", "expected"), [("first", FIVE), ("last", FIVE[4:]), ("next", []), (3, FIVE[3:]), (-1, FIVE), (99, [])]
)
def test_a_consumer_begins_at_its_offset(offset: Value, expected: list[bytes]) -> None:
    world = stream_world()
    world.publish("s", *FIVE)
    assert read_from(world, offset) == expected
    world.restart()
    assert read_from(world, offset) == expected


def test_a_consumer_may_begin_at_a_timestamp() -> None:
    world = stream_world()
    for body in FIVE:
        world.publish("s", body)
        world.advance(60_000)
    now_s = world.time.now_ms() // 1000
    assert read_from(world, Timestamp(now_s - 120)) == FIVE[3:]
    assert read_from(world, "2m") == FIVE[3:]
    assert read_from(world, "1h") == FIVE


def test_a_timestamp_is_found_by_reading_few_of_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = stream_world()
    bodies = [str(number).encode() for number in range(1000)]
    began_s = world.time.now_ms() // 1000
    for body in bodies:
        world.publish("s", body)
        world.advance(1000)
    looks = []
    peek = QueueLog.peek
    monkeypatch.setattr(QueueLog, "peek", lambda log, offset: looks.append(offset) or peek(log, offset))
    log = world.broker.queues.queue(CALLER, "s", OWNER).logs[0]
    for number in (0, 1, 377, 999):
        assert find_time(log, (began_s + number) * 1000) == number
    assert find_time(log, (began_s + 5000) * 1000) == 1000
    assert len(looks) < 4 * 2 * 12


def test_reading_removes_nothing_and_messages_carry_their_offsets() -> None:
    world = stream_world()
    world.publish("s", *FIVE)
    for _ in range(2):
        channel, _ = world.consume("s", prefetch=10, arguments={"x-stream-offset": "first"})
        assert [read_headers(delivery.header)["x-stream-offset"] for delivery in channel.out] == [0, 1, 2, 3, 4]
        assert not any(delivery.redelivered for delivery in channel.out)
        world.ack(*channel.out)
    assert world.broker.queues.queue(CALLER, "s", OWNER).ready_count == 5


def test_an_ack_frees_prefetch_once() -> None:
    world = stream_world()
    world.publish("s", *FIVE)
    channel, consumer = world.consume("s", prefetch=2, arguments={"x-stream-offset": "first"})
    assert channel.bodies() == FIVE[:2]
    world.ack(channel.out[0])
    world.ack(channel.out[0])
    assert channel.bodies() == FIVE[2:3]
    assert consumer.in_flight == 2
    world.reject(channel.out[1])
    world.requeue(channel.out[2])
    assert channel.bodies() == FIVE[3:]


def test_new_messages_are_delivered_to_waiting_consumers() -> None:
    world = stream_world()
    channel, _ = world.consume("s", prefetch=10)
    world.publish("s", b"new", delivery_mode=1)
    assert channel.bodies() == [b"new"]
    world.crash()
    assert read_from(world, "first") == [b"new"]


def test_a_filter_skips_messages_without_a_match() -> None:
    world = stream_world()
    for value in ("a", "b", None):
        world.publish("s", str(value).encode(), headers={"x-stream-filter-value": value} if value else {})
    arguments: dict[str, Value] = {"x-stream-offset": "first", "x-stream-filter": ["a"]}
    channel, _ = world.consume("s", prefetch=10, arguments=arguments)
    assert channel.bodies() == [b"a"]
    channel, _ = world.consume("s", prefetch=10, arguments={**arguments, "x-stream-match-unfiltered": True})
    assert channel.bodies() == [b"a", b"None"]


def test_the_oldest_segments_are_deleted_by_size() -> None:
    world = stream_world(max_length_bytes=1000)
    log = world.broker.queues.queue(CALLER, "s", OWNER).logs[0]
    log.segment_bytes = 400
    for number in range(50):
        world.publish("s", b"%d" % number)
    kept = read_from(world, "first")
    assert kept == [b"%d" % number for number in range(50 - len(kept), 50)]
    assert 5 < len(kept) < 25


def test_unsupported_operations_on_a_stream_are_refused() -> None:
    world = stream_world()
    with pytest.raises(PrefetchNeeded):
        world.consume("s")
    with pytest.raises(AcknowledgementNeeded):
        world.consume("s", prefetch=1, no_ack=True)
    for nonsense in ("nope", "0s", "", True, 1.5, [1], None):
        with pytest.raises(InvalidArgument):
            world.consume("s", prefetch=1, arguments={"x-stream-offset": nonsense})
    with pytest.raises(NotForStreams):
        world.get("s")
    with pytest.raises(NotForStreams):
        world.broker.queues.purge_queue(CALLER, "s", OWNER)
    world.consume("s", prefetch=1, exclusive=True)
    world.consume("s", prefetch=1)
