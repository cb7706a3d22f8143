"""Expired, dropped and rejected messages and their dead letters, as observed with RabbitMQ 4.3.6."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, World

from trimq.errors import WriteFailed
from trimq.errors.queues import InvalidExpiration
from trimq.formats.amqp_content.field_tables import FieldTable, Value
from trimq.formats.amqp_content.property_list import read_headers, read_property

FIVE = [b"0", b"1", b"2", b"3", b"4"]


def world_with_dead_letters(**arguments: Value) -> World:
    """A world in which `q` sends its dead letters to `dead`."""
    world = World()
    world.exchange("dlx", "fanout")
    world.queue("dead")
    world.bind("dlx", "dead")
    world.queue("q", dead_letter_exchange="dlx", **arguments)
    return world


def headers_in(world: World, queue: str = "dead") -> FieldTable:
    delivery = world.get(queue, no_ack=True)
    assert delivery is not None
    return read_headers(delivery.header)


def deaths(headers: FieldTable) -> list[tuple[Value, Value, Value]]:
    found = headers["x-death"]
    assert isinstance(found, list)
    return [(death["queue"], death["reason"], death["count"]) for death in found]


def test_a_rejected_message_goes_to_the_dead_letter_exchange_with_its_history() -> None:
    world = world_with_dead_letters()
    world.publish("q", b"x", headers={"CC": ["zz"], "mine": 1})
    delivery = world.get()
    assert delivery is not None
    world.reject(delivery)
    dead = world.get("dead")
    assert dead is not None
    assert (dead.message.exchange, dead.message.key, dead.message.body) == (b"dlx", b"q", b"x")
    assert dead.redelivered
    headers = read_headers(dead.header)
    (death,) = headers.pop("x-death")  # type: ignore[misc, union-attr]
    assert death == {  # type: ignore[comparison-overlap]
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "time": world.time.now_ms() // 1000,
        "exchange": "",
        "routing-keys": ["q", "zz"],
    }
    names = ("exchange", "queue", "reason")
    expected = dict(zip(names, ("", "q", "rejected"), strict=True))
    assert headers == {
        "CC": ["zz"],
        "mine": 1,
        **{f"x-first-death-{name}": expected[name] for name in names},
        **{f"x-last-death-{name}": expected[name] for name in names},
    }


def test_a_message_that_expires_at_the_head_is_dead_lettered_without_its_expiration() -> None:
    world = world_with_dead_letters()
    world.publish("q", b"x", expiration="50")
    world.advance(49)
    assert world.drain("dead") == []
    world.advance(2)
    dead = world.get("dead")
    assert dead is not None
    assert not dead.redelivered
    assert read_property(dead.header, "expiration") is None
    (death,) = read_headers(dead.header)["x-death"]  # type: ignore[misc, union-attr]
    assert (death["original-expiration"], death["reason"]) == ("50", "expired")  # type: ignore[call-overload, index]


def test_the_shorter_of_two_ttls_applies_and_the_routing_key_may_be_replaced() -> None:
    world = World()
    world.queue("dead")
    world.queue("q", message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="dead")
    world.publish("q", b"x", expiration="5000", headers={"CC": ["q"]})
    world.advance(101)
    dead = world.get("dead")
    assert dead is not None
    assert dead.message.key == b"dead"
    assert read_headers(dead.header)["CC"] == ["q"]


def test_a_replaced_routing_key_replaces_the_copies_of_all_later_deaths_too() -> None:
    world = World()
    for name in ("copied", "hidden", "last"):
        world.queue(name)
    world.queue("second", dead_letter_exchange="")
    world.queue("q", dead_letter_exchange="", dead_letter_routing_key="second")
    world.publish("q", b"x", headers={"CC": ["copied"], "BCC": ["hidden"]})
    assert (world.drain("copied"), world.drain("hidden")) == ([b"x"], [b"x"])
    for name in ("q", "second"):
        delivery = world.get(name)
        assert delivery is not None
        world.reject(delivery)
    assert (world.drain("copied"), world.drain("hidden")) == ([], [])
    again = world.get("second")
    assert again is not None
    deaths = read_headers(again.header)["x-death"]
    assert [death["routing-keys"] for death in deaths] == [["second"], ["q", "copied"]]  # type: ignore[index, union-attr, call-overload]


def test_a_dead_letter_is_routed_to_blind_copies_again_and_shows_none() -> None:
    world = World()
    world.queue("hidden")
    world.exchange("dlx", "direct")
    world.bind("dlx", "hidden", "hidden")
    world.queue("q", dead_letter_exchange="dlx")
    world.publish("q", b"x", headers={"CC": ["nowhere"], "BCC": ["hidden"]})
    assert world.drain("hidden") == [b"x"]
    delivery = world.get()
    assert delivery is not None
    assert "BCC" not in read_headers(delivery.header)
    world.restart()
    delivery = world.get()
    assert delivery is not None
    world.reject(delivery)
    dead = world.get("hidden")
    assert dead is not None
    headers = read_headers(dead.header)
    assert "BCC" not in headers
    assert headers["x-death"][0]["routing-keys"] == ["q", "nowhere"]  # type: ignore[index, call-overload]


def failed(world: World, *ways: str, kind: str = "classic") -> None:
    """Publishes a message, and lets its deliveries from `q` fail in these ways; the last one dead-letters it."""
    world.queue("q", queue_type=kind, dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=100)
    world.publish("q", b"x")
    for way in ways:
        if way == "expired":
            world.advance(101)
            return
        delivery = world.get()
        assert delivery is not None
        if way.endswith("requeued"):
            world.requeue(delivery, counts=way == "rejected, requeued")
        else:
            world.reject(delivery, counts=way == "rejected")


FAILED_WAYS = [
    (("rejected",), 1),
    (("nacked",), 0),
    (("rejected, requeued", "rejected"), 2),
    (("nacked, requeued", "rejected"), 1),
    (("rejected, requeued", "expired"), 1),
    (("nacked, requeued", "expired"), 0),
    (("expired",), 0),
]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(("ways", "count"), FAILED_WAYS)
def test_a_dead_letter_carries_its_failed_deliveries_into_a_quorum_queue(
    kind: str, ways: tuple[str, ...], count: int
) -> None:
    world = World()
    world.queue("dead", queue_type="quorum")
    failed(world, *ways, kind=kind)
    world.crash()
    dead = world.get("dead")
    assert dead is not None
    assert dead.redelivered == (count > 0)
    shown = read_headers(dead.header)
    names = ("x-acquired-count", "x-delivery-count")
    assert {name: shown[name] for name in names if name in shown} == (dict.fromkeys(names, count) if count else {})
    assert not any(name.startswith("\0") for name in shown)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(("ways", "count"), FAILED_WAYS)
def test_a_dead_letter_that_had_to_wait_in_a_classic_queue_is_redelivered_if_a_delivery_failed(
    kind: str, ways: tuple[str, ...], count: int
) -> None:
    world = World()
    world.queue("dead")
    failed(world, *ways, kind=kind)
    dead = world.get("dead")
    assert dead is not None
    assert dead.redelivered == (count > 0)
    assert "x-delivery-count" not in read_headers(dead.header)


@pytest.mark.parametrize(("kind", "is_redelivered"), [("classic", False), ("quorum", True)])
def test_a_dead_letter_that_arrives_for_a_waiting_consumer_is_redelivered_in_a_quorum_queue_only(
    kind: str, is_redelivered: bool
) -> None:
    world = World()
    world.queue("dead", queue_type=kind)
    channel, _ = world.consume("dead")
    failed(world, "rejected")
    assert [delivery.redelivered for delivery in channel.out] == [is_redelivered]


def test_failed_deliveries_in_an_earlier_queue_count_towards_the_delivery_limit() -> None:
    world = World()
    world.queue("dead", queue_type="quorum", delivery_limit=2)
    failed(world, "rejected, requeued", "rejected")
    dead = world.get("dead")
    assert dead is not None
    world.requeue(dead, counts=True)
    assert world.drain("dead") == []


def test_a_ttl_expires_messages_at_the_head_only() -> None:
    world = world_with_dead_letters()
    world.publish("q", b"long", expiration="10000")
    world.publish("q", b"short", expiration="10")
    world.advance(1000)
    assert world.broker.queues.queue(CALLER, "q", OWNER).ready_count == 2
    assert world.drain() == [b"long"]
    assert world.drain("dead") == [b"short"]


def test_expiry_continues_after_a_restart() -> None:
    world = world_with_dead_letters(message_ttl=1000)
    world.publish("q", b"x")
    world.restart()
    world.advance(999)
    assert world.drain("dead") == []
    world.advance(2)
    assert world.drain("dead") == [b"x"]


def test_with_a_ttl_of_zero_only_a_ready_consumer_gets_the_message() -> None:
    world = world_with_dead_letters(message_ttl=0)
    world.publish("q", b"a")
    assert world.drain() == []
    channel, _ = world.consume(prefetch=1)
    world.publish("q", b"b", b"c")
    assert channel.bodies() == [b"b"]
    assert world.drain("dead") == [b"a", b"c"]


def test_a_message_requeued_after_its_ttl_is_dead_lettered() -> None:
    world = world_with_dead_letters(message_ttl=100)
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.advance(200)
    world.requeue(delivery)
    assert world.drain() == []
    assert world.drain("dead") == [b"x"]


def test_expired_messages_without_a_dead_letter_exchange_are_dropped() -> None:
    world = World()
    queue = world.queue(message_ttl=100)
    world.publish("q", *FIVE)
    world.advance(150)
    assert queue.ready_count == 0
    world.restart()
    assert world.drain() == []


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "", "9" * 20])
def test_an_invalid_ttl_is_refused(text: str) -> None:
    world = World()
    world.queue()
    with pytest.raises(InvalidExpiration):
        world.publish("q", b"x", expiration=text)


# -- overflow


def test_the_oldest_messages_are_dropped_beyond_the_length_limit() -> None:
    world = world_with_dead_letters(max_length=2)
    assert not any(published.is_refused for published in world.publish("q", *FIVE))
    assert world.drain() == FIVE[3:]
    assert world.drain("dead") == FIVE[:3]


def test_the_oldest_messages_are_dropped_beyond_the_byte_limit() -> None:
    world = world_with_dead_letters(max_length_bytes=25)
    world.publish("q", *[b"%d123456789" % number for number in range(5)])
    world.restart()
    world.publish("q", b"5123456789")
    assert world.drain() == [b"4123456789", b"5123456789"]
    assert len(world.drain("dead")) == 4


@pytest.mark.parametrize(("overflow", "dead"), [("reject-publish", []), ("reject-publish-dlx", FIVE[2:])])
def test_a_full_queue_refuses_new_messages(overflow: str, dead: list[bytes]) -> None:
    world = world_with_dead_letters(max_length=2, overflow=overflow)
    assert [published.is_refused for published in world.publish("q", *FIVE)] == [False, False, True, True, True]
    assert world.drain() == FIVE[:2]
    assert world.drain("dead") == dead


# -- dead-letter cycles


def test_a_dead_letter_cycle_without_a_rejection_drops_the_message() -> None:
    world = World()
    queue = world.queue("q", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="q")
    world.publish("q", b"x")
    world.advance(1000)
    assert queue.ready_count == 0


def test_a_retry_loop_counts_deaths() -> None:
    world = World()
    world.queue("q", dead_letter_exchange="", dead_letter_routing_key="wait")
    world.queue("wait", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="q")
    world.publish("q", b"x")
    for _ in range(2):
        delivery = world.get()
        assert delivery is not None
        world.reject(delivery)
        world.advance(11)
    headers = headers_in(world, "q")
    assert deaths(headers) == [("wait", "expired", 2), ("q", "rejected", 2)]
    assert [headers[f"x-{which}-death-queue"] for which in ("first", "last")] == ["q", "wait"]


def test_purged_and_deleted_messages_are_not_dead_lettered() -> None:
    world = world_with_dead_letters()
    world.publish("q", *FIVE)
    world.broker.queues.purge_queue(CALLER, "q", OWNER)
    world.publish("q", *FIVE)
    world.broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    world.settle()
    assert world.drain("dead") == []


def test_a_dead_letter_whose_write_fails_is_not_lost() -> None:
    world = world_with_dead_letters()
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.files.room_bytes = 20
    world.reject(delivery)
    world.files.room_bytes = None
    assert world.drain("dead") == []
    back = world.get("q")
    assert back is not None
    assert (back.message.body, back.redelivered) == (b"x", True)


def test_an_expired_message_whose_dead_letter_write_fails_is_retried_and_blocks_no_other() -> None:
    world = world_with_dead_letters()
    world.publish("q", b"expired", expiration="10")
    world.publish("q", b"behind it")
    tried: list[str] = []

    def fail(operation: str, name: str) -> None:
        if operation == "write" and name.startswith("queues"):
            tried.append(name)
            raise OSError(28, "no space")

    world.files.before = fail
    world.advance(11)
    assert world.drain("q") == [b"behind it"]
    assert world.drain("dead") == []
    seen = len(tried)
    world.advance(900)
    assert len(tried) == seen  # not retried in every turn of the loop
    world.files.before = lambda operation, name: None
    world.advance(1000)
    assert world.drain("dead") == [b"expired"]
    assert world.drain("q") == []


def test_few_of_many_expired_messages_with_failing_writes_are_held_in_memory() -> None:
    world = world_with_dead_letters()
    world.publish("q", *[b"expired"] * 5000, expiration="10")
    world.publish("q", b"alive")

    def fail(operation: str, name: str) -> None:
        if operation == "write" and name.startswith("queues"):
            raise OSError(28, "no space")

    world.files.before = fail
    world.advance(11)
    queue = world.broker.queues.queue(CALLER, "q", OWNER)
    channel, _ = world.consume("q")
    assert queue.ready_count >= 3000
    world.files.before = lambda operation, name: None
    world.advance(20_000)
    assert channel.bodies() == [b"alive"]
    assert len(world.drain("dead")) == 5000


def test_an_overflowing_message_waits_when_its_dead_letter_cannot_be_appended() -> None:
    """The append is refused at once, not at the end of the pass."""
    world = world_with_dead_letters(max_length=1)
    world.publish("q", b"0")
    dead = world.broker.queues.queue(CALLER, "dead", OWNER)
    (log,) = dead.logs

    def fail(*_: object) -> None:
        raise WriteFailed("no space")

    append, log.append = log.append, fail  # type: ignore[method-assign]
    append_all, log.append_all = log.append_all, fail  # type: ignore[method-assign]
    world.publish("q", b"1", b"2")
    assert world.drain("dead") == []
    log.append, log.append_all = append, append_all  # type: ignore[method-assign]
    world.advance(1000)
    assert sorted(world.drain("dead")) == [b"0", b"1"]
    assert world.drain("q") == [b"2"]


def test_a_message_is_acked_only_when_its_dead_letter_is_durable() -> None:
    world = world_with_dead_letters()
    world.publish("q", b"x")
    delivery = world.get()
    assert delivery is not None
    world.broker.queues.reject([delivery], counts=True)
    world.runner.end_pass()
    world.crash()
    assert world.drain("q") + world.drain("dead") in ([b"x"], [b"x", b"x"])


# -- delivery limit


def test_a_message_beyond_the_delivery_limit_is_dead_lettered_and_the_count_survives_a_restart() -> None:
    world = world_with_dead_letters(queue_type="quorum", delivery_limit=2)
    world.publish("q", b"x")
    found: list[FieldTable] = []
    for attempt in range(3):
        delivery = world.get()
        assert delivery is not None
        assert delivery.redelivered is (attempt > 0)
        found.append(read_headers(delivery.header))
        world.requeue(delivery, counts=True)
        if attempt == 1:
            world.restart()
    assert found == [
        {},
        {"x-acquired-count": 1, "x-delivery-count": 1},
        {"x-acquired-count": 2, "x-delivery-count": 2},
    ]
    assert world.get() is None
    assert deaths(headers_in(world)) == [("q", "delivery_limit", 1)]


def test_a_requeue_that_does_not_count_may_be_repeated_without_limit() -> None:
    world = world_with_dead_letters(queue_type="quorum", delivery_limit=1)
    world.publish("q", b"x")
    for _ in range(5):
        delivery = world.get()
        assert delivery is not None
        world.requeue(delivery)
    delivery = world.get()
    assert delivery is not None
    assert read_headers(delivery.header) == {"x-acquired-count": 5}


def test_a_consumer_beyond_its_delivery_timeout_loses_its_message_and_is_cancelled() -> None:
    world = World()
    queue = world.queue()
    channel, _ = world.consume()
    world.publish("q", b"x")
    world.advance(1_799_000)
    assert channel.timed_out_tags == []
    world.advance(2000)
    assert channel.timed_out_tags == ["c"]
    assert (queue.consumer_count, world.drain()) == (0, [b"x"])


# -- priorities


def test_higher_priorities_are_delivered_first_and_each_in_order() -> None:
    world = World()
    queue = world.queue(max_priority=5)
    for priority in (0, 5, 1, 9, 5, 3):
        world.publish("q", b"%d" % priority, priority=priority)
    world.publish("q", b"none")
    assert queue.ready_count == 7
    world.restart()
    assert world.drain() == [b"5", b"9", b"5", b"3", b"1", b"0", b"none"]


# -- history that a client sent


FORGED: FieldTable = {
    "x-death": [{"queue": "other", "reason": "rejected", "count": 7}, {"queue": "dead", "reason": "expired"}],
    **{f"x-first-death-{name}": "forged" for name in ("exchange", "queue", "reason")},
    **{f"x-last-death-{name}": "forged" for name in ("exchange", "queue", "reason")},
    "mine": 1,
}

KINDS_AND_STRATEGIES: list[FieldTable] = [
    {},
    {"queue_type": "quorum"},
    {"queue_type": "quorum", "dead_letter_strategy": "at-least-once", "overflow": "reject-publish"},
]


def dead_letter_by_reject(world: World, queue: str = "q") -> None:
    delivery = world.get(queue)
    assert delivery is not None
    world.reject(delivery)


@pytest.mark.parametrize("arguments", KINDS_AND_STRATEGIES, ids=["classic", "quorum", "at least once"])
def test_the_first_death_replaces_the_history_that_a_client_sent(arguments: FieldTable) -> None:
    world = world_with_dead_letters(**arguments)
    world.publish("q", b"x", headers=FORGED)
    delivery = world.get()
    assert delivery is not None
    assert read_headers(delivery.header) == FORGED
    world.reject(delivery)
    headers = headers_in(world)
    assert deaths(headers) == [("q", "rejected", 1)]
    assert (headers["x-first-death-queue"], headers["x-last-death-reason"]) == ("q", "rejected")
    assert headers["x-first-death-exchange"] == ""
    assert headers["mine"] == 1


@pytest.mark.parametrize("arguments", KINDS_AND_STRATEGIES, ids=["classic", "quorum", "at least once"])
def test_a_message_published_again_with_its_headers_is_dead_lettered_to_queues_of_its_old_history(
    arguments: FieldTable,
) -> None:
    world = World()
    world.queue("done")
    world.queue("work", dead_letter_exchange="", dead_letter_routing_key="done", message_ttl=10, **arguments)
    world.queue("retry", dead_letter_exchange="", dead_letter_routing_key="work", message_ttl=10, **arguments)
    world.publish("work", b"x")
    for _ in range(3):
        world.advance(100)
        delivery = world.get("done", no_ack=True)
        assert delivery is not None
        history = deaths(read_headers(delivery.header))
        world.publish("retry", b"x", headers=read_headers(delivery.header))
    assert history == [("work", "expired", 1), ("retry", "expired", 1)]


@pytest.mark.parametrize("arguments", KINDS_AND_STRATEGIES, ids=["classic", "quorum", "at least once"])
def test_the_broker_s_own_history_goes_on_through_queues_and_restarts(arguments: FieldTable) -> None:
    world = World()
    world.queue("dead")
    world.queue("second", dead_letter_exchange="", dead_letter_routing_key="dead", **arguments)
    world.queue("q", dead_letter_exchange="", dead_letter_routing_key="second", **arguments)
    world.publish("q", b"x", b"y", headers=FORGED)
    dead_letter_by_reject(world)
    dead_letter_by_reject(world)
    world.restart()
    dead_letter_by_reject(world, "second")
    world.crash()
    dead_letter_by_reject(world, "second")
    for _ in range(2):
        headers = headers_in(world)
        assert deaths(headers) == [("second", "rejected", 1), ("q", "rejected", 1)]
        assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("q", "second")


def test_messages_with_equal_headers_have_their_own_histories() -> None:
    """One is a dead letter of the broker; its consumer published the other with the same headers."""
    world = World()
    world.queue("dead")
    world.queue("second", dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=100)
    world.queue("q", dead_letter_exchange="", dead_letter_routing_key="second")
    world.publish("q", b"x")
    dead_letter_by_reject(world)
    delivery = world.get("second")
    assert delivery is not None
    world.requeue(delivery)
    world.publish("second", b"y", headers=read_headers(delivery.header))
    world.advance(101)
    assert deaths(headers_in(world)) == [("second", "expired", 1), ("q", "rejected", 1)]
    assert deaths(headers_in(world)) == [("second", "expired", 1)]


def test_many_dead_letters_of_one_turn_keep_their_history() -> None:
    world = World()
    world.queue("dead")
    world.queue("second", dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=100)
    world.queue("q", dead_letter_exchange="", dead_letter_routing_key="second", message_ttl=100)
    world.publish("q", *FIVE)
    world.advance(101)
    world.restart()
    world.advance(101)
    for _ in FIVE:
        assert deaths(headers_in(world)) == [("second", "expired", 1), ("q", "expired", 1)]


def test_a_dead_letter_that_a_full_queue_dead_letters_keeps_its_history() -> None:
    world = world_with_dead_letters(max_length=1, overflow="reject-publish-dlx")
    world.queue("first", dead_letter_exchange="", dead_letter_routing_key="q")
    world.publish("q", b"1")
    world.publish("first", b"2")
    dead_letter_by_reject(world, "first")
    assert deaths(headers_in(world)) == [("q", "maxlen", 1), ("first", "rejected", 1)]


def test_a_dead_letter_keeps_its_history_through_a_delayed_exchange() -> None:
    world = World()
    world.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    world.queue("dead")
    world.queue("second", dead_letter_exchange="", dead_letter_routing_key="dead")
    world.bind("later", "second")
    world.queue("q", dead_letter_exchange="later")
    world.publish("q", b"x", headers={"x-delay": 1000})
    dead_letter_by_reject(world)
    world.restart()
    world.advance(1001)
    dead_letter_by_reject(world, "second")
    assert deaths(headers_in(world)) == [("second", "rejected", 1), ("q", "rejected", 1)]


def test_a_dead_letter_of_an_older_broker_is_delivered_as_it_was_and_begins_a_new_history() -> None:
    """Dead letters that were stored without the flag DEAD_LETTER look like those of a client."""
    world = world_with_dead_letters()
    world.publish("q", b"x", headers=FORGED)
    world.restart()
    delivery = world.get()
    assert delivery is not None
    assert read_headers(delivery.header) == FORGED
    world.reject(delivery)
    assert deaths(headers_in(world)) == [("q", "rejected", 1)]
