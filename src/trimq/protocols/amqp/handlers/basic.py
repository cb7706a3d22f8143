"""basic.qos, consume, cancel, get, ack, nack, reject and recover.

Served: prefetch by number of messages, per consumer, and per channel if `channel_prefetch` is set. Not served: prefetch
by size; no_local (ignored, as in RabbitMQ)."""

from __future__ import annotations

import base64

from trimq.core.queues.consumers import Subscription
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Acknowledgement, Channel
from trimq.protocols.amqp.deliveries import Subscriber
from trimq.protocols.amqp.handlers import direct_replies
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.handlers.firehose import trace_deliveries
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code
from trimq.protocols.amqp.wire.contents import write_command, write_content, write_get_ok
from trimq.protocols.amqp.wire.error_texts import vhost_of
from trimq.protocols.amqp.wire.events import Acks
from trimq.protocols.contract import Parts, Reply

_TAG_BYTES = 16


def qos(context: Context, channel: Channel, method: methods.BasicQos) -> Reply:
    """Sets the prefetch of future consumers, with or without `global`, as RabbitMQ 4.3 does. With the setting
    `channel_prefetch`, `global` sets the limit of the channel, as RabbitMQ did before 4.3."""
    if method.prefetch_size:
        raise AmqpRefusal(Code.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.is_global and context.settings.channel_prefetch:
        context.broker.queues.set_shared_prefetch(channel.shared_prefetch, method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
    return context.answer(channel, methods.BasicQosOk())


def consume(context: Context, channel: Channel, method: methods.BasicConsume) -> Reply:
    tag = method.consumer_tag or _make_tag(context)
    if tag in channel.consumers:  # as in RabbitMQ, a consumer of direct replies may have the same tag
        raise AmqpRefusal(Code.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    name = channel.queue_name(method.queue)
    if name == direct_replies.REPLY_TO:
        return direct_replies.consume(context, channel, method, tag)
    queue = context.broker.queues.readable_queue(context.caller, name, context.owner)
    subscriber = Subscriber(
        channel,
        tag,
        method.no_ack,
        context.outlet,
        context.connection.frame_max,
        context.settings.unacked_bytes,
        context.notify_cancelled if context.wants_cancel_notify else None,
        context.resume_delivery,
        context.close_with_refusal,
        context.broker.firehose.namespaces,
        lambda deliveries: trace_deliveries(context, channel, deliveries),
    )
    channel.consumers[tag] = subscriber
    subscription = Subscription(
        tag,
        subscriber,
        channel.prefetch,
        method.no_ack,
        method.is_exclusive,
        _priority(method.arguments),
        method.arguments,
        channel.shared_prefetch if context.settings.channel_prefetch else None,
        channel,
    )

    def act() -> Parts:
        if channel.consumers.get(tag) is subscriber:  # otherwise cancelled meanwhile
            subscriber.consumer = context.broker.queues.subscribe(context.caller, name, context.owner, subscription)
        return [] if method.no_wait else [write_command(channel.number, methods.BasicConsumeOk(tag))]

    return context.run_in_order(channel, method, queue.pending_pass(), act)


def _make_tag(context: Context) -> str:
    return "amq.ctag-" + base64.urlsafe_b64encode(context.rng.randbytes(_TAG_BYTES)).decode().rstrip("=")


def _priority(arguments: FieldTable) -> int:
    """Returns the priority; 0 for an invalid one, which the queue refuses."""
    priority = arguments.get("x-priority", 0)
    return priority if isinstance(priority, int) else 0


def cancel(context: Context, channel: Channel, method: methods.BasicCancel) -> Reply | None:
    """Cancels a consumer. Its unacked deliveries stay unacked and can still be acknowledged."""
    tag = method.consumer_tag
    if not direct_replies.cancel(context, channel, tag):
        subscriber = channel.consumers.pop(tag, None)
        if subscriber is not None and subscriber.consumer is not None:
            context.broker.queues.unsubscribe(subscriber.consumer)
    return None if method.no_wait else context.answer(channel, methods.BasicCancelOk(tag))


def cancel_ok(context: Context, channel: Channel, method: methods.BasicCancelOk) -> None:
    """Ignores the answer of clients that answer a basic.cancel of the server, although none is expected."""


def get(context: Context, channel: Channel, method: methods.BasicGet) -> Reply:
    name = channel.queue_name(method.queue)
    if name.startswith(direct_replies.ADDRESS) and context.replies.get(name) is not None:
        where = f"queue '{name}' in vhost '{vhost_of(context.caller.namespace)}'"
        raise AmqpRefusal(Code.NOT_IMPLEMENTED, f"basic.get not supported by volatile {where}")
    queue = context.broker.queues.readable_queue(context.caller, name, context.owner)
    wait = queue.pending_pass()

    def act() -> Parts:
        got = context.broker.queues.get(context.caller, name, context.owner, method.no_ack)
        delivery = got.delivery
        if delivery is None:
            return [write_command(channel.number, methods.BasicGetEmpty())]
        if context.broker.firehose.namespaces:
            trace_deliveries(context, channel, [delivery])
        message = delivery.message
        tags = channel.next_tags(1)
        if not method.no_ack:
            channel.add_unacked(tags, [delivery], len(message.body))
        is_again = delivery.redelivered
        start = write_get_ok(channel.number, tags[0], is_again, message.exchange, message.key, got.ready_count)
        return [start, *write_content(channel.number, delivery.header, message.body, context.connection.frame_max)]

    cold = queue.cold_head() if wait is None else None
    if cold is not None:
        return context.run_when_warm(channel, method, cold, act)
    return context.run_when_readable(channel, method, wait, act)


# -- acknowledgements


def ack(context: Context, channel: Channel, event: Acks) -> None:
    if event.is_multiple or channel.transaction is not None:
        for tag in event.tags:
            _acknowledge(context, channel, tag, event.is_multiple, Acknowledgement([], False, False, False))
        return
    taken, unknown = channel.take(event.tags)
    context.broker.queues.ack(taken)
    if channel.is_full:
        context.resume_delivery(channel)
    if unknown is not None:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, f"unknown delivery tag {unknown}")


def nack(context: Context, channel: Channel, method: methods.BasicNack) -> None:
    acknowledgement = Acknowledgement([], True, method.requeue, False)
    _acknowledge(context, channel, method.delivery_tag, method.is_multiple, acknowledgement)


def reject(context: Context, channel: Channel, method: methods.BasicReject) -> None:
    """Unlike basic.nack, a basic.reject that requeues counts towards the delivery limit."""
    _acknowledge(context, channel, method.delivery_tag, False, Acknowledgement([], True, method.requeue, True))


def recover(context: Context, channel: Channel, method: methods.BasicRecover) -> Reply:
    _recover(context, channel, method.requeue)
    return context.answer(channel, methods.BasicRecoverOk())


def recover_async(context: Context, channel: Channel, method: methods.BasicRecoverAsync) -> None:
    _recover(context, channel, method.requeue)


def _recover(context: Context, channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise AmqpRefusal(Code.NOT_IMPLEMENTED, "requeue=false")
    context.broker.queues.requeue(channel.take_all_unacked(), counts=False)
    if channel.is_full:
        context.resume_delivery(channel)


def _acknowledge(
    context: Context, channel: Channel, tag: int, is_multiple: bool, acknowledgement: Acknowledgement
) -> None:
    acknowledgement.deliveries = channel.take_unacked(tag, is_multiple)
    if channel.transaction is not None:
        channel.transaction.acknowledgements.append(acknowledgement)
    else:
        apply_acknowledgement(context, acknowledgement)
    if channel.is_full:
        context.resume_delivery(channel)


def apply_acknowledgement(context: Context, acknowledgement: Acknowledgement) -> None:
    broker = context.broker
    if not acknowledgement.is_rejected:
        broker.queues.ack(acknowledgement.deliveries)
    elif acknowledgement.is_requeued:
        broker.queues.requeue(acknowledgement.deliveries, counts=acknowledgement.counts_as_attempt)
    else:
        broker.queues.reject(acknowledgement.deliveries, counts=acknowledgement.counts_as_attempt)
