"""Whatever a queue gives up stands in the one ledger, with or without a dead-letter exchange."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, World

from trimq.core.failures import Reason
from trimq.core.queue_refusals import UnknownQueue
from trimq.errors import Changed
from trimq.formats.field_tables import Value


def listed(world: World) -> list[tuple[str, Reason, bytes | None, int]]:
    return [
        (failure.entry.origin.topic.name, failure.entry.reason, failure.entry.record.body, failure.entry.attempts)
        for failure in world.verbs.failures(CALLER)
    ]


def expire(world: World) -> None:
    world.publish("q", b"x", expiration="10")
    world.advance(11)


def reject(world: World) -> None:
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.reject(delivery)


def overflow(world: World) -> None:
    world.publish("q", b"x", b"y", b"z")


def fail_too_often(world: World) -> None:
    world.publish("q", b"x")
    for _ in range(2):
        delivery = world.get()
        assert delivery is not None
        world.requeue(delivery, counts=True)


def publish_to_a_full_queue(world: World) -> None:
    world.publish("q", b"1", b"2", b"x")


WAYS: dict[str, tuple[dict[str, Value], object, Reason, int]] = {
    "expiry": ({}, expire, Reason.EXPIRED, 0),
    "rejection": ({}, reject, Reason.REJECTED, 0),
    "overflow": ({"max_length": 2}, overflow, Reason.OVERFLOW, 0),
    "delivery limit": ({"queue_type": "quorum", "delivery_limit": 1}, fail_too_often, Reason.DELIVERY_LIMIT, 2),
    "a full queue": (
        {"max_length": 2, "overflow": "reject-publish-dlx"},
        publish_to_a_full_queue,
        Reason.OVERFLOW,
        0,
    ),
}


@pytest.mark.parametrize("has_exchange", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_given_up_is_listed_before_and_after_a_crash(way: str, has_exchange: bool) -> None:
    arguments, lose, reason, attempts = WAYS[way]
    world = World()
    world.queue("dead")
    if has_exchange:
        arguments = {**arguments, "dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    world.queue("q", **arguments)
    lose(world)  # type: ignore[operator]
    expected = [("q", reason, b"x", attempts)]
    assert listed(world) == expected
    assert world.core.queues.parts.queues.find("", "dead").ready_count == has_exchange  # type: ignore[union-attr]
    world.crash()
    assert listed(world)[:1] == expected  # what was settled may be back after a power cut, and expire again


def test_a_message_that_is_given_up_is_settled_when_the_ledger_has_it() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.verbs.reject([delivery])
    world.runner.end_pass()
    world.crash()
    assert [body for _, _, body, _ in listed(world)] + world.drain() == [b"x"]


def test_purged_messages_were_not_given_up() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"x")
    world.verbs.purge_queue(CALLER, "q", "connection 1")
    world.settle()
    assert listed(world) == []


def test_a_full_disk_does_not_keep_what_has_expired() -> None:
    world = World()
    queue = world.queue("q")
    world.publish("q", b"x", expiration="10")
    world.files.room_bytes = 10
    world.advance(11)
    world.files.room_bytes = None
    assert queue.ready_count == 0
    assert world.drain() == []


def test_a_failure_is_sent_again_once_to_the_queue_that_it_was_in() -> None:
    world = World()
    queue = world.queue("q")
    reject(world)
    (failure,) = world.verbs.failures(CALLER)
    world.verbs.redrive_failure(CALLER, failure.id)
    world.settle()
    delivery = world.get()
    assert delivery is not None
    assert (delivery.message.exchange, delivery.message.key, delivery.message.body) == (b"", b"q", b"x")
    assert [failure.is_redriven for failure in world.verbs.failures(CALLER)] == [True]
    with pytest.raises(Changed):
        world.verbs.redrive_failure(CALLER, failure.id)
    assert queue.ready_count == 0


def test_a_failure_of_a_queue_that_is_gone_cannot_be_sent_again() -> None:
    world = World()
    world.queue("q")
    reject(world)
    world.verbs.delete_queue(CALLER, "q", False, False, "connection 1")
    world.settle()
    with pytest.raises(UnknownQueue):
        world.verbs.redrive_failure(CALLER, 0)
    assert [failure.is_redriven for failure in world.verbs.failures(CALLER)] == [False]
