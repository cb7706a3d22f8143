"""Requests of AMQP and RocketMQ as lines of a report. Those of Kafka and HTTP: test_traffic_recorder.py."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.events import Acks, Command, Greeting, Oversized, Publish
from trimq.protocols.amqp.wire.frames import frame
from trimq.protocols.amqp.wire.method_codec import write_method
from trimq.protocols.contract import Reply
from trimq.protocols.grpc.calls import UnaryCall
from trimq.protocols.grpc.frames import FrameType
from trimq.protocols.grpc.frames import frame as http2_frame
from trimq.protocols.grpc.statuses import HEADERS, OK_TRAILERS, Status, trailers_only
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.wire.codes import RequestCode, ResponseCode
from trimq.server.request_descriptions import describe
from trimq.wire.remoting import Command as RemotingCommand
from trimq.wire.remoting import encode_command


def amqp(*answers: methods.Method) -> bytes:
    return b"".join(frame(1, 1, write_method(each)) for each in answers)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Command(1, methods.QueueDeclare(queue="mails")), "queue.declare mails"),
        (
            Command(1, methods.QueueBind(queue="mails", exchange="news", routing_key="a.b")),
            "queue.bind mails, exchange 'news', key 'a.b'",
        ),
        (Command(1, methods.ChannelOpen()), "channel.open"),
        (Publish(1, "news", "a", False, False, b"", b"body"), "basic.publish to exchange news, key 'a', 4 bytes"),
        (Acks(1, [3, 4], False), "basic.ack 3, 4"),
        (Acks(1, list(range(1, 20)), False), "basic.ack 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"),
        (Acks(1, [9], True), "basic.ack all up to 9"),
        (Oversized(1, 9000), "basic.publish of 9000 bytes"),
        (Greeting(), "protocol header"),
        (Reply.now([]), "more of the messages published before"),
    ],
)
def test_an_amqp_method_is_described_with_its_object(event: object, text: str) -> None:
    assert str(describe(event)) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (amqp(methods.QueueBindOk()), "queue.bind-ok"),
        (amqp(methods.QueueDeclareOk("mails", 3, 1)), "queue.declare-ok mails (3 messages)"),
        (amqp(methods.ChannelClose(406, "PRECONDITION_FAILED - no")), "channel.close 406 PRECONDITION_FAILED - no"),
        (amqp(methods.ConnectionClose(320, "bye")), "connection.close 320 CONNECTION_FORCED bye"),
        (amqp(methods.BasicReturn(312, "NO_ROUTE"), methods.BasicAck(1)), "basic.return 312 NO_ROUTE, basic.ack"),
        (amqp(methods.BasicAck(1), methods.BasicAck(2)), "basic.ack (2 times)"),
        (b"AMQP\0\0\x09\x01", "response of 8 bytes"),
    ],
)
def test_the_outcome_of_an_amqp_method_is_the_method_of_the_response(answer: bytes, text: str) -> None:
    assert describe(Command(1, methods.QueueDeclare(queue="mails"))).outcome(answer) == text


def remoting(code: int, fields: dict[str, str], body: bytes = b"", flag: int = 0) -> RemotingCommand:
    return RemotingCommand(code, 1, flag, 479, "JAVA", None, body, _fields=fields)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (remoting(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}), "GET_ROUTEINFO_BY_TOPIC t"),
        (
            remoting(RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": "t", "e": "3"}),
            "SEND_BATCH_MESSAGE t queue 3 producer group p",
        ),
        (
            remoting(RequestCode.HEART_BEAT, {}, msgspec.json.encode({"clientID": "me@1"})),
            "HEART_BEAT by me@1",
        ),
        (remoting(RequestCode.HEART_BEAT, {}, b"{"), "HEART_BEAT"),
        (remoting(4711, {"topic": "t"}), "request 4711 t"),
        (remoting(0, {}, flag=1), "response SUCCESS to the broker"),
        (RemotingCommand(11, 1, 0, 479, "JAVA", None, b"", msgspec.Raw(b"[")), "PULL_MESSAGE"),
    ],
)
def test_a_remoting_command_is_described_with_its_object(command: RemotingCommand, text: str) -> None:
    assert str(describe(command)) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (encode_command(ResponseCode.SUCCESS, 1, 1, remark="fine"), "SUCCESS"),
        (encode_command(ResponseCode.NO_PERMISSION, 1, 1, remark="not you"), "NO_PERMISSION (not you)"),
        (encode_command(999, 1, 1), "code 999"),
        (encode_command(0, 1, 1) + encode_command(0, 2, 1), "SUCCESS (2 times)"),
        (b"", "response of 0 bytes"),
    ],
)
def test_the_outcome_of_a_remoting_command_is_the_code_of_the_response(answer: bytes, text: str) -> None:
    assert describe(remoting(RequestCode.PULL_MESSAGE, {"topic": "t"})).outcome(answer) == text


def test_a_batch_of_sends_is_described_by_its_topics() -> None:
    batch = SimpleNamespace(asked=[(1, 0, "A", "t"), (2, 1, "B", "t"), (3, 0, "C", "u")])
    assert str(describe(batch)) == "SEND_MESSAGE_V2 t, u (3 messages)"
    assert describe(batch).outcome(encode_command(0, 1, 1)) == "SUCCESS"


def call(method: str, request: object) -> UnaryCall:
    block = SimpleNamespace(parsed=SimpleNamespace(method=SimpleNamespace(name=method)))
    return UnaryCall(SimpleNamespace(block=block), request.SerializeToString())  # type: ignore[arg-type, attr-defined]


def answered(response: object) -> bytes:
    raw: bytes = response.SerializeToString()  # type: ignore[attr-defined]
    head = http2_frame(FrameType.HEADERS, 4, 1, HEADERS)
    data = http2_frame(FrameType.DATA, 0, 1, b"\0" + len(raw).to_bytes(4) + raw)
    return head + data + http2_frame(FrameType.HEADERS, 5, 1, OK_TRAILERS)


def test_a_grpc_call_is_described_with_its_object_and_status() -> None:
    topic = wire.Resource(name="t")
    sent = describe(call("SendMessage", wire.SendMessageRequest(messages=[wire.Message(topic=topic)])))
    assert str(sent) == "SendMessage call t"
    status = wire.Status(code=Code.TOPIC_NOT_FOUND, message="there is no topic t")
    assert sent.outcome(answered(wire.SendMessageResponse(status=status))) == "TOPIC_NOT_FOUND (there is no topic t)"
    assert sent.outcome(answered(wire.SendMessageResponse(status=wire.Status(code=Code.OK, message="OK")))) == "OK"
    refused = http2_frame(FrameType.HEADERS, 5, 1, trailers_only(Status.UNIMPLEMENTED, "no such method"))
    assert sent.outcome(refused) == "UNIMPLEMENTED (no such method)"
    acked = describe(call("AckMessage", wire.AckMessageRequest(group=wire.Resource(name="g"), topic=topic)))
    assert str(acked) == "AckMessage call t group g"
