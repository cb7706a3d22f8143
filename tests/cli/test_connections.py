"""`trimq connections` against a double of the HTTP port."""

from __future__ import annotations

import json

from trimq.cli.output import local_time

CONNECTION = {
    "name": "127.0.0.1:4000 -> 127.0.0.1:5672", "listener": "amqp", "protocol": "amqp", "address": "127.0.0.1:4000",
    "connected_ms": 99, "user": "guest", "vhost": "/", "client_id": "billing", "channels": 2, "client_properties": {},
}  # fmt: skip
OTHER = CONNECTION | {"name": "a -> b", "protocol": "kafka", "vhost": None, "channels": None}


def test_connections_are_listed_in_columns(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/connections"] = 200, {"connections": [CONNECTION, OTHER]}
    done = trimq("connections", "list", "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    since = local_time(99).split()
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["name", "protocol", "user", "vhost", "client_id", "channels", "connected"],
        ["127.0.0.1:4000", "->", "127.0.0.1:5672", "amqp", "guest", "/", "billing", "2", *since],
        ["a", "->", "b", "kafka", "guest", "billing", *since],
    ]
    as_json = trimq("connections", "list", "--json", "--http", broker_http.address)
    assert json.loads(as_json.stdout) == {"connections": [CONNECTION, OTHER]}


def test_a_connection_is_closed_with_a_reason(trimq, broker_http) -> None:
    broker_http.answers["DELETE", "/api/connections/a%20-%3E%20b?reason=too+old"] = 204, None
    broker_http.answers["DELETE", "/api/connections/a%20-%3E%20b"] = 204, None
    for flags in (("--reason", "too old"), ()):
        done = trimq("connections", "close", "a -> b", *flags, "--http", broker_http.address)
        assert (done.returncode, done.stdout) == (0, "closed a -> b\n")
