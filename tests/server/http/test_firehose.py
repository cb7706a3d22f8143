"""The firehose, turned on over HTTP: copies as RabbitMQ 4.3.6 was seen to make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from server.http.test_queues import ROOT, ask, connect, with_users

from trimq.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def traced(channel: Any) -> list[tuple[str, bytes, dict[str, Any]]]:
    found = []
    while (got := channel.basic_get("fire", auto_ack=True))[0] is not None:
        method, properties, body = got
        assert method.exchange == "amq.rabbitmq.trace"
        found.append((method.routing_key, body, properties.headers))
    return found


def test_published_and_delivered_messages_are_copied_while_the_firehose_is_on(broker: Broker) -> None:
    client = connect(broker)
    channel = client.channel()
    channel.queue_declare("fire")
    channel.queue_bind("fire", "amq.rabbitmq.trace", "#")
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.fanout")
    channel.basic_publish("", "q", b"before")
    assert channel.basic_get("q", auto_ack=True)[2] == b"before"
    assert traced(channel) == []
    assert ask(broker, "PUT", "/api/firehose/%2F") == (204, None)
    assert ask(broker, "GET", "/api/firehose") == (200, {"firehose": [{"vhost": "/"}]})

    given = pika.BasicProperties(headers={"m": 1}, content_type="text/plain", priority=3)
    channel.basic_publish("amq.fanout", "some.key", b"body", given)
    assert channel.basic_get("q", auto_ack=True)[2] == b"body"
    (first, body, published), (second, again, delivered) = traced(channel)
    assert (first, second, body, again) == ("publish.amq.fanout", "deliver.q", b"body", b"body")
    common = {
        "exchange_name": "amq.fanout", "routing_keys": ["some.key"], "vhost": "/", "user": "guest", "channel": 1,
        "properties": {"headers": {"m": 1}, "content_type": "text/plain", "priority": 3},
    }  # fmt: skip
    for headers, own in ((published, {"routed_queues": ["q"]}), (delivered, {"redelivered": 0})):
        assert headers.pop("node").startswith("trimq@")
        assert headers.pop("connection").startswith("127.0.0.1:")
        assert headers == common | own

    channel.basic_publish("", "q", b"1", pika.BasicProperties(headers={"CC": ["x"], "BCC": ["y"]}))
    for body in (b"2", b"3"):
        channel.basic_publish("", "q", body)
    channel.queue_declare("q", passive=True)
    copies = traced(channel)
    assert [body for _, body, _ in copies] == [b"1", b"2", b"3"]
    assert copies[0][2]["routing_keys"] == copies[0][2]["routed_queues"] == ["q", "x", "y"]
    assert copies[0][2]["properties"] == {"headers": {"CC": ["x"]}}
    for number, (_, _, body) in enumerate(channel.consume("q", auto_ack=True)):
        assert body == b"%d" % (number + 1)
        if number == 2:
            break
    channel.cancel()
    assert [(key, body) for key, body, _ in traced(channel)] == [
        ("deliver.q", b"1"),
        ("deliver.q", b"2"),
        ("deliver.q", b"3"),
    ]

    assert ask(broker, "DELETE", "/api/firehose/%2F") == (204, None)
    channel.basic_publish("", "q", b"after")
    channel.queue_declare("q", passive=True)
    assert traced(channel) == []
    client.close()


def test_the_exchange_of_the_firehose_is_internal(broker: Broker) -> None:
    client = connect(broker)
    client.channel().exchange_declare("amq.rabbitmq.trace", "topic", durable=True, internal=True)
    channel = client.channel()
    channel.basic_publish("amq.rabbitmq.trace", "x", b"")
    with pytest.raises(ChannelClosedByBroker, match="cannot publish to internal exchange"):
        channel.queue_declare("any")
    client.close()


def test_only_administrators_turn_it_on_in_virtual_hosts_that_exist(broker: Broker) -> None:
    assert ask(broker, "PUT", "/api/firehose/nope")[0] == 404
    assert ask(broker, "PUT", "/api/firehose")[0] == 405
    assert ask(broker, "POST", "/api/firehose/%2F")[0] == 405
    assert ask(broker, "PUT", "/api/vhosts/shop")[0] == 204
    assert ask(broker, "PUT", "/api/firehose/shop")[0] == 204
    assert ask(broker, "DELETE", "/api/vhosts/shop")[0] == 204
    assert ask(broker, "GET", "/api/firehose") == (200, {"firehose": []})
    with_users(broker)
    for method in ("PUT", "DELETE"):
        assert ask(broker, method, "/api/firehose/%2F", login=("alice", "hers"))[0] == 403
    assert ask(broker, "GET", "/api/firehose", login=ROOT)[0] == 200
