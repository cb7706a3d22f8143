"""Declaration, comparison, locking, deletion and expiry of queues."""

from __future__ import annotations

import pytest
from core.queueing_world import CALLER, OWNER, Channel, World

from trimq.core.routing.bindings import Binding
from trimq.errors import DiskFull, OtherHome, Refusal, WriteFailed
from trimq.errors.queues import (
    ArgumentNotForKind,
    Inequivalent,
    InternalExchange,
    InvalidArgument,
    InvalidProperty,
    Locked,
    QueueInUse,
    QueueNotEmpty,
    ReservedName,
    ServerNamed,
    UnknownExchange,
    UnknownQueue,
)
from trimq.formats.amqp_content.field_tables import Short, Value
from trimq.model import Caller, Layout
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.tables.records import PUT, iterate_frames


def test_a_server_named_queue_has_a_unique_name() -> None:
    world = World()
    names = {world.queue("", exclusive=True).name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") and len(name) == 30 for name in names)


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("message_ttl", -1, "negative"),
        ("message_ttl", "1", "no number"),
        ("message_ttl", 1.0, "no number"),
        ("message_ttl", True, "no number"),
        ("message_ttl", 10**15, "too large"),
        ("expires", 0, "zero"),
        ("max_priority", 256, "too large"),
        ("max_priority", -1, "negative"),
        ("overflow", "nope", "unknown"),
        ("max_length", -1, "negative"),
        ("dead_letter_routing_key", "k", "no exchange"),
        ("dead_letter_exchange", 5, "no text"),
        ("queue_type", "nope", "unknown"),
        ("single_active_consumer", "true", "no boolean"),
    ],
)
def test_invalid_arguments_are_refused(argument: str, value: Value, reason: str) -> None:
    world = World()
    with pytest.raises(InvalidArgument) as refused:
        world.queue("bad", **{argument: value})
    assert refused.value.reason == reason
    assert not world.exists("bad")


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_priority": 0},
        {"queue_mode": "lazy"},
        {"queue_mode": "nope"},
        {"unknown_x": "anything"},
        {"dead_letter_exchange": "missing"},
        {"message_ttl": 134_217_728_000},
    ],
)
def test_arguments_that_rabbitmq_accepts_are_accepted(arguments: dict[str, Value]) -> None:
    World().queue(**arguments)


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"queue_type": "quorum", "durable": False}, InvalidProperty),
        ({"queue_type": "quorum", "exclusive": True}, InvalidProperty),
        ({"queue_type": "stream", "auto_delete": True}, InvalidProperty),
        ({"queue_type": "quorum", "max_priority": 5}, ArgumentNotForKind),
        ({"queue_type": "quorum", "queue_mode": "lazy"}, ArgumentNotForKind),
        ({"delivery_limit": 5}, ArgumentNotForKind),
        ({"queue_type": "stream", "message_ttl": 5}, ArgumentNotForKind),
        ({"queue_type": "quorum", "name": ""}, ServerNamed),
        ({"name": "amq.foo"}, ReservedName),
    ],
)
def test_arguments_that_a_kind_of_queue_does_not_support_are_refused(
    arguments: dict[str, Value], refusal: type[Refusal]
) -> None:
    arguments = dict(arguments)
    name = str(arguments.pop("name", "bad"))
    with pytest.raises(refusal):
        World().queue(name, **arguments)


def test_a_repeated_declaration_compares_arguments_with_an_effect() -> None:
    world = World()
    queue = world.queue(message_ttl=1000)
    assert world.queue(message_ttl=Short(1000)) is queue
    assert world.queue(message_ttl=1000, another="x") is queue
    for wrong in (
        {"message_ttl": 2000},
        {},
        {"message_ttl": 1000, "max_length": 5},
        {"message_ttl": 1000, "durable": False},
    ):
        with pytest.raises(Inequivalent):
            world.queue(**wrong)  # type: ignore[arg-type]
    with pytest.raises(Locked):
        world.queue(message_ttl=1000, exclusive=True)


def test_an_exclusive_queue_is_refused_to_other_connections() -> None:
    world = World()
    world.queue("mine", exclusive=True)
    binding = Binding("amq.fanout", "mine", True, "", {})
    broker = world.broker
    for verb in (
        lambda: world.queue("mine", owner="other", exclusive=True),
        lambda: broker.queues.queue(CALLER, "mine", "other"),
        lambda: broker.exchanges.bind(CALLER, binding, "other"),
        lambda: broker.queues.purge_queue(CALLER, "mine", "other"),
        lambda: broker.queues.delete_queue(CALLER, "mine", False, False, "other"),
        lambda: broker.queues.get(CALLER, "mine", "other", False),
    ):
        with pytest.raises(Locked):
            verb()
    assert world.publish("mine", b"anybody may")[0].is_routed
    broker.queues.release_owner("other")
    assert world.exists("mine")
    broker.queues.release_owner(OWNER)
    assert not world.exists("mine")
    world.settle()
    assert world.files.names("volatile") == []
    world.queue("mine", owner="other", exclusive=True)


def test_operations_on_an_unknown_queue_are_refused() -> None:
    world = World()
    broker = world.broker
    assert broker.queues.delete_queue(CALLER, "nope", False, False, OWNER) == (0, None)
    for verb in (
        lambda: broker.queues.queue(CALLER, "nope", OWNER),
        lambda: broker.queues.purge_queue(CALLER, "nope", OWNER),
        lambda: broker.queues.get(CALLER, "nope", OWNER, False),
        lambda: broker.exchanges.bind(CALLER, Binding("amq.fanout", "nope", True, "", {}), OWNER),
        lambda: world.consume("nope"),
    ):
        with pytest.raises(UnknownQueue):
            verb()
    with pytest.raises(UnknownExchange):
        world.publish("k", b"x", exchange="nope")
    assert broker.exchanges.unbind(CALLER, Binding("amq.fanout", "nope", True, "", {}), OWNER) is None


def test_a_queue_is_deleted_with_its_messages_bindings_and_consumers() -> None:
    world = World()
    world.queue()
    world.bind("amq.fanout", "q")
    channel, _ = world.consume(prefetch=1)
    world.publish("q", b"0", b"1", b"2")
    broker = world.broker
    with pytest.raises(QueueInUse):
        broker.queues.delete_queue(CALLER, "q", True, False, OWNER)
    with pytest.raises(QueueNotEmpty):
        broker.queues.delete_queue(CALLER, "q", False, True, OWNER)
    ready, ticket = broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    assert ready == 2
    assert ticket is not None
    assert channel.cancelled_tags == ["c"]
    world.ack(channel.out[0])
    world.settle()
    assert world.files.names("queues") == []
    assert not world.publish("", b"x", exchange="amq.fanout")[0].is_routed
    world.restart()
    assert not world.exists()
    world.queue()
    assert world.drain() == []


def test_a_queue_with_only_unacked_messages_may_be_deleted_as_empty() -> None:
    world = World()
    world.queue()
    world.publish("q", b"x")
    assert world.get() is not None
    assert world.broker.queues.delete_queue(CALLER, "q", False, True, OWNER)[0] == 0


def test_an_auto_delete_queue_is_deleted_with_its_last_consumer() -> None:
    world = World()
    world.queue(auto_delete=True)
    world.get()
    assert world.exists()
    _, first = world.consume(tag="a")
    _, second = world.consume(tag="b")
    world.broker.queues.unsubscribe(first)
    assert world.exists()
    world.broker.queues.unsubscribe(second)
    assert not world.exists()


def test_an_unused_queue_expires() -> None:
    world = World()
    world.queue(expires=1000)
    world.advance(900)
    world.queue(expires=1000)
    world.advance(900)
    assert world.exists()
    _, consumer = world.consume()
    world.advance(5000)
    assert world.exists()
    world.broker.queues.unsubscribe(consumer)
    world.advance(999)
    world.publish("q", b"does not count as a use")
    world.advance(2)
    assert not world.exists()


def test_an_unused_queue_expires_after_a_restart_too() -> None:
    world = World()
    world.queue(expires=1000)
    world.restart()
    world.advance(999)
    assert world.exists()
    world.advance(2)
    assert not world.exists()


def test_a_queue_is_restored_if_the_write_of_its_deletion_fails() -> None:
    world = World()
    world.queue()
    world.publish("q", b"x")
    world.files.room_bytes = 0
    _, ticket = world.broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    world.settle()
    world.files.room_bytes = None
    assert ticket is not None
    assert ticket.refusal is not None
    assert world.exists()
    assert world.drain() == [b"x"]
    world.publish("q", b"y")
    world.crash()
    assert b"y" in world.drain()


def test_a_declaration_whose_write_failed_leaves_nothing() -> None:
    world = World()
    world.files.room_bytes = 0
    declared = world.broker.queues.declare_queue(CALLER, "q", True, False, False, {}, OWNER)
    world.settle()
    world.files.room_bytes = None
    assert declared.ticket is not None
    assert declared.ticket.refusal is not None
    assert not world.exists()
    world.queue()
    world.publish("q", b"x")
    world.crash()
    assert world.drain() == [b"x"]
    assert len(world.files.names("queues")) == 1


def test_a_queue_and_a_topic_cannot_have_the_same_name() -> None:
    world = World()
    world.core.broker.topics.create(CALLER, "topic", Layout.PARTITION_LOG, 1, {})
    world.settle()
    with pytest.raises(InvalidArgument, match="not for a topic of another protocol"):
        world.queue("topic", max_length=5)
    world.queue("queue")
    with pytest.raises(OtherHome):
        world.core.broker.topics.create(CALLER, "queue", Layout.PARTITION_LOG, 1, {})


def test_queues_of_different_namespaces_may_have_the_same_name() -> None:
    world = World()
    world.queue()
    other = Caller("guest", "client", "", "amqp", "other")
    world.broker.namespaces.registry.define("other")
    world.broker.queues.declare_queue(other, "q", True, False, False, {}, OWNER)
    world.settle()
    world.broker.exchanges.publish(other, "", "q", b"\0\0", b"x")
    world.settle()
    assert world.drain() == []
    assert "other" in world.broker.namespaces.registry
    assert "nope" not in world.broker.namespaces.registry


def test_nothing_is_published_to_an_internal_exchange() -> None:
    world = World()
    world.broker.exchanges.declare(CALLER, "inner", "fanout", True, False, True, {})
    with pytest.raises(InternalExchange):
        world.publish("", b"x", exchange="inner")


def test_cc_and_bcc_keys_are_routed_and_bcc_is_removed() -> None:
    world = World()
    for name in ("q", "cc", "bcc"):
        world.queue(name)
    world.publish("q", b"x", headers={"CC": ["cc"], "BCC": ["bcc"]})
    for name in ("q", "cc", "bcc"):
        delivery = world.get(name)
        assert delivery is not None
        assert delivery.message.key == b"q"
        assert b"BCC" not in delivery.header
        assert b"CC" in delivery.header


def test_a_repeated_declaration_waits_until_the_first_is_durable() -> None:
    """Otherwise the first declaration could be refused after the second was confirmed."""
    world = World()

    def declare() -> list[Ticket | None]:
        binding = Binding("x", "q", True, "", {})
        return [
            world.broker.exchanges.declare(CALLER, "x", "fanout", True, False, False, {}),
            world.broker.queues.declare_queue(CALLER, "q", True, False, False, {}, OWNER).ticket,
            world.broker.exchanges.bind(CALLER, binding, OWNER),
        ]

    first = declare()
    world.files.room_bytes = 10
    assert declare() == first
    world.settle()
    assert [type(ticket.refusal) for ticket in first if ticket is not None] == [WriteFailed] * 3
    world.files.room_bytes = None
    assert None not in declare()
    world.settle()
    assert declare() == [None] * 3


def test_an_existing_queue_may_be_declared_on_a_full_disk() -> None:
    """Reconnecting consumers declare their queues and continue."""
    world = World()
    world.exchange("x", "fanout")
    world.queue("q")
    world.bind("x", "q")
    world.memory._total_bytes = 1
    world.advance(10_000)  # the disk space was checked
    world.exchange("x", "fanout")
    world.bind("x", "q")
    assert world.queue("q").ready_count == 0
    with pytest.raises(DiskFull):
        world.queue("another")


def test_a_fan_out_reaches_every_queue_and_waits_once() -> None:
    world = World()
    for number in range(10):
        world.queue(f"q{number}")
        world.bind("amq.fanout", f"q{number}")
    (published,) = world.publish("", b"x", exchange="amq.fanout")
    assert len(published.tickets) == 10
    assert {ticket.number for ticket in published.tickets} == {published.number}
    assert [world.drain(f"q{number}") for number in range(10)] == [[b"x"]] * 10


def test_a_receiver_may_call_the_queue_while_it_is_cancelled() -> None:
    """A front-end may close its channel inside `cancelled`."""
    world = World()
    world.queue()

    class Closing(Channel):
        def cancelled(self, consumer: object) -> None:
            world.broker.queues.unsubscribe(consumer)  # type: ignore[arg-type]
            world.broker.queues.requeue(self.out, True)

    world.consume(channel=Closing())
    world.publish("q", b"x")
    world.broker.queues.delete_queue(CALLER, "q", False, False, OWNER)
    world.settle()
    assert not world.exists()


# -- lost definitions


def _lose_last_definition(world: World) -> None:
    """Flips a bit in the last written definition, before a checkpoint says that it was synced."""
    file = world.memory.open("tables/catalogue.0.log")
    last = next(frame for frame in reversed(list(iterate_frames(file.read(0, file.size())))) if frame.payload[1] == PUT)
    byte = file.read(last.end - 1, 1)[0]
    file.write(last.end - 1, [bytes([byte ^ 1])])
    file.resize(last.end)
    world.memory.sync_all()


def test_the_folder_of_a_queue_whose_definition_is_lost_is_set_aside_and_never_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.queue("q0")
    world.publish("q0", b"zero")
    folder = f"{world.queue('q1').id.hex}-0"
    world.publish("q1", b"one")
    _lose_last_definition(world)
    for _ in range(2):  # the second start finds no truncated tail
        world.crash()
        assert not world.exists("q1")
        names = world.files.names("queues")
        assert folder not in names
        assert f"{folder}.set-aside" in names
        assert world.files.names(f"queues/{folder}.set-aside")
    assert f"queues/{folder}: no definition refers to this folder" in caplog.text
    assert "tables/catalogue.0.log: " in caplog.text
    assert world.drain("q0") == [b"zero"]


def test_the_folder_of_an_undefined_queue_is_removed_where_no_definition_is_lost() -> None:
    world = World()
    world.queue("q0")
    world.files.make_folder(f"queues/{'0' * 30}42-0")
    world.memory.sync_all()
    world.crash()
    assert f"{'0' * 30}42-0" not in world.files.names("queues")
