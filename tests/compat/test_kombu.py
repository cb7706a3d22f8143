"""kombu, with py-amqp below it, against a broker process: producers, consumers, confirms, compression, redelivery, dead
letters, RPC. It does not support transactions."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import amqp
import kombu
import pytest
from compat.cables import cable_to

from tools.broker import running

PATIENCE_S = 20


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield addresses["amqp"]


@pytest.fixture(scope="module")
def url(address: str) -> str:
    return f"pyamqp://guest:guest@{address}//"


@pytest.fixture
def connection(url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        yield connection


def consume(connection: kombu.Connection, queue: kombu.Queue, count: int) -> list[Any]:
    came: list[Any] = []

    def take(body: Any, message: Any) -> None:
        came.append(body)
        message.ack()

    with connection.Consumer(queue, callbacks=[take], prefetch_count=5):
        while len(came) < count:
            connection.drain_events(timeout=PATIENCE_S)
    return came


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_published_messages_are_consumed(connection: kombu.Connection, kind: str) -> None:
    exchange = kombu.Exchange(f"kombu.{kind}", kind)
    queue = kombu.Queue(f"kombu.{kind}", exchange, routing_key="key")
    producer = connection.Producer()
    sent = [{"number": number, "text": "é"} for number in range(20)]
    for body in sent:
        producer.publish(body, exchange=exchange, routing_key="key", declare=[queue], compression="zlib")
    assert consume(connection, queue, 20) == sent


def test_priorities_are_kept(connection: kombu.Connection) -> None:
    queue = kombu.Queue("kombu.ranked", max_priority=10)
    producer = connection.Producer()
    for priority in (0, 9, 5):
        producer.publish(priority, routing_key=queue.name, declare=[queue], priority=priority)
    assert consume(connection, queue, 3) == [9, 5, 0]


def test_a_simple_queue_is_simple(connection: kombu.Connection) -> None:
    with connection.SimpleQueue("kombu.simple") as queue:
        queue.put({"a": 1})
        message = queue.get(timeout=PATIENCE_S)
        message.ack()
        assert message.payload == {"a": 1}
        assert queue.qsize() == 0


def test_a_message_without_a_route_is_returned(connection: kombu.Connection) -> None:
    returned: list[tuple[str, str]] = []
    producer = connection.Producer(on_return=lambda error, _exchange, key, _message: returned.append((str(error), key)))
    producer.publish("lost", routing_key="kombu.nowhere", mandatory=True)
    ((error, key),) = returned
    assert ("312" in error or "NO_ROUTE" in error, key) == (True, "kombu.nowhere")


def test_a_rejection_by_a_full_queue_is_noticed(connection: kombu.Connection) -> None:
    queue = kombu.Queue("kombu.full", max_length=1, queue_arguments={"x-overflow": "reject-publish"})
    producer = connection.Producer()
    producer.publish("first", routing_key=queue.name, declare=[queue])
    with pytest.raises(amqp.exceptions.MessageNacked):
        producer.publish("second", routing_key=queue.name)


def drain(connection: kombu.Connection, came: list[Any], count: int) -> None:
    while len(came) < count:
        connection.drain_events(timeout=PATIENCE_S)


def test_a_consumer_gets_no_more_than_its_prefetch(connection: kombu.Connection) -> None:
    queue = kombu.Queue("kombu.prefetch")
    producer = connection.Producer()
    for number in range(10):
        producer.publish(number, routing_key=queue.name, declare=[queue])
    came: list[Any] = []
    with connection.Consumer(queue, on_message=came.append, prefetch_count=3) as consumer:
        drain(connection, came, 3)
        assert queue(consumer.channel).queue_declare(passive=True).message_count == 7
        assert len(came) == 3
        came[1].ack(multiple=True)
        drain(connection, came, 5)
    assert [message.payload for message in came] == [0, 1, 2, 3, 4]


def test_a_consumer_whose_connection_is_cut_resumes(address: str) -> None:
    """After a reconnect it declares and consumes again, as `ConsumerMixin` and `ensure` do."""
    with cable_to(address) as cable, kombu.Connection(f"pyamqp://guest:guest@{cable.address}//") as connection:
        queue = kombu.Queue("kombu.cut")
        for number in range(3):
            connection.Producer().publish(number, routing_key=queue.name, declare=[queue])
        came: list[Any] = []
        lost: list[BaseException] = []

        def consume(channel: Any = None) -> None:
            with kombu.Consumer(channel or connection.default_channel, queue, on_message=came.append):
                drain(connection, came, 3 if not lost else 6)
                if not lost:
                    cable.cut()
                    connection.drain_events(timeout=PATIENCE_S)
                came[-1].ack(multiple=True)

        connection.ensure(connection, consume, errback=lambda error, _wait: lost.append(error), interval_start=0)()
        assert len(lost) == 1
        flags = [(message.payload, message.delivery_info["redelivered"]) for message in came]
        assert flags == [(0, False), (1, False), (2, False), (0, True), (1, True), (2, True)]


def test_a_rejected_message_is_dead_lettered(connection: kombu.Connection) -> None:
    dead = kombu.Queue("kombu.dead", kombu.Exchange("kombu.dead", "fanout"))
    queue = kombu.Queue("kombu.doomed", queue_arguments={"x-dead-letter-exchange": "kombu.dead"})
    connection.Producer().publish("poison", routing_key=queue.name, declare=[queue, dead])
    queue(connection.default_channel).get().reject()
    letter = dead(connection.default_channel).get(no_ack=True)
    (death,) = letter.headers["x-death"]
    assert (letter.payload, death["queue"], death["reason"]) == ("poison", queue.name, "rejected")


def test_an_rpc_request_is_answered_by_direct_reply(connection: kombu.Connection) -> None:
    questions = kombu.Queue("kombu.questions")
    answers: list[Any] = []
    replies = kombu.Queue("amq.rabbitmq.reply-to", no_declare=True)
    with connection.Consumer(replies, on_message=answers.append, no_ack=True) as consumer:
        producer = kombu.Producer(consumer.channel)
        producer.publish("2+2", routing_key=questions.name, declare=[questions], reply_to=replies.name)
        question = questions(connection.default_channel).get(no_ack=True)
        connection.Producer().publish(4, routing_key=question.properties["reply_to"])
        drain(connection, answers, 1)
    assert [answer.payload for answer in answers] == [4]


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 5_000_000])
def test_a_body_of_any_size_survives_a_round_trip(connection: kombu.Connection, size: int) -> None:
    queue = kombu.Queue("kombu.bodies")
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    connection.Producer().publish(
        body,
        routing_key=queue.name,
        declare=[queue],
        content_type="application/octet-stream",
        content_encoding="binary",
    )
    came = queue(connection.default_channel).get(no_ack=True)
    assert bytes(came.body or b"") == body  # kombu decodes an empty body as text


def test_heartbeats_keep_an_idle_connection_open(url: str) -> None:
    with kombu.Connection(url, heartbeat=1) as connection:
        connection.connect()
        for _ in range(16):
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.25)
            connection.heartbeat_check()
        with connection.SimpleQueue("kombu.alive") as queue:
            queue.put("alive")
            assert queue.get(timeout=PATIENCE_S).payload == "alive"


def test_a_thousand_queues_are_made_used_and_deleted(connection: kombu.Connection) -> None:
    names = [f"kombu.many.{number}" for number in range(1000)]
    queues = [kombu.Queue(name, durable=False, exclusive=True)(connection.default_channel) for name in names]
    producer = connection.Producer()
    for queue in queues:
        queue.declare()
        producer.publish(queue.name, routing_key=queue.name)
    assert [queue.get(no_ack=True).payload for queue in queues] == names
    assert {queue.delete() for queue in queues} == {0}
