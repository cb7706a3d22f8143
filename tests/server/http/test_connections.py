"""Connections of clients over HTTP: listed with what their protocol knows of them, and closed one by one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker
from server.http.test_queues import PATIENCE_S, ROOT, ask, with_users

from trimq.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def connect(broker: Broker, connection_name: str, **login: Any) -> pika.BlockingConnection:
    host, _, port = broker.addresses["amqp"].rpartition(":")
    properties = {"connection_name": connection_name}
    parameters = pika.ConnectionParameters(
        host, int(port), socket_timeout=PATIENCE_S, client_properties=properties, **login
    )
    return pika.BlockingConnection(parameters)


def listed(broker: Broker, protocol: str = "amqp") -> list[dict[str, Any]]:
    status, answer = ask(broker, "GET", "/api/connections")
    assert status == 200
    return [found for found in answer["connections"] if found["protocol"] == protocol]


def test_connections_are_listed_with_user_channels_and_properties(broker: Broker) -> None:
    first, second = connect(broker, "billing"), connect(broker, "mails")
    second.channel()
    second.channel()
    found = {connection["client_id"]: connection for connection in listed(broker)}
    assert {name: connection["channels"] for name, connection in found.items()} == {"billing": 0, "mails": 2}
    billing = found["billing"]
    assert billing["name"] == f"{billing['address']} -> {broker.addresses['amqp']}"
    assert (billing["user"], billing["vhost"], billing["listener"]) == ("guest", "/", "amqp")
    assert billing["client_properties"]["connection_name"] == "billing"
    assert billing["client_properties"]["capabilities"]["basic.nack"] is True
    assert billing["connected_ms"] > 1_600_000_000_000
    first.close()
    second.close()
    with socket.create_connection(broker.addresses["kafka"].rsplit(":", 1)) as kafka:
        assert [found["address"].split(":")[1] for found in listed(broker, "kafka")] == [str(kafka.getsockname()[1])]


def test_one_connection_is_closed_with_a_reason_and_the_others_stay(broker: Broker) -> None:
    first, second = connect(broker, "first"), connect(broker, "second")
    channel = first.channel()
    channel.queue_declare("own", exclusive=True)
    (name,) = [found["name"] for found in listed(broker) if found["client_id"] == "first"]
    path = f"/api/connections/{quote(name, safe='')}"
    assert ask(broker, "DELETE", f"{path}?reason=maintenance") == (204, None)
    assert ask(broker, "GET", "/api/queues")[1] == {"queues": []}  # its exclusive queue went with it
    with pytest.raises(ConnectionClosedByBroker) as closed:
        channel.queue_declare("q")
    assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - maintenance")
    assert second.is_open
    second.channel().close()
    second.close()
    assert ask(broker, "DELETE", path)[0] == 404
    assert ask(broker, "POST", path)[0] == 405
    assert ask(broker, "PUT", "/api/connections")[0] == 405


def test_connections_of_other_protocols_are_closed_too(broker: Broker) -> None:
    with socket.create_connection(broker.addresses["kafka"].rsplit(":", 1), timeout=PATIENCE_S) as kafka:
        (found,) = listed(broker, "kafka")
        assert ask(broker, "DELETE", f"/api/connections/{quote(found['name'], safe='')}") == (204, None)
        assert kafka.recv(1) == b""


def test_only_administrators_see_and_close_connections(broker: Broker) -> None:
    with_users(broker)
    assert ask(broker, "GET", "/api/connections", login=("alice", "hers"))[0] == 403
    assert ask(broker, "DELETE", "/api/connections/any", login=("alice", "hers"))[0] == 403
    assert ask(broker, "GET", "/api/connections", login=ROOT)[0] == 200
