"""What a queue does with messages and consumers, as RabbitMQ 4.3.6 was seen to."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, Channel, World

from trimq.core.queue_refusals import ExclusiveUse
from trimq.errors import WriteFailed

FIVE = [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_published_is_got_in_order() -> None:
    world = World()
    queue = world.queue()
    (published, *_) = world.publish("q", *FIVE)
    assert (published.is_routed, published.is_refused, published.needs_sync) == (True, False, True)
    assert published.refusal() is None
    assert queue.ready_count == 5
    first = world.get()
    assert first is not None
    assert (first.message.body, first.message.key, first.message.exchange, first.redelivered) == (
        b"0",
        b"q",
        b"",
        False,
    )
    assert queue.ready_count == 4
    assert world.drain() == FIVE[1:]


def test_what_leads_nowhere_is_told() -> None:
    world = World()
    (published,) = world.publish("nope", b"x")
    assert (published.is_routed, published.number) == (False, 0)


def test_what_is_not_durable_yet_is_counted_and_waited_for_but_not_delivered() -> None:
    world = World()
    queue = world.queue()
    channel, _ = world.consume()
    (published,) = world.send("q", b"x")
    wait = queue.unreadable()
    assert wait is not None
    assert (wait.number, wait.needs_sync, queue.ready_count) == (published.number, True, 1)
    world.runner.end_pass()
    world.runner.end_pass()
    assert channel.bodies() == []
    world.settle()
    assert channel.bodies() == [b"x"]
    assert queue.unreadable() is None


def test_a_transient_message_is_delivered_once_written() -> None:
    world = World()
    world.queue()
    channel, _ = world.consume()
    (published,) = world.send("q", b"x", delivery_mode=1)
    assert not published.needs_sync
    world.runner.end_pass()
    world.runner.end_pass()
    assert channel.bodies() == [b"x"]


def test_after_a_restart_durable_messages_are_there_and_others_are_not() -> None:
    world = World()
    world.queue()
    world.queue("transient", durable=False)
    world.queue("mine", exclusive=True)
    world.publish("q", b"kept")
    world.publish("q", b"lost", delivery_mode=1)
    for name in ("transient", "mine"):
        world.publish(name, b"lost")
    world.restart()
    assert [world.exists(name) for name in ("q", "transient", "mine")] == [True, False, False]
    assert world.drain() == [b"kept"]
    world.restart()
    world.publish("q", b"again")
    world.crash()
    assert world.drain() == [b"again"]


def test_in_a_quorum_queue_everything_is_persistent() -> None:
    world = World()
    world.queue(queue_type="quorum")
    (published,) = world.publish("q", b"kept", delivery_mode=1)
    assert published.needs_sync
    world.crash()
    assert world.drain() == [b"kept"]


# -- coming back


def test_what_comes_back_goes_to_where_it_was() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    deliveries = [world.get() for _ in range(3)]
    assert deliveries[1] is not None
    world.requeue(deliveries[1])
    again = [world.get() for _ in range(3)]
    assert [(found.message.body, found.redelivered) for found in again if found] == [
        (b"1", True),
        (b"3", False),
        (b"4", False),
    ]
    world.requeue(deliveries[0], deliveries[2])  # type: ignore[arg-type]
    again = [world.get(), world.get()]
    assert [(found.message.body, found.redelivered) for found in again if found] == [(b"0", True), (b"2", True)]


def test_unacked_messages_come_back_after_a_restart_and_acked_ones_do_not() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    channel, _ = world.consume(prefetch=4)
    world.ack(channel.out[0], channel.out[2])
    world.restart()
    assert world.drain() == [b"1", b"3", b"4"]


def test_a_delivery_is_settled_once() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", b"a", b"b")
    delivery = world.get()
    assert delivery is not None
    world.ack(delivery)
    world.requeue(delivery)
    world.reject(delivery)
    assert queue.ready_count == 1
    assert world.drain() == [b"b"]


# -- consumers


def test_prefetch_limits_what_is_out() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    channel, consumer = world.consume(prefetch=2)
    assert channel.bodies() == [b"0", b"1"]
    world.ack(channel.out[0])
    assert channel.bodies() == [b"2"]
    world.verbs.set_prefetch(consumer, 4)
    world.settle()
    assert channel.bodies() == [b"3", b"4"]


def test_without_acknowledgements_there_is_no_limit() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *FIVE)
    channel, _ = world.consume(prefetch=1, no_ack=True)
    assert channel.bodies() == FIVE
    assert len(queue.deliveries) == 0
    world.restart()
    assert world.drain() == []


def test_equal_consumers_take_turns() -> None:
    world = World()
    world.queue()
    first, _ = world.consume(tag="a")
    second, _ = world.consume(tag="b")
    world.publish("q", *FIVE, b"5")
    assert (first.bodies(), second.bodies()) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])


def test_a_consumer_of_lower_priority_has_what_the_higher_cannot_take() -> None:
    world = World()
    world.queue()
    low, _ = world.consume(tag="low", prefetch=2)
    high, _ = world.consume(tag="high", prefetch=2, priority=10)
    world.publish("q", b"0", b"1", b"2")
    assert (high.bodies(), low.bodies()) == ([b"0", b"1"], [b"2"])


def test_a_congested_receiver_is_left_alone_until_it_is_woken() -> None:
    world = World()
    world.queue()
    channel, consumer = world.consume()
    channel.can_take = False
    world.publish("q", b"0")
    assert channel.bodies() == []
    channel.can_take = True
    world.verbs.wake(consumer)
    world.settle()
    assert channel.bodies() == [b"0"]


def test_nothing_is_delivered_inside_a_verb() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    channel, consumer = world.consume(prefetch=1)
    delivered = len(channel.out)
    world.verbs.ack([channel.out[0]])
    assert len(channel.out) == delivered
    world.settle()
    assert len(channel.out) == delivered + 1
    assert consumer.in_flight == 1


def test_a_cancelled_consumer_keeps_what_it_has() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *FIVE)
    channel, consumer = world.consume(prefetch=2)
    world.verbs.unsubscribe(consumer)
    world.settle()
    assert (queue.ready_count, queue.consumer_count) == (3, 0)
    world.ack(channel.out[0])
    world.requeue(channel.out[1])
    assert world.drain() == [b"1", b"2", b"3", b"4"]


def test_a_single_active_consumer_is_followed_by_the_next() -> None:
    world = World()
    world.queue(single_active_consumer=True)
    first, consumer = world.consume(tag="a")
    second, _ = world.consume(tag="b")
    world.publish("q", *FIVE[:3])
    assert (first.bodies(), second.bodies()) == (FIVE[:3], [])
    world.verbs.unsubscribe(consumer)
    world.requeue(*first.out)
    assert second.seen == [("b", body, True) for body in FIVE[:3]]


def test_exclusive_consumers_exclude() -> None:
    world = World()
    world.queue()
    _, consumer = world.consume()
    with pytest.raises(ExclusiveUse):
        world.consume(exclusive=True)
    world.verbs.unsubscribe(consumer)
    world.consume(exclusive=True)
    with pytest.raises(ExclusiveUse):
        world.consume()
    world.queue("sac", single_active_consumer=True)
    with pytest.raises(ExclusiveUse):
        world.consume("sac", exclusive=True)
    world.publish("q", b"x")  # one who asks is not a consumer


def test_a_requeue_by_the_only_consumer_comes_back_to_it() -> None:
    world = World()
    world.queue()
    channel, _ = world.consume()
    world.publish("q", b"x")
    for _ in range(20):
        world.requeue(channel.out[-1])
    assert len(channel.out) == 21
    assert channel.seen[-1] == ("c", b"x", True)


def test_many_messages_are_given_out_over_several_turns() -> None:
    world = World()
    world.queue()
    world.publish("q", *[b"%d" % number for number in range(2500)])
    channel = Channel()
    world.consume(channel=channel)
    assert channel.bodies() == [b"%d" % number for number in range(2500)]


# -- writes that fail


def test_a_publish_that_could_not_be_written_is_refused_and_leaves_nothing() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", b"kept")
    world.files.room_bytes = 30
    (published,) = world.publish("q", b"refused")
    world.files.room_bytes = None
    assert isinstance(published.refusal(), WriteFailed)
    assert queue.ready_count == 1
    assert world.drain() == [b"kept"]


def test_purged_messages_are_gone_but_for_those_that_are_out() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *FIVE)
    out = world.get()
    assert out is not None
    assert world.verbs.purge_queue(CALLER, "q", OWNER) == 4
    assert queue.ready_count == 0
    world.requeue(out)
    world.publish("q", b"new")
    world.restart()
    assert world.drain() == [b"0", b"new"]
