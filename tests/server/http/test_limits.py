"""Limits that are changed while the broker runs, over HTTP, beside AMQP clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pika
import pytest
from server.http.test_queues import PATIENCE_S, ROOT, ask, connect, with_users

from trimq.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_limits_are_shown_and_changed_one_by_one(broker: Broker) -> None:
    expected = {"memory_percent": 60, "low_water_bytes": 256 << 20, "channel_max": 2047}
    assert ask(broker, "GET", "/api/limits") == (200, expected)
    expected["low_water_bytes"] = 5
    assert ask(broker, "PATCH", "/api/limits", {"low_water_bytes": 5}) == (200, expected)
    for body in ({"memory_percent": 101}, {"channel_max": -1}, {"memory": 1}):
        assert ask(broker, "PATCH", "/api/limits", body)[0] == 400
    assert ask(broker, "DELETE", "/api/limits")[0] == 405
    assert ask(broker, "GET", "/api/limits") == (200, expected)
    with_users(broker)
    assert ask(broker, "PATCH", "/api/limits", {"channel_max": 5}, ("alice", "hers"))[0] == 403
    assert ask(broker, "GET", "/api/limits", login=ROOT) == (200, expected)


def test_channel_max_holds_for_new_connections(broker: Broker) -> None:
    before = connect(broker)
    assert ask(broker, "PATCH", "/api/limits", {"channel_max": 2})[0] == 200
    after = connect(broker)
    assert after._impl.params.channel_max == 2
    assert before.channel(7).is_open
    before.close()
    after.close()


@pytest.mark.parametrize("alarm", [{"memory_percent": 0}, {"low_water_bytes": 1 << 62}])
def test_an_alarm_that_is_set_blocks_publishers_until_it_is_cleared(broker: Broker, alarm: dict[str, int]) -> None:
    client = connect(broker)
    channel = client.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"before")
    normal = ask(broker, "GET", "/api/limits")[1]
    assert ask(broker, "PATCH", "/api/limits", alarm)[0] == 200
    blocked, unblocked = threading.Event(), threading.Event()
    client.add_on_connection_blocked_callback(lambda connection, method: blocked.set())
    client.add_on_connection_unblocked_callback(lambda connection, method: unblocked.set())
    channel.basic_publish("", "q", b"during")
    _wait(client, blocked)
    assert ask(broker, "PATCH", "/api/limits", normal)[0] == 200
    _wait(client, unblocked)
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"before", b"during"]
    client.close()


def _wait(client: pika.BlockingConnection, event: threading.Event) -> None:
    for _ in range(PATIENCE_S * 10):
        client.process_data_events(0.1)
        if event.is_set():
            return
    raise AssertionError("the broker did not tell")
