"""Requests of all protocols as one line each, with the outcome that their response expresses. Decodes only when a line
is wanted; knows no connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, Protocol

import msgspec

from trimq.errors import ProtocolError
from trimq.protocols.amqp.methods import METHODS, BasicGetOk, Method, QueueDeclareOk, QueueDeleteOk, QueuePurgeOk
from trimq.protocols.amqp.wire.codes import Code as AmqpCode
from trimq.protocols.amqp.wire.events import Acks, Greeting, Oversized, Publish
from trimq.protocols.amqp.wire.events import Command as AmqpCommand
from trimq.protocols.amqp.wire.method_codec import BadMethod, read_method
from trimq.protocols.contract import Reply
from trimq.protocols.grpc.calls import CallEvent, UnaryCall
from trimq.protocols.grpc.frames import FrameType, Http2ConnectionError
from trimq.protocols.grpc.hpack import HeaderDecoder
from trimq.protocols.grpc.statuses import Status
from trimq.protocols.kafka.messages.schema import Struct as KafkaStruct
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import API_VERSIONS, APIS, response_class
from trimq.protocols.kafka.wire.connection import Request
from trimq.protocols.rocketmq.wire.codes import RequestCode, ResponseCode
from trimq.server.http.front_end import HttpRequest
from trimq.wire.remoting import RESPONSE, BadHeader, BrokenFrame, RemotingConnection
from trimq.wire.remoting import Command as RemotingCommand

# Requests longer than this are described without the names in their bodies.
_KEPT_BYTES = 4096


class RequestDescription(Protocol):
    """Request as shown in a report."""

    def outcome(self, answer: bytes) -> str:
        """Returns the outcome that the bytes of the response express."""


def describe(event: object) -> RequestDescription:
    if isinstance(event, Request):
        return _KafkaRequest(event.api_key, event.api_version, event.client_id)
    if isinstance(event, AmqpCommand | Publish | Acks | Oversized | Greeting):
        return _AmqpRequest(_describe_amqp(event))
    if isinstance(event, RemotingCommand):
        return _RemotingRequest(msgspec.structs.replace(event, body=event.body[:_KEPT_BYTES]))
    if isinstance(event, CallEvent):
        return _GrpcRequest(event.title, event.raw[: _KEPT_BYTES + 1] if isinstance(event, UnaryCall) else b"")
    if isinstance(event, HttpRequest):
        return _HttpRequest(event.method, event.path)
    if isinstance(event, Reply):
        return _AmqpRequest("more of the messages published before")
    asked = getattr(event, "asked", None)
    if isinstance(asked, list):  # the batch of RocketMQ messages that arrived together
        return _SendBatch(tuple(dict.fromkeys(topic for *_, topic in asked)), len(asked))
    return _OtherRequest(type(event).__name__)


def _size(answer: bytes) -> str:
    return f"response of {len(answer)} bytes"


def _joined(outcomes: Iterable[str]) -> str:
    """Returns the outcomes in one line, repeated ones once with their number."""
    counts: dict[str, int] = {}
    for each in outcomes:
        counts[each] = counts.get(each, 0) + 1
    return ", ".join(each if count == 1 else f"{each} ({count} times)" for each, count in counts.items())


class _OtherRequest(NamedTuple):
    name: str

    def __str__(self) -> str:
        return self.name

    def outcome(self, answer: bytes) -> str:
        return _size(answer)


class _HttpRequest(NamedTuple):
    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def outcome(self, answer: bytes) -> str:
        return answer[:40].split()[1].decode("ascii", "replace") if b" " in answer[:40] else "?"


# -- Kafka


class _KafkaRequest(NamedTuple):
    api_key: int
    version: int
    client_id: str | None

    def __str__(self) -> str:
        client = f" by {self.client_id}" if self.client_id else ""
        return f"{APIS[self.api_key].name} v{self.version}{client}"

    def outcome(self, answer: bytes) -> str:
        api = APIS[self.api_key]
        is_newer = self.version >= api.flexible_from and self.api_key != API_VERSIONS
        try:
            response = codec.decode(response_class(self.api_key), self.version, answer, 9 if is_newer else 8)
        except ProtocolError:  # the response to an unsupported version is encoded in another version
            return _size(answer)
        return ", ".join(dict.fromkeys(_errors(response, ""))) or "ok"


_SUBJECTS = ("name", "topic", "group_id", "resource_name")


def _errors(found: object, subject: str) -> Iterator[str]:
    """Yields every error of a response, each preceded by the name of its topic or group."""
    if isinstance(found, list):
        for each in found:
            yield from _errors(each, subject)
    if not isinstance(found, KafkaStruct):
        return
    subject = next((name for key in _SUBJECTS if isinstance(name := getattr(found, key, None), str) and name), subject)
    code = getattr(found, "error_code", 0)
    if code:
        known = Code(code).name if code in Code.__members__.values() else f"error {code}"
        message = getattr(found, "error_message", None)
        yield " ".join(filter(None, (subject, known, f"({message})" if message else "")))
    for field in found.FIELDS:
        yield from _errors(getattr(found, field.name), subject)


# -- AMQP

_FRAME = Struct(">BHI")
_METHOD_FRAME = 1
_COUNTED = (QueueDeclareOk, QueueDeleteOk, QueuePurgeOk, BasicGetOk)

# Fields of a method that name the object it is about, in the order in which they are shown.
_AMQP_NAMES = {
    "vhost": "vhost",
    "queue": "",
    "exchange": "exchange",
    "destination": "",
    "source": "exchange",
    "routing_key": "key",
    "consumer_tag": "consumer",
}


class _AmqpRequest(NamedTuple):
    text: str

    def __str__(self) -> str:
        return self.text

    def outcome(self, answer: bytes) -> str:
        return _joined(map(_amqp_outcome, _amqp_methods(answer))) or _size(answer)


def _describe_amqp(event: AmqpCommand | Publish | Acks | Oversized | Greeting) -> str:
    if isinstance(event, Publish):
        exchange = f"exchange {event.exchange}" if event.exchange else "the default exchange"
        return f"basic.publish to {exchange}, key {event.key!r}, {len(event.body)} bytes"
    if isinstance(event, Acks):
        tags = f"all up to {event.tags[-1]}" if event.is_multiple else ", ".join(map(str, event.tags[:10]))
        return f"basic.ack {tags}{', …' if len(event.tags) > 10 else ''}"
    if isinstance(event, Oversized):
        return f"basic.publish of {event.size} bytes"
    if isinstance(event, Greeting):
        return "protocol header"
    method = event.method
    named = [f"{label} {value!r}" if label else value for label, value in _amqp_names(method)]
    return " ".join(filter(None, (method.NAME, ", ".join(named))))


def _amqp_names(method: Method) -> Iterator[tuple[str, str]]:
    for field, label in _AMQP_NAMES.items():
        value = getattr(method, field, None)
        if isinstance(value, str) and value:
            yield label, value


def _amqp_methods(answer: bytes) -> Iterator[Method]:
    position = 0
    while position + _FRAME.size <= len(answer):
        kind, _, size = _FRAME.unpack_from(answer, position)
        payload = answer[position + _FRAME.size : position + _FRAME.size + size]
        if kind == _METHOD_FRAME and int.from_bytes(payload[:4]) in METHODS:
            with suppress(BadMethod):
                yield read_method(payload)
        position += _FRAME.size + size + 1


def _amqp_outcome(method: Method) -> str:
    code = getattr(method, "reply_code", None)
    if code is not None:
        text = str(getattr(method, "reply_text", ""))
        known = AmqpCode(code).name if code in AmqpCode.__members__.values() else ""
        return f"{method.NAME} {code} {text if known and text.startswith(known) else f'{known} {text}'.strip()}"
    if isinstance(method, _COUNTED):
        name = getattr(method, "queue", "")
        return f"{method.NAME}{f' {name}' if name else ''} ({method.message_count} messages)"
    return method.NAME


# -- RocketMQ remoting

# Fields of a header that name the object, in the order in which they are shown; clients shorten those of a send.
_REMOTING_NAMES = {
    "topic": "",
    "b": "",
    "queueId": "queue",
    "e": "queue",
    "consumerGroup": "group",
    "group": "group",
    "groupName": "group",
    "producerGroup": "producer group",
    "a": "producer group",
    "clientID": "by",
}


class _RemotingRequest(NamedTuple):
    command: RemotingCommand

    def __str__(self) -> str:
        command = self.command
        if command.flag & RESPONSE:
            return f"response {_response_code(command.code)} to the broker"
        known = RequestCode(command.code).name if command.code in RequestCode.__members__.values() else "request"
        title = known if known != "request" else f"request {command.code}"
        named = [f"{label} {value}" if label else value for label, value in _remoting_names(command)]
        return " ".join([title, *named])

    def outcome(self, answer: bytes) -> str:
        return _remoting_outcome(answer)


def _remoting_names(command: RemotingCommand) -> Iterator[tuple[str, str]]:
    try:
        fields = dict(command.fields)
    except BadHeader:
        return
    if command.code == RequestCode.HEART_BEAT:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            beat = msgspec.json.decode(command.body)
            fields["clientID"] = str(beat.get("clientID", "")) if isinstance(beat, dict) else ""
    is_short = command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    for field, label in _REMOTING_NAMES.items():
        if fields.get(field) and (len(field) > 1 or is_short):
            yield label, fields[field]


def _remoting_outcome(answer: bytes) -> str:
    connection = RemotingConnection(len(answer) + 1024)
    outcomes = []
    with suppress(BrokenFrame):
        connection.receive(answer)
        while (found := connection.next_event()) is not None:
            reason = f" ({found.remark})" if found.remark and found.code != ResponseCode.SUCCESS else ""
            outcomes.append(_response_code(found.code) + reason)
    return _joined(outcomes) or _size(answer)


def _response_code(code: int) -> str:
    return ResponseCode(code).name if code in ResponseCode.__members__.values() else f"code {code}"


class _SendBatch(NamedTuple):
    topics: tuple[str, ...]
    messages: int

    def __str__(self) -> str:
        number = f" ({self.messages} messages)" if self.messages > 1 else ""
        return f"SEND_MESSAGE_V2 {', '.join(self.topics)}{number}"

    def outcome(self, answer: bytes) -> str:
        return _remoting_outcome(answer)


# -- RocketMQ over gRPC

_FRAME_HEAD_BYTES = 9
_MESSAGE_HEAD_BYTES = 5
_OK = 20000


class _GrpcRequest(NamedTuple):
    title: str
    raw: bytes

    def __str__(self) -> str:
        return " ".join([self.title, *self._names()])

    def _names(self) -> Iterator[str]:
        from google.protobuf.message import DecodeError, Message

        from trimq.protocols.rocketmq.grpc.front_end import METHODS as CALLS

        call = CALLS.get(self.title.partition(" ")[0])
        if call is None or not self.raw or len(self.raw) > _KEPT_BYTES:
            return
        with suppress(DecodeError):
            request: Message = call.request.FromString(self.raw)
            shown = dict.fromkeys(_resource_names([request, *getattr(request, "messages", ())]))
            yield from shown

    def outcome(self, answer: bytes) -> str:
        return _joined(_grpc_outcomes(self.title.partition(" ")[0], answer)) or _size(answer)


def _resource_names(messages: Iterable[object]) -> Iterator[str]:
    for field, label in (("topic", ""), ("group", "group ")):
        for message in messages:
            name = getattr(getattr(message, field, None), "name", "")
            if name:
                yield f"{label}{name}"


def _grpc_outcomes(method: str, answer: bytes) -> Iterator[str]:
    """Yields the status of each message of a response, and a gRPC status that is not OK."""
    from google.protobuf.message import DecodeError

    from trimq.protocols.rocketmq.grpc.front_end import METHODS as CALLS

    for kind, payload in _http2_frames(answer):
        if kind == FrameType.HEADERS:
            with suppress(Http2ConnectionError):
                fields = dict(HeaderDecoder(_KEPT_BYTES).decode(payload).fields)
                status = str(fields.get("grpc-status", "0"))
                if status != "0":
                    yield f"{Status(int(status)).name} ({fields.get('grpc-message', '')})"
        elif kind == FrameType.DATA and method in CALLS:
            with suppress(DecodeError):
                found = CALLS[method].response.FromString(payload[_MESSAGE_HEAD_BYTES:])
                if found.HasField("status"):
                    yield _grpc_status(found.status)


def _grpc_status(status: object) -> str:
    from trimq.protocols.rocketmq.grpc.wire.enums import Code as GrpcCode

    code, message = getattr(status, "code", 0), getattr(status, "message", "")
    known = GrpcCode(code).name if code in GrpcCode.__members__.values() else f"code {code}"
    return known if code == _OK or not message else f"{known} ({message})"


def _http2_frames(answer: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _FRAME_HEAD_BYTES <= len(answer):
        size = int.from_bytes(answer[position : position + 3])
        begin = position + _FRAME_HEAD_BYTES
        yield answer[position + 3], answer[begin : begin + size]
        position = begin + size
