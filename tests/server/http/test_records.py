"""Streams over HTTP: their list, and the stored bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from errno import EMFILE
from http.client import HTTPConnection
from typing import Any

import pika
import pytest

from trimq.core.api.records import ReadPosition, ReadResult, _PartitionTopic
from trimq.errors import ColdRead
from trimq.formats.amqp_content.content import read_stored
from trimq.formats.kafka_batch.records import to_records
from trimq.testing import Broker, BrokerFailed


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ask(broker: Broker, target: str, method: str = "GET") -> tuple[int, bytes]:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask_json(broker: Broker, target: str, method: str = "GET") -> tuple[int, Any]:
    status, body = ask(broker, target, method)
    return status, json.loads(body)


def read(broker: Broker, target: str) -> tuple[Any, bytes]:
    status, body = ask(broker, target)
    assert status == 200, body
    head, _, stored = body.partition(b"\n")
    return json.loads(head), stored


def test_streams_are_listed_and_described_with_their_ends_and_times(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(3):
        broker.send("orders", f"{index}", timestamp_ms=1000 * index)
    status, listed = ask_json(broker, "/api/streams")
    homes = {topic["name"]: topic["home"] for topic in listed["topics"]}
    assert (status, homes["orders"]) == (200, "partition-log")
    assert set(homes.values()) == {"partition-log", "commit-log"}
    status, described = ask_json(broker, "/api/streams/orders?time=1500")
    assert (status, described["gives_away"]) == (200, False)
    first = described["streams"][0]
    assert {name: first[name] for name in ("stream", "start", "end", "stable_end", "at_time")} == {
        "stream": 0,
        "start": 0,
        "end": 3,
        "stable_end": 3,
        "at_time": 2,
    }
    assert described["streams"][1]["at_time"] == 0


def test_internal_topics_are_marked(broker: Broker) -> None:
    broker.create_topic("orders")
    _, listed = ask_json(broker, "/api/streams")
    internal = {topic["name"] for topic in listed["topics"] if topic["internal"]}
    assert {topic["name"] for topic in listed["topics"]} - internal == {"orders"}
    assert {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "TBW102", "DefaultCluster"} <= internal
    assert ask_json(broker, "/api/streams/TBW102")[1]["internal"] is True
    assert ask_json(broker, "/api/streams/orders")[1]["internal"] is False


def test_the_log_is_read_in_stored_batches_from_any_offset(broker: Broker) -> None:
    broker.create_topic("orders")
    for index in range(3):
        broker.send("orders", f"body {index}")
    head, stored = read(broker, "/log/orders/0?from=1&max_bytes=1")
    assert head == {"home": "partition-log", "next": 2, "aborted": []}
    assert [record.body for record in to_records(stored)] == [b"body 1"]
    head, stored = read(broker, "/log/orders/0?from=3")
    assert (head["next"], stored) == (3, b"")


def test_a_queue_is_read_without_taking_anything(broker: Broker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)
        channel.confirm_delivery()
        for index in range(3):
            channel.basic_publish("", "jobs", f"job {index}".encode())
        got, _, _ = channel.basic_get("jobs", auto_ack=True)
        assert got is not None
        head, stored = read(broker, "/log/jobs/0?from=0")
        found = []
        at = 0
        while (part := read_stored(stored, at)) is not None:
            found.append((part[0].offset, part[0].content.body))
            at = part[1]
        assert found == [(1, b"job 1"), (2, b"job 2")]
        assert (head["home"], head["next"]) == ("queue-log", 3)
        assert ask_json(broker, "/api/streams/jobs")[1]["gives_away"] is True
        assert channel.queue_declare("jobs", passive=True).method.message_count == 2


@pytest.mark.parametrize(
    ("target", "status", "error"),
    [
        ("/log/none/0", 404, "UnknownTopic"),
        ("/log/orders/7", 404, "UnknownStream"),
        ("/log/orders/x", 400, "BadRequest"),
        ("/log/orders/0?from=-1", 400, "BadRequest"),
        ("/log/orders/0?from=9", 416, "OffsetOutOfRange"),
        ("/log/orders/0?isolation=none", 400, "BadRequest"),
        ("/api/streams/none", 404, "UnknownTopic"),
        ("/api/streams/orders?time=now", 400, "BadRequest"),
    ],
)
def test_an_invalid_read_is_refused_with_a_message(broker: Broker, target: str, status: int, error: str) -> None:
    broker.create_topic("orders")
    assert ask_json(broker, target)[0] == status
    assert ask_json(broker, target)[1]["error"] == error


def test_an_offset_out_of_range_is_refused_with_the_range(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.send("orders", "one")
    status, answer = ask_json(broker, "/log/orders/0?from=9")
    assert (status, answer["start"], answer["end"]) == (416, 0, 1)


def test_a_bug_after_cold_bytes_were_read_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker().start()
    broker.create_topic("orders", partitions=1)

    def read(topic: _PartitionTopic, place: ReadPosition, may_wait: bool) -> ReadResult:
        monkeypatch.setattr(_PartitionTopic, "read", fail)
        raise ColdRead("a file", 0, lambda: None)

    def fail(*_: object) -> ReadResult:
        raise OSError(EMFILE, "planted")

    monkeypatch.setattr(_PartitionTopic, "read", read)
    status, answer = ask_json(broker, "/log/orders/0")
    assert (status, answer["error"]) == (500, "InternalError")
    with pytest.raises(BrokerFailed, match="planted"):
        broker.close()


def test_only_reading_is_served(broker: Broker) -> None:
    broker.create_topic("orders")
    assert ask(broker, "/log/orders/0", "DELETE")[0] == 405
    assert ask(broker, "/api/streams", "POST")[0] == 405
