"""queue.declare, bind, unbind, purge and delete. An empty name means the queue that was declared last on the
channel."""

from __future__ import annotations

from trimq.core.routing.bindings import Binding
from trimq.errors.queues import UnknownQueue
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.handlers.direct_replies import REPLY_TO
from trimq.protocols.amqp.handlers.exchange import strip_line_ends
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.contract import Parts, Reply


def declare(context: Context, channel: Channel, method: methods.QueueDeclare) -> Reply | None:
    broker, caller = context.broker, context.caller
    name = strip_line_ends(method.queue)
    if name.startswith(REPLY_TO):
        return _declare_reply_address(context, channel, method, name)
    if (wait := context.broker.queues.pending_turn(caller, name)) is not None and not method.no_wait:
        return context.postpone(channel, method, wait)
    if method.is_passive:
        queue, ticket = broker.queues.declare_passively(caller, name, context.owner), None
    else:
        queue, ticket = broker.queues.declare_queue(
            caller,
            name,
            method.is_durable,
            method.is_exclusive,
            method.is_auto_delete,
            method.arguments,
            context.owner,
        )
    channel.last_queue = queue.name
    queue.take_turn()
    ok = methods.QueueDeclareOk(queue.name, queue.ready_count, queue.consumer_count)
    return context.answer_when_durable(channel, method, ticket, ok, method.no_wait)


def _declare_reply_address(context: Context, channel: Channel, method: methods.QueueDeclare, name: str) -> Reply | None:
    """Answers whether a direct reply address exists; there is no queue behind it."""
    if name != REPLY_TO and context.replies.get(name) is None:
        raise UnknownQueue(name, context.caller.namespace)
    channel.last_queue = name
    ok = methods.QueueDeclareOk(name, 0, 1)
    return context.answer_when_durable(channel, method, None, ok, method.no_wait)


def bind(context: Context, channel: Channel, method: methods.QueueBind) -> Reply | None:
    ticket = context.broker.exchanges.bind(context.caller, _binding(channel, method), context.owner)
    return context.answer_when_durable(channel, method, ticket, methods.QueueBindOk(), method.no_wait)


def unbind(context: Context, channel: Channel, method: methods.QueueUnbind) -> Reply | None:
    ticket = context.broker.exchanges.unbind(context.caller, _binding(channel, method), context.owner)
    return context.answer_when_durable(channel, method, ticket, methods.QueueUnbindOk(), no_wait=False)


def _binding(channel: Channel, method: methods.QueueBind | methods.QueueUnbind) -> Binding:
    """Returns the binding. Without queue and key, both are the name of the queue that was declared last."""
    name = channel.queue_name(method.queue)
    key = name if not method.queue and not method.routing_key else method.routing_key
    if name.startswith(REPLY_TO):
        raise AmqpRefusal(Code.ACCESS_REFUSED, "cannot bind or unbind to a volatile (direct reply-to) queue")
    return Binding(strip_line_ends(method.exchange), strip_line_ends(name), True, key, method.arguments)


def purge(context: Context, channel: Channel, method: methods.QueuePurge) -> Reply | None:
    name = channel.queue_name(method.queue)
    if context.replies.get(name) is not None and context.broker.queues.may_read(context.caller, name):
        return context.answer_when_durable(channel, method, None, methods.QueuePurgeOk(0), method.no_wait)
    wait = context.broker.queues.readable_queue(context.caller, name, context.owner).pending_pass()

    def act() -> Parts:
        count = context.broker.queues.purge_queue(context.caller, name, context.owner)
        return [] if method.no_wait else [write_command(channel.number, methods.QueuePurgeOk(count))]

    return context.run_when_readable(channel, method, wait, act)


def delete(context: Context, channel: Channel, method: methods.QueueDelete) -> Reply | None:
    name = strip_line_ends(channel.queue_name(method.queue))
    if (wait := context.broker.queues.pending_turn(context.caller, name)) is not None:
        return context.postpone(channel, method, wait)
    cancelled = context.cancelled_consumers = []
    try:
        count, ticket = context.broker.queues.delete_queue(
            context.caller, name, method.if_unused, method.if_empty, context.owner
        )
    finally:
        context.cancelled_consumers = None
    reply = context.answer_when_durable(channel, method, ticket, methods.QueueDeleteOk(count), method.no_wait)
    return context.cancel_after(reply, cancelled)
