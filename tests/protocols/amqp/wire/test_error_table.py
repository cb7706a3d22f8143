"""Errors that close a channel or a connection, with code and method, as in RabbitMQ 4.3.6. All other channels and
connections stay open."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import NamedTuple

import pytest
from protocols.amqp.desk import Client, Content, Desk
from protocols.amqp.wires import command, header_frame, publish

from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import CLOSES_CHANNEL, Code
from trimq.protocols.amqp.wire.frames import BODY, HEARTBEAT, METHOD, frame

MESSAGE_BYTES = 1000


class Mistake(NamedTuple):
    """Bytes sent on channel 1, and the class and the method named in the answer."""

    code: int
    about: tuple[int, int]
    sent: bytes | Callable[[Client], None]


def encoded(*sent: methods.Method, channel: int = 1) -> bytes:
    return b"".join(command(channel, method) for method in sent)


def consumed(**flags: bool) -> methods.BasicConsume:
    return methods.BasicConsume(queue="q", consumer_tag="t", **flags)


def declared(name: str = "q", **arguments: object) -> methods.QueueDeclare:
    table = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return methods.QueueDeclare(queue=name, is_durable=True, arguments=table)


def published(key: str = "q", body: bytes = b"", exchange: str = "", header: bytes = b"\0\0") -> bytes:
    return publish(1, methods.BasicPublish(exchange=exchange, routing_key=key), body, header)


def locked(client: Client) -> None:
    other = client.desk.client(1)
    other.ask(1, methods.QueueDeclare(queue="theirs", is_exclusive=True))
    client.tell(1, methods.QueueDeclare(queue="theirs", is_passive=True))


def used_exclusively(client: Client) -> None:
    other = client.desk.client(1)
    other.ask(1, consumed(is_exclusive=True))
    client.tell(1, consumed())


PUBLISH = command(1, methods.BasicPublish(routing_key="q"))

CLOSE_THE_CHANNEL = {
    "a reserved name": Mistake(403, (50, 10), encoded(declared("amq.mine"))),
    "the default exchange": Mistake(403, (50, 20), encoded(methods.QueueBind(queue="q", exchange=""))),
    "deletion of a system exchange": Mistake(403, (40, 20), encoded(methods.ExchangeDelete(exchange="amq.direct"))),
    "an internal exchange": Mistake(403, (60, 40), published(exchange="inside")),
    "an exclusive consumer": Mistake(403, (60, 20), used_exclusively),
    "no such queue": Mistake(404, (60, 20), encoded(methods.BasicConsume(queue="none"))),
    "no such queue to get from": Mistake(404, (60, 70), encoded(methods.BasicGet(queue="none"))),
    "no such queue to purge": Mistake(404, (50, 30), encoded(methods.QueuePurge(queue="none"))),
    "no such exchange": Mistake(404, (60, 40), published(exchange="none")),
    "no such exchange to bind": Mistake(404, (50, 20), encoded(methods.QueueBind(queue="q", exchange="none"))),
    "somebody else's queue": Mistake(405, (50, 10), locked),
    "another queue of this name": Mistake(406, (50, 10), encoded(declared(message_ttl=5))),
    "a bad argument": Mistake(406, (50, 10), encoded(declared("new", message_ttl=-1))),
    "another exchange of this name": Mistake(
        406, (40, 10), encoded(methods.ExchangeDeclare(exchange="amq.direct", type="fanout", is_durable=True))
    ),
    "no such kind of exchange": Mistake(406, (40, 10), encoded(methods.ExchangeDeclare(exchange="new", type="odd"))),
    "an unknown tag": Mistake(406, (60, 80), encoded(methods.BasicAck(7))),
    "an unknown tag to reject": Mistake(406, (60, 90), encoded(methods.BasicReject(7))),
    "an unknown tag to nack": Mistake(406, (60, 120), encoded(methods.BasicNack(7))),
    "a queue in use": Mistake(406, (50, 40), encoded(consumed(), methods.QueueDelete(queue="q", if_unused=True))),
    "a queue with something in it": Mistake(
        406, (50, 40), published() + encoded(methods.QueueDelete(queue="q", if_empty=True))
    ),
    "a message too large": Mistake(406, (60, 40), published(body=bytes(MESSAGE_BYTES + 1))),
    "an expiration that is no number": Mistake(406, (60, 40), published(header=write_properties(expiration="soon"))),
    "somebody else's name": Mistake(406, (60, 40), published(header=write_properties(user_id="bob"))),
    "a commit without a transaction": Mistake(406, (90, 20), encoded(methods.TxCommit())),
    "confirms in a transaction": Mistake(406, (85, 10), encoded(methods.TxSelect(), methods.ConfirmSelect())),
    "a transaction with confirms": Mistake(406, (90, 10), encoded(methods.ConfirmSelect(), methods.TxSelect())),
    "a direct reply without a consumer": Mistake(
        406, (60, 40), published(header=write_properties(reply_to="amq.rabbitmq.reply-to"))
    ),
}

CLOSE_THE_CONNECTION = {
    "a bad end octet": Mistake(501, (0, 0), encoded(methods.BasicQos())[:-1] + b"X"),
    "a frame too large": Mistake(501, (0, 0), pack(">BHI", BODY, 1, 140_000)),
    "an unknown kind of frame": Mistake(501, (0, 0), frame(4, 1, b"abcd")),
    "an unknown method": Mistake(501, (60, 200), frame(METHOD, 1, pack(">HH", 60, 200))),
    "a method cut short": Mistake(501, (50, 10), frame(METHOD, 1, pack(">HH", 50, 10))),
    "a name that is no text": Mistake(
        501, (0, 0), frame(METHOD, 1, pack(">HHHB2sBI", 50, 10, 0, 2, b"\xff\xfe", 0, 0))
    ),
    "a body too long": Mistake(501, (60, 40), PUBLISH + header_frame(1, 1) + frame(BODY, 1, b"ab")),
    "a method of a connection": Mistake(503, (10, 40), encoded(methods.ConnectionOpen("/"))),
    "an answer that only brokers give": Mistake(503, (50, 11), encoded(methods.QueueDeclareOk("q"))),
    "a channel that is not open": Mistake(504, (60, 10), encoded(methods.BasicQos(), channel=5)),
    "a channel opened twice": Mistake(504, (20, 10), encoded(methods.ChannelOpen())),
    "a method on channel 0": Mistake(504, (60, 10), encoded(methods.BasicQos(), channel=0)),
    "a header without a method": Mistake(505, (0, 0), header_frame(1, 0)),
    "a body without a header": Mistake(505, (0, 0), frame(BODY, 1, b"a")),
    "a method instead of a header": Mistake(505, (60, 40), PUBLISH + encoded(methods.BasicQos())),
    "a method instead of a body": Mistake(505, (60, 40), PUBLISH + header_frame(1, 1) + encoded(methods.BasicQos())),
    "a header of another class": Mistake(505, (60, 40), PUBLISH + header_frame(1, 0, class_id=50)),
    "a heartbeat on a channel": Mistake(505, (0, 0), frame(HEARTBEAT, 1, b"")),
    "a tag that is taken": Mistake(530, (60, 20), encoded(consumed(), consumed())),
    "more channels than agreed": Mistake(
        530, (0, 0), encoded(methods.ChannelOpen(), channel=4) + encoded(methods.ChannelOpen(), channel=5)
    ),
    "prefetch by size": Mistake(540, (60, 10), encoded(methods.BasicQos(prefetch_size=1))),
    "immediate delivery": Mistake(
        540, (60, 40), publish(1, methods.BasicPublish(routing_key="q", is_immediate=True), b"")
    ),
    "recovery without requeueing": Mistake(540, (60, 110), encoded(methods.BasicRecover(requeue=False))),
    "flow that is switched off": Mistake(540, (20, 20), encoded(methods.ChannelFlow(active=False))),
    "a stream to get from": Mistake(540, (60, 70), encoded(methods.BasicGet(queue="stream"))),
    "a stream to purge": Mistake(540, (50, 30), encoded(methods.QueuePurge(queue="stream"))),
}


def one_of_two(desk: Desk) -> Client:
    """Opens a client with channels 1, 2 and 3, of four that it may have."""
    client = desk.client(1, 2, channel_max=4)
    client.declare(1, "q")
    client.declare(1, "stream", arguments={"x-queue-type": "stream"})
    client.ask(1, methods.ExchangeDeclare(exchange="inside", type="fanout", is_internal=True))
    client.ask(3, methods.ChannelOpen())
    return client


def make(client: Client, mistake: Mistake) -> None:
    if callable(mistake.sent):
        mistake.sent(client)
    else:
        client.feed(mistake.sent)
    client.desk.settle()


def is_served(client: Client, channel: int) -> bool:
    answer = client.ask(channel, methods.QueueDeclare(is_exclusive=True))
    return isinstance(answer, methods.QueueDeclareOk)


@pytest.mark.parametrize("name", CLOSE_THE_CHANNEL)
def test_an_error_closes_the_channel_alone(name: str) -> None:
    desk = Desk(message_bytes=MESSAGE_BYTES)
    other, client = desk.client(1), one_of_two(desk)
    mistake = CLOSE_THE_CHANNEL[name]
    make(client, mistake)
    closes = [came for came in client.heard_by_channel() if isinstance(came[1], methods.ChannelClose)]
    assert [(channel, close.reply_code, close.class_id, close.method_id) for channel, close in closes] == [
        (1, mistake.code, *mistake.about)
    ]
    assert Code(mistake.code) in CLOSES_CHANNEL
    client.feed(encoded(methods.QueueDeclare(queue="unheard"), methods.BasicQos()))
    desk.settle()
    assert client.heard() == []
    assert is_served(client, 2)
    assert is_served(other, 1)
    client.tell(1, methods.ChannelCloseOk())
    assert isinstance(client.ask(1, methods.ChannelOpen()), methods.ChannelOpenOk)
    assert not any(queue.name == "unheard" for queue in desk.core.queues.parts.queues)


@pytest.mark.parametrize("name", CLOSE_THE_CONNECTION)
def test_an_error_closes_the_connection_and_no_other(name: str) -> None:
    desk = Desk()
    other, client = desk.client(1), one_of_two(desk)
    mistake = CLOSE_THE_CONNECTION[name]
    make(client, mistake)
    closes = [came for came in client.heard() if isinstance(came, methods.ConnectionClose)]
    assert [(close.reply_code, close.class_id, close.method_id) for close in closes] == [(mistake.code, *mistake.about)]
    assert client.is_closed
    assert Code(mistake.code) not in CLOSES_CHANNEL
    client.lose()
    assert is_served(other, 1)


def test_a_message_without_a_route_closes_nothing() -> None:
    desk = Desk()
    client = desk.client(1)
    client.publish(1, "nowhere", b"lost", is_mandatory=True)
    desk.settle()
    (returned,) = client.heard()
    assert isinstance(returned, Content)
    assert (returned.method.reply_code, returned.body) == (312, b"lost")  # type: ignore[attr-defined]
    assert is_served(client, 1)


def test_a_close_by_the_broker_has_its_own_code() -> None:
    client = Desk().client(1)
    (close,) = client.closing_parts()
    assert (close.reply_code, close.class_id, close.method_id) == (320, 0, 0)
