"""With `x-dead-letter-strategy: at-least-once` a dead letter stays in its queue until every queue has taken it."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, World

from trimq.core.failures.ledger import Reason
from trimq.core.queues.work_queue import WorkQueue
from trimq.formats.amqp_content.field_tables import Value

FAITHFUL: dict[str, Value] = {
    "queue_type": "quorum",
    "overflow": "reject-publish",
    "dead_letter_strategy": "at-least-once",
}


def source(world: World, **arguments: Value) -> WorkQueue:
    """Declares a queue `q` with dead letters to the queue `dead`."""
    return world.queue("q", **{**FAITHFUL, "dead_letter_exchange": "", "dead_letter_routing_key": "dead", **arguments})


def declare_narrow_queue(world: World, name: str = "dead", **arguments: Value) -> WorkQueue:
    """Declares a queue that holds one message and refuses others."""
    return world.queue(name, queue_type="quorum", max_length=1, overflow="reject-publish", **arguments)


def reject_next(world: World) -> None:
    delivery = world.get()
    assert delivery is not None
    world.reject(delivery)


def drain_slowly(world: World, queue: str = "dead", seconds: int = 10) -> list[bytes]:
    found = []
    for _ in range(seconds):
        found += world.drain(queue)
        world.advance(1000)
    return found


def reasons(world: World) -> list[tuple[bytes | None, Reason]]:
    return [(failure.entry.record.body, failure.entry.reason) for failure in world.broker.failures.all(CALLER)]


def test_dead_letters_wait_while_their_target_queue_is_full() -> None:
    world = World()
    declare_narrow_queue(world)
    queue = source(world, message_ttl=10)
    world.publish("q", *[b"%d" % number for number in range(5)])
    world.advance(11)
    assert (queue.ready_count, queue.pending_dead_letter_count) == (0, 4)
    assert world.get() is None
    assert len(reasons(world)) == 1  # the others are still pending
    assert drain_slowly(world) == [b"0", b"1", b"2", b"3", b"4"]
    assert queue.pending_dead_letter_count == 0
    assert reasons(world) == [(b"%d" % number, Reason.EXPIRED) for number in range(5)]


@pytest.mark.parametrize("way", ["expiry", "rejection", "delivery limit"])
def test_pending_dead_letters_survive_a_restart_and_are_not_delivered(way: str) -> None:
    world = World()
    declare_narrow_queue(world)
    source(world, **({"message_ttl": 10} if way == "expiry" else {}), delivery_limit=0, max_length_bytes=1000)
    world.publish("dead", b"in the way")
    world.publish("q", b"1", b"2")
    for _ in range(0 if way == "expiry" else 2):
        delivery = world.get()
        assert delivery is not None
        world.requeue(delivery, counts=True) if way == "delivery limit" else world.reject(delivery)
    world.advance(11)
    world.restart()
    world.advance(11)
    queue = world.broker.queues.queue(CALLER, "q", OWNER)
    assert isinstance(queue, WorkQueue)
    assert (queue.ready_count, queue.pending_dead_letter_count, queue.contents.ready_bytes) == (0, 2, 0)
    assert world.get() is None
    assert drain_slowly(world) == [b"in the way", b"1", b"2"]
    world.restart()
    assert world.drain("q") + world.drain("dead") == []


def test_a_power_cut_loses_no_pending_dead_letter() -> None:
    world = World()
    declare_narrow_queue(world)
    source(world)
    world.publish("dead", b"in the way")
    world.publish("q", b"1", b"2")
    reject_next(world)
    reject_next(world)
    world.crash()  # the rejections may be lost
    while (delivery := world.get()) is not None:
        world.reject(delivery)
    assert drain_slowly(world) == [b"in the way", b"1", b"2"]


@pytest.mark.parametrize("exchange", ["later", "amq.direct"])
def test_a_dead_letter_without_a_route_waits_until_there_is_one(exchange: str) -> None:
    world = World()
    source(world, dead_letter_exchange=exchange)
    world.publish("q", b"x")
    reject_next(world)
    world.advance(5000)
    world.queue("dead")
    if exchange == "later":
        world.exchange(exchange)
    world.bind(exchange, "dead", "dead")
    world.advance(1000)
    assert world.drain("dead") == [b"x"]
    assert reasons(world) == [(b"x", Reason.REJECTED)]


def test_each_queue_gets_a_dead_letter_once_even_if_another_is_full() -> None:
    world = World()
    for name in ("narrow", "wide"):
        declare_narrow_queue(world, name) if name == "narrow" else world.queue(name)
        world.bind("amq.fanout", name)
    queue = source(world, dead_letter_exchange="amq.fanout")
    world.publish("narrow", b"in the way")
    world.publish("q", b"x")
    reject_next(world)
    world.advance(3000)
    assert world.drain("wide") == [b"x"]
    assert queue.pending_dead_letter_count == 1
    assert world.drain("narrow") == [b"in the way"]
    world.advance(1000)
    assert (world.drain("narrow"), world.drain("wide")) == ([b"x"], [])
    assert queue.pending_dead_letter_count == 0


def test_a_dead_letter_whose_write_failed_is_retried() -> None:
    world = World()
    world.queue("dead")
    queue = source(world)
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.files.room_bytes = 10
    world.reject(delivery)
    world.advance(500)
    assert world.drain("dead") == []
    world.files.room_bytes = None
    world.advance(1000)
    assert world.drain("dead") == [b"x"]
    assert queue.pending_dead_letter_count == 0


def test_pending_dead_letters_count_for_the_length_limit_but_not_as_ready() -> None:
    world = World()
    queue = source(world, max_length=2, dead_letter_exchange="nowhere")
    world.publish("q", b"1", b"2")
    reject_next(world)
    (published,) = world.publish("q", b"3")
    assert published.is_refused
    assert queue.ready_count == 1
    assert world.drain() == [b"2"]


def test_messages_behind_many_dead_letters_are_delivered() -> None:
    world = World()
    queue = source(world, dead_letter_exchange="nowhere")
    bodies = [b"%d" % number for number in range(3000)]
    world.publish("q", *bodies[:1500], expiration="10")
    world.publish("q", *bodies[1500:], expiration="10", headers={"second": "half"})
    world.publish("q", b"new")
    world.advance(5000)
    assert queue.pending_dead_letter_count == 3000
    assert world.drain() == [b"new"]
    world.queue("dead")
    world.exchange("nowhere", "fanout")
    world.bind("nowhere", "dead")
    world.advance(5000)
    assert world.drain("dead") == bodies


def test_a_damaged_dead_letter_is_skipped_and_blocks_no_other() -> None:
    world = World()
    source(world, dead_letter_exchange="nowhere")
    world.publish("q", b"1", b"2")
    reject_next(world)
    reject_next(world)
    world.restart()
    queue = world.broker.queues.queue(CALLER, "q", OWNER)
    assert isinstance(queue, WorkQueue)
    (log,) = queue.logs
    log.segments[0].segment.file.write(44, [b"?"])  # the last byte of the first message
    log._window.clear()
    world.publish("q", b"3", b"4")
    reject_next(world)
    world.queue("dead")
    world.exchange("nowhere", "fanout")
    world.bind("nowhere", "dead")
    world.advance(5000)
    assert world.drain("dead") == [b"2", b"3"]
    assert (queue.pending_dead_letter_count, world.drain()) == (0, [b"4"])


def test_a_purge_keeps_pending_dead_letters() -> None:
    world = World()
    queue = source(world, dead_letter_exchange="nowhere")
    world.publish("q", b"1", b"2")
    reject_next(world)
    assert world.broker.queues.purge_queue(CALLER, "q", OWNER) == 1
    assert queue.pending_dead_letter_count == 1


def test_deleting_a_queue_deletes_its_pending_dead_letters() -> None:
    world = World()
    world.queue("dead")
    source(world)
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.broker.queues.reject([delivery], counts=True)
    world.broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    world.advance(5000)
    assert world.drain("dead") in ([], [b"x"])


@pytest.mark.parametrize("arguments", [{"overflow": "drop-head"}, {"dead_letter_strategy": "at-most-once"}])
def test_a_queue_with_drop_head_or_at_most_once_keeps_no_dead_letters(arguments: dict[str, Value]) -> None:
    world = World()
    queue = source(world, dead_letter_exchange="nowhere", **arguments)
    world.publish("q", b"x")
    reject_next(world)
    assert queue.pending_dead_letter_count == 0
    assert reasons(world) == [(b"x", Reason.REJECTED)]


def test_a_dead_letter_is_delayed_once_by_a_delayed_exchange() -> None:
    world = World()
    world.queue("dead")
    world.exchange("delayed", "x-delayed-message", x_delayed_type="fanout")
    world.bind("delayed", "dead")
    queue = source(world, dead_letter_exchange="delayed")
    world.publish("q", b"x", headers={"x-delay": 2000})
    reject_next(world)
    assert queue.pending_dead_letter_count == 0
    world.advance(1999)
    assert world.drain("dead") == []
    world.advance(1)
    assert world.drain("dead") == [b"x"]
