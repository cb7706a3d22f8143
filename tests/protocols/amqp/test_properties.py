"""Properties of published messages that are not UTF-8. AMQP calls them UTF-8; clients send any bytes."""

from __future__ import annotations

import pytest
from protocols.amqp.desk import Desk

from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods

TEXTS = ("content_type", "content_encoding", "correlation_id", "message_id", "type", "app_id", "cluster_id", "reply_to")


def header(name: str) -> bytes:
    return write_properties(**{name: "12"}).replace(b"12", b"\xff\xfe")


@pytest.mark.parametrize("name", TEXTS)
def test_a_property_of_any_bytes_is_delivered_as_it_was_sent(name: str) -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"body", header=header(name))
    assert client.ask(1, methods.BasicGet(queue="q", no_ack=True)).header == header(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("expiration", r"PRECONDITION_FAILED - invalid expiration '\udcff\udcfe': no_integer"),
        (
            "user_id",
            r"PRECONDITION_FAILED - user_id property set to '\udcff\udcfe' but authenticated user was 'guest'",
        ),
    ],
)
def test_an_expiration_or_a_user_that_is_not_text_closes_the_channel(name: str, text: str) -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"body", header=header(name))
    (closed,) = client.heard()
    assert isinstance(closed, methods.ChannelClose)
    assert (closed.reply_code, closed.reply_text) == (406, text)


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_a_hashed_property_of_any_bytes_is_routed(name: str) -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    arguments = {"hash-property": name}
    client.ask(1, methods.ExchangeDeclare(exchange="h", type="x-consistent-hash", arguments=arguments))
    client.ask(1, methods.QueueBind(queue="q", exchange="h", routing_key="1"))
    client.publish(1, "any", b"body", header=header(name), exchange="h")
    assert client.ask(1, methods.BasicGet(queue="q", no_ack=True)).body == b"body"
