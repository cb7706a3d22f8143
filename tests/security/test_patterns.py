"""Attack t13: patterns of policies and rights that backtrack exponentially with Python's own regular expressions."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest
from security.attacked import others_are_served

from tools.broker import running
from tools.users import _put, make_users

PATTERN = "^(a+)+$"
NAME = "a" * 200 + "!"


def test_a_policy_and_a_right_with_a_pattern_that_backtracks_keep_nobody_waiting(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        http = f"http://{addresses['http']}"
        make_users(http, alice={"configure": PATTERN, "write": PATTERN, "read": PATTERN})
        _put(http, "/api/policies/evil", {"pattern": PATTERN, "definition": {"max-length": 10}})
        host, _, port = addresses["amqp"].rpartition(":")

        def attack() -> None:
            begin = time.monotonic()
            parameters = pika.ConnectionParameters(host, int(port), credentials=pika.PlainCredentials("root", "root's"))
            with pika.BlockingConnection(parameters) as connection:
                connection.channel().queue_declare(NAME, durable=True)
            parameters.credentials = pika.PlainCredentials("alice", "alice's")
            refused = pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED")
            with pika.BlockingConnection(parameters) as connection, refused:
                connection.channel().queue_declare(NAME, passive=True)
            assert time.monotonic() - begin < 20

        others_are_served(addresses["http"], attack)
    (tmp_path / "ready.json").unlink()
    with running(tmp_path):  # and no start takes long with them
        pass
