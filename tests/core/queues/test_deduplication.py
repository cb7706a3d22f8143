"""Queues with deduplication by message id."""

from __future__ import annotations

import errno

import pytest
from core.queueing_world import CALLER, OWNER, World

from trimq.core.queues.policies import Policy
from trimq.formats.amqp_content.field_tables import Value

BIG = b"x" * 5000


def deduplicating_world(**arguments: Value) -> World:
    world = World()
    world.queue("q", message_deduplication=True, **arguments)
    return world


def test_a_repeated_id_is_stored_once_and_both_publishers_succeed() -> None:
    world = deduplicating_world()
    published = [*world.send("q", b"first", message_id="1"), *world.send("q", b"again", message_id="1")]
    world.settle()
    published += world.publish("q", b"later", message_id="1")
    assert [(one.is_routed, one.is_refused, one.needs_sync, one.refusal()) for one in published] == [
        (True, False, True, None)
    ] * 3
    assert world.drain() == [b"first"]


def test_other_ids_and_messages_without_an_id_are_stored() -> None:
    world = deduplicating_world()
    world.publish("q", b"1", message_id="1")
    world.publish("q", b"2", message_id="2")
    world.publish("q", b"3", b"4")
    assert world.drain() == [b"1", b"2", b"3", b"4"]


def test_the_header_of_the_plugin_takes_precedence_over_the_message_id() -> None:
    world = deduplicating_world()
    world.publish("q", b"1", message_id="a", headers={"x-deduplication-header": "same"})
    world.publish("q", b"2", message_id="b", headers={"x-deduplication-header": "same"})
    world.publish("q", b"3", message_id="a")
    assert world.drain() == [b"1", b"3"]


def test_a_queue_without_deduplication_stores_duplicates() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"1", b"2", message_id="1")
    assert world.drain() == [b"1", b"2"]


def test_a_duplicate_of_a_delivered_message_is_stored() -> None:
    world = deduplicating_world()
    world.publish("q", b"first", message_id="1")
    out = world.get()
    assert out is not None
    world.publish("q", b"second", message_id="1")
    world.requeue(out)
    assert world.drain() == [b"first", b"second"]
    world.publish("q", b"third", message_id="1")
    assert world.drain() == [b"third"]


def test_a_duplicate_of_a_requeued_message_is_dropped() -> None:
    world = deduplicating_world()
    world.publish("q", b"first", message_id="1")
    out = world.get()
    assert out is not None
    world.requeue(out)
    world.publish("q", b"second", message_id="1")
    assert world.drain() == [b"first"]


@pytest.mark.parametrize("way", ["restart", "crash"])
def test_duplicates_are_recognised_after_a_restart(way: str) -> None:
    world = deduplicating_world(max_priority=3)
    world.publish("q", b"low", message_id="1")
    world.publish("q", b"high", message_id="2", priority=3)
    getattr(world, way)()
    world.settle()
    world.publish("q", b"again", message_id="1", priority=2)
    world.publish("q", b"again", message_id="2")
    assert world.drain() == [b"high", b"low"]


def test_duplicates_of_expired_purged_and_dropped_messages_are_stored() -> None:
    world = deduplicating_world(max_length=2)
    world.publish("q", b"1", message_id="1", expiration="100")
    world.advance(100)
    world.publish("q", b"2", message_id="1")
    world.broker.queues.purge_queue(CALLER, "q", OWNER)
    world.publish("q", b"3", message_id="1")
    world.publish("q", b"4", message_id="4")
    world.publish("q", b"5", message_id="5")
    world.publish("q", b"6", message_id="1")
    assert world.drain() == [b"5", b"6"]


def test_a_duplicate_of_a_message_whose_write_failed_is_stored() -> None:
    world = deduplicating_world()

    def full(operation: str, name: str) -> None:
        if operation == "write" and name.startswith("queues/"):
            raise OSError(errno.ENOSPC, "full")

    world.files.before = full
    (first,) = world.send("q", b"first", message_id="1")
    (again,) = world.send("q", b"again", message_id="1")
    world.settle()
    world.files.before = lambda operation, name: None
    assert first.refusal() is not None
    assert again.refusal() is not None
    world.publish("q", b"second", message_id="1")
    assert world.drain() == [b"second"]


def test_a_policy_turns_deduplication_on_and_off() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"1", message_id="1")
    world.broker.policies.define(CALLER, Policy("", "once", "^q", {"message-deduplication": True}))
    world.settle()
    world.publish("q", b"2", message_id="1")
    world.broker.policies.delete(CALLER, "once")
    world.settle()
    world.publish("q", b"3", message_id="1")
    assert world.drain() == [b"1", b"3"]


def test_a_shared_body_is_referenced_only_by_the_queues_that_stored_it() -> None:
    world = deduplicating_world()
    world.queue("other", message_deduplication=True)
    world.exchange("all", "fanout")
    for name in ("q", "other"):
        world.bind("all", name)
    for id in ("1", "2", "2"):
        world.publish("", BIG, exchange="all", message_id=id)
    blobs = world.core.queues.blobs
    assert len(blobs) == sum(log.live for log in blobs.logs) == 1
    assert world.drain("q") == world.drain("other") == [BIG, BIG]
    assert len(blobs) == sum(log.live for log in blobs.logs) == 0


def test_the_publisher_of_a_duplicate_waits_for_the_other_queues() -> None:
    world = deduplicating_world()
    world.queue("other")
    world.exchange("both", "fanout")
    world.bind("both", "other")
    world.bind("both", "q")
    world.publish("q", b"first", message_id="1")
    (published,) = world.send("", b"again", exchange="both", message_id="1")
    assert published.number > world.runner.passes.durable
    world.settle()
    assert world.drain("other") == [b"again"]
