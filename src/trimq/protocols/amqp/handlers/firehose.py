"""Copies of published and delivered messages for the firehose (`amq.rabbitmq.trace`), with RabbitMQ's headers."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.queues.unacked import Delivery
from trimq.core.routing.exchanges import TRACE
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, Integer, Value
from trimq.formats.amqp_content.property_list import read_properties
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.handlers.context import Context


def trace_publishes(
    context: Context, channel: Channel, exchange: str, key: str, contents: Iterable[tuple[bytes, bytes]]
) -> None:
    """Traces messages that were published, given as pairs of header and body."""
    firehose, namespace = context.broker.firehose, context.caller.namespace
    if namespace not in firehose.namespaces:
        return
    for header, body in contents:
        headers = _headers(context, channel, exchange, key, header)
        headers["routed_queues"] = firehose.routed_queues(namespace, exchange, key, header)
        firehose.publish(namespace, f"publish.{exchange}", headers, body)


def trace_deliveries(context: Context, channel: Channel, deliveries: Iterable[Delivery]) -> None:
    """Traces messages that are delivered to a consumer or by basic.get, except for copies of the firehose."""
    firehose, namespace = context.broker.firehose, context.caller.namespace
    if namespace not in firehose.namespaces:
        return
    for delivery in deliveries:
        message = delivery.message
        exchange = message.exchange.decode("utf-8", "surrogateescape")
        if exchange == TRACE:
            continue
        key = message.key.decode("utf-8", "surrogateescape")
        headers = _headers(context, channel, exchange, key, delivery.header)
        headers["redelivered"] = Integer(delivery.redelivered)
        firehose.publish(namespace, f"deliver.{delivery.queue.name}", headers, message.body)


def _headers(context: Context, channel: Channel, exchange: str, key: str, header: bytes) -> FieldTable:
    properties, keys = _properties(header)
    return {
        "exchange_name": exchange,
        "routing_keys": [key, *keys],
        "properties": properties,
        "node": context.cluster_name,
        "vhost": context.caller.namespace or "/",
        "connection": context.caller.address,
        "channel": Integer(channel.number),
        "user": context.caller.principal,
    }


def _properties(header: bytes) -> tuple[FieldTable, list[Value]]:
    """Returns the properties of a message without BCC, and its additional routing keys."""
    try:
        properties = read_properties(header)
    except BadField:
        return {}, []
    for name, value in properties.items():
        if type(value) is int:  # delivery mode and priority; a plain int would become a 64-bit number
            properties[name] = Integer(value)
    keys: list[Value] = []
    headers = properties.get("headers")
    if isinstance(headers, dict):
        for name in ("CC", "BCC"):
            copies = headers.get(name)
            keys += copies if isinstance(copies, list) else []
        properties["headers"] = {name: value for name, value in headers.items() if name != "BCC"}
    return properties, keys
