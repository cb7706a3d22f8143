"""Batches of messages for many queues are published in slices: some of the queues in each, with all messages, in order,
and with confirms for all."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.amqp.desk import Client, Desk
from protocols.amqp.wires import command, publish

from trimq.core.queues import publisher
from trimq.core.queues.policies import Policy
from trimq.model import Caller
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.front_end import UnfinishedBatch

QUEUES = 40
MESSAGES = 50
CALLER = Caller(principal="guest", client_id="", address="127.0.0.1:1", protocol="http")
TO_WIDE = methods.BasicPublish(exchange="wide", routing_key="k")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(publisher, "_APPENDS_PER_SLICE", 200)  # four queues
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
    assert len([event for event in events if isinstance(event, UnfinishedBatch)]) == QUEUES // 4 - 1
    for queue in ("q0", f"q{QUEUES - 1}"):
        got = [client.ask(1, methods.BasicGet(queue=queue, no_ack=True)).body for _ in bodies]
        assert got == bodies


def counts(client: Client) -> list[int]:
    """Messages of each queue that are appended."""
    found = [client.desk.core.broker.queues.find(CALLER, f"q{number}") for number in range(QUEUES)]
    return [queue.ready_count for queue in found if queue is not None]


def test_a_queue_gets_all_messages_of_a_batch_in_one_slice(client: Client) -> None:
    client.share = 1
    client.feed(publish(1, TO_WIDE, b"x") * MESSAGES)
    for done in range(4, QUEUES, 4):
        assert counts(client) == [MESSAGES] * done + [0] * (QUEUES - done)
        client.go_on()
    assert counts(client) == [MESSAGES] * QUEUES


def test_few_messages_for_very_many_queues_are_sliced_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "_QUEUES_PER_SLICE", 10)
    events = events_of(client, publish(1, TO_WIDE, b"x") * 2)
    assert len([event for event in events if isinstance(event, UnfinishedBatch)]) == QUEUES // 10 - 1
    assert counts(client) == [2] * QUEUES


def test_a_queue_that_a_policy_limits_during_a_batch_takes_the_rest_of_it(client: Client) -> None:
    client.ask(1, methods.ConfirmSelect())
    client.share = 1
    client.feed(publish(1, TO_WIDE, b"x") * MESSAGES)
    assert counts(client)[-1] == 0
    limit = {"max-length": 1, "overflow": "reject-publish"}
    client.desk.core.broker.policies.define(CALLER, Policy("", "p", f"^q{QUEUES - 1}$", limit))
    client.share = 1 << 30
    client.desk.settle()
    assert counts(client) == [MESSAGES] * QUEUES
    (confirmed,) = [each for each in client.heard() if not isinstance(each, methods.ConfirmSelectOk)]
    assert confirmed == methods.BasicAck(MESSAGES, True)


def test_a_batch_with_a_new_key_is_sliced_too(client: Client) -> None:
    other = methods.BasicPublish(exchange="wide", routing_key="other")
    events = events_of(client, publish(1, other, b"x") * MESSAGES)
    assert len([event for event in events if isinstance(event, UnfinishedBatch)]) == QUEUES // 4 - 1
    assert counts(client) == [MESSAGES] * QUEUES
    client.feed(publish(1, methods.BasicPublish(exchange="wide", routing_key="third"), b"x") + publish(1, other, b"x"))
    assert counts(client) == [MESSAGES + 2] * QUEUES


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
