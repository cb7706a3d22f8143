"""Sends steps of the remoting protocol to one broker, without TriMQ's codec, so that its faults show.
Remarks are not compared: they are wording, and Apache RocketMQ puts Java stack traces there."""

from __future__ import annotations

import base64
import itertools
import json
import re
import struct
import time
from collections.abc import Sequence
from typing import Any

from differential.rocketmq_values import NAME_SERVER
from differential.sequences import Step
from tools.rocketmq_wire import Wire, position_of

SENDS = {10, 310, 320}
GET_MAX_OFFSET, GET_ROUTE = 30, 105
STORED = struct.Struct(">iiiiiqqiq")  # size, magic, body CRC, queue, flag, offset, position, system flag, born
JAVA_FAILURE = re.compile(r"Exception|Cannot invoke|\.java|^java\.")
OBJECT_KEY = re.compile(r"\{(\"brokerName\":[^{}]*)\}:")
"""Key of a map in the JSON dialect of fastjson: an object that names a message queue."""
INTEGER_KEY = re.compile(r"([{,])(\d+):")
NAMES = re.compile(r"\$(\w+)")
"""`$t0` in an argument is a name that the driver makes unique."""
AFTER = re.compile(r"<now([+-]\d+)>")
"""`<now+5000>` is a time in milliseconds from now."""
KEPT = re.compile(r"<(position|half position|half offset|recall) (-?\d+)>")
"""`<position 3>` is a place in the commit log that an answer before gave, counted from 0 and modulo their number."""
TABLES = {
    *("topicConfigTable", "subscriptionGroupTable", "forbiddenTable", "offsetTable", "messageRequestModeMap", "data"),
    *("groupTopicMap", "pullOffsetTable"),
}
"""Tables of lists that belong to all sequences: those of one begin with its prefix."""
OF_A_RUN = re.compile(r"\bx[ab]\d+x")
"""Names with the prefix of any sequence."""
PATIENCE_S = 8
LATE_EFFECTS, LATE_S = (37, 200050), 0.1
"""Apache RocketMQ answers before it has dispatched what a transaction commits, and committed the offset of a pop."""

_runs = itertools.count()


class RocketMQDriver:
    """`broker_name` and `cluster` are replaced by placeholders in the answers."""

    def __init__(self, name: str, address: str, name_server: str, broker_name: str, cluster: str) -> None:
        self._name = name
        self._addresses = (address, name_server)
        self._secret = {broker_name: "<broker>", cluster: "<cluster>"}

    def run(self, steps: Sequence[Step]) -> list[Any]:
        return _Run(f"x{self._name}{next(_runs)}x", self._addresses, self._secret).answers(steps)


class _Run:
    """One sequence: its connections, the unique part of its names, and what its answers gave out for later
    requests."""

    def __init__(self, prefix: str, addresses: tuple[str, str], placeholders: dict[str, str]) -> None:
        self._prefix = prefix
        self._addresses = addresses
        self._placeholders = placeholders
        self._broker_name = next(iter(placeholders))
        self._kept: dict[str, list[str]] = {"position": [], "half position": [], "half offset": [], "recall": []}
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
        arguments = step.arguments
        if "pause" in arguments:
            time.sleep(arguments["pause"])
            return None
        if ("handle" in arguments or "acks" in arguments) and not self._handles:
            return "no receipt"
        client = self._client(step.connection)
        try:
            if "asked" in arguments:
                return self._asked(client, arguments["asked"])
            if "meanwhile" in arguments:
                return self._together(client, arguments)
            code, fields, body = self._request(arguments)
            header, content = client.ask(code, fields, body)
        except (ConnectionError, TimeoutError) as error:
            self._clients.pop(step.connection).__exit__()
            return "no answer" if isinstance(error, TimeoutError) else "connection closed"
        return self._taken(code, fields, header, content, "own" in arguments)

    def _request(self, arguments: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        code = arguments["code"]
        fields = {name: self._filled(value) for name, value in arguments["fields"].items()}
        body = self._filled(arguments.get("body", "")).encode()
        if code == 320:
            body = _batch(arguments["bodies"], self._filled(arguments.get("properties", "")))
        if "acks" in arguments:
            body = self._batch_ack(arguments["acks"])
        elif "handle" in arguments:
            fields = {**self._handles[arguments["handle"] % len(self._handles)], **fields}
        return code, fields, body

    def _batch_ack(self, numbers: list[int]) -> bytes:
        """Acknowledges several popped messages, each with an entry of its own."""
        entries = []
        for number in numbers:
            handle = self._handles[number % len(self._handles)]
            start, popped, invisible, revive, retry, _, queue, offset = handle["extraInfo"].split(" ")[:8]
            bits = 1 << max(int(offset) - int(start), 0)
            entries.append(
                {
                    "c": handle["consumerGroup"],
                    "t": handle["topic"],
                    "r": retry,
                    "so": int(start),
                    "q": int(queue),
                    "rq": int(revive),
                    "pt": int(popped),
                    "it": int(invisible),
                    "b": base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
                }
            )
        return json.dumps({"brokerName": self._broker_name, "acks": entries}).encode()

    def _taken(
        self, code: int, fields: dict[str, str], header: dict[str, Any], content: bytes, own: bool = False
    ) -> Any:
        extra = header.get("extFields") or {}
        self._note(code, fields, header, extra, content)
        return self._normal(code, fields, header, extra, content, own)

    def _asked(self, client: Wire, code: int) -> Any:
        found = client.await_request(code, PATIENCE_S)
        if found is None:
            return "not asked"
        header, content = found
        fields = {name: self._field(name, value) for name, value in (header.get("extFields") or {}).items()}
        found = [{**self._message(each), "offset": "<offset>"} for each in _messages(content)]
        for each in found:  # depends on when Apache RocketMQ looked at the transaction first
            each["properties"].pop("TRANSACTION_CHECK_TIMES", None)
            each["properties"].pop("TRAN_PREPARED_QUEUE_OFFSET", None)
        return {"fields": fields, "messages": found}

    def _together(self, client: Wire, arguments: dict[str, Any]) -> Any:
        """A request that waits, and another one meanwhile."""
        code, fields, body = self._request(arguments)
        opaque = client.begin(code, fields, body)
        time.sleep(0.2)
        other_code, other_fields, other_body = self._request(arguments["meanwhile"])
        header, content = self._client(0).ask(other_code, other_fields, other_body)
        second = self._taken(other_code, other_fields, header, content)
        header, content = client.await_answer(opaque)
        return {"first": self._taken(code, fields, header, content), "second": second}

    def _client(self, number: int) -> Wire:
        if number not in self._clients:
            self._clients[number] = Wire(self._addresses[number >= NAME_SERVER])
        return self._clients[number]

    def _filled(self, text: str) -> str:
        """Replaces `$t0` by a unique name, `<now>` by the time, and what answers before gave out."""
        text = NAMES.sub(lambda match: self._prefix + match[1], text)
        for secret, placeholder in self._placeholders.items():
            text = text.replace(placeholder, secret)
        text = text.replace("<now>", str(_now_ms()))
        text = AFTER.sub(lambda match: str(_now_ms() + int(match[1])), text)
        return KEPT.sub(lambda match: self._given_out(match[1], int(match[2])), text)

    def _given_out(self, kind: str, number: int) -> str:
        found = self._kept[kind]
        return found[number % len(found)] if found else "99999999999"

    def _note(
        self, code: int, fields: dict[str, str], header: dict[str, Any], extra: dict[str, str], content: bytes
    ) -> None:
        topic = fields.get("b") or fields.get("topic") or ""
        if code == 17 or code in SENDS:
            self._created.add(topic)
        if code in LATE_EFFECTS:
            time.sleep(LATE_S)
        if code == 17 and header["code"] == 0:
            self._await_route(topic)
        if code in SENDS and header["code"] == 0 and "msgId" in extra:
            self._note_stored(topic, fields, extra)
        if code == 200050 and header["code"] == 0:
            self._note_popped(fields, extra, content)
        if code == 200053 and header["code"] == 0:
            self._note_changed(fields, extra)

    def _note_popped(self, fields: dict[str, str], extra: dict[str, str], content: bytes) -> None:
        """Receipts are built as clients do: only messages of the retry topic bring theirs."""
        starts = dict(entry.rsplit(" ", 1) for entry in extra["startOffsetInfo"].split(";") if entry)
        for message in _messages(content):
            queue, offset = message["queue"], message["offset"]
            handle = message["properties"].get("POP_CK") or (
                f"{starts.get(f'0 {queue}', offset)} {extra['popTime']} {extra['invisibleTime']} {extra['reviveQid']}"
                f" 0 {self._broker_name} {queue} {offset}"
            )
            self._handles.append(
                {
                    "extraInfo": handle,
                    "offset": handle.split(" ")[7],
                    "queueId": handle.split(" ")[6],
                    "topic": fields["topic"],
                    "consumerGroup": fields["consumerGroup"],
                }
            )

    def _note_changed(self, fields: dict[str, str], extra: dict[str, str]) -> None:
        """The receipt is replaced by a new one."""
        for handle in self._handles:
            if handle["extraInfo"] == fields["extraInfo"]:
                words = fields["extraInfo"].split(" ")
                words[1:4] = extra["popTime"], extra["invisibleTime"], extra["reviveQid"]
                handle["extraInfo"] = " ".join(words)

    def _note_stored(self, topic: str, fields: dict[str, str], extra: dict[str, str]) -> None:
        position = str(position_of(extra["msgId"].split(",")[0]))
        if extra.get("recallHandle"):
            self._kept["recall"].append(extra["recallHandle"])
        if "TRAN_MSG" in fields.get("i", "") or fields.get("j") == "4":
            self._kept["half position"].append(position)
            self._kept["half offset"].append(extra["queueOffset"])
        elif not _is_elsewhere(fields):
            self._kept["position"].append(position)
            self._await_dispatch(topic, extra)

    def _await_route(self, topic: str) -> None:
        """Apache RocketMQ's broker registers a topic in the background."""
        until = time.monotonic() + 1
        client = self._client(NAME_SERVER)
        while time.monotonic() < until and client.ask(GET_ROUTE, {"topic": topic})[0]["code"] != 0:
            time.sleep(0.01)

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
            with Wire(self._addresses[0]) as client:
                for topic in self._created:
                    client.ask(215, {"topic": topic})
        except OSError:
            pass

    def _normal(
        self,
        code: int,
        fields: dict[str, str],
        header: dict[str, Any],
        extra: dict[str, str],
        content: bytes,
        own: bool,
    ) -> Any:
        has_failed = header["code"] == 1 and JAVA_FAILURE.search(header.get("remark") or "")
        answer: dict[str, Any] = {"code": "exception" if has_failed else header["code"]}
        if header["code"] == 1:  # what else the answer holds depends on the place of the failure
            return answer
        answer["fields"] = {name: self._field(name, value) for name, value in extra.items()}
        if code in SENDS and "queueOffset" in extra and (_is_elsewhere(fields) or fields.get("e") == "-1"):
            answer["fields"]["queueOffset"] = "<offset>"
        if content:
            answer["body"] = self._body(code, content, own)
        return answer

    def _field(self, name: str, value: str) -> str:
        if name in ("msgId", "transactionId", "uniqMsgId"):
            return "<id>" * len(value.split(","))
        if name in ("recallHandle", "tranStateTableOffset", "commitLogOffset", "offsetMsgId"):
            return f"<{name}>"
        if name in ("totalTopicNum", "totalGroupNum"):
            return f"<{name}>"
        if name in ("popTime", "restNum", "reviveQid", "startOffsetInfo", "msgOffsetInfo", "orderCountInfo"):
            return "<pop>"
        return self._text(value)

    def _body(self, code: int, content: bytes, own: bool) -> Any:
        if code in (11, 361, 12, 33, 200050, 200052):
            found = [self._message(message) for message in _messages(content)]
            # A pop begins with a queue that the broker chooses.
            return found if code != 200050 else sorted(found, key=lambda each: (each["queue"], each["offset"]))
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content.hex()
        try:
            value = json.loads(OBJECT_KEY.sub(_quoted_key, INTEGER_KEY.sub(r'\1"\2":', text)))
            return self._value(self._own(value) if own else value)
        except ValueError:
            return self._text(text)

    def _own(self, value: Any) -> Any:
        """Removes what does not belong to this sequence."""
        if not isinstance(value, dict):
            return value
        return {
            name: {key: entry for key, entry in each.items() if self._prefix in key}
            if name in TABLES and isinstance(each, dict)
            else each
            for name, each in value.items()
        }

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
            own = {name: each for name, each in value.items() if self._prefix in name or not OF_A_RUN.search(name)}
            return {self._text(name): self._leaf(name, each) for name, each in own.items()}
        if isinstance(value, list):
            return sorted((self._value(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        return self._text(value) if isinstance(value, str) else value

    def _leaf(self, name: str, value: Any) -> Any:
        if isinstance(value, int) and value > 1_500_000_000_000:
            return "<time>"
        if name in ("physicOffset", "physicSize"):
            return f"<{name}>"
        if name == "delayTime":
            return "<delay>"
        if name in ("counter", "stateVersion", "dataVersion", "topicPutTps", "consumeTps"):
            return f"<{name}>"
        return self._value(value)

    def _text(self, text: str) -> str:
        text = text.replace(self._prefix, "")
        for secret, placeholder in self._placeholders.items():
            text = text.replace(secret, placeholder)
        text = re.sub(r"\b127\.0\.0\.1:\d+", "<address>", text)
        text = re.sub(r"\b1[5-9]\d{11}\b", "<time>", text)
        text = re.sub(r"\b20\d\d-\d\d-\d\d#[\d:]+", "<time>", text)
        return re.sub(r"\b[0-9A-F]{32,}\b", "<id>", text)


def _quoted_key(match: re.Match[str]) -> str:
    queue = json.loads("{" + match[1] + "}")
    return json.dumps(f"{queue['topic']}/{queue['queueId']}") + ":"


def _is_elsewhere(fields: dict[str, str]) -> bool:
    """The message waits in a queue that all sequences share."""
    return any(name in fields.get("i", "") for name in ("DELAY\x01", "TIMER_", "TRAN_MSG"))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _batch(bodies: list[str], properties: str) -> bytes:
    """Messages of a batch: size, magic 0, CRC 0, flag 0, body, properties."""
    raw = properties.encode()
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(raw), 0, 0, 0, len(body)) + body + struct.pack(">h", len(raw)) + raw
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
