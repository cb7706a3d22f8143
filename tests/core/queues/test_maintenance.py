"""What a broker does for its queues on its own."""

from __future__ import annotations

from core.queueing_world import CALLER, OWNER, World

INTERVAL_MS = 300_000


def segment_of(world: World, queue: str, segment_bytes: int = 4000) -> None:
    log = world.broker.queues.queue(CALLER, queue, OWNER).logs[0]
    log.segment_bytes = segment_bytes


def test_a_segment_that_one_message_pins_is_compacted_when_it_was_seen_twice() -> None:
    world = World()
    queue = world.queue()
    segment_of(world, "q")
    world.publish("q", *[b"%d" % number + b"." * 100 for number in range(100)])
    out = world.get()
    assert out is not None
    for _ in range(60):
        world.get(no_ack=True)
    first = queue.logs[0].segments[0]
    size = first.segment.size
    world.advance(INTERVAL_MS)
    assert first.segment.size == size
    world.advance(INTERVAL_MS)
    assert first.segment.size < size / 5
    world.requeue(out)
    world.restart()
    assert len(world.drain()) == 40


def test_streams_let_go_what_is_too_old() -> None:
    world = World()
    world.queue("s", queue_type="stream", max_age="1h")
    segment_of(world, "s")
    world.publish("s", *[b"." * 100] * 100)
    stream = world.broker.queues.queue(CALLER, "s", OWNER)
    assert stream.ready_count == 100
    world.advance(2 * 3_600_000)
    assert 0 < stream.ready_count < 40
