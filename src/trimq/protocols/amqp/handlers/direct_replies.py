"""Direct reply-to: a client publishes a request with the reply-to `amq.rabbitmq.reply-to`, and the reply is sent
straight to its channel. There is no queue, and nothing is stored."""

from __future__ import annotations

import base64

from trimq.formats.amqp_content.property_list import read_text, replace
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.deliveries import ReplyReceiver
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.amqp.wire.events import Publish
from trimq.protocols.contract import Parts, Reply

REPLY_TO = "amq.rabbitmq.reply-to"
ADDRESS = REPLY_TO + "."
_TOKEN_BYTES = 16


def consume(context: Context, channel: Channel, method: methods.BasicConsume, tag: str) -> Reply:
    if not method.no_ack:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.reply_address:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, "reply consumer already set")
    token = base64.urlsafe_b64encode(context.rng.randbytes(_TOKEN_BYTES)).decode().rstrip("=")
    channel.reply_address = address = ADDRESS + token
    channel.reply_tag = tag

    def act() -> Parts:
        if channel.reply_address == address:  # otherwise cancelled meanwhile
            max_bytes = context.settings.unread_reply_bytes
            receiver = ReplyReceiver(channel, tag, context.outlet, context.connection.frame_max, max_bytes)
            context.replies.add(address, receiver)
        return [] if method.no_wait else [write_command(channel.number, methods.BasicConsumeOk(tag))]

    return context.run_in_order(channel, method, None, act)


def cancel(context: Context, channel: Channel, tag: str) -> bool:
    """Removes the reply address of the channel if its consumer has this tag. Returns whether it has."""
    is_found = bool(channel.reply_address) and channel.reply_tag == tag
    if is_found:
        context.replies.remove(channel.reply_address)
        channel.reply_address = channel.reply_tag = ""
    return is_found


def set_reply_address(channel: Channel, header: bytes) -> bytes:
    """Replaces `amq.rabbitmq.reply-to` in the properties of a request with the reply address of the channel."""
    if read_text(header, "reply_to") != REPLY_TO:
        return header
    if not channel.reply_address:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, "fast reply consumer does not exist")
    return replace(header, reply_to=channel.reply_address)


def is_direct_reply(publish: Publish) -> bool:
    return publish.key.startswith(ADDRESS) and not publish.exchange


def deliver_reply(context: Context, publish: Publish) -> None:
    """Delivers a direct reply; drops it if its receiver is gone. Raises MemoryFull if slow clients already hold too
    much memory."""
    context.broker.exchanges.require_publishable(context.caller, publish.exchange)
    context.broker.exchanges.check_memory()
    receiver = context.replies.get(publish.key)
    if receiver is not None:
        receiver.deliver(publish.key, publish.header, publish.body)
