"""channel.* and access.request. channel.flow stops nobody: a client that is asked to send less is not read."""

from __future__ import annotations

from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.contract import Reply


def open_channel(context: Context, number: int) -> Reply:
    channel = context.channels[number] = Channel(number)
    return context.answer(channel, methods.ChannelOpenOk())


def close_channel(context: Context, number: int) -> Reply:
    """Also the answer to a peer that closes a channel which we have just closed."""
    channel = context.channels.get(number)
    if channel is not None:
        context.release(channel)
        context.connection.end_channel(number)
    return Reply.now([write_command(number, methods.ChannelCloseOk())], lane=number)


def flow(context: Context, channel: Channel, method: methods.ChannelFlow) -> Reply:
    if not method.active:
        raise AmqpRefusal(Code.NOT_IMPLEMENTED, "active=false")
    return context.answer(channel, methods.ChannelFlowOk(True))


def flow_ok(context: Context, channel: Channel, method: methods.ChannelFlowOk) -> None:
    """Nobody asked; nothing follows."""


def request_access(context: Context, channel: Channel, method: methods.AccessRequest) -> Reply:
    """A relic of AMQP 0-8: tickets are given out and looked at by nobody."""
    return context.answer(channel, methods.AccessRequestOk(1))
