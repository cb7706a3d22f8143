"""The failure ledger lists every failed message of a queue, with or without a dead-letter exchange."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, World
from hypothesis import example, given
from protocols.amqp.strategies import examples, tables

from trimq.core.failures.ledger import Reason
from trimq.errors import Changed
from trimq.errors.queues import UnknownQueue
from trimq.formats.amqp_content.field_tables import FieldTable, Octets, Value, write_table, write_value
from trimq.formats.amqp_content.property_list import read_headers_leniently, write_properties


def listed(world: World) -> list[tuple[str, Reason, bytes | None, int]]:
    return [
        (failure.entry.origin.topic.name, failure.entry.reason, failure.entry.record.body, failure.entry.attempts)
        for failure in world.broker.failures.all(CALLER)
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
def test_every_failed_message_is_listed_before_and_after_a_crash(way: str, has_exchange: bool) -> None:
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
    assert listed(world)[:1] == expected  # an ack may be lost in a power cut, and the message expires again


def test_a_failed_message_is_acked_once_the_ledger_has_it() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.broker.queues.reject([delivery], counts=True)
    world.runner.end_pass()
    world.crash()
    assert [body for _, _, body, _ in listed(world)] + world.drain() == [b"x"]


def test_purged_messages_are_not_listed() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"x")
    world.broker.queues.purge_queue(CALLER, "q", "connection 1")
    world.settle()
    assert listed(world) == []


def test_expired_messages_are_removed_on_a_full_disk() -> None:
    world = World()
    queue = world.queue("q")
    world.publish("q", b"x", expiration="10")
    world.files.room_bytes = 10
    world.advance(11)
    world.files.room_bytes = None
    assert queue.ready_count == 0
    assert world.drain() == []


def test_a_failure_is_redriven_once_to_its_queue() -> None:
    world = World()
    queue = world.queue("q")
    reject(world)
    (failure,) = world.broker.failures.all(CALLER)
    world.broker.failures.redrive(CALLER, failure.id)
    world.settle()
    delivery = world.get()
    assert delivery is not None
    assert (delivery.message.exchange, delivery.message.key, delivery.message.body) == (b"", b"q", b"x")
    assert [failure.is_redriven for failure in world.broker.failures.all(CALLER)] == [True]
    with pytest.raises(Changed):
        world.broker.failures.redrive(CALLER, failure.id)
    assert queue.ready_count == 0


def test_a_failure_of_a_deleted_queue_cannot_be_redriven() -> None:
    world = World()
    world.queue("q")
    reject(world)
    world.broker.queues.delete_queue(CALLER, "q", False, False, "connection 1")
    world.settle()
    with pytest.raises(UnknownQueue):
        world.broker.failures.redrive(CALLER, 0)
    assert [failure.is_redriven for failure in world.broker.failures.all(CALLER)] == [False]


def dead_letter_of(world: World, header: bytes) -> bytes:
    """Rejects a message with this header, and returns the properties of its dead letter."""
    world.queue("dead")
    world.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    world.broker.exchanges.publish(CALLER, "", "q", header, b"x")
    world.settle()
    delivery = world.get()
    assert delivery is not None
    assert delivery.message.header == header
    world.reject(delivery)
    dead = world.get("dead", no_ack=True)
    assert dead is not None
    return dead.message.header


@examples(50)
@given(tables)
@example({"bin": Octets(b"\xff\xfe")})
@example({"nested": {"bin": Octets(b"\xff\xfe"), "deep": [Octets(b"\xff")]}})
def test_headers_of_every_type_survive_dead_lettering_the_ledger_and_a_redrive(
    headers: FieldTable,
) -> None:
    world = World()
    header = write_properties(delivery_mode=2, headers=headers)
    dead = read_headers_leniently(dead_letter_of(world, header))
    for name, value in headers.items():
        assert write_value(dead[name]) == write_value(value)
    (failure,) = world.broker.failures.all(CALLER)
    world.broker.failures.redrive(CALLER, failure.id)
    world.settle()
    again = world.get(no_ack=True)
    assert again is not None
    assert again.message.header == header


def test_headers_nested_too_deep_to_be_read_are_kept_in_a_dead_letter() -> None:
    deep: Value = "the bottom"
    for _ in range(100):
        deep = {"deeper": deep}
    dead = dead_letter_of(World(), write_properties(delivery_mode=2, headers={"deep": deep, "flat": 1}))
    assert write_table({"deep": deep, "flat": 1})[4:] in dead
    assert "x-death" in read_headers_leniently(dead)


def test_a_message_with_an_unreadable_header_expires_and_blocks_no_other() -> None:
    world = World()
    world.queue(message_ttl=10)
    world.publish("q", b"x", headers={"bin": Octets(b"\xff\xfe")})
    world.publish("q", b"y")
    world.advance(11)
    assert [body for _, _, body, _ in listed(world)] == [b"x", b"y"]


@pytest.mark.parametrize("arguments", [{"max_priority": 5}, {"queue_type": "quorum"}])
def test_overflow_drops_the_head_which_has_the_highest_priority(arguments: dict[str, Value]) -> None:
    world = World()
    world.queue(max_length=3, **arguments)
    for priority in (5, 1, 3, 0, 4, 2):
        world.publish("q", b"%d" % priority, priority=priority)
    assert world.drain() == [b"2", b"1", b"0"]
    assert [body for _, _, body, _ in listed(world)] == [b"5", b"4", b"3"]


@pytest.mark.parametrize("limits", [{"max_length": 10}, {"max_length_bytes": 1010}, {"message_ttl": 10}])
@pytest.mark.parametrize("has_exchange", [False, True])
def test_messages_that_fail_in_batches_are_listed_dead_lettered_and_redriven_one_by_one(
    limits: dict[str, Value], has_exchange: bool
) -> None:
    world = World()
    world.queue("dead")
    dead: dict[str, Value] = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    world.queue(**limits, **(dead if has_exchange else {}))
    bodies = [b"%0101d" % number for number in range(2500)]
    world.publish("q", *bodies[:1250])
    world.publish("q", *bodies[1250:], headers={"second": "half"})
    world.advance(11)
    kept = world.drain()
    gone = bodies[: len(bodies) - len(kept)]
    assert kept == ([] if "message_ttl" in limits else bodies[-10:])
    assert [body for _, _, body, _ in listed(world)] == gone
    assert world.drain("dead") == (gone if has_exchange else [])
    failure = list(world.broker.failures.all(CALLER))[1260]
    assert failure.entry.record.headers == (("second", b"half"),)
    world.broker.failures.redrive(CALLER, failure.id)
    world.settle()
    again = world.get(no_ack=True)
    assert again is not None
    assert again.message.body == bodies[1260]
    assert read_headers_leniently(again.message.header) == {"second": "half"}
    world.restart()
    assert [one.is_redriven for one in world.broker.failures.all(CALLER) if one.id == failure.id] == [True]


def test_ledger_entries_use_no_memory_of_queues() -> None:
    world = World()
    world.queue(max_length=1)
    world.publish("q", *[b"x" * 1000] * 100)
    (log,) = world.core.queues.ledger.logs
    assert len(log._recent) == 0
    assert len(listed(world)) == 99
