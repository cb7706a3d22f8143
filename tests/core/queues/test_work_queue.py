"""Messages and consumers of work queues, as observed with RabbitMQ 4.3.6."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, Channel, World

from trimq.core.queues.consumers import SharedPrefetch, Subscription
from trimq.errors import WriteFailed
from trimq.errors.queues import ExclusiveUse
from trimq.formats.amqp_content.field_tables import Value

FIVE = [b"0", b"1", b"2", b"3", b"4"]


def test_a_requeued_message_is_marked_as_redelivered_after_a_restart_too() -> None:
    world = World()
    world.queue()
    world.publish("q", b"a", b"b")
    delivery = world.get()
    assert delivery is not None
    world.requeue(delivery, counts=True)
    world.restart()
    again = [world.get(), world.get()]
    assert [(found.message.body, found.redelivered) for found in again if found] == [(b"a", True), (b"b", False)]


def test_messages_are_delivered_in_the_order_of_publishing() -> None:
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


def test_an_unroutable_message_reaches_no_queue() -> None:
    world = World()
    (published,) = world.publish("nope", b"x")
    assert (published.is_routed, published.number) == (False, 0)


def test_a_message_that_is_not_durable_is_counted_but_not_delivered() -> None:
    world = World()
    queue = world.queue()
    channel, _ = world.consume()
    (published,) = world.send("q", b"x")
    wait = queue.pending_pass()
    assert wait is not None
    assert (wait.number, wait.needs_sync, queue.ready_count) == (published.number, True, 1)
    world.runner.end_pass()
    world.runner.end_pass()
    assert channel.bodies() == []
    world.settle()
    assert channel.bodies() == [b"x"]
    assert queue.pending_pass() is None


def test_a_transient_message_is_delivered_once_written() -> None:
    world = World()
    world.queue()
    channel, _ = world.consume()
    (published,) = world.send("q", b"x", delivery_mode=1)
    assert not published.needs_sync
    world.runner.end_pass()
    world.runner.end_pass()
    assert channel.bodies() == [b"x"]


def test_only_durable_messages_survive_a_restart() -> None:
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


# -- requeue


def test_a_requeued_message_gets_its_old_position() -> None:
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


def test_unacked_messages_are_redelivered_after_a_restart_and_acked_ones_are_not() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    channel, _ = world.consume(prefetch=4)
    world.ack(channel.out[0], channel.out[2])
    world.restart()
    assert world.drain() == [b"1", b"3", b"4"]


def test_a_delivery_is_acked_once() -> None:
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


def test_prefetch_limits_unacked_messages() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    channel, consumer = world.consume(prefetch=2)
    assert channel.bodies() == [b"0", b"1"]
    world.ack(channel.out[0])
    assert channel.bodies() == [b"2"]
    consumer.prefetch = 4
    world.broker.queues.wake(consumer)
    world.settle()
    assert channel.bodies() == [b"3", b"4"]


def test_without_acks_prefetch_does_not_limit() -> None:
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


@pytest.mark.parametrize("arguments", [{}, {"max_priority": 2}, {"queue_type": "quorum"}])
def test_consumers_of_one_channel_get_the_messages_in_the_order_of_the_queue(arguments: dict[str, Value]) -> None:
    world = World()
    world.queue(**arguments)
    channel = Channel()
    for tag in "ab":
        world.broker.queues.subscribe(CALLER, "q", OWNER, Subscription(tag, channel, 2, channel=channel))
    world.publish("q", *FIVE)
    assert [(tag, body) for tag, body, _ in channel.seen] == [("a", b"0"), ("b", b"1"), ("a", b"2"), ("b", b"3")]


def expected_shares(prefetches: list[int], priorities: list[int], count: int) -> list[list[int]]:
    """Returns the message numbers of each consumer if messages are delivered one by one: to the consumers of highest
    priority with free prefetch, in turn."""
    shares: list[list[int]] = [[] for _ in prefetches]
    order = sorted(range(len(prefetches)), key=lambda index: -priorities[index])
    for message in range(count):
        able = [index for index in order if not prefetches[index] or len(shares[index]) < prefetches[index]]
        if not able:
            break
        taker = next(index for index in able if priorities[index] == priorities[able[0]])
        shares[taker].append(message)
        order.remove(taker)
        order.append(taker)
        order.sort(key=lambda index: -priorities[index])
    return shares


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 30])
@pytest.mark.parametrize(
    ("prefetches", "priorities"),
    [
        ([0], [0]),
        ([3], [0]),
        ([0, 0, 0], [0, 0, 0]),
        ([1, 5, 2], [0, 0, 0]),
        ([2, 0, 4, 1], [0, 0, 9, 9]),
        ([7, 1, 1, 1], [1, 1, 2, 0]),
    ],
)
def test_a_batch_is_distributed_as_single_messages_are(
    prefetches: list[int], priorities: list[int], count: int
) -> None:
    world = World()
    world.queue()
    channels = [
        world.consume(tag=f"c{index}", prefetch=prefetch, priority=priority)[0]
        for index, (prefetch, priority) in enumerate(zip(prefetches, priorities, strict=True))
    ]
    world.publish("q", *(b"%d" % number for number in range(count)))
    got = [[int(body) for body in channel.bodies()] for channel in channels]
    assert got == expected_shares(prefetches, priorities, count)
    # The next message goes to the consumer whose turn it is, however many were delivered together.
    world.publish("q", b"%d" % count)
    following = [
        share[len(before) :]
        for share, before in zip(expected_shares(prefetches, priorities, count + 1), got, strict=True)
    ]
    assert [[int(body) for body in channel.bodies()] for channel in channels] == following


def test_acks_of_several_consumers_in_one_call_count_for_each() -> None:
    world = World()
    queue = world.queue()
    channel = Channel()
    for tag in ("a", "b"):
        world.consume(tag=tag, channel=channel, prefetch=2)
    world.publish("q", *FIVE)
    assert channel.bodies() == [b"0", b"2", b"1", b"3"]
    world.broker.queues.ack([*channel.out[:3], channel.out[0]])  # one of them twice
    world.settle()
    assert channel.bodies() == [b"4"]
    assert (queue.ready_count, len(queue.deliveries)) == (0, 2)
    world.restart()
    assert world.broker.queues.queue(CALLER, "q", OWNER).ready_count == 2


@pytest.mark.parametrize("arguments", [{}, {"max_length_bytes": 1_000_000}, {"max_priority": 3}])
def test_consumers_with_full_prefetch_are_not_polled_before_they_ack(arguments: dict[str, int]) -> None:
    asked = 0

    class Asked(Channel):
        @property  # type: ignore[override]
        def can_take(self) -> bool:
            nonlocal asked
            asked += 1
            return True

        @can_take.setter
        def can_take(self, value: bool) -> None:
            pass

    world = World()
    world.queue(**arguments)
    channel = Asked()
    for number in range(100):
        world.consume(tag=f"c{number}", channel=channel, prefetch=1)
    world.publish("q", *[b"%d" % number for number in range(150)])
    assert len(channel.out) == 100
    assert asked <= 400
    asked = 0
    for delivery in channel.out[50:]:
        world.ack(delivery)
    assert len(channel.out) == 150
    assert asked <= 150


def test_a_consumer_of_lower_priority_gets_messages_that_the_higher_cannot_take() -> None:
    world = World()
    world.queue()
    low, _ = world.consume(tag="low", prefetch=2)
    high, _ = world.consume(tag="high", prefetch=2, priority=10)
    world.publish("q", b"0", b"1", b"2")
    assert (high.bodies(), low.bodies()) == ([b"0", b"1"], [b"2"])


def test_a_congested_receiver_gets_nothing_until_it_is_woken() -> None:
    world = World()
    world.queue()
    channel, consumer = world.consume()
    channel.can_take = False
    world.publish("q", b"0")
    assert channel.bodies() == []
    channel.can_take = True
    world.broker.queues.wake(consumer)
    world.settle()
    assert channel.bodies() == [b"0"]


def test_nothing_is_delivered_inside_an_operation() -> None:
    world = World()
    world.queue()
    world.publish("q", *FIVE)
    channel, consumer = world.consume(prefetch=1)
    delivered = len(channel.out)
    world.broker.queues.ack([channel.out[0]])
    assert len(channel.out) == delivered
    world.settle()
    assert len(channel.out) == delivered + 1
    assert consumer.in_flight == 1


def test_a_cancelled_consumer_keeps_its_unacked_messages() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *FIVE)
    channel, consumer = world.consume(prefetch=2)
    world.broker.queues.unsubscribe(consumer)
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
    world.broker.queues.unsubscribe(consumer)
    world.requeue(*first.out)
    assert second.seen == [("b", body, True) for body in FIVE[:3]]


def test_exclusive_consumers_exclude_others() -> None:
    world = World()
    world.queue()
    _, consumer = world.consume()
    with pytest.raises(ExclusiveUse):
        world.consume(exclusive=True)
    world.broker.queues.unsubscribe(consumer)
    world.consume(exclusive=True)
    with pytest.raises(ExclusiveUse):
        world.consume()
    world.queue("sac", single_active_consumer=True)
    with pytest.raises(ExclusiveUse):
        world.consume("sac", exclusive=True)
    world.publish("q", b"x")  # a get is not a consumer


def test_a_requeue_by_the_only_consumer_is_redelivered_to_it() -> None:
    world = World()
    world.queue()
    channel, _ = world.consume()
    world.publish("q", b"x")
    for _ in range(20):
        world.requeue(channel.out[-1])
    assert len(channel.out) == 21
    assert channel.seen[-1] == ("c", b"x", True)


def test_many_messages_are_delivered_over_several_turns() -> None:
    world = World()
    world.queue()
    world.publish("q", *[b"%d" % number for number in range(2500)])
    channel = Channel()
    world.consume(channel=channel)
    assert channel.bodies() == [b"%d" % number for number in range(2500)]


def pass_without_turns(world: World, milliseconds: int) -> None:
    until_ms = world.time.now_ms() + milliseconds
    while world.time.step(until_ms):
        pass


def test_many_messages_expire_over_several_turns_also_with_a_consumer() -> None:
    world = World()
    queue = world.queue(message_ttl=1000)
    world.publish("q", *[b"%d" % number for number in range(3500)])
    channel = Channel()
    pass_without_turns(world, 1000)
    world.broker.queues.subscribe(CALLER, "q", OWNER, Subscription("c", channel))
    world.runner.end_pass()
    assert 0 < queue.ready_count < 3500
    world.settle()
    assert queue.ready_count == 0
    assert channel.bodies() == []


@pytest.mark.parametrize(("kind", "left"), [("classic", 2), ("quorum", 1)])
def test_only_the_head_of_a_classic_queue_expires(kind: str, left: int) -> None:
    world = World()
    queue = world.queue(queue_type=kind, **({"max_priority": 5} if kind == "classic" else {}))
    world.publish("q", b"high", priority=5)
    world.publish("q", b"low", priority=1, expiration="20")
    world.advance(100)
    assert queue.ready_count == left
    assert world.get() is not None
    assert queue.ready_count == 0
    world.settle()
    assert queue.ready_count == 0


@pytest.mark.parametrize(
    ("kind", "no_ack", "counted"),
    [("classic", True, 0), ("classic", False, 0), ("quorum", True, 0), ("quorum", False, 1)],
)
def test_a_get_with_ack_counts_an_expired_message_behind_its_own_in_a_quorum_queue(
    kind: str, no_ack: bool, counted: int
) -> None:
    world = World()
    queue = world.queue(queue_type=kind)
    world.publish("q", b"lasting")
    world.publish("q", b"brief", expiration="20")
    world.advance(100)
    got = world.broker.queues.get(CALLER, "q", OWNER, no_ack=no_ack)
    assert got.ready_count == counted
    world.settle()
    assert queue.ready_count == 0


def test_a_get_returns_the_first_message_that_is_not_expired() -> None:
    world = World()
    world.queue()
    world.publish("q", *[b"expired"] * 2500, expiration="1000")
    world.publish("q", b"alive")
    pass_without_turns(world, 1000)
    found = world.get()
    assert found is not None
    assert found.message.body == b"alive"


# -- writes that fail


def test_a_publish_whose_write_failed_is_refused_and_leaves_nothing() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", b"kept")
    world.files.room_bytes = 30
    (published,) = world.publish("q", b"refused")
    world.files.room_bytes = None
    assert isinstance(published.refusal(), WriteFailed)
    assert queue.ready_count == 1
    assert world.drain() == [b"kept"]


def test_a_purge_removes_all_messages_except_unacked_ones() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *FIVE)
    out = world.get()
    assert out is not None
    assert world.broker.queues.purge_queue(CALLER, "q", OWNER) == 4
    assert queue.ready_count == 0
    world.requeue(out)
    world.publish("q", b"new")
    world.restart()
    assert world.drain() == [b"0", b"new"]


# -- shared prefetch


def shared_limit(world: World, most: int, *queues: str) -> tuple[Channel, SharedPrefetch]:
    """A channel with a consumer on each queue, and one prefetch limit for all of them."""
    shared_prefetch = SharedPrefetch()
    shared_prefetch.most = most
    channel = Channel()
    for queue in queues:
        world.broker.queues.subscribe(
            CALLER, queue, OWNER, Subscription(queue, channel, shared_prefetch=shared_prefetch)
        )
    world.settle()
    return channel, shared_prefetch


def two_queues() -> World:
    world = World()
    for name in ("a", "b"):
        world.queue(name)
        world.publish(name, *FIVE)
    return world


def test_a_shared_prefetch_counts_over_all_queues() -> None:
    world = two_queues()
    channel, shared_prefetch = shared_limit(world, 3, "a", "b")
    assert len(channel.bodies()) == 3
    world.ack(channel.out.pop())
    assert len(channel.bodies()) == 1
    world.broker.queues.set_shared_prefetch(shared_prefetch, 5)
    world.settle()
    assert len(channel.bodies()) == 2
    world.broker.queues.set_shared_prefetch(shared_prefetch, 0)
    world.settle()
    assert len(channel.bodies()) == 4
    assert shared_prefetch.in_flight == 9


def test_an_ack_in_one_queue_frees_shared_prefetch_for_another() -> None:
    world = two_queues()
    channel, _ = shared_limit(world, 5, "a", "b")
    assert {delivery.queue.name for delivery in channel.out} == {"a"}
    channel.bodies()
    world.ack(*channel.out)
    assert [tag for tag, _, _ in channel.seen] == ["b"] * 5


def test_messages_of_a_deleted_queue_free_the_shared_prefetch() -> None:
    world = two_queues()
    channel, shared_prefetch = shared_limit(world, 5, "a", "b")
    channel.bodies()
    world.broker.queues.delete_queue(CALLER, "a", False, False, OWNER)
    world.settle()
    assert channel.bodies() == FIVE
    assert shared_prefetch.in_flight == 5
    assert len(shared_prefetch.consumers) == 1


def test_a_consumer_without_acks_does_not_count_for_a_shared_prefetch() -> None:
    world = two_queues()
    channel, shared_prefetch = shared_limit(world, 1, "a")
    world.broker.queues.subscribe(
        CALLER, "b", OWNER, Subscription("b", channel, no_ack=True, shared_prefetch=shared_prefetch)
    )
    world.settle()
    assert len(channel.bodies()) == 6
    assert shared_prefetch.in_flight == 1
