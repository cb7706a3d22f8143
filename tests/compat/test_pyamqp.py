"""py-amqp, the library below kombu and Celery, used directly against a broker process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from typing import Any

import amqp
import pytest

from tools.broker import running

PATIENCE_S = 20


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield addresses["amqp"]


def connect(address: str, **parameters: Any) -> amqp.Connection:
    connection = amqp.Connection(address, read_timeout=PATIENCE_S, write_timeout=PATIENCE_S, **parameters)
    connection.connect()
    return connection


@pytest.fixture
def channel(address: str) -> Iterator[amqp.Channel]:
    """A channel on which publishing waits for the confirm."""
    with closing(connect(address, confirm_publish=True)) as connection:
        yield connection.channel()


def declare(channel: amqp.Channel, name: str = "", **arguments: Any) -> str:
    table = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    declared = channel.queue_declare(
        name, durable=bool(name), exclusive=not name, auto_delete=False, arguments=table or None
    )
    return str(declared.queue)


def publish(channel: amqp.Channel, queue: str, *bodies: str, **properties: Any) -> None:
    for body in bodies:
        message = amqp.Message(body, channel=channel, delivery_mode=2, **properties)
        channel.basic_publish(message, routing_key=queue, timeout=PATIENCE_S)


def ready(channel: amqp.Channel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).message_count)


def consume(channel: amqp.Channel, queue: str, **options: Any) -> list[amqp.Message]:
    """Starts a consumer. Returns a list that grows whenever the connection is drained."""
    came: list[amqp.Message] = []
    channel.basic_consume(queue, callback=came.append, **options)
    return came


def drain(channel: amqp.Channel, came: list[amqp.Message], count: int) -> list[str]:
    while len(came) < count:
        channel.connection.drain_events(timeout=PATIENCE_S)
    return [message.body for message in came]


def test_confirmed_messages_are_consumed_in_order(channel: amqp.Channel) -> None:
    queue = declare(channel, "orders")
    sent = [str(number) for number in range(50)]
    publish(channel, queue, *sent)
    assert ready(channel, queue) == 50
    came = consume(channel, queue)
    assert drain(channel, came, 50) == sent
    channel.basic_ack(came[-1].delivery_tag, multiple=True)
    channel.basic_cancel(came[-1].delivery_info["consumer_tag"])
    assert channel.queue_delete(queue) == 0


def test_a_rejection_by_a_full_queue_is_noticed(channel: amqp.Channel) -> None:
    queue = declare(channel, max_length=1, overflow="reject-publish")
    publish(channel, queue, "first")
    with pytest.raises(amqp.exceptions.MessageNacked):
        publish(channel, queue, "second")


def test_a_message_without_a_route_is_returned(channel: amqp.Channel) -> None:
    returned: list[tuple[str, str, str, str]] = []
    channel.events["basic_return"].add(
        lambda error, exchange, key, message: returned.append((error.reply_text, exchange, key, message.body))
    )
    channel.basic_publish(amqp.Message("lost"), routing_key="nowhere", mandatory=True, timeout=PATIENCE_S)
    assert returned == [("NO_ROUTE", "", "nowhere", "lost")]


def test_a_consumer_gets_no_more_than_its_prefetch(channel: amqp.Channel) -> None:
    queue = declare(channel)
    publish(channel, queue, *map(str, range(10)))
    channel.basic_qos(0, 3, False)
    came = consume(channel, queue)
    assert drain(channel, came, 3) == ["0", "1", "2"]
    assert ready(channel, queue) == 7
    channel.basic_ack(2, multiple=True)
    assert drain(channel, came, 5) == ["0", "1", "2", "3", "4"]
    assert (ready(channel, queue), len(came)) == (5, 5)


def test_unacked_messages_of_a_lost_connection_are_redelivered(address: str, channel: amqp.Channel) -> None:
    queue = declare(channel, "cut")
    publish(channel, queue, "0", "1", "2")
    other = connect(address)
    assert other.channel().basic_get(queue).body == "0"
    other.transport.sock.shutdown(socket.SHUT_RDWR)  # simulates the death of its machine
    with pytest.raises(OSError, match="closed"):
        other.drain_events(timeout=PATIENCE_S)
    other.collect()
    came = consume(channel, queue, no_ack=True)
    drain(channel, came, 3)
    again = sorted((message.body, message.delivery_info["redelivered"]) for message in came)
    assert again == [("0", True), ("1", False), ("2", False)]


def test_a_rejected_message_is_dead_lettered(channel: amqp.Channel) -> None:
    dead = declare(channel)
    queue = declare(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, queue, "poison")
    channel.basic_reject(channel.basic_get(queue).delivery_tag, requeue=False)
    letter = channel.basic_get(dead, no_ack=True)
    (death,) = letter.headers["x-death"]
    assert (letter.body, death["reason"], death["queue"], death["count"]) == ("poison", "rejected", queue, 1)
    assert isinstance(death["time"], datetime)


def test_an_rpc_request_is_answered_by_direct_reply(address: str, channel: amqp.Channel) -> None:
    queue = declare(channel, "questions")
    answers = consume(channel, "amq.rabbitmq.reply-to", no_ack=True)
    publish(channel, queue, "2+2", reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    with closing(connect(address)) as other:
        server = other.channel()
        question = server.basic_get(queue, no_ack=True)
        answer = amqp.Message("4", correlation_id=question.correlation_id)
        server.basic_publish(answer, routing_key=question.reply_to)
    assert drain(channel, answers, 1) == ["4"]
    assert answers[0].correlation_id == "7"


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 5_000_000])
def test_a_body_of_any_size_survives_a_round_trip(channel: amqp.Channel, size: int) -> None:
    queue = declare(channel)
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    channel.basic_publish(amqp.Message(body), routing_key=queue, timeout=PATIENCE_S)
    came = channel.basic_get(queue, no_ack=True)
    assert bytes(came.body) == body if size else came.body in ("", b"")


def test_headers_keep_their_types(channel: amqp.Channel) -> None:
    queue = declare(channel)
    headers = {
        "text": "é",
        "small": 1,
        "large": 2**40,
        "half": 0.5,
        "flag": True,
        "none": None,
        "money": Decimal("12.34"),
        "when": datetime(2026, 1, 2, 3, 4, 5),
        "list": [1, "a", {"b": [False]}],
    }
    publish(channel, queue, "", application_headers=headers, priority=3, message_id="m")
    came = channel.basic_get(queue, no_ack=True)
    assert (came.headers, came.properties["priority"], came.properties["message_id"]) == (headers, 3, "m")


def test_a_transaction_is_visible_when_it_is_committed(address: str) -> None:
    with closing(connect(address)) as connection:
        channel, seen = connection.channel(), connection.channel()
        queue = declare(seen)
        channel.tx_select()
        channel.basic_publish(amqp.Message("rolled back"), routing_key=queue)
        channel.tx_rollback()
        channel.basic_publish(amqp.Message("kept"), routing_key=queue)
        assert seen.basic_get(queue) is None
        channel.tx_commit()
        assert seen.basic_get(queue, no_ack=True).body == "kept"
        assert seen.basic_get(queue) is None


def test_an_error_closes_the_channel_and_not_the_connection(address: str) -> None:
    with closing(connect(address)) as connection:
        channel = connection.channel()
        with pytest.raises(amqp.NotFound) as raised:
            channel.queue_declare("missing", passive=True)
        assert (raised.value.code, raised.value.method_name) == (404, "Queue.declare")
        with pytest.raises(amqp.PreconditionFailed):
            connection.channel().queue_declare("bad", arguments={"x-message-ttl": -1})
        assert declare(connection.channel()).startswith("amq.gen-")


def test_a_wrong_password_is_refused(address: str) -> None:
    connection = amqp.Connection(address, password="wrong")
    with pytest.raises(amqp.AccessRefused):
        connection.connect()
    connection.collect()


def test_a_thousand_queues_are_made_used_and_deleted(address: str) -> None:
    """All requests are sent with nowait."""
    names = [f"many.{number}" for number in range(1000)]
    with closing(connect(address)) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name, durable=True, auto_delete=False, nowait=True)
            publish(channel, name, name)
        assert [channel.basic_get(name, no_ack=True).body for name in names] == names
        for name in names:
            channel.queue_delete(name, nowait=True)
        with pytest.raises(amqp.NotFound):
            channel.queue_declare(names[-1], passive=True)
