"""Choice of the single active consumer, as observed with RabbitMQ 4.3.6."""

from __future__ import annotations

import pytest
from core.queueing_world import Channel, World


def single(kind: str, *priorities: int) -> tuple[World, list[Channel]]:
    world = World()
    world.queue(queue_type=kind, single_active_consumer=True)
    found = [world.consume(tag=f"c{n}", priority=priority)[0] for n, priority in enumerate(priorities)]
    return world, found


def test_in_a_quorum_queue_a_consumer_of_higher_priority_takes_over() -> None:
    world, (low, high) = single("quorum", 0, 10)
    world.publish("q", b"0", b"1")
    assert (low.bodies(), high.bodies()) == ([], [b"0", b"1"])


def test_a_replaced_consumer_acks_its_messages_and_gets_no_more() -> None:
    world, (low,) = single("quorum", 0)
    world.publish("q", b"0")
    high, _ = world.consume(tag="high", priority=10)
    world.publish("q", b"1", b"2")
    assert (low.bodies(), high.bodies()) == ([b"0"], [])
    world.ack(*low.out)
    assert (low.bodies(), high.bodies()) == ([], [b"1", b"2"])


def test_a_consumer_stays_active_when_its_successor_leaves() -> None:
    world, (low,) = single("quorum", 0)
    world.publish("q", b"0")
    high, consumer = world.consume(tag="high", priority=10)
    world.broker.queues.unsubscribe(consumer)
    world.publish("q", b"1")
    assert (low.bodies(), high.bodies()) == ([b"0", b"1"], [])


def test_in_a_classic_queue_no_consumer_takes_over() -> None:
    world, (low, high) = single("classic", 0, 10)
    world.publish("q", b"0", b"1")
    assert (low.bodies(), high.bodies()) == ([b"0", b"1"], [])


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(("priorities", "next_one"), [((10, 0, 5), 2), ((0, 0, -5), 1)])
def test_the_next_is_the_first_of_the_highest_priority(kind: str, priorities: tuple[int, ...], next_one: int) -> None:
    world = World()
    queue = world.queue(queue_type=kind, single_active_consumer=True)
    found = [world.consume(tag=f"c{n}", priority=priority) for n, priority in enumerate(priorities)]
    world.publish("q", b"0")
    assert found[0][0].bodies() == [b"0"]
    world.broker.queues.unsubscribe(found[0][1])
    assert [queue.consumers.is_active(consumer) for _, consumer in found[1:]] == [next_one == 1, next_one == 2]
    world.publish("q", b"1")
    assert [channel.bodies() for channel, _ in found[1:]] == [[b"1"] * (next_one == 1), [b"1"] * (next_one == 2)]
