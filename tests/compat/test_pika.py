"""pika against a broker process: confirms, returns, prefetch, redelivery, dead letters, RPC, transactions."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    UnroutableError,
)

from tools.broker import running

PATIENCE_S = 20
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        host, _, port = addresses["amqp"].rpartition(":")
        yield host, int(port)


def connect(address: tuple[str, int], **parameters: Any) -> pika.BlockingConnection:
    host, port = address
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            host, port, socket_timeout=PATIENCE_S, blocked_connection_timeout=PATIENCE_S, **parameters
        )
    )


@pytest.fixture
def channel(address: tuple[str, int]) -> Iterator[BlockingChannel]:
    connection = connect(address)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def declare(channel: BlockingChannel, name: str = "", **arguments: Any) -> str:
    durable = arguments.pop("durable", bool(name))
    exclusive = arguments.pop("exclusive", not name)
    table = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    declared = channel.queue_declare(name, durable=durable, exclusive=exclusive, arguments=table)
    return str(declared.method.queue)


def take(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Consumes and acknowledges this many messages. Returns their bodies."""
    bodies = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"only {len(bodies)} of {count} messages arrived"
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def get(channel: BlockingChannel, queue: str) -> Any:
    return channel.basic_get(queue, auto_ack=True)


def test_confirmed_messages_are_stored_in_order(channel: BlockingChannel) -> None:
    queue = declare(channel, "orders")
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
    assert channel.queue_declare(queue, passive=True).method.message_count == 50
    assert take(channel, queue, 50) == [b"%d" % number for number in range(50)]


def test_a_message_without_a_route_is_returned_before_its_confirm(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("", "nowhere", b"lost", pika.BasicProperties(type="t"), mandatory=True)
    (returned,) = raised.value.messages
    assert (returned.method.reply_code, returned.properties.type, returned.body) == (312, "t", b"lost")


def test_a_rejection_by_a_full_queue_is_noticed(channel: BlockingChannel) -> None:
    queue = declare(channel, max_length=1, overflow="reject-publish")
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"first")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"second")


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000, 22_000_000])
def test_a_body_of_any_size_survives_a_round_trip(channel: BlockingChannel, size: int) -> None:
    queue = declare(channel)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    channel.basic_publish("", queue, body)
    _, _, came = get(channel, queue)
    assert came == body


def test_a_small_frame_size_is_respected(address: tuple[str, int]) -> None:
    with closing(connect(address, frame_max=4096)) as connection:
        channel = connection.channel()
        queue = declare(channel)
        channel.basic_publish("", queue, b"y" * 50_000)
        assert get(channel, queue)[2] == b"y" * 50_000


def test_every_property_survives_a_round_trip(channel: BlockingChannel) -> None:
    queue = declare(channel)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"text": "é", "number": 2**40, "flag": True, "none": None, "list": [1, {"a": "b"}]},
        delivery_mode=1,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish("", queue, b"", sent)
    assert vars(get(channel, queue)[1]) == vars(sent)


def test_a_consumer_gets_no_more_than_its_prefetch(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for number in range(10):
        channel.basic_publish("", queue, b"%d" % number)
    channel.basic_qos(prefetch_count=3)
    came: list[int] = []
    channel.basic_consume(queue, lambda _c, method, _p, _b: came.append(method.delivery_tag))
    channel.connection.process_data_events(0.5)
    assert came == [1, 2, 3]
    channel.basic_ack(2, multiple=True)
    channel.connection.process_data_events(0.5)
    assert came == [1, 2, 3, 4, 5]


def test_unacked_messages_of_a_lost_connection_are_redelivered_to_the_next(
    address: tuple[str, int], channel: BlockingChannel
) -> None:
    queue = declare(channel, "cut")
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    other = connect(address)
    taken = [other.channel().basic_get(queue)[2]]
    other._impl._transport._sock.shutdown(socket.SHUT_RDWR)  # simulates the death of its machine
    with pytest.raises(AMQPConnectionError):
        other.process_data_events(PATIENCE_S)
    came = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert method is not None
        came.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)
        if len(came) == 3:
            break
    assert taken == [b"0"]
    assert sorted(came) == [(b"0", True), (b"1", False), (b"2", False)]


def test_a_rejected_message_is_dead_lettered(channel: BlockingChannel) -> None:
    dead = declare(channel, "dead")
    queue = declare(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.basic_publish("", queue, b"poison")
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = get(channel, dead)
    assert body == b"poison"
    assert properties.headers["x-first-death-reason"] == "rejected"
    assert properties.headers["x-death"][0]["queue"] == queue


def test_an_rpc_request_is_answered_by_direct_reply(address: tuple[str, int], channel: BlockingChannel) -> None:
    queue = declare(channel, "questions")
    answers: list[tuple[str, bytes]] = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _c, _m, properties, body: answers.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    channel.basic_publish("", queue, b"2+2", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7"))
    with closing(connect(address)) as other:
        server = other.channel()
        _, properties, _ = get(server, queue)
        server.basic_publish(
            "", properties.reply_to, b"4", pika.BasicProperties(correlation_id=properties.correlation_id)
        )
    channel.connection.process_data_events(PATIENCE_S)
    assert answers == [("7", b"4")]


def test_a_transaction_is_visible_when_it_is_committed(address: tuple[str, int], channel: BlockingChannel) -> None:
    queue = declare(channel, "committed")
    channel.tx_select()
    channel.basic_publish("", queue, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"kept")
    with closing(connect(address)) as other:
        seen = other.channel()
        assert get(seen, queue)[0] is None
        channel.tx_commit()
        assert get(seen, queue)[2] == b"kept"
        assert get(seen, queue)[0] is None


def test_a_topic_is_routed_by_its_words(channel: BlockingChannel) -> None:
    channel.exchange_declare("logs", "topic", durable=True)
    queues = {pattern: declare(channel) for pattern in ("*.error", "disk.#", "#")}
    for pattern, queue in queues.items():
        channel.queue_bind(queue, "logs", pattern)
    channel.basic_publish("logs", "disk.error", b"both")
    channel.basic_publish("logs", "net.info", b"one")
    counts = {
        pattern: channel.queue_declare(queue, passive=True).method.message_count for pattern, queue in queues.items()
    }
    assert counts == {"*.error": 1, "disk.#": 1, "#": 2}


def test_the_deletion_of_a_queue_cancels_its_consumers(address: tuple[str, int], channel: BlockingChannel) -> None:
    queue = declare(channel, "doomed")
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    with closing(connect(address)) as other:
        other.channel().queue_delete(queue)
    channel.connection.process_data_events(PATIENCE_S)
    assert cancelled == [tag]


def test_an_exclusive_queue_belongs_to_its_connection_and_is_deleted_with_it(address: tuple[str, int]) -> None:
    owner = connect(address)
    with closing(connect(address)) as other:
        queue = declare(owner.channel(), "mine", durable=False, exclusive=True)
        with pytest.raises(ChannelClosedByBroker) as raised:
            other.channel().queue_declare(queue, passive=True)
        assert raised.value.reply_code == 405
        owner.close()
        with pytest.raises(ChannelClosedByBroker) as raised:
            other.channel().queue_declare(queue, passive=True)
        assert raised.value.reply_code == 404


def test_an_error_closes_the_channel_and_not_the_connection(address: tuple[str, int]) -> None:
    connection = connect(address)
    channel = connection.channel()
    channel.basic_publish("no such exchange", "", b"")
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare("after it", passive=True)
    assert (raised.value.reply_code, raised.value.reply_text.split(" - ")[0]) == (404, "NOT_FOUND")
    another = connection.channel()
    with pytest.raises(ConnectionClosedByBroker) as ended:
        another.basic_qos(prefetch_size=1)
    assert ended.value.reply_code == 540


def test_a_thousand_queues_are_made_used_and_deleted(channel: BlockingChannel) -> None:
    names = [f"many.{number}" for number in range(1000)]
    channel.confirm_delivery()
    for name in names:
        declare(channel, name)
        channel.basic_publish("", name, name.encode(), PERSISTENT, mandatory=True)
    assert [get(channel, name)[2].decode() for name in names] == names
    assert [channel.queue_delete(name).method.message_count for name in names] == [0] * len(names)
    with pytest.raises(ChannelClosedByBroker):
        channel.queue_declare(names[-1], passive=True)


def test_confirmed_messages_and_definitions_survive_a_restart(tmp_path: Path) -> None:
    flags = ["--amqp-listen", "127.0.0.1:0"]
    for start in range(2):
        (tmp_path / "ready.json").unlink(missing_ok=True)
        with running(tmp_path, flags) as addresses:
            host, _, port = addresses["amqp"].rpartition(":")
            with closing(connect((host, int(port)))) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                if start == 0:
                    channel.exchange_declare("kept", "direct", durable=True)
                    channel.queue_declare("kept", durable=True)
                    channel.queue_bind("kept", "kept", "key")
                    channel.basic_publish("kept", "key", b"persistent", PERSISTENT, mandatory=True)
                    channel.basic_publish("kept", "key", b"transient", mandatory=True)
                else:
                    channel.basic_publish("kept", "key", b"new", PERSISTENT, mandatory=True)
                    assert take(channel, "kept", 2) == [b"persistent", b"new"]
