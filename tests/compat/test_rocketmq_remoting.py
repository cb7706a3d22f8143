"""A raw remoting client against a broker process: it finds its topic, sends, and pulls its messages, also after a
restart of the broker."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any

from tools.broker import running
from trimq.formats.rocketmq_unit.unit import iterate_units

FLAGS = ["--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"]
PATIENCE_S = 20


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        assert part, "the broker has closed the connection"
        data += part
    return data


def ask(address: str, code: int, fields: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
    host, _, port = address.rpartition(":")
    header = {"code": code, "opaque": 1, "flag": 0, "version": 479, "language": "PYTHON"}
    raw = json.dumps({**header, "extFields": {name: str(value) for name, value in fields.items()}}).encode()
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body)
        (length,) = struct.unpack(">i", receive_exactly(connection, 4))
        frame = receive_exactly(connection, length)
    (size,) = struct.unpack_from(">i", frame)
    return json.loads(frame[4 : 4 + size]), frame[4 + size :]


def pull(broker: str, topic: str, offset: int) -> tuple[list[bytes], int]:
    fields = {"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4}
    answer, body = ask(broker, 11, {**fields, "subscription": "*"})
    return [bytes(unit.body) for unit in iterate_units(body)], int(answer["extFields"]["nextBeginOffset"])


def send(broker: str, topic: str, body: bytes) -> dict[str, Any]:
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": "KEYS\x01k\x02"}
    return ask(broker, 310, fields, body)[0]


def test_sent_messages_are_pulled_also_after_a_restart(tmp_path: Path) -> None:
    bodies = [b"%d" % number * 50 for number in range(40)]
    with running(tmp_path, FLAGS) as addresses:
        broker = addresses["rocketmq_broker"]
        assert [send(broker, "orders", body)["extFields"]["queueOffset"] for body in bodies] == [
            str(offset) for offset in range(40)
        ]
        _, route = ask(addresses["rocketmq"], 105, {"topic": "orders"})
        assert json.loads(route)["brokerDatas"][0]["brokerAddrs"] == {"0": broker}
    (tmp_path / "ready.json").unlink()  # the ready file of the first run
    with running(tmp_path, FLAGS) as addresses:
        broker = addresses["rocketmq_broker"]
        first, offset = pull(broker, "orders", 0)
        second, offset = pull(broker, "orders", offset)
        assert (first + second, offset) == (bodies, 40)
        assert send(broker, "orders", b"next")["extFields"]["queueOffset"] == "40"
