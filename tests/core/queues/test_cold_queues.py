"""Cold messages of queues: the event loop never waits for the disk."""

from __future__ import annotations

from core.queueing_world import CALLER, OWNER, Channel, World

from trimq.core.queues.consumers import Subscription
from trimq.formats.amqp_content.field_tables import Value

BODIES = [b"%d " % number + b"." * 2000 for number in range(500)]


def cold_world(**arguments: Value) -> World:
    """A queue with a megabyte that this process has never read."""
    world = World()
    world.queue(**arguments)
    world.publish("q", *BODIES)
    return chilled(world)


def chilled(world: World) -> World:
    world.restart()
    world.files.is_cold = True
    world.files.waits = 0
    return world


def stay_cold(world: World, times: int) -> None:
    """Pages are dropped as soon as they are read, for the first `times` loads."""
    left = [times]

    def before(operation: str, name: str) -> None:
        if operation == "warm":
            left[0] -= 1
            world.files.is_cold = left[0] > 0

    world.files.before = before


def test_a_consumer_is_served_from_the_disk_off_the_loop() -> None:
    world = cold_world()
    channel = Channel()
    world.consume(channel=channel)
    assert channel.bodies() == BODIES
    assert world.files.waits == 0


def test_new_messages_wait_behind_cold_ones() -> None:
    world = cold_world()
    channel = Channel()
    world.publish("q", b"new")
    world.consume(channel=channel)
    assert channel.bodies() == [*BODIES, b"new"]
    assert world.files.waits == 0


def test_a_queue_may_be_deleted_while_its_cold_data_is_loaded() -> None:
    world = cold_world()
    channel = Channel()
    world.broker.queues.subscribe(CALLER, "q", OWNER, Subscription("c", channel))
    world.runner.end_pass()
    world.runner.end_pass()
    assert len(world.runner.offload) == 1
    world.broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    world.settle()
    assert (channel.bodies(), channel.cancelled_tags) == ([], ["c"])


def test_after_too_many_loads_the_loop_reads_the_disk_itself() -> None:
    world = cold_world()
    stay_cold(world, 1000)
    channel = Channel()
    world.consume(channel=channel)
    assert channel.bodies() == BODIES
    assert world.files.waits > 0


def test_a_load_may_be_repeated_a_few_times() -> None:
    world = cold_world()
    stay_cold(world, 2)
    channel = Channel()
    world.consume(channel=channel)
    assert channel.bodies() == BODIES
    assert world.files.waits == 0


def test_a_stream_is_read_off_the_loop_by_each_of_its_consumers() -> None:
    world = cold_world(queue_type="stream")
    one, other = Channel(), Channel()
    world.consume(tag="one", channel=one, prefetch=1000, arguments={"x-stream-offset": "first"})
    world.files.is_cold = True
    world.consume(tag="other", channel=other, prefetch=1000, arguments={"x-stream-offset": 400})
    assert one.bodies() == BODIES
    assert other.bodies() == BODIES[400:]
    assert world.files.waits == 0


def test_expired_and_dropped_messages_are_read_off_the_loop() -> None:
    world = World()
    world.exchange("dead", "fanout")
    world.queue("graves")
    world.bind("dead", "graves")
    world.queue("q", message_ttl=1000, dead_letter_exchange="dead")
    world.publish("q", *BODIES[:50])
    chilled(world)
    world.advance(1000)
    assert world.files.waits == 0
    assert world.drain("graves") == BODIES[:50]


def test_a_shared_body_is_read_off_the_loop_too() -> None:
    world = World()
    world.exchange("all", "fanout")
    for name in ("a", "b"):
        world.queue(name)
        world.bind("all", name)
    big = b"x" * 10_000
    world.publish("", b"1" + big, exchange="all")
    world.publish("", b"2" + big, exchange="all")
    chilled(world)
    stay_cold(world, 2)
    channel = Channel()
    world.consume("a", channel=channel)
    assert channel.bodies() == [b"1" + big, b"2" + big]
    assert world.files.waits == 0


def test_a_delayed_message_is_read_off_the_loop() -> None:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="direct")
    world.queue("q")
    world.bind("later", "q", "k")
    world.publish("k", b"tomorrow", exchange="later", headers={"x-delay": 1000})
    world.restart()
    world.files.is_cold = True
    world.files.waits = 0
    world.advance(1000)
    assert world.files.waits == 0
    assert world.drain() == [b"tomorrow"]


def test_a_get_of_cold_data_raises_cold_read() -> None:
    world = cold_world()
    queue = world.queue()
    cold = queue.cold_head()
    assert cold is not None
    cold.warm()
    assert queue.cold_head() is None
    got = world.get()
    assert got is not None
    assert got.message.body == BODIES[0]


def test_a_failed_load_is_followed_by_a_direct_read() -> None:
    world = cold_world()
    channel = Channel()

    def before(operation: str, name: str) -> None:
        if operation == "warm":
            raise OSError(5, "disk error")

    world.files.before = before
    world.consume(channel=channel)
    assert channel.bodies() == BODIES


def test_delivered_messages_are_dropped_from_the_read_window() -> None:
    world = cold_world()
    log = world.queue().logs[0]
    channel = Channel()
    world.consume(channel=channel, prefetch=50)
    assert channel.bodies() == BODIES[:50]
    assert min(log._window._stored) >= 50
