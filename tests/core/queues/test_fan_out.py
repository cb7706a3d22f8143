"""Shared bodies: a large message for several queues is stored once, until the last queue has acknowledged it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core.queueing_world import CALLER, OWNER, World

from trimq.formats.amqp_content.field_tables import Value

BIG = b"x" * 4096
QUEUES = ("a", "b", "c")


def fan_out(**arguments: Value) -> World:
    """Three queues behind one fanout exchange, and a body store that is ready."""
    world = World()
    world.exchange("all", "fanout")
    for name in QUEUES:
        world.queue(name, **arguments)
        world.bind("all", name)
    get_ready(world)
    return world


def get_ready(world: World) -> None:
    world.publish("", b"!" + BIG, exchange="all")
    for name in QUEUES:
        world.drain(name)
    assert stored(world) == 0


def stored(world: World) -> int:
    """Returns the number of stored bodies; checks that references and files agree."""
    blobs = world.core.queues.blobs
    on_disk = sum(log.live for log in blobs.logs)
    assert on_disk == len(blobs)
    return on_disk


def test_each_queue_delivers_the_whole_message_and_the_disk_has_it_once() -> None:
    world = fan_out()
    (published,) = world.publish("", BIG, exchange="all", correlation_id="7")
    assert published.needs_sync
    assert len(published.tickets) == 3
    assert stored(world) == 1
    world.restart()
    assert stored(world) == 1
    assert [world.drain(name) for name in QUEUES] == [[BIG]] * 3
    assert stored(world) == 0


def test_below_the_limit_and_for_one_queue_nothing_is_shared() -> None:
    world = fan_out()
    world.publish("", BIG[1:], exchange="all")
    world.publish("a", BIG)
    assert stored(world) == 0
    assert world.drain("a") == [BIG[1:], BIG]


def test_until_the_body_log_is_durable_each_queue_stores_its_own_copy() -> None:
    world = World()
    world.exchange("all", "fanout")
    for name in QUEUES:
        world.queue(name)
        world.bind("all", name)
    world.send("", b"1" + BIG, b"2" + BIG, exchange="all")
    assert stored(world) == 0
    world.settle()
    world.publish("", b"3" + BIG, exchange="all")
    assert stored(world) == 1
    assert [world.drain(name) for name in QUEUES] == [[b"1" + BIG, b"2" + BIG, b"3" + BIG]] * 3


def purge(world: World) -> None:
    for name in QUEUES:
        world.broker.queues.purge_queue(CALLER, name, OWNER)


def delete(world: World) -> None:
    for name in QUEUES:
        world.broker.queues.delete_queue(CALLER, name, OWNER, False, False)


def acknowledge(world: World) -> None:
    for name in QUEUES:
        delivery = world.get(name)
        assert delivery is not None
        world.requeue(delivery)
        again = world.get(name)
        assert again is not None
        assert again.message.body == BIG
        assert stored(world) == 1
        world.ack(again)


def reject(world: World) -> None:
    for name in QUEUES:
        delivery = world.get(name)
        assert delivery is not None
        world.reject(delivery)


def take_without_acknowledging(world: World) -> None:
    for name in QUEUES:
        assert world.drain(name) == [BIG]


def unbind_and_delete_one_by_one_over_restarts(world: World) -> None:
    for name in QUEUES:
        world.broker.queues.delete_queue(CALLER, name, OWNER, False, False)
        world.settle()
        world.restart()
        assert stored(world) == (name != "c")


ENDS = [
    purge,
    delete,
    acknowledge,
    reject,
    take_without_acknowledging,
    unbind_and_delete_one_by_one_over_restarts,
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_every_removal_of_a_message_releases_its_body(end: Callable[[World], None]) -> None:
    world = fan_out()
    world.publish("", BIG, exchange="all")
    assert stored(world) == 1
    end(world)
    world.settle()
    assert stored(world) == 0


def test_an_expired_message_releases_its_body() -> None:
    world = fan_out()
    world.publish("", BIG, exchange="all", expiration="1000")
    world.advance(999)
    assert stored(world) == 1
    world.advance(1)
    assert stored(world) == 0


def test_a_dropped_message_releases_its_body() -> None:
    world = fan_out(max_length=2)
    world.publish("", b"1" + BIG, b"2" + BIG, b"3" + BIG, exchange="all")
    assert stored(world) == 2


def test_a_body_that_every_queue_refused_is_not_stored() -> None:
    world = fan_out(max_length=1, overflow="reject-publish")
    world.publish("", BIG, exchange="all")
    (published,) = world.publish("", BIG, exchange="all")
    assert published.is_refused
    assert stored(world) == 1


def test_priority_queues_share_bodies() -> None:
    world = fan_out(max_priority=5)
    world.publish("", b"low" + BIG, exchange="all", priority=1)
    world.publish("", b"high" + BIG, exchange="all", priority=4)
    assert stored(world) == 2
    world.restart()
    assert world.drain("a") == [b"high" + BIG, b"low" + BIG]
    assert stored(world) == 2


def test_dead_letters_for_several_queues_share_a_body() -> None:
    world = World()
    world.exchange("dead", "fanout")
    world.queue("q", dead_letter_exchange="dead")
    world.exchange("all", "fanout")
    for name in QUEUES:
        world.queue(name)
        world.bind("dead", name)
        world.bind("all", name)
    get_ready(world)
    world.publish("q", BIG)
    delivery = world.get("q")
    assert delivery is not None
    world.reject(delivery)
    assert stored(world) == 1
    assert [world.drain(name) for name in QUEUES] == [[BIG]] * 3
    assert stored(world) == 0


def test_a_stream_has_its_own_copy() -> None:
    world = fan_out()
    world.queue("s", queue_type="stream")
    world.bind("all", "s")
    world.publish("", BIG, exchange="all")
    for name in QUEUES:
        world.drain(name)
    assert stored(world) == 0
    stream = world.broker.queues.queues(CALLER)[-1]
    (log,) = stream.logs
    assert log.peek(log.end - 1).content.body == BIG


def test_transient_messages_share_a_body_without_a_sync_and_are_lost_at_a_restart() -> None:
    world = fan_out()
    (published,) = world.publish("", BIG, exchange="all", delivery_mode=1)
    assert not published.needs_sync
    assert stored(world) == 1
    world.restart()
    assert stored(world) == 0
    assert world.drain("a") == []


def test_memory_of_messages_is_released() -> None:
    world = fan_out()
    budget = world.queue("a").logs[0]._services.budget
    before = budget.left
    world.publish("", *[BIG] * 5, exchange="all")
    assert budget.left < before
    for name in QUEUES:
        assert world.drain(name) == [BIG] * 5
    assert budget.left == before
