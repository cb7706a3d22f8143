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

GRPC = {"rocketmq_grpc_listen": "127.0.0.1:0"}


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
    fields = {"b": "t", "c": "TBW102", "d": 1, "e": 0, "i": properties}
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


def test_its_addresses_are_available_and_that_of_grpc_on_request() -> None:
    with Broker(**GRPC) as broker:
        found, _ = ask(broker.rocketmq, 106, {})
        assert found["code"] == 0
        assert broker.rocketmq_grpc == broker.addresses["rocketmq_grpc"]
    with Broker() as broker, pytest.raises(RuntimeError, match="no rocketmq_grpc listener"):
        broker.rocketmq_grpc.strip()
