"""Every writer, every layout, every reader: messages of many kinds are received as `explain` describes them, and a
reader of the writer's protocol gets back what was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from confluent_kafka import Message, Producer, TopicPartition
from cross.clients import ask_http, channel, kafka_consumer, receive

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.testing import Broker

NAME = "orders"
OLD_MS = 1_234_567
LARGE = 900_000  # the limit of a Kafka topic is 1 MiB, with key and headers

# Value, key and headers of each kind of record.
RECORDS: dict[str, tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = {
    "plain": (b"body", b"k", [("trace", b"t")]),
    "binary": (b"\xff\x00", b"\xfe\x01", [("sig", b"\xff\x00")]),
    "null": (None, b"k", [("none", None)]),
    "empty": (b"", b"", [("empty", b"")]),
    "repeated": (b"body", b"k", [("a", b"1"), ("b", b"2"), ("a", b"3")]),
    "reserved": (
        b"body",
        b"k",
        [("KEYS", b"x"), ("rmq.TAGS", b"paid"), ("DELAY", b"9"), ("x-death", b"1"), ("CC", b"c")],
    ),
    "long name": (b"body", b"k", [("n" * 300, b"v")]),
    "large": (b"x" * LARGE, b"k", []),
    "unicode": ("é😀".encode(), "ключ".encode(), [("naïve", "é".encode())]),
    "acting": (b"body", None, [("amqp.content-type", b"text/plain"), ("rmq.UNIQ_KEY", b"7")]),
    "forged": (b"body", b"k", [("trimq.kept", b"\x91\x01"), ("trimq.from", b"rocketmq"), ("kafka.key", b"x")]),
    "no key": (b"body", None, []),
}
# Body and properties of each kind of message.
UNITS: dict[str, tuple[bytes, dict[str, str]]] = {
    "plain": (b"body", {"UNIQ_KEY": "7F00000100002A139A5500000000", "TAGS": "paid", "KEYS": "k", "colour": "red"}),
    "binary": (b"\xff\x00", {"UNIQ_KEY": "1"}),
    "several keys": (b"body", {"UNIQ_KEY": "2", "KEYS": "k1 k2"}),
    "reserved": (b"body", {"UNIQ_KEY": "3", "x-death": "1", "amqp.type": "hot", "CORRELATION_ID": "c", "CC": "c"}),
    "long name": (b"body", {"UNIQ_KEY": "4", "n" * 300: "v"}),
    "large": (b"x" * LARGE, {"UNIQ_KEY": "5"}),
    "unicode": ("é😀".encode(), {"UNIQ_KEY": "6", "naïve": "é", "KEYS": "ключ"}),
    "forged": (b"body", {"UNIQ_KEY": "8", "TRIMQ_FROM": "kafka", "TRIMQ_KEPT": "gQE", "h.a": "b"}),
    "no properties": (b"body", {}),
}
_CELERY = {"lang": "py", "task": "add", "retries": 0, "eta": None, "timelimit": [None, None], "ignore_result": False}
CONTENTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain": (b"body", {"type": "paid", "message_id": "7", "delivery_mode": 2, "headers": {"trace": "t"}}),
    "binary": (b"\xff\x00", {"delivery_mode": 2, "headers": {"sig": b"\xff\x00"}}),
    "empty": (b"", {"delivery_mode": 2}),
    "reserved": (b"body", {"delivery_mode": 2, "headers": {"rmq.TAGS": "paid", "DELAY": "9", "KEYS": "x"}}),
    "long name": (b"body", {"delivery_mode": 2, "headers": {"n" * 200: "v"}}),
    "large": (b"x" * LARGE, {"delivery_mode": 2}),
    "unicode": ("é😀".encode(), {"delivery_mode": 2, "headers": {"naïve": "é"}, "correlation_id": "ключ"}),
    "old": (b"body", {"delivery_mode": 2, "timestamp": 1234}),
    "celery": (b"[[1, 2], {}, {}]", {"delivery_mode": 2, "content_type": "application/json", "headers": _CELERY}),
    "forged": (b"body", {"delivery_mode": 2, "headers": {"trimq.from": "kafka", "trimq.kept": "x", "kafka.key": "k"}}),
    "all": (b"body", {"delivery_mode": 2, "priority": 0, "app_id": "a", "reply_to": "r", "content_encoding": "utf-8"}),
    "transient": (b"body", {}),
}


def _produce(broker: Broker, **settings: object) -> int:
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 50, **settings})
    refused: list[object] = []
    for value, key, headers in RECORDS.values():
        producer.produce(
            NAME,
            value,
            key,
            partition=0,
            headers=headers,
            timestamp=OLD_MS,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert (producer.flush(30), refused) == (0, [])
    return len(RECORDS)


def _send(broker: Broker) -> int:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        for body, properties in UNITS.values():
            wire.send(NAME, body, **properties)
    return len(UNITS)


def _publish(broker: Broker) -> int:
    with channel(broker.amqp) as amqp:
        amqp.confirm_delivery()
        for body, properties in CONTENTS.values():
            amqp.basic_publish("", NAME, body, pika.BasicProperties(**properties), mandatory=True)
    return len(CONTENTS)


WRITERS: dict[str, Callable[[Broker], int]] = {
    "confluent-kafka": _produce,
    "confluent-kafka, idempotent and compressed": lambda broker: _produce(
        broker, **{"enable.idempotence": True, "compression.type": "zstd"}
    ),
    "RocketMQ": _send,
    "pika": _publish,
}


def make(broker: Broker, home: str) -> None:
    if home == "queue":
        broker.create_queue(NAME)
    else:
        broker.create_topic(NAME, 1, home=home)


@pytest.mark.parametrize("home", ["partition-log", "commit-log", "queue"])
@pytest.mark.parametrize("writer", WRITERS)
def test_each_reader_receives_what_is_explained(broker: Broker, writer: str, home: str) -> None:
    make(broker, home)
    count = WRITERS[writer](broker)
    views = [ask_http(broker, f"/api/explain?topic={NAME}&offset={offset}")["views"] for offset in range(count)]
    records = _read_by_kafka(broker, count)
    assert [_record(each) for each in records] == [each["kafka"] for each in views]
    units = _read_by_rocketmq(broker)
    assert [_unit(each) for each in units] == [each["rocketmq"] for each in views]
    contents = _read_by_amqp(broker, count)
    assert [_content(*each) for each in contents] == [_without_residue(each["amqp"]) for each in views]
    if writer.startswith("confluent"):
        assert [(each.value(), each.key(), each.headers() or []) for each in records] == list(RECORDS.values())
    elif writer == "RocketMQ":
        for unit, (body, properties) in zip(units, UNITS.values(), strict=True):
            found = read_properties(unit.properties)
            wanted = _of_writer(properties, home)
            assert (bytes(unit.body), {name: found.get(name) for name in wanted}) == (body, wanted)
    else:
        assert [(body, _given(properties)) for _, properties, body in contents] == list(CONTENTS.values())


def _read_by_kafka(broker: Broker, count: int) -> list[Message]:
    with kafka_consumer(broker.kafka) as consumer:
        consumer.assign([TopicPartition(NAME, 0, 0)])
        return receive(consumer, count)


def _record(message: Message) -> dict[str, Any]:
    headers = [
        [name, f"{len(value or b'')} bytes" if name == "trimq.kept" else _text(value)]
        for name, value in message.headers() or []
    ]
    value = message.value()
    return {
        "key": _text(message.key()),
        "value_bytes": None if value is None else len(value),
        "timestamp_ms": message.timestamp()[1],
        "headers": headers,
        "cut": [],
    }


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _read_by_rocketmq(broker: Broker) -> list[Any]:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        return wire.pull(NAME)


def _unit(unit: Any) -> dict[str, Any]:
    properties = read_properties(unit.properties)
    cut = properties.get("TRIMQ_CUT", "").split()
    if "TRIMQ_KEPT" in properties:
        properties["TRIMQ_KEPT"] = f"{len(properties['TRIMQ_KEPT'])} characters"
    return {"body_bytes": len(unit.body), "born_ms": unit.born_ms, "properties": properties, "cut": cut}


def _of_writer(properties: dict[str, str], home: str) -> dict[str, str]:
    """Without what no producer may forge in a topic of another protocol."""
    if home == "commit-log":
        return properties
    return {name: value for name, value in properties.items() if not name.startswith("TRIMQ_")}


def _read_by_amqp(broker: Broker, count: int) -> list[tuple[Any, pika.BasicProperties, bytes]]:
    """Takes the messages one by one, from a queue or from a topic."""
    found = []
    with channel(broker.amqp) as amqp:
        for _ in range(count):
            method, properties, body = amqp.basic_get(NAME, auto_ack=True)
            assert method is not None
            found.append((method, properties, body))
    return found


_PLACE = ("x-stream-offset", "trimq.partition")


def _content(method: Any, properties: pika.BasicProperties, body: bytes) -> dict[str, Any]:
    headers = {name: str(value) for name, value in (properties.headers or {}).items() if name not in _PLACE}
    shown = {name: str(value) for name, value in vars(properties).items() if value is not None and name != "headers"}
    return _without_residue(
        {
            "exchange": method.exchange,
            "routing_key": method.routing_key,
            "body_bytes": len(body),
            "properties": shown,
            "headers": headers,
            "cut": [],
        }
    )


def _without_residue(view: dict[str, Any]) -> dict[str, Any]:
    """The residue is compared by what its own protocol makes of it."""
    headers = {name: value for name, value in view["headers"].items() if name not in ("trimq.kept", *_PLACE)}
    return {**view, "headers": headers}


def _given(properties: pika.BasicProperties) -> dict[str, Any]:
    """What the writer gave: without the place, and the delivery mode of what it left open."""
    given = {name: value for name, value in vars(properties).items() if value is not None}
    headers = {name: value for name, value in given.pop("headers", {}).items() if name not in _PLACE}
    return {**given, "headers": headers} if headers else given
