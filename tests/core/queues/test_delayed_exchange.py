"""Messages published to delayed exchanges."""

from __future__ import annotations

import errno

import pytest
from core.queueing_world import CALLER, OWNER, World

from trimq.core.routing.bindings import Binding
from trimq.errors.queues import InvalidHeader, UnknownExchangeKind
from trimq.formats.amqp_content.property_list import read_headers, write_properties


def delayed_world() -> World:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="direct")
    world.queue()
    world.bind("later", "q", "k")
    return world


def test_a_message_is_delayed_by_its_header() -> None:
    world = delayed_world()
    world.publish("k", b"slow", exchange="later", headers={"x-delay": 5000})
    world.publish("k", b"quick", exchange="later", headers={"x-delay": 1000})
    world.publish("k", b"now", exchange="later")
    world.publish("k", b"also now", exchange="later", headers={"x-delay": -1})
    assert world.drain() == [b"now", b"also now"]
    world.advance(999)
    assert world.drain() == []
    world.advance(2)
    delivery = world.get()
    assert delivery is not None
    assert (delivery.message.body, delivery.message.exchange, delivery.message.key) == (b"quick", b"later", b"k")
    assert read_headers(delivery.header) == {"x-delay": -1000}
    world.advance(4000)
    assert world.drain() == [b"slow"]


def test_a_delayed_message_survives_a_crash_and_is_delivered_once() -> None:
    world = delayed_world()
    (published,) = world.publish("k", b"x", exchange="later", headers={"x-delay": 60_000})
    assert published.needs_sync
    world.crash()
    world.advance(59_000)
    assert world.drain() == []
    world.advance(2000)
    world.restart()
    world.advance(100_000)
    assert world.drain() == [b"x"]


def test_a_message_due_while_the_broker_was_down_is_delivered_at_start() -> None:
    world = delayed_world()
    world.publish("k", b"x", exchange="later", headers={"x-delay": 1000})
    world.time._now_ms += 5000
    world.restart()
    world.advance(0)
    assert world.drain() == [b"x"]


def test_a_delivery_whose_write_failed_is_retried() -> None:
    world = delayed_world()
    world.publish("k", b"x", exchange="later", headers={"x-delay": 1000})
    world.files.room_bytes = 10
    world.advance(1001)
    world.files.room_bytes = None
    assert world.drain() == []
    world.advance(1001)
    assert world.drain() == [b"x"]


def test_a_delayed_message_without_a_route_is_dropped() -> None:
    world = delayed_world()
    world.publish("other", b"x", exchange="later", headers={"x-delay": 1000})
    world.publish("k", b"x", exchange="later", headers={"x-delay": 2000})
    world.advance(1500)
    world.broker.exchanges.delete(CALLER, "later", False)
    world.advance(1000)
    assert world.drain() == []
    assert len(world.core.queues.parts.delayed_messages) == 0


def test_a_delayed_exchange_needs_a_kind() -> None:
    with pytest.raises(UnknownExchangeKind):
        World().exchange("later", "x-delayed-message")


def test_a_delayed_message_with_an_invalid_cc_header_is_refused() -> None:
    world = delayed_world()
    with pytest.raises(InvalidHeader):
        world.send("k", b"x", exchange="later", headers={"x-delay": 1000, "CC": "no list"})


def test_a_message_read_from_disk_whose_write_failed_is_retried() -> None:
    world = delayed_world()
    world.queue("ranked", max_priority=5)
    world.bind("later", "ranked", "r")
    world.publish("r", b"x", exchange="later", headers={"x-delay": 1000}, priority=3)
    world.publish(
        "k", *[bytes(1 << 20)] * 4, exchange="later", headers={"x-delay": 60_000}
    )  # the window holds other messages
    world.restart()
    world.files.is_cold = True

    def refuse(operation: str, name: str) -> None:
        if operation == "make_folder":
            raise OSError(errno.ENOSPC, "planted")

    world.files.before = refuse
    world.advance(1500)
    world.files.before = lambda operation, name: None
    assert world.drain("ranked") == []
    world.advance(1500)
    assert world.drain("ranked") == [b"x"]


@pytest.mark.parametrize("way", ["dead letters", "a binding", "an alternate exchange"])
def test_a_message_is_delayed_on_every_route_to_the_exchange(way: str) -> None:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    world.queue()
    world.bind("later", "q")
    if way == "dead letters":
        world.queue("first", dead_letter_exchange="later")
        world.publish("first", b"x", headers={"x-delay": 2000})
        delivery = world.get("first")
        assert delivery is not None
        world.reject(delivery)
    elif way == "a binding":
        world.exchange("front", "fanout")
        world.broker.exchanges.bind(CALLER, Binding("front", "later", False, "", {}), OWNER)
        (published,) = world.publish("k", b"x", exchange="front", headers={"x-delay": 2000})
        assert published.is_routed
    else:
        world.exchange("front", "fanout", alternate_exchange="later")
        world.publish("k", b"x", exchange="front", headers={"x-delay": 2000})
    world.advance(1999)
    assert world.drain() == []
    world.restart()
    world.advance(1)
    found = world.get(no_ack=True)
    assert found is not None
    assert found.message.exchange == (b"later" if way == "dead letters" else b"front")
    assert world.drain() == []


def test_messages_without_a_delay_in_a_batch_are_delivered_at_once() -> None:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    world.exchange("front", "fanout")
    world.broker.exchanges.bind(CALLER, Binding("front", "later", False, "", {}), OWNER)
    for name in ("q", "now"):
        world.queue(name)
        world.bind("later" if name == "q" else "front", name)
    plain, slow = write_properties(delivery_mode=2), write_properties(delivery_mode=2, headers={"x-delay": 1000})
    contents = [(plain, b"1"), (slow, b"2"), (plain, b"3")]
    assert [count for _, count in world.broker.exchanges.publish_all(CALLER, "front", "k", contents)] == [1, 1, 1]
    world.settle()
    assert (world.drain(), world.drain("now")) == ([b"1", b"3"], [b"1", b"2", b"3"])
    world.advance(1000)
    assert (world.drain(), world.drain("now")) == ([b"2"], [])


def test_bcc_routes_of_a_delayed_message_are_delivered_too() -> None:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="direct")
    for name in ("q", "blind"):
        world.queue(name)
        world.bind("later", name, name)
    world.publish("q", b"x", exchange="later", headers={"x-delay": 1000, "BCC": ["blind"]})
    world.advance(1000)
    assert (world.drain(), world.drain("blind")) == ([b"x"], [b"x"])


def test_many_delayed_messages_are_loaded_at_start_in_steps_between_other_work() -> None:
    world = delayed_world()
    world.publish("k", *[b"x"] * 12_000, exchange="later", headers={"x-delay": 1000})
    world.restart()
    world.publish("k", b"y", exchange="later", headers={"x-delay": 1000})
    world.advance(1000)
    assert len(world.drain()) == 12_001
    assert len(world.core.queues.parts.delayed_messages) == 0


def test_damaged_delayed_messages_are_skipped_and_the_others_delivered() -> None:
    world = delayed_world()
    world.publish("k", *[b"x"] * 10, exchange="later", headers={"x-delay": 1000})
    (log,) = world.core.queues.parts.delayed_messages.logs
    log.roll()
    world.publish("k", b"y", exchange="later", headers={"x-delay": 1000})
    world.restart()
    (log,) = world.core.queues.parts.delayed_messages.logs
    log.segments[0].segment.file.write(0, [b"\xff" * 40])
    again = list(log.expiries(0))
    assert [offset for offset, _ in again] == [10]
