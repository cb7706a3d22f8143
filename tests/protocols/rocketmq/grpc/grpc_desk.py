"""Test bench for gRPC clients, without a socket: whole calls in, whole responses out."""

from __future__ import annotations

from itertools import count
from typing import Any

from protocols.rocketmq.rocketmq_desk import Desk

from trimq.core.metadata.cluster import Address
from trimq.protocols.contract import CallInfo, Parts, Reply
from trimq.protocols.rocketmq.grpc.clients.message_view import set_ms
from trimq.protocols.rocketmq.grpc.front_end import METHODS, GrpcFrontEnd
from trimq.protocols.rocketmq.grpc.handlers.telemetry import Telemetry
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, MessageType

_IDS = count(1)


class GrpcDesk:
    def __init__(self, desk: Desk | None = None, client_limit: int = 100, **settings: Any) -> None:
        self.desk = Desk(**settings) if desk is None else desk
        self.desk.core.cluster.announce("rocketmq_grpc", Address("127.0.0.1", 8081))
        self.front_end: GrpcFrontEnd = self.desk.doors.grpc(client_limit)

    def client(self, name: str = "c1", **metadata: str) -> Phone:
        return Phone(
            self, {"x-mq-client-id": name, "x-mq-language": "PYTHON", "x-mq-client-version": "5.0.3", **metadata}
        )

    def make_topic(self, name: str, kind: str = "NORMAL", queues: int = 1, **fields: Any) -> None:
        given = {"topic": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        given |= {"attributes": f"+message.type={kind}"} if kind else {}
        assert self.desk.broker.ask(17, {**given, **fields}).code == 0

    def make_group(self, name: str, **changes: Any) -> None:
        assert self.desk.broker.ask(200, body={"groupName": name, **changes}).code == 0

    def restart(self) -> GrpcDesk:
        return GrpcDesk(self.desk.restart())


class Line:
    """Outlet to a client: records the messages that are sent."""

    is_congested = False

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __call__(self, parts: Parts) -> None:
        self.heard += [wire.TelemetryCommand.FromString(bytes(part)) for part in parts]


class Phone:
    """One client."""

    def __init__(self, desk: GrpcDesk, metadata: dict[str, str]) -> None:
        self._desk = desk
        self.metadata = metadata
        self.line = Line()
        self.stream: Telemetry | None = None

    @property
    def heard(self) -> list[Any]:
        return self.line.heard

    def call_info(self, remaining_ms: int | None = 30_000) -> CallInfo:
        return CallInfo("10.0.0.9:5009", self.metadata, remaining_ms)

    def begin(self, method: str, request: Any, remaining_ms: int | None = 30_000) -> Reply:
        return self._desk.front_end.call(method, self.call_info(remaining_ms), request.SerializeToString())

    def call(self, method: str, **fields: Any) -> Any:
        """Returns the response once it is durable."""
        return self.take(method, self.begin(method, METHODS[method].request(**fields)))[0]

    def take(self, method: str, reply: Reply) -> list[Any]:
        assert self._desk.desk.is_ready(reply)
        return [METHODS[method].response.FromString(bytes(part)) for part in reply.take()]

    # -- receiving

    def receiving(self, topic: str, group: str = "g", count: int = 32, **fields: Any) -> Any:
        """Builds a ReceiveMessage request."""
        invisible_ms, wait_ms = fields.pop("invisible_ms", 10_000), fields.pop("wait_ms", 5000)
        expression, kind = fields.pop("expression", "*"), fields.pop("kind", 1)
        request = wire.ReceiveMessageRequest(
            group=wire.Resource(name=group),
            message_queue=wire.MessageQueue(topic=wire.Resource(name=topic)),
            filter_expression=wire.FilterExpression(type=kind, expression=expression),
            batch_size=count,
            **fields,
        )
        set_ms(request.long_polling_timeout, wait_ms)
        if invisible_ms is not None:
            set_ms(request.invisible_duration, invisible_ms)
        return request

    def receive(self, topic: str, group: str = "g", count: int = 32, **fields: Any) -> list[Any]:
        """Receives the messages that are available now."""
        reply = self.begin("ReceiveMessage", self.receiving(topic, group, count, **fields))
        if not self._desk.desk.is_ready(reply):
            assert reply.on_resolve_now is not None
            reply.on_resolve_now()
        return messages_of(self.take("ReceiveMessage", reply))

    def ack(self, topic: str, *received: Any, group: str = "g") -> Any:
        entries = [
            wire.AckMessageEntry(
                message_id=each.system_properties.message_id, receipt_handle=each.system_properties.receipt_handle
            )
            for each in received
        ]
        return self.call(
            "AckMessage", group=wire.Resource(name=group), topic=wire.Resource(name=topic), entries=entries
        )

    def change(self, topic: str, handle: str, invisible_ms: int, group: str = "g") -> Any:
        request = wire.ChangeInvisibleDurationRequest(
            group=wire.Resource(name=group), topic=wire.Resource(name=topic), receipt_handle=handle
        )
        set_ms(request.invisible_duration, invisible_ms)
        return self.take("ChangeInvisibleDuration", self.begin("ChangeInvisibleDuration", request))[0]

    def send(self, *messages: Any) -> Any:
        return self.call("SendMessage", messages=messages)

    # -- the telemetry stream

    def tell(self, settings: Any) -> Any:
        """Opens a telemetry stream and sends the client's settings. Returns the last message received."""
        self.stream = self._desk.front_end.open("Telemetry", self.call_info(), self.line)
        self.line(self.stream.receive(wire.TelemetryCommand(settings=settings).SerializeToString()))
        return self.heard[-1]

    def produce(self, *topics: str) -> Any:
        return self.tell(
            wire.Settings(
                client_type=ClientType.PRODUCER,
                publishing=wire.Publishing(topics=[wire.Resource(name=topic) for topic in topics]),
            )
        )

    def consume(self, group: str, *topics: str, kind: ClientType = ClientType.SIMPLE_CONSUMER) -> Any:
        entries = [
            wire.SubscriptionEntry(
                topic=wire.Resource(name=topic), expression=wire.FilterExpression(type=1, expression="*")
            )
            for topic in topics
        ]
        subscription = wire.Subscription(group=wire.Resource(name=group), subscriptions=entries)
        return self.tell(wire.Settings(client_type=kind, subscription=subscription))


def messages_of(answers: list[Any]) -> list[Any]:
    return [each.message for each in answers if each.WhichOneof("content") == "message"]


def bodies_of(messages: list[Any]) -> list[bytes]:
    return [each.body for each in messages]


def handle_of(received: Any) -> str:
    return str(received.system_properties.receipt_handle)


def message(topic: str, body: bytes = b"hello", kind: MessageType = MessageType.NORMAL, **system: Any) -> Any:
    due_ms, recovery_ms = system.pop("due_ms", None), system.pop("recovery_ms", None)
    properties = system.pop("properties", {})
    given = {"message_id": f"ID{next(_IDS)}", "message_type": kind, "born_host": "there", "body_encoding": 1}
    made = wire.Message(
        topic=wire.Resource(name=topic),
        body=body,
        user_properties=properties,
        system_properties=wire.SystemProperties(**{**given, **system}),
    )
    set_ms(made.system_properties.born_timestamp, 1_600_000_000_123)
    if due_ms is not None:
        set_ms(made.system_properties.delivery_timestamp, due_ms)
    if recovery_ms is not None:
        set_ms(made.system_properties.orphaned_transaction_recovery_duration, recovery_ms)
    return made
