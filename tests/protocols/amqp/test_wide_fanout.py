"""Batches of messages for many queues are published in slices, in order, with confirms for all."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.amqp.desk import Client, Desk
from protocols.amqp.wires import command, publish

from trimq.core.queues import publisher
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.front_end import UnfinishedBatch

QUEUES = 40
MESSAGES = 50
TO_WIDE = methods.BasicPublish(exchange="wide", routing_key="k")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(publisher, "_APPENDS_PER_SLICE", 200)  # five messages
    client = Desk().client(1)
    client.ask(1, methods.ExchangeDeclare(exchange="wide", type="fanout"))
    for number in range(QUEUES):
        client.declare(1, f"q{number}")
        client.ask(1, methods.QueueBind(queue=f"q{number}", exchange="wide"))
    client.heard()
    return client


def events_of(client: Client, data: bytes) -> list[Any]:
    """Feeds the bytes, and returns the events that were handled."""
    conversation: Any = client._conversation
    seen = []
    handle = conversation.handle

    def recorded(event: object) -> object:
        seen.append(event)
        return handle(event)

    conversation.handle = recorded
    try:
        client.feed(data)
    finally:
        del conversation.handle
    return seen


def test_messages_for_many_queues_are_published_in_slices_and_in_order(client: Client) -> None:
    bodies = [b"%d" % number for number in range(MESSAGES)]
    events = events_of(client, b"".join(publish(1, TO_WIDE, body) for body in bodies))
    assert len([event for event in events if isinstance(event, UnfinishedBatch)]) >= MESSAGES // 5 - 2
    for queue in ("q0", f"q{QUEUES - 1}"):
        got = [client.ask(1, methods.BasicGet(queue=queue, no_ack=True)).body for _ in bodies]
        assert got == bodies


def test_all_messages_of_a_sliced_batch_are_confirmed_before_a_later_command_is_answered(client: Client) -> None:
    client.ask(1, methods.ConfirmSelect())
    declare = methods.QueueDeclare(queue="q0", is_passive=True)
    client.feed(publish(1, TO_WIDE, b"x") * MESSAGES + command(1, declare))
    client.desk.settle()
    heard = client.heard()
    acks = [each for each in heard if isinstance(each, methods.BasicAck)]
    assert acks[-1].delivery_tag == MESSAGES
    (declared,) = [each for each in heard if isinstance(each, methods.QueueDeclareOk)]
    assert declared.message_count == MESSAGES


def test_a_lost_connection_ends_a_sliced_batch(client: Client) -> None:
    client.share = 2
    client.feed(publish(1, TO_WIDE, b"x") * MESSAGES)
    assert client._conversation._unfinished is not None
    conversation = client._conversation
    client.lose()
    assert conversation._unfinished is None
