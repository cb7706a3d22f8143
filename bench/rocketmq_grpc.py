"""Sending and receiving over gRPC, on RocketMQ's proxy and TriMQ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.broker_rounds import Outcome, run_rounds, timed
from bench.comparison import work_figures
from bench.figures import Figure
from bench.grpc_wire import GrpcConnection
from bench.pipelined_load import WireFailed
from bench.processes import ChildFailed
from bench.rocketmq_brokers import GRPC_GOALS, QUEUES, ROCKETMQ, TITLE, Broker, Brokers, topic_on
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_traffic import fill
from bench.rocketmq_wire import Client
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, Code, FilterType

BODY_BYTES = 100
BATCH = 32
GROUP = "bench-receivers"
INVISIBLE_S = 60
_SERVICE = "apache.rocketmq.v2.MessagingService"
_METADATA = (("x-mq-client-id", "bench"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.2.0"))
_TIMEOUT = ("grpc-timeout", "30S")


def measure(sizes: RocketMQSizes, brokers: Brokers) -> Iterator[Figure]:
    results = run_rounds(brokers.both(), sizes.rounds, lambda broker: send(sizes, broker))
    name = f"gRPC: send {BODY_BYTES} B, {sizes.calls_in_flight} under way, {brokers.flush}"
    yield from work_figures(name, results, ROCKETMQ, TITLE, GRPC_GOALS)
    results = run_rounds(brokers.both(), sizes.rounds, lambda broker: receive(sizes, broker))
    name = f"gRPC: receive {BODY_BYTES} B by {BATCH} and acknowledge, {brokers.flush}"
    yield from work_figures(name, results, ROCKETMQ, TITLE, GRPC_GOALS)


def _connect(broker: Broker) -> GrpcConnection:
    return GrpcConnection(("127.0.0.1", broker.grpc_port), _SERVICE, (*_METADATA, _TIMEOUT))


def send(sizes: RocketMQSizes, broker: Broker) -> Outcome:
    with topic_on(broker) as topic, _connect(broker) as connection:
        requests = [_encode_send(topic, number) for number in range(64)]
        under_way = sizes.calls_in_flight
        connection.flood("SendMessage", requests, under_way, under_way, _is_sent)
        return timed(broker, lambda: connection.flood("SendMessage", requests, sizes.calls, under_way, _is_sent))


def _encode_send(topic: str, number: int) -> bytes:
    properties = wire.SystemProperties(message_id=f"01BENCH{number:027}", message_type=1, body_encoding=1, queue_id=0)
    properties.born_timestamp.GetCurrentTime()
    message = wire.Message(
        topic=wire.Resource(name=topic), system_properties=properties, body=b"x" * BODY_BYTES, user_properties={}
    )
    encoded: bytes = wire.SendMessageRequest(messages=[message]).SerializeToString()
    return encoded


def _is_sent(raw: bytes) -> bool:
    return bool(wire.SendMessageResponse.FromString(raw).status.code == Code.OK)


def receive(sizes: RocketMQSizes, broker: Broker) -> Outcome:
    """Receives the backlog of a topic, and acknowledges each batch before it asks for the next."""
    each = max(sizes.calls // QUEUES, BATCH)
    with topic_on(broker) as topic, _connect(broker) as connection:
        fill(broker, topic, QUEUES, BODY_BYTES, each)
        with Client(broker.address) as client:
            client.create_group(GROUP)
        connection.open("Telemetry", _settings(topic))
        return timed(broker, lambda: _receive_all(connection, topic, each * QUEUES))


def _settings(topic: str) -> bytes:
    entry = wire.SubscriptionEntry(topic=wire.Resource(name=topic))
    entry.expression.CopyFrom(wire.FilterExpression(type=FilterType.TAG, expression="*"))
    subscription = wire.Subscription(group=wire.Resource(name=GROUP), subscriptions=[entry])
    settings = wire.Settings(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    settings.request_timeout.FromSeconds(3)
    encoded: bytes = wire.TelemetryCommand(settings=settings).SerializeToString()
    return encoded


def _receive_all(connection: GrpcConnection, topic: str, total: int) -> int:
    request = wire.ReceiveMessageRequest(group=wire.Resource(name=GROUP), batch_size=BATCH)
    request.message_queue.CopyFrom(wire.MessageQueue(topic=wire.Resource(name=topic), id=-1, permission=3))
    request.filter_expression.CopyFrom(wire.FilterExpression(type=FilterType.TAG, expression="*"))
    request.invisible_duration.FromSeconds(INVISIBLE_S)
    request.long_polling_timeout.FromSeconds(1)
    encoded = request.SerializeToString()
    found = empty = 0
    while found < total:
        parts = [wire.ReceiveMessageResponse.FromString(raw) for raw in connection.ask("ReceiveMessage", encoded)]
        messages = [part.message for part in parts if part.HasField("message")]
        if messages:
            _check_acked(*connection.ask("AckMessage", _encode_acks(topic, messages)))
        found += len(messages)
        empty = 0 if messages else empty + 1
        if empty > 30:
            raise ChildFailed(f"{found} of {total} messages arrived: {parts[0].status if parts else ''}")
    return found


def _encode_acks(topic: str, messages: list[Any]) -> bytes:
    entries = [
        wire.AckMessageEntry(
            message_id=each.system_properties.message_id, receipt_handle=each.system_properties.receipt_handle
        )
        for each in messages
    ]
    group, named = wire.Resource(name=GROUP), wire.Resource(name=topic)
    encoded: bytes = wire.AckMessageRequest(group=group, topic=named, entries=entries).SerializeToString()
    return encoded


def _check_acked(raw: bytes) -> None:
    if (found := wire.AckMessageResponse.FromString(raw)).status.code != Code.OK:
        raise WireFailed(f"an acknowledgement was refused: {found}")
