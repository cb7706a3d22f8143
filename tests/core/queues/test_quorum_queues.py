"""Differences of quorum queues from classic ones, and the arguments of each kind, as in RabbitMQ 4.3.6."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, Channel, World

from trimq.core.queues.arguments import read_settings
from trimq.core.queues.policies import Policy
from trimq.errors.queues import ArgumentNotForKind, Inequivalent, InvalidArgument
from trimq.formats.amqp_content.field_tables import Timestamp, Value
from trimq.formats.amqp_content.property_list import read_headers


def quorum(**arguments: Value) -> World:
    world = World()
    world.queue("q", queue_type="quorum", **arguments)
    return world


def send(world: World, *priorities: int | None) -> None:
    for number, priority in enumerate(priorities):
        properties = {} if priority is None else {"priority": priority}
        world.publish("q", b"%d:%a" % (number, priority), **properties)


# -- priorities


@pytest.mark.parametrize("way", ["", "restart", "crash"])
def test_quorum_queues_have_priorities_and_none_counts_as_the_middle(way: str) -> None:
    world = quorum()
    send(world, None, 0, 3, 4, 5, 9, 31, 40, 255, None)
    if way:
        getattr(world, way)()
        world.settle()
    assert world.drain() == [
        b"6:31", b"7:40", b"8:255", b"5:9", b"4:5", b"0:None", b"3:4", b"9:None", b"2:3", b"1:0",
    ]  # fmt: skip


def test_requeued_messages_are_delivered_first_in_their_original_order() -> None:
    world = quorum()
    send(world, 1, None, None, 9)
    first, second, third = (world.get() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert [out.message.body for out in (first, second, third)] == [b"3:9", b"1:None", b"2:None"]
    send(world, 31)
    world.requeue(second)
    world.requeue(first)
    world.requeue(third)
    assert world.drain() == [b"1:None", b"3:9", b"2:None", b"0:31", b"0:1"]


# -- delayed retries


def _ready(world: World) -> int:
    return world.broker.queues.queues(CALLER)[0].ready_count


def _wait(world: World) -> int:
    waited = 0
    while not _ready(world):
        world.advance(50)
        waited += 50
    return waited


@pytest.mark.parametrize(
    ("kind", "failed", "returned"),
    [
        ("all", [300, 600, 700], [300, 300, 300]),
        ("failed", [300, 600, 700], [0, 0, 0]),
        ("returned", [0, 0, 0], [300, 300, 300]),
        ("disabled", [0, 0, 0], [0, 0, 0]),
    ],
)
def test_requeued_messages_are_delayed(kind: str, failed: list[int], returned: list[int]) -> None:
    for counts, expected in ((True, failed), (False, returned)):
        world = quorum(delayed_retry_type=kind, delayed_retry_min=300, delayed_retry_max=700)
        world.publish("q", b"x")
        waited = []
        for _ in range(3):
            out = world.get()
            assert out is not None
            world.requeue(out, counts=counts)
            waited.append(_wait(world))
        assert waited == expected


def test_without_a_maximum_every_delay_is_the_minimum_and_without_a_minimum_there_is_none() -> None:
    for arguments, expected in (
        ({"delayed_retry_type": "all", "delayed_retry_min": 300}, [300, 300]),
        ({"delayed_retry_type": "all"}, [0, 0]),
        ({"delayed_retry_min": 300}, [0, 0]),
    ):
        world = quorum(**arguments)
        world.publish("q", b"x")
        waited = []
        for _ in range(2):
            out = world.get()
            assert out is not None
            world.requeue(out, counts=True)
            waited.append(_wait(world))
        assert waited == expected


def test_a_policy_sets_delayed_retries() -> None:
    world = quorum()
    definition = {"delayed-retry-type": "all", "delayed-retry-min": 200}
    world.broker.policies.define(CALLER, Policy("", "slowly", "^q", definition))
    world.settle()
    world.publish("q", b"x")
    out = world.get()
    assert out is not None
    world.requeue(out, counts=True)
    assert _wait(world) == 200


def test_delayed_messages_survive_a_purge_and_a_restart_and_are_deleted_with_their_queue() -> None:
    world = quorum(delayed_retry_type="all", delayed_retry_min=1000)
    world.publish("q", b"x", b"y")
    out = world.get()
    assert out is not None
    world.requeue(out, counts=True)
    assert world.broker.queues.purge_queue(CALLER, "q", OWNER) == 1
    world.advance(1000)
    assert world.drain() == [b"x"]
    world.publish("q", b"z")
    out = world.get()
    assert out is not None
    world.requeue(out, counts=True)
    world.restart()
    assert world.drain() == [b"z"]  # a restart ends the delay
    world.publish("q", b"end")
    out = world.get()
    assert out is not None
    world.requeue(out, counts=True)
    world.broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    world.advance(2000)
    assert not world.exists()


# -- limits


def test_a_quorum_queue_with_reject_publish_dlx_drops_its_head() -> None:
    world = World()
    world.queue("graves")
    world.queue(
        "q",
        queue_type="quorum",
        max_length=2,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="graves",
    )
    published = world.publish("q", b"0", b"1", b"2", b"3")
    assert not any(one.is_refused for one in published)
    assert (world.drain("q"), world.drain("graves")) == ([b"2", b"3"], [b"0", b"1"])


def test_a_delivery_limit_of_minus_one_means_no_limit() -> None:
    world = quorum(delivery_limit=-1)
    world.publish("q", b"x")
    for _ in range(30):
        out = world.get()
        assert out is not None
        world.requeue(out, counts=True)
    assert world.drain() == [b"x"]


def test_a_consumer_may_set_its_own_delivery_timeout() -> None:
    world = quorum(consumer_timeout=10_000)
    world.publish("q", *[b"%d" % number for number in range(3)])
    channels = {tag: Channel() for tag in ("own", "queue", "never")}
    for tag, arguments in (
        ("own", {"x-consumer-timeout": 1000}),
        ("queue", {}),
        ("never", {"x-consumer-timeout": 0}),
    ):
        world.consume(tag=tag, channel=channels[tag], prefetch=1, arguments=arguments)
    world.advance(999)
    assert [channel.timed_out_tags for channel in channels.values()] == [[], [], []]
    world.advance(1)
    assert [channel.timed_out_tags for channel in channels.values()] == [["own"], [], []]
    world.advance(9000)
    assert [channel.timed_out_tags for channel in channels.values()] == [["own"], ["queue"], []]
    world.advance(100_000)
    assert channels["never"].timed_out_tags == []


# -- arguments

REFUSED: list[tuple[str, str, Value]] = [
    ("classic", "x-queue-version", 1),
    ("classic", "x-queue-version", "2"),
    ("classic", "x-queue-leader-locator", "nope"),
    ("quorum", "x-queue-leader-locator", 5),
    ("classic", "x-max-in-memory-length", 5),
    ("stream", "x-max-in-memory-length", 5),
    ("classic", "x-consumer-disconnected-timeout", 5),
    ("classic", "x-delayed-retry-min", 5),
    ("stream", "x-delayed-retry-type", "all"),
    ("quorum", "x-delayed-retry-type", "nope"),
    ("quorum", "x-delayed-retry-min", -1),
    ("quorum", "x-delivery-limit", "2"),
    ("quorum", "x-quorum-initial-group-size", 1.5),
    ("quorum", "x-max-in-memory-length", -1),
    ("classic", "x-message-ttl", Timestamp(5)),
    ("stream", "x-initial-cluster-size", 0),
    ("stream", "x-max-age", "0s"),
    ("quorum", "x-queue-master-locator", "client-local"),
    ("stream", "x-stream-max-segment-size-bytes", 3_000_000_001),
    ("stream", "x-stream-filter-size-bytes", 15),
    ("stream", "x-stream-filter-size-bytes", 256),
]
TAKEN: list[tuple[str, str, Value]] = [
    ("classic", "x-queue-version", 2),
    ("classic", "x-queue-leader-locator", "min-masters"),
    ("quorum", "x-max-in-memory-bytes", 5),
    ("quorum", "x-consumer-disconnected-timeout", 5),
    ("stream", "x-stream-max-segment-size-bytes", 0),
    ("stream", "x-stream-filter-size-bytes", 255),
    ("classic", "x-unknown", 1),
    ("classic", "x-queue-mode", 5),
    ("classic", "x-queue-master-locator", 5),
    ("quorum", "x-consumer-timeout", 0),
    ("quorum", "x-delivery-limit", -2),
]


@pytest.mark.parametrize(("kind", "argument", "value"), REFUSED)
def test_an_argument_that_cannot_be_enforced_is_refused(kind: str, argument: str, value: Value) -> None:
    with pytest.raises((InvalidArgument, ArgumentNotForKind)):
        read_settings("q", "", {"x-queue-type": kind, argument: value})


@pytest.mark.parametrize(("kind", "argument", "value"), TAKEN)
def test_an_argument_of_its_kind_is_accepted(kind: str, argument: str, value: Value) -> None:
    assert read_settings("q", "", {"x-queue-type": kind, argument: value}).kind == kind


@pytest.mark.parametrize(
    ("kind", "argument", "value"),
    [
        ("classic", "x-consumer-timeout", 5),
        ("stream", "x-consumer-timeout", 5),
        ("quorum", "x-consumer-timeout", "5"),
        ("classic", "x-stream-offset", "first"),
        ("quorum", "x-stream-filter", "a"),
    ],
)
def test_a_consumer_argument_that_its_queue_does_not_support_is_refused(kind: str, argument: str, value: Value) -> None:
    world = World()
    world.queue("q", queue_type=kind)
    with pytest.raises((InvalidArgument, ArgumentNotForKind)):
        world.consume(prefetch=5, arguments={argument: value})


def test_a_stream_has_segments_of_the_declared_size() -> None:
    world = World()
    stream = world.queue("s", queue_type="stream", stream_max_segment_size_bytes=1000, max_length_bytes=3000)
    world.publish("s", *[b"x" * 100] * 100)
    assert 2000 < sum(segment.segment.size for segment in stream.logs[0].segments) <= 4000
    world.restart()
    (found,) = world.broker.queues.queues(CALLER)
    assert found.logs[0].segment_bytes == 1000


# -- hash exchanges by property, and comparison of arguments


@pytest.mark.parametrize("name", ["correlation_id", "message_id", "timestamp"])
def test_a_hash_exchange_may_hash_a_property(name: str) -> None:
    world = World()
    world.broker.exchanges.declare(CALLER, "hash", "x-consistent-hash", True, False, False, {"hash-property": name})
    for queue in ("a", "b"):
        world.queue(queue)
        world.bind("hash", queue, "5")
    for number in range(40):
        value: Value = Timestamp(7) if name == "timestamp" else "same"
        world.publish(f"key {number}", b"same", exchange="hash", **{name: value})
    assert sorted(queue.ready_count for queue in world.broker.queues.queues(CALLER)) == [0, 40]
    for number in range(40):
        value = Timestamp(number) if name == "timestamp" else str(number)
        world.publish("key", b"other", exchange="hash", **{name: value})
    assert min(queue.ready_count for queue in world.broker.queues.queues(CALLER)) > 0


@pytest.mark.parametrize(
    ("argument", "value"), [("queue_mode", "lazy"), ("queue_version", 2), ("queue_leader_locator", "random")]
)
def test_arguments_without_effect_are_compared_too(argument: str, value: Value) -> None:
    world = World()
    world.queue("q", **{argument: value})
    world.queue("q", **{argument: value})
    with pytest.raises(Inequivalent):
        world.queue("q")


def test_a_delay_may_be_given_as_text() -> None:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="direct")
    world.queue("q")
    world.bind("later", "q", "k")
    world.publish("k", b"x", exchange="later", headers={"x-delay": "200"})
    assert world.get() is None
    world.advance(200)
    out = world.get()
    assert out is not None
    assert read_headers(out.header) == {"x-delay": "-200"}


def test_the_length_in_bytes_of_a_quorum_queue_counts_properties() -> None:
    world = World()
    queue = world.queue("q", queue_type="quorum", max_length_bytes=10)
    world.publish("q", b"1234567")  # and three bytes of properties
    assert queue.ready_count == 1
    world.publish("q", b"12345678")
    assert queue.ready_count == 0
    world.publish("q", b"1", b"2", b"3", b"4")
    assert queue.ready_count == 2
    delivery = world.get()
    assert delivery is not None
    world.requeue(delivery, counts=False)
    world.restart()
    world.publish("q", b"5")
    (found,) = world.broker.queues.queues(CALLER)
    assert found.ready_count == 2
