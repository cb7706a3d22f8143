"""Periodic maintenance of queues."""

from __future__ import annotations

from core.queueing_world import CALLER, OWNER, World

INTERVAL_MS = 300_000


def segment_of(world: World, queue: str, segment_bytes: int = 4000) -> None:
    log = world.broker.queues.queue(CALLER, queue, OWNER).logs[0]
    log.segment_bytes = segment_bytes


def test_a_segment_pinned_by_one_message_is_compacted_in_the_second_round() -> None:
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


def test_streams_delete_segments_beyond_their_age_limit() -> None:
    world = World()
    world.queue("s", queue_type="stream", max_age="1h")
    segment_of(world, "s")
    world.publish("s", *[b"." * 100] * 100)
    stream = world.broker.queues.queue(CALLER, "s", OWNER)
    assert stream.ready_count == 100
    world.advance(2 * 3_600_000)
    assert 0 < stream.ready_count < 40
