"""Sends steps of the remoting protocol to one broker, without TriMQ's codec, so that its faults show.
Remarks are not compared: they are wording, and Apache RocketMQ puts Java stack traces there."""

from __future__ import annotations

import itertools
import json
import re
import struct
import time
from collections.abc import Sequence
from typing import Any

from differential.sequences import Step
from tools.rocketmq_wire import Wire

SENDS = {10, 310, 320}
GET_MAX_OFFSET = 30
STORED = struct.Struct(">iiiiiqqiq")  # size, magic, body CRC, queue, flag, offset, position, system flag, born
JAVA_FAILURE = re.compile(r"Exception|Cannot invoke|\.java|^java\.")
OBJECT_KEY = re.compile(r"\{(\"brokerName\":[^{}]*)\}:")
"""Key of a map in the JSON dialect of fastjson: an object that names a message queue."""
NAMES = re.compile(r"\$(\w+)")
"""`$t0` in an argument is a name that the driver makes unique."""

_runs = itertools.count()


class RocketMQDriver:
    """`broker_name` and `cluster` are replaced by placeholders in the answers."""

    def __init__(self, name: str, address: str, broker_name: str, cluster: str) -> None:
        self._name = name
        self._address = address
        self._secret = {broker_name: "<broker>", cluster: "<cluster>"}

    def run(self, steps: Sequence[Step]) -> list[Any]:
        return _Run(f"x{self._name}{next(_runs)}x", self._address, self._secret).answers(steps)


class _Run:
    """One sequence: its connections, the unique part of its names, and the receipts of its pops."""

    def __init__(self, prefix: str, address: str, placeholders: dict[str, str]) -> None:
        self._prefix = prefix
        self._address = address
        self._placeholders = placeholders
        self._clients: dict[int, Wire] = {}
        self._handles: list[dict[str, str]] = []
        self._created: set[str] = set()

    def answers(self, steps: Sequence[Step]) -> list[Any]:
        try:
            return [self._answer(step) for step in steps]
        finally:
            self._remove_topics()
            for client in self._clients.values():
                client.__exit__()

    def _answer(self, step: Step) -> Any:
        code = step.arguments["code"]
        fields = {name: self._filled(value) for name, value in step.arguments["fields"].items()}
        body = self._filled(step.arguments.get("body", "")).encode()
        if code == 320:
            body = _batch(step.arguments["bodies"])
        if "handle" in step.arguments:
            fields = {**self._handle(step.arguments["handle"]), **fields}
        try:
            header, content = self._client(step.connection).ask(code, fields, body)
        except (ConnectionError, TimeoutError) as error:
            self._clients.pop(step.connection).__exit__()
            return "no answer" if isinstance(error, TimeoutError) else "connection closed"
        extra = header.get("extFields") or {}
        self._note(code, fields, header, extra, content)
        return self._normal(code, header, extra, content)

    def _client(self, number: int) -> Wire:
        if number not in self._clients:
            self._clients[number] = Wire(self._address)
        return self._clients[number]

    def _filled(self, text: str) -> str:
        """Replaces `$t0` by a unique name, and `<now>` by the time."""
        text = NAMES.sub(lambda match: self._prefix + match[1], text)
        return text.replace("<now>", str(int(time.time() * 1000)))

    def _handle(self, number: int) -> dict[str, str]:
        if not self._handles:
            return {"extraInfo": "0 0 60000 0 0 none 0 0", "offset": "0"}
        return self._handles[number % len(self._handles)]

    def _note(
        self, code: int, fields: dict[str, str], header: dict[str, Any], extra: dict[str, str], content: bytes
    ) -> None:
        topic = fields.get("b") or fields.get("topic") or ""
        if code == 17 or code in SENDS:
            self._created.add(topic)
        if code in SENDS and header["code"] == 0 and "msgId" in extra:
            self._await_dispatch(topic, extra)
        if code == 200050 and header["code"] == 0:
            for message in _messages(content):
                if handle := message["properties"].get("POP_CK"):
                    self._handles.append({"extraInfo": handle, "offset": str(message["offset"])})

    def _await_dispatch(self, topic: str, extra: dict[str, str]) -> None:
        """Apache RocketMQ builds consume queues in the background."""
        until = time.monotonic() + 2
        fields = {"topic": topic, "queueId": extra["queueId"]}
        client = self._client(0)
        while time.monotonic() < until:
            header, _ = client.ask(GET_MAX_OFFSET, fields)
            if header["code"] or int(header["extFields"]["offset"]) > int(extra["queueOffset"]):
                return

    def _remove_topics(self) -> None:
        try:
            with Wire(self._address) as client:
                for topic in self._created:
                    client.ask(215, {"topic": topic})
        except OSError:
            pass

    def _normal(self, code: int, header: dict[str, Any], extra: dict[str, str], content: bytes) -> Any:
        has_failed = header["code"] == 1 and JAVA_FAILURE.search(header.get("remark") or "")
        answer: dict[str, Any] = {"code": "exception" if has_failed else header["code"]}
        if header["code"] == 1:  # what else the answer holds depends on the place of the failure
            return answer
        answer["fields"] = {name: self._field(name, value) for name, value in extra.items()}
        if content:
            answer["body"] = self._body(code, content)
        return answer

    def _field(self, name: str, value: str) -> str:
        if name in ("msgId", "transactionId", "uniqMsgId"):
            return "<id>" * len(value.split(","))
        if name in ("popTime", "restNum", "reviveQid", "startOffsetInfo", "msgOffsetInfo", "orderCountInfo"):
            return "<pop>"
        return self._text(value)

    def _body(self, code: int, content: bytes) -> Any:
        if code in (11, 361, 12, 33, 200050, 200052):
            found = [self._message(message) for message in _messages(content)]
            # A pop begins with a queue that the broker chooses.
            return found if code != 200050 else sorted(found, key=lambda each: (each["queue"], each["offset"]))
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content.hex()
        try:
            return self._value(json.loads(OBJECT_KEY.sub(_quoted_key, text)))
        except ValueError:
            return self._text(text)

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        properties = dict(message["properties"])
        for name in ("POP_CK", "1ST_POP_TIME", "UNIQ_KEY", "CLUSTER", "ORIGIN_MESSAGE_ID", "DUP_INFO", "POP_OFFSET"):
            if name in properties:
                properties[name] = f"<{name}>"
        return {**message, "properties": {name: self._text(value) for name, value in properties.items()}} | {
            "topic": self._text(message["topic"])
        }

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._text(name): self._leaf(name, each) for name, each in value.items()}
        if isinstance(value, list):
            return sorted((self._value(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        return self._text(value) if isinstance(value, str) else value

    def _leaf(self, name: str, value: Any) -> Any:
        if isinstance(value, int) and value > 1_500_000_000_000:
            return "<time>"
        if name in ("counter", "stateVersion", "dataVersion", "topicPutTps", "consumeTps"):
            return f"<{name}>"
        return self._value(value)

    def _text(self, text: str) -> str:
        text = text.replace(self._prefix, "")
        for secret, placeholder in self._placeholders.items():
            text = text.replace(secret, placeholder)
        text = re.sub(r"\b127\.0\.0\.1:\d+", "<address>", text)
        text = re.sub(r"\b1[5-9]\d{11}\b", "<time>", text)
        return re.sub(r"\b[0-9A-F]{32}\b", "<id>", text)


def _quoted_key(match: re.Match[str]) -> str:
    queue = json.loads("{" + match[1] + "}")
    return json.dumps(f"{queue['topic']}/{queue['queueId']}") + ":"


def _batch(bodies: list[str]) -> bytes:
    """Messages of a batch: size, magic 0, CRC 0, flag 0, body, properties."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)
        for body in (text.encode() for text in bodies)
    )


def _messages(content: bytes) -> list[dict[str, Any]]:
    """Decodes stored messages with IPv4 hosts."""
    found = []
    start = 0
    while start + STORED.size <= len(content):
        size, _, _, queue, flag, offset, _, system_flag, _ = STORED.unpack_from(content, start)
        if size < STORED.size or start + size > len(content):
            return [*found, {"damaged": content[start:].hex(), "properties": {}, "topic": ""}]
        at = start + STORED.size
        at += 20 if system_flag & 16 else 8  # born host
        at += 8  # store time
        at += 20 if system_flag & 32 else 8  # store host
        (times,) = struct.unpack_from(">i", content, at)
        at += 12  # and the position of the half message
        (length,) = struct.unpack_from(">i", content, at)
        body = content[at + 4 : at + 4 + length]
        at += 4 + length
        topic = content[at + 1 : at + 1 + content[at]].decode(errors="backslashreplace")
        at += 1 + content[at]
        (length,) = struct.unpack_from(">h", content, at)
        text = content[at + 2 : at + 2 + length].decode(errors="backslashreplace")
        found.append(
            {
                "queue": queue,
                "flag": flag,
                "offset": offset,
                "system flag": system_flag,
                "times": times,
                "body": body.decode("latin1"),
                "topic": topic,
                "properties": dict(pair.split("\x01", 1) for pair in text.split("\x02") if "\x01" in pair),
            }
        )
        start += size
    return found
