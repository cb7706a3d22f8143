"""Permissions: they are checked before anything about an object is revealed, and refusals have the texts of RabbitMQ
4.3.6."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.amqp.desk import Client, Desk
from protocols.amqp.wires import command, publish

from trimq.core.security.access import Right
from trimq.formats.amqp_content.property_list import read_property, write_properties
from trimq.protocols.amqp import methods

OWN = r"^(amq\.gen.*|mine.*)"


def open_desk(write: str = r"^(amq\.gen.*|mine.*|amq\.default)$") -> tuple[Desk, Client]:
    """Opens a desk with objects named `mine`, which the user may use, and others, which the user may not."""
    desk = Desk()
    access = desk.core.broker._access
    access.define_user("root", "secret", is_administrator=True)
    access.define_user("u", "secret")
    access.grant(Right("u", "", configure=OWN, write=write, read=OWN))
    desk.settle()
    root = desk.client(1, user="root", password="secret")
    root.ask(1, methods.ExchangeDeclare(exchange="secret", type="fanout"))
    root.ask(1, methods.ExchangeDeclare(exchange="inside", type="fanout", is_internal=True))
    root.ask(1, methods.ExchangeDeclare(exchange="mine.there", type="direct"))
    root.declare(1, "secretq")
    root.declare(1, "mine1")
    root.ask(1, methods.QueueBind(queue="secretq", exchange="secret"))
    return desk, desk.client(1, user="u", password="secret")


def queue_declare(name: str, passive: bool = False, **arguments: object) -> methods.QueueDeclare:
    table: Any = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return methods.QueueDeclare(queue=name, is_durable=True, is_passive=passive, arguments=table)


def exchange_declare(name: str, kind: str = "direct", passive: bool = False, **arguments: Any) -> methods.Method:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    return methods.ExchangeDeclare(exchange=name, type=kind, is_passive=passive, arguments=table)


def published(exchange: str, **properties: Any) -> bytes:
    return publish(1, methods.BasicPublish(exchange=exchange, routing_key="k"), b"", write_properties(**properties))


def denied(action: str, kind: str, name: str) -> tuple[int, str]:
    return 403, f"ACCESS_REFUSED - {action} access to {kind} '{name}' in vhost '/' refused for user 'u'"


DEFAULT = 403, "ACCESS_REFUSED - operation not permitted on the default exchange"
SYSTEM = 403, "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
RESERVED = 403, "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'"
UNKNOWN_KIND = 406, "PRECONDITION_FAILED - unknown exchange type 'odd'"

REFUSED: list[tuple[methods.Method | bytes, tuple[int, str]]] = [
    (queue_declare("other"), denied("configure", "queue", "other")),
    (queue_declare("secretq"), denied("configure", "queue", "secretq")),
    (queue_declare("other", message_ttl=-1), denied("configure", "queue", "other")),
    (queue_declare("amq.foo"), RESERVED),
    (queue_declare("secretq", passive=True), denied("configure", "queue", "secretq")),
    (queue_declare("none", passive=True), denied("configure", "queue", "none")),
    (queue_declare("mine2", dead_letter_exchange="secret"), denied("write", "exchange", "secret")),
    (exchange_declare("secret", passive=True), denied("configure", "exchange", "secret")),
    (exchange_declare("none", passive=True), denied("configure", "exchange", "none")),
    (exchange_declare("other"), denied("configure", "exchange", "other")),
    (exchange_declare("other", "odd"), UNKNOWN_KIND),
    (exchange_declare("amq.foo"), denied("configure", "exchange", "amq.foo")),
    (exchange_declare(""), DEFAULT),
    (exchange_declare("mine.x", alternate_exchange="secret"), denied("write", "exchange", "secret")),
    (exchange_declare("mine.x", alternate_exchange="none"), denied("write", "exchange", "none")),
    (published("none"), denied("write", "exchange", "none")),
    (published("secret"), denied("write", "exchange", "secret")),
    (published("inside"), denied("write", "exchange", "inside")),
    (published("secret", user_id="root"), denied("write", "exchange", "secret")),
    (published("secret", reply_to="amq.rabbitmq.reply-to"), denied("write", "exchange", "secret")),
    (methods.BasicGet(queue="none"), denied("read", "queue", "none")),
    (methods.BasicGet(queue="secretq"), denied("read", "queue", "secretq")),
    (methods.BasicConsume(queue="none"), denied("read", "queue", "none")),
    (methods.BasicConsume(queue="secretq"), denied("read", "queue", "secretq")),
    (methods.QueuePurge(queue="none"), denied("read", "queue", "none")),
    (methods.QueuePurge(queue="secretq"), denied("read", "queue", "secretq")),
    (methods.QueueDelete(queue="none"), denied("configure", "queue", "none")),
    (methods.ExchangeDelete(exchange="none"), denied("configure", "exchange", "none")),
    (methods.ExchangeDelete(exchange="amq.direct"), SYSTEM),
    (methods.QueueBind(queue="none", exchange="secret"), denied("write", "queue", "none")),
    (methods.QueueBind(queue="mine1", exchange="secret"), denied("read", "exchange", "secret")),
    (methods.QueueBind(queue="mine1", exchange="none"), denied("read", "exchange", "none")),
    (methods.QueueBind(queue="mine1", exchange="", routing_key="k"), DEFAULT),
    (methods.QueueBind(queue="none", exchange="", routing_key="k"), denied("write", "queue", "none")),
    (methods.QueueUnbind(queue="none", exchange="secret"), denied("write", "queue", "none")),
    (methods.ExchangeBind(destination="secret", source="mine.there"), denied("write", "exchange", "secret")),
    (methods.ExchangeBind(destination="mine.there", source="secret"), denied("read", "exchange", "secret")),
    (methods.ExchangeBind(destination="", source="secret"), DEFAULT),
]


@pytest.mark.parametrize(("asked", "answer"), REFUSED)
def test_without_a_permission_access_is_refused_and_nothing_is_revealed(
    asked: methods.Method | bytes, answer: tuple[int, str]
) -> None:
    desk, client = open_desk()
    client.feed(asked if isinstance(asked, bytes) else command(1, asked))
    desk.settle()
    (close,) = client.heard()
    assert (close.reply_code, close.reply_text) == answer


def test_with_a_permission_a_missing_object_is_reported() -> None:
    _, client = open_desk()
    for number, asked in enumerate((methods.BasicConsume(queue="mine.none"), methods.BasicGet(queue="mine.none")), 2):
        client.ask(number, methods.ChannelOpen())
        assert client.ask(number, asked).reply_code == 404


@pytest.mark.parametrize("alternate", ["mine.y", ""])
def test_an_alternate_exchange_that_the_user_may_write_to_is_accepted(alternate: str) -> None:
    _, client = open_desk()
    answer = client.ask(1, exchange_declare("mine.x", alternate_exchange=alternate))
    assert isinstance(answer, methods.ExchangeDeclareOk)


def test_permission_for_a_server_named_queue_is_checked_by_the_generated_name() -> None:
    desk, client = open_desk()
    declared = client.ask(1, methods.QueueDeclare(queue="", is_exclusive=True))
    assert declared.queue.startswith("amq.gen-")
    assert client.ask(1, methods.QueueDelete(queue=declared.queue)).message_count == 0
    desk.core.broker._access.grant(Right("u", "", configure="^mine", write=".*", read=".*"))
    desk.settle()
    refused = client.ask(1, methods.QueueDeclare(queue="", is_exclusive=True))
    assert refused.reply_text.startswith("ACCESS_REFUSED - configure access to queue 'amq.gen-")


def test_a_direct_reply_needs_write_permission_on_the_default_exchange() -> None:
    desk, client = open_desk(write="^mine")
    asking = desk.client(1, user="root", password="secret")
    asking.ask(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
    asking.publish(1, "mine1", b"question", header=write_properties(reply_to="amq.rabbitmq.reply-to"))
    desk.settle()
    question = client.ask(1, methods.BasicGet(queue="mine1", no_ack=True))
    client.publish(1, read_property(question.header, "reply_to"), b"answer")
    desk.settle()
    (close,) = client.heard()
    assert (close.reply_code, close.reply_text) == denied("write", "exchange", "amq.default")
    assert asking.heard() == []


def test_an_existing_object_may_be_redeclared_without_permission_on_its_target_exchange() -> None:
    desk, client = open_desk()
    root = desk.client(1, user="root", password="secret")
    root.ask(1, exchange_declare("mine.x", alternate_exchange="secret"))
    root.ask(1, queue_declare("mine2", dead_letter_exchange="secret"))
    assert isinstance(client.ask(1, exchange_declare("mine.x", alternate_exchange="secret")), methods.ExchangeDeclareOk)
    assert client.ask(1, queue_declare("mine2", dead_letter_exchange="secret")).queue == "mine2"
