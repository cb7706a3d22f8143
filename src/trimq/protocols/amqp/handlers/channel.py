"""channel.open, close, flow, and access.request.

Not served: channel.flow with active=false. Back-pressure works by not reading from the connection."""

from __future__ import annotations

from trimq.errors.queues import TooManyChannels
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code, ConnectionFault
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.amqp.wire.error_texts import rabbitmq_text
from trimq.protocols.contract import Reply


def open_channel(context: Context, number: int) -> Reply:
    try:
        context.broker.tenant_limits.open_channel(context.caller.principal)
    except TooManyChannels as refusal:
        raise ConnectionFault(Code.NOT_ALLOWED, rabbitmq_text(refusal)) from None
    channel = context.channels[number] = Channel(number)
    return context.answer(channel, methods.ChannelOpenOk())


def close_channel(context: Context, number: int) -> Reply:
    """Closes a channel; also answers a peer that closes a channel that the broker has just closed."""
    channel = context.channels.get(number)
    if channel is not None:
        context.release(channel)
        context.connection.end_channel(number)
    return Reply.now([write_command(number, methods.ChannelCloseOk())], lane=number)


def flow(context: Context, channel: Channel, method: methods.ChannelFlow) -> Reply:
    if not method.active:
        raise AmqpRefusal(Code.NOT_IMPLEMENTED, "active=false")
    return context.answer(channel, methods.ChannelFlowOk(True))


def request_access(context: Context, channel: Channel, method: methods.AccessRequest) -> Reply:
    """Returns a dummy ticket. The method is left over from AMQP 0-8; the broker ignores tickets."""
    return context.answer(channel, methods.AccessRequestOk(1))
