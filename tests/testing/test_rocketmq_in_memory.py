"""A broker in memory that serves RocketMQ's clients: messages, and power cuts."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import pytest
from compat.rocketmq_wire import Wire

from trimq.formats.rocketmq_unit.unit import iterate_units
from trimq.testing import Broker

PULL = {"queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4}


def ask(address: str, code: int, fields: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
    host, _, port = address.rpartition(":")
    header = {"code": code, "opaque": 1, "flag": 0, "version": 479, "extFields": {k: str(v) for k, v in fields.items()}}
    raw = json.dumps(header).encode()
    with socket.create_connection((host, int(port)), 20) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body)
        (length,) = struct.unpack(">i", answers.read(4))
        frame = answers.read(length)
    (size,) = struct.unpack_from(">i", frame)
    return json.loads(frame[4 : 4 + size]), frame[4 + size :]


def send(broker: Broker, body: bytes, properties: str = "") -> dict[str, Any]:
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": properties}
    return ask(broker.addresses["rocketmq_broker"], 310, fields, body)[0]


def pull(broker: Broker) -> list[bytes]:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4}
    return [bytes(unit.body) for unit in iterate_units(ask(broker.addresses["rocketmq_broker"], 11, fields)[1])]


@pytest.mark.parametrize("ends", ["restart", "crash"])
def test_acknowledged_messages_survive_every_kind_of_end(ends: str) -> None:
    with Broker() as broker:
        assert [send(broker, b"%d" % number)["code"] for number in range(3)] == [0, 0, 0]
        if ends == "crash":
            broker.crash()
        broker.restart()
        assert pull(broker) == [b"0", b"1", b"2"]


def test_a_delayed_message_comes_when_the_clock_is_moved() -> None:
    with Broker() as broker:
        assert send(broker, b"first")["code"] == 0
        assert send(broker, b"late", "DELAY\x0118\x02")["code"] == 0
        assert pull(broker) == [b"first"]
        broker.advance("2h")
        assert pull(broker) == [b"first", b"late"]


def test_all_undecided_transactions_were_checked_back_when_the_clock_stands_still_again() -> None:
    with Broker() as broker, Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.heartbeat("g", "t")
        for number in range(600):
            wire.prepare("t", b"half", UNIQ_KEY=f"U{number}")
        broker.advance("30s")
        wire.heartbeat("g", "t")
        asked = [header["extFields"]["transactionId"] for header, _ in wire.asked if header["code"] == 39]
        assert sorted(asked) == sorted(f"U{number}" for number in range(600))


def test_its_addresses_are_available() -> None:
    with Broker() as broker:
        found, _ = ask(broker.rocketmq, 106, {})
        assert found["code"] == 0
        assert broker.rocketmq_grpc == broker.addresses["rocketmq_grpc"]
    with Broker(rocketmq_grpc_listen="off") as broker, pytest.raises(RuntimeError, match="no rocketmq_grpc listener"):
        broker.rocketmq_grpc.strip()


def test_topics_and_groups_are_created_and_filled_without_a_client() -> None:
    with Broker() as broker:
        broker.create_topic("t", 2, home="commit-log", message_type="FIFO")
        broker.create_group("g", orderly=True, retries=3)
        assert broker.send("t", "one", key="k", headers={"TAGS": b"red", "colour": b"dark"}) == 0
        assert broker.send("t", "other", partition=1) == 0
        assert send(broker, b"two")["code"] == 0
        assert [record.body for record in broker.records("t", 1)] == [b"other"]
        first, second = broker.records("t")
        assert (first.body, first.key, dict(first.headers)) == (b"one", b"k", {"TAGS": b"red", "colour": b"dark"})
        assert (second.body, second.offset) == (b"two", 1)
        assert pull(broker) == [b"one", b"two"]
        described, _ = ask(broker.addresses["rocketmq_broker"], 352, {"group": "g"})
        assert described["code"] == 0


def test_wrong_layouts_are_refused() -> None:
    with Broker() as broker:
        with pytest.raises(TypeError, match="home must be partition-log"):
            broker.create_topic("t", home="rocketmq")
        with pytest.raises(ValueError, match="use create_queue"):
            broker.create_topic("t", home="queue-log")
    off = {"rocketmq_listen": "off", "rocketmq_broker_listen": "off", "rocketmq_grpc_listen": "off"}
    with Broker(**off) as broker, pytest.raises(RuntimeError, match="all RocketMQ listeners are off"):
        broker.create_topic("t", home="commit-log")


def test_requests_are_reported_with_object_and_outcome() -> None:
    with Broker() as broker:
        send(broker, b"one")
        pull(broker)
        ask(broker.addresses["rocketmq_broker"], 11, {"consumerGroup": "g", "topic": "gone", "queueId": 0} | PULL)
        seen = [line.partition(": ")[2] for line in broker.sightings()]
    assert "SEND_MESSAGE_V2 t queue 0 producer group p -> SUCCESS" in seen
    assert "PULL_MESSAGE t queue 0 group g -> SUCCESS" in seen
    assert any(line.startswith("PULL_MESSAGE gone queue 0 group g -> TOPIC_NOT_EXIST (topic[gone]") for line in seen)
