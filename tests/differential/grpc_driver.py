"""Sends steps of RocketMQ's gRPC API to one broker, with the generated classes of Apache's Python client. Topics and
groups are created over remoting. Status messages are not compared: they are wording."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import queue
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from rocketmq.grpc_protocol import service_pb2

from differential.sequences import Step
from tools.rocketmq_wire import Wire

SERVICE = "/apache.rocketmq.v2.MessagingService/"
STREAMED = {"ReceiveMessage", "PullMessage"}
DEADLINE_S = 10.0
PATIENCE_S = 2.0
"""A ReceiveMessage that has no answer by then, or after `PATIENCE` times the slowest other call, waits for messages."""
PATIENCE = 3
SETTINGS_S = 20.0
MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
WAITS = "waits for messages"
"""Answer to a ReceiveMessage without messages. Ends the sequence: the request may still take later messages."""
NOT_RUN = "not run"
MAX_QUEUES = 8
CREATE_TOPIC, DELETE_TOPIC, GET_MAX_OFFSET, DELETE_GROUP, CREATE_GROUP = 17, 215, 30, 207, 200
METADATA = {
    "x-mq-language": "PYTHON",
    "x-mq-client-version": "5.0.3",
    "x-mq-protocol": "v2",
    "x-mq-date-time": "20260101T000000Z",
    "x-mq-request-id": "1",
}
NAMES = re.compile(r"\$(\w+)")
"""`$t0` in an argument is a name that the driver makes unique."""
AFTER = re.compile(r"<now([+-]\d+)>")
"""`<now+5000>` is a time in milliseconds from now."""
KEPT = re.compile(r"<(handle|transaction|recall) (-?\d+)>")
"""`<handle 3>` is the receipt handle of an answer before, counted from 0 and modulo their number."""
FILLED = re.compile(r"<(text|body) (\d+)>")
"""`<text 100>` is a text of 100 characters, `<body 100>` a body of 100 bytes."""
LONG = 200
HIDDEN = {
    "receipt_handle",
    "recall_handle",
    "store_timestamp",
    "delivery_timestamp",
    "store_host",
    "endpoints",
}
TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")

_runs = itertools.count()


class GrpcDriver:
    """`remoting` is the address of the broker, `address` that of its gRPC server."""

    def __init__(self, name: str, address: str, remoting: str, broker_name: str) -> None:
        self._name = name
        self._address = address
        self._remoting = remoting
        self._broker_name = broker_name

    def run(self, steps: Sequence[Step]) -> list[Any]:
        prefix = f"x{self._name}{next(_runs)}x"
        run = _Run(prefix, self._address, self._remoting, self._broker_name)
        try:
            return list(run.answers(steps))
        finally:
            run.close()


class _Client:
    """One channel with its own client id, and the telemetry streams that it opened."""

    def __init__(self, address: str, client_id: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._metadata = {"x-mq-client-id": client_id, **METADATA}
        self._commands: list[queue.SimpleQueue[Any]] = []
        self._streams: list[Any] = []
        self._slowest_s = 0.0

    def call(self, method: str, request: Any, changed: dict[str, str | None]) -> list[Any]:
        """Returns the messages of the response."""
        began = time.monotonic()
        call = self._make(method, changed)(request)
        found = list(call) if method in STREAMED else [call]
        self._slowest_s = max(self._slowest_s, time.monotonic() - began)
        return found

    def receive(self, request: Any, changed: dict[str, str | None], patience_s: float) -> list[Any] | None:
        """Returns the messages of the response, or None if it does not come in time."""
        call = self._make("ReceiveMessage", changed)(request)
        timer = threading.Timer(max(patience_s, PATIENCE * self._slowest_s), call.cancel)
        timer.start()
        try:
            return list(call)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                return None
            raise
        finally:
            timer.cancel()

    def _make(self, method: str, changed: dict[str, str | None]) -> Any:
        streams = method in STREAMED
        response = getattr(service_pb2, f"{method}Response", None)
        stub = (self._channel.unary_stream if streams else self._channel.unary_unary)(
            SERVICE + method,
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=None if response is None else response.FromString,
        )
        return lambda request: stub(request, timeout=DEADLINE_S, metadata=self._sent(changed))

    def _sent(self, changed: dict[str, str | None]) -> list[tuple[str, str]]:
        return [(name, value) for name, value in {**self._metadata, **changed}.items() if value is not None]

    def open_telemetry(self, command: Any, changed: dict[str, str | None]) -> list[Any]:
        """Sends the first command of a stream, which stays open, and returns the first that comes back."""
        commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._commands.append(commands)
        commands.put(command)
        stream = self._channel.stream_stream(
            SERVICE + "Telemetry",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=service_pb2.TelemetryCommand.FromString,
        )(iter(commands.get, None), timeout=60, metadata=self._sent(changed))
        self._streams.append(stream)
        return self.next_command(SETTINGS_S)

    def next_command(self, patience_s: float) -> list[Any]:
        """Returns what comes next on the last stream, or nothing."""
        if not self._streams:
            return []
        stream = self._streams[-1]
        timer = threading.Timer(patience_s, stream.cancel)
        timer.start()
        try:
            return [next(stream)]
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                return []
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        for commands in self._commands:
            commands.put(None)
        self._channel.close()


class _Run:
    """One sequence: its clients, the unique part of its names, and what its answers gave out for later requests."""

    def __init__(self, prefix: str, address: str, remoting_address: str, broker_name: str) -> None:
        self._prefix = prefix
        self._address = address
        self._remoting_address = remoting_address
        self._remoting = Wire(remoting_address)
        self._broker_name = broker_name
        self._clients: dict[int, _Client] = {}
        self._topics: set[str] = set()
        self._groups: set[str] = set()
        self._sent: dict[str, int] = {}
        self._kept: dict[str, list[str]] = {"handle": [], "transaction": [], "recall": []}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        with suppress(OSError), self._remoting as remoting:
            for topic in self._topics:
                remoting.ask(DELETE_TOPIC, {"topic": topic})
            for group in self._groups:
                remoting.ask(DELETE_GROUP, {"groupName": group, "cleanOffset": "true"})

    def answers(self, steps: Sequence[Step]) -> Iterator[Any]:
        has_ended = False
        for step in steps:
            answer = NOT_RUN if has_ended else self._answer(step)
            has_ended = has_ended or answer == WAITS
            yield answer

    def _answer(self, step: Step) -> Any:
        arguments = step.arguments
        if "code" in arguments:
            return self._administer(arguments["code"], arguments["fields"], arguments.get("body"))
        if "pause" in arguments:
            time.sleep(arguments["pause"])
            return None
        client = self._client(step.connection)
        if "meanwhile" in arguments:
            return self._together(client, arguments)
        if "command" in arguments:
            found = self._normal("", [_plain(each) for each in client.next_command(arguments["command"])])
            return [_without_place(each) for each in found]
        return self._call(client, arguments)

    def _call(self, client: _Client, arguments: dict[str, Any]) -> Any:
        method, changed = arguments["method"], arguments.get("metadata", {})
        content = json.loads(self._filled(json.dumps(arguments.get("message", {}))))
        try:
            if method == "Telemetry":
                found = client.open_telemetry(_parsed("TelemetryCommand", content), changed)
            elif method == "ReceiveMessage":
                request = _parsed("ReceiveMessageRequest", content)
                waited = client.receive(request, changed, arguments.get("patience", PATIENCE_S))
                if waited is None or _is_empty(waited):
                    return WAITS
                found = waited
            else:
                raw = bytes.fromhex(arguments["raw"]) if "raw" in arguments else None
                found = client.call(method, _parsed(f"{method}Request", content) if raw is None else raw, changed)
        except grpc.RpcError as error:
            return {"grpc": error.code().name}
        except StopIteration:
            return "stream ended"
        answers = [_plain(each) for each in found]
        self._keep(method, answers, content)
        if method == "SendMessage" and _is_elsewhere(content):
            for entry in answers[0].get("entries", ()):
                entry["offset"] = "<offset>"
        return self._normal("", _in_order(answers))

    def _together(self, client: _Client, arguments: dict[str, Any]) -> Any:
        """A ReceiveMessage that waits, and another request meanwhile."""
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.append(self._call(client, {**arguments, "patience": 5})))
        waiting.start()
        time.sleep(0.3)
        other = self._call(client, arguments["meanwhile"])
        waiting.join()
        return answers[0] if answers[0] == WAITS else {"first": answers[0], "second": other}

    def _client(self, number: int) -> _Client:
        if number not in self._clients:
            self._clients[number] = _Client(self._address, f"{self._prefix}c{number}")
        return self._clients[number]

    def _administer(self, code: int, fields: dict[str, str], body: Any) -> Any:
        fields = {name: self._filled(value) for name, value in fields.items()}
        try:
            header, content = self._remoting.ask(code, fields, self._filled(json.dumps(body)).encode() if body else b"")
        except OSError:
            self._remoting = Wire(self._remoting_address)
            return "no answer"
        if code == CREATE_TOPIC and header["code"] == 0:
            self._topics.add(fields["topic"])
            self._await_route(fields["topic"])
        if code == CREATE_GROUP and header["code"] == 0:
            self._groups.add(self._filled(body["groupName"]))
        answer = {"code": header["code"], "fields": header.get("extFields") or {}}
        if content:
            answer["body"] = json.loads(content)
        return self._normal("", answer)

    def _await_route(self, topic: str) -> None:
        """The proxy of Apache RocketMQ asks the name server, which learns of a topic a little later."""
        request = _parsed("QueryRouteRequest", {"topic": {"name": topic}})
        until = time.monotonic() + 3
        while time.monotonic() < until:
            (answer,) = self._client(99).call("QueryRoute", request, {})
            if answer.status.code != 40402:
                return
            time.sleep(0.05)

    def _filled(self, text: str) -> str:
        text = NAMES.sub(lambda match: self._prefix + match[1], text)
        text = text.replace("<broker>", self._broker_name)
        text = AFTER.sub(lambda match: _as_time(time.time() + int(match[1]) / 1000), text)
        text = FILLED.sub(lambda match: _filler(match[1], int(match[2])), text)
        return KEPT.sub(lambda match: self._given_out(match[1], int(match[2])), text)

    def _given_out(self, kind: str, number: int) -> str:
        found = self._kept[kind]
        return json.dumps(found[number % len(found)])[1:-1] if found else "none"

    def _keep(self, method: str, answers: list[Any], content: Any) -> None:
        for answer in answers:
            for entry in answer.get("entries", ()):
                for kind, name in (("transaction", "transaction_id"), ("recall", "recall_handle")):
                    if entry.get(name) and (kind != "transaction" or _is_elsewhere(content)):
                        self._kept[kind].append(entry[name])
            if handle := answer.get("message", {}).get("system_properties", {}).get("receipt_handle"):
                self._kept["handle"].append(handle)
            if handle := answer.get("receipt_handle"):
                self._kept["handle"].append(handle)
        if answers and answers[0].get("status", {}).get("code") == "OK":
            self._note_stored(method, content)

    def _note_stored(self, method: str, content: Any) -> None:
        if method == "SendMessage" and not _is_elsewhere(content):
            self._await_dispatch(content["messages"][0]["topic"]["name"], len(content["messages"]))
        if method == "EndTransaction" and content.get("resolution") == "COMMIT":
            self._await_dispatch(content["topic"]["name"], 1)

    def _await_dispatch(self, topic: str, count: int) -> None:
        """Apache RocketMQ builds consume queues in the background."""
        wanted = self._sent[topic] = self._sent.get(topic, 0) + count
        until = time.monotonic() + 1
        while time.monotonic() < until:
            if sum(self._ends(topic)) >= wanted:
                return

    def _ends(self, topic: str) -> Iterator[int]:
        for number in range(MAX_QUEUES):
            header, _ = self._remoting.ask(GET_MAX_OFFSET, {"topic": topic, "queueId": number})
            yield int(header["extFields"]["offset"]) if header["code"] == 0 else 0

    def _normal(self, name: str, value: Any) -> Any:
        if name == "message" and isinstance(value, str):
            return "<text>"
        if name in HIDDEN:
            return f"<{name}>" if value else value
        if isinstance(value, dict):
            return {key: self._normal(key, each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._normal("", each) for each in value]
        if isinstance(value, str):
            value = value.replace(self._prefix, "").replace(self._broker_name, "<broker>")
            value = re.sub(r"\b127\.0\.0\.1:\d+", "<address>", TIMES.sub("<time>", value))
            return value if len(value) <= LONG else hashlib.sha256(value.encode()).hexdigest()
        return "<time>" if isinstance(value, int) and value > 1_500_000_000_000 else value


def _parsed(name: str, content: Any) -> Any:
    try:
        return ParseDict(content, getattr(service_pb2, name)())
    except ParseError as error:
        raise ValueError(f"the generator made a wrong message: {error}") from error


def _plain(message: Any) -> Any:
    if isinstance(message, bytes):  # of a method without a class
        return message.hex()
    return MessageToDict(message, preserving_proto_field_name=True)


def _is_elsewhere(content: Any) -> bool:
    """The message waits in a queue that all sequences share."""
    messages = content.get("messages") or [{}]
    properties = messages[0].get("system_properties", {})
    return properties.get("message_type") == "TRANSACTION" or "delivery_timestamp" in properties


def _without_place(command: Any) -> Any:
    """A half message is asked about at different places, once or twice."""
    message = command.get("recover_orphaned_transaction_command", {}).get("message", {})
    message.get("system_properties", {}).pop("queue_offset", None)
    message.get("user_properties", {}).pop("TRANSACTION_CHECK_TIMES", None)
    return command


def _is_empty(found: list[Any]) -> bool:
    return any(each.status.code == 40401 for each in found if each.HasField("status"))


def _in_order(answers: list[Any]) -> list[Any]:
    """The delivery time of a response may come at any place, and its messages in the order of their queues."""
    kept = [each for each in answers if not isinstance(each, dict) or "delivery_timestamp" not in each]
    return sorted(kept, key=_place)


def _place(answer: Any) -> tuple[int, str]:
    is_message = isinstance(answer, dict) and "message" in answer
    return (1, answer["message"]["system_properties"].get("message_id", "")) if is_message else (0, "")


def _filler(kind: str, size: int) -> str:
    return "x" * size if kind == "text" else base64.b64encode(b"x" * size).decode()


def _as_time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03}Z"
