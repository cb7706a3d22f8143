"""A raw synchronous client of the remoting protocol: one connection, one request at a time. Requests of the broker are
collected."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

from trimq.formats.rocketmq_unit.unit import Unit, iterate_units

PATIENCE_S = 20
COMMIT, ROLLBACK = 8, 12


class Wire:
    """One connection; a context manager that closes it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._opaque = 0
        self.asked: list[tuple[dict[str, Any], bytes]] = []
        """Requests of the broker: header and body of each."""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def begin(self, code: int, fields: dict[str, Any], body: bytes = b"", flag: int = 0) -> int:
        self._opaque += 1
        header = {"code": code, "opaque": self._opaque, "flag": flag, "version": 479, "language": "JAVA"}
        raw = json.dumps({**header, "extFields": {name: _text(value) for name, value in fields.items()}}).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(raw) + len(body), len(raw)) + raw + body)
        return self._opaque

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Sends a request and returns header and body of the response."""
        return self.await_answer(self.begin(code, fields or {}, body))

    def await_answer(self, opaque: int) -> tuple[dict[str, Any], bytes]:
        while True:
            header, answer = self.read()
            if header["flag"] & 1 and header["opaque"] == opaque:
                return header, answer
            self.asked.append((header, answer))

    def await_request(self, code: int, patience_s: float) -> tuple[dict[str, Any], bytes] | None:
        """Returns the next request of the broker with this code, or None if it does not come in time."""
        until = time.monotonic() + patience_s
        while True:
            for found in self.asked:
                if found[0]["code"] == code:
                    self.asked.remove(found)
                    return found
            left = until - time.monotonic()
            if left <= 0:
                return None
            readable, _, _ = select.select([self._socket], [], [], left)
            if readable:
                self.asked.append(self.read())

    def read(self) -> tuple[dict[str, Any], bytes]:
        """Returns header and body of the next frame; raises ConnectionError at the end of the connection."""
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        (size,) = struct.unpack_from(">i", frame)
        return json.loads(frame[4 : 4 + size]), frame[4 + size :]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            data += part
        return data

    # -- requests of tests and examples

    def done(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> dict[str, Any]:
        """Returns the fields of the response, which must be a success."""
        header, _ = self.ask(code, fields, body)
        assert header["code"] == 0, header
        found: dict[str, Any] = header.get("extFields") or {}
        return found

    def send(self, topic: str, body: bytes, queue: int = 0, **properties: object) -> dict[str, Any]:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": _now_ms(), "h": 0, "i": text}
        return self.done(310, {**fields, "j": 0, "k": False}, body)

    def prepare(self, topic: str, body: bytes, queue: int = 0, **properties: object) -> dict[str, Any]:
        """Sends a half message of the group `pg`."""
        text = {"TRAN_MSG": "true", "PGROUP": "pg", **properties}
        return self.send(topic, body, queue, **text)

    def decide(self, half: dict[str, Any], verdict: int, asked: bool = False) -> None:
        fields = {
            "producerGroup": "pg",
            "tranStateTableOffset": half["queueOffset"],
            "commitLogOffset": position_of(half["msgId"]),
            "commitOrRollback": verdict,
            "fromTransactionCheck": asked,
            "msgId": half["transactionId"],
            "transactionId": half["transactionId"],
        }
        self.done(37, fields)

    def pull(self, topic: str, offset: int = 0, queue: int = 0, group: str = "g") -> list[Unit]:
        """Returns all units from this offset on."""
        found: list[Unit] = []
        while True:
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset + len(found)}
            more = {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0}
            header, body = self.ask(11, {**fields, **more, "subscription": "*", "expressionType": "TAG"})
            if header["code"] != 0:
                assert header["code"] in (19, 20, 21), header
                return found
            found += iterate_units(body)

    def bodies(self, topic: str, offset: int = 0, queue: int = 0, group: str = "g") -> list[bytes]:
        return [bytes(unit.body) for unit in self.pull(topic, offset, queue, group)]

    def heartbeat(self, group: str, topic: str, expression: str = "*", version: int = 1, client: str = "wire") -> None:
        """Sends a heartbeat as a producer of `pg` and a consumer of the topic, with the tags of the expression."""
        subscription = {"topic": topic, "subString": expression, "subVersion": version, "tagsSet": [], "codeSet": []}
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{**subscription, "expressionType": "TAG", "classFilterMode": False}],
            "unitMode": False,
        }
        data = {"clientID": client, "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": [consumer]}
        self.done(34, {}, json.dumps(data).encode())

    def create_topic(self, name: str, queues: int, to_read: int | None = None, message_type: str = "") -> None:
        """Creates or changes a topic with `queues` queues to write to, and as many to read from unless `to_read` is
        given. Only gRPC clients use the message type."""
        read = queues if to_read is None else to_read
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": queues}
        more = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        attributes = {"attributes": f"+message.type={message_type}"} if message_type else {}
        self.done(17, {**fields, **more, **attributes})

    def commit_offset(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.done(15, {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset})

    def offset(self, group: str, topic: str, queue: int) -> int:
        return int(self.done(14, {"consumerGroup": group, "topic": topic, "queueId": queue})["offset"])

    def send_back(self, group: str, unit: Unit, level: int = 0) -> None:
        fields = {"offset": unit.position, "group": group, "delayLevel": level, "originTopic": unit.topic.decode()}
        self.done(36, {**fields, "maxReconsumeTimes": 16})


def position_of(message_id: str) -> int:
    return int(message_id[-16:], 16)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
