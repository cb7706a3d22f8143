"""`trimq producers` against a double of the HTTP port."""

from __future__ import annotations

import json

from trimq.cli.output import local_time

CONNECTED = {
    "protocol": "rocketmq",
    "group": "cashiers",
    "client_id": "10.0.0.1@7",
    "host": "10.0.0.1:4000",
    "language": "JAVA",
    "version": "493",
    "heartbeat_age_ms": 12_000,
}
REMEMBERED = {
    "protocol": "kafka",
    "producer_id": 5,
    "epoch": 1,
    "transactional_id": "till-1",
    "topic": "orders",
    "stream": 0,
    "last_ms": 99_000,
    "open_from": None,
}


def test_producers_of_both_protocols_are_listed(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/producers"] = 200, {"producers": [CONNECTED, REMEMBERED]}
    done = trimq("producers", "list", "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "rocketmq group  client      host           language  version  last heartbeat",
        "cashiers        10.0.0.1@7  10.0.0.1:4000  JAVA      493      12 s ago",
        "",
        "kafka id  epoch  transactional id  topic   stream  last message         transaction since offset",
        f"       5      1  till-1            orders       0  {local_time(99_000)}  -",
    ]
    as_json = trimq("producers", "list", "--json", "--http", broker_http.address)
    assert json.loads(as_json.stdout) == {"producers": [CONNECTED, REMEMBERED]}
