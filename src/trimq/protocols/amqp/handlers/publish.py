"""basic.publish, confirm.select and tx.*.

Served: mandatory, publisher confirms, transactions of one channel. Not served: immediate (as in RabbitMQ)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimq.core.queues.publisher import PublishResult, PublishRoute
from trimq.errors import MessageTooLong, Refusal
from trimq.formats.amqp_content.property_list import FLAGS, read_text
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel, Transaction
from trimq.protocols.amqp.confirms import Confirms, PublishOutcome
from trimq.protocols.amqp.handlers import direct_replies
from trimq.protocols.amqp.handlers.basic import apply_acknowledgement
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.amqp.handlers.firehose import trace_publishes
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code, code_of, reply_text
from trimq.protocols.amqp.wire.contents import write_command, write_content
from trimq.protocols.amqp.wire.events import Oversized, Publish
from trimq.protocols.contract import Parts, Reply

# Tag of users that may publish in the name of others.
_IMPERSONATOR = "impersonator"
# `user_id` is in the second octet of the property flags, `reply_to` in the first.
_USER_ID = FLAGS["user_id"]
_REPLY_TO = FLAGS["reply_to"] >> 8


@dataclass(slots=True)
class _DirectReplyOutcome:
    """Outcome of a direct reply: confirmed at once, even if its receiver is gone."""

    is_refused: bool = False
    number: int = 0
    needs_sync: bool = False

    def refusal(self) -> Refusal | None:
        return None


_DIRECT_REPLY = _DirectReplyOutcome()


def is_batchable(channel: Channel, event: Publish) -> bool:
    """Returns whether the message needs no check besides its content. Then similar messages may be published with
    it."""
    special = event.is_immediate or event.header[1] & _USER_ID or event.header[0] & _REPLY_TO
    return not special and channel.transaction is None and not direct_replies.is_direct_reply(event)


def publish_batch(context: Context, channel: Channel, event: Publish) -> Iterator[Reply | None]:
    """Publishes a plain message and those that follow it. Sends immediate confirms before yielding replies that wait
    for a pass, because those may ack all tags up to theirs. Yields None where others should have their turn."""
    contents = [(event.header, event.body), *event.following]
    done = 0
    for published, count in context.broker.exchanges.publish_all(context.caller, event.exchange, event.key, contents):
        if published is None:
            yield None
            continue
        if published.reason is not None:
            _tell_refused(context, channel, event, published.reason, contents[done : done + count])
        elif event.is_mandatory and not published.is_routed:
            for header, body in contents[done : done + count]:
                context.outlet.send(_write_return(context, channel, event, header, body))
        done += count
        reply = None if channel.confirms is None else channel.confirms.add(published, count)
        if reply is not None and reply.waits_for_pass:
            yield reply
        elif reply is not None:
            context.outlet.send(reply.take())
    if context.broker.firehose.namespaces:
        trace_publishes(context, channel, event.exchange, event.key, contents)


def publish(context: Context, channel: Channel, event: Publish) -> Reply | None:
    if event.is_immediate:
        raise AmqpRefusal(Code.NOT_IMPLEMENTED, "immediate=true")
    header = event.header
    if header[1] & _USER_ID or header[0] & _REPLY_TO:
        context.broker.exchanges.require_publishable(context.caller, event.exchange)
        _check_properties(context, channel, event)
    if channel.transaction is not None:
        _keep(context, channel.transaction, event, _route(context, event))
        return None
    outcome = _send(context, channel, event)
    if isinstance(outcome, PublishResult) and outcome.reason is not None:
        _tell_refused(context, channel, event, outcome.reason, [(event.header, event.body)])
    return None if channel.confirms is None else channel.confirms.add(outcome)


def _check_properties(context: Context, channel: Channel, event: Publish) -> None:
    """Sets the address for a direct reply, and checks `user_id` after all other properties."""
    event.header = direct_replies.set_reply_address(channel, event.header)
    context.broker.exchanges.check_properties(event.header)
    claimed = read_text(event.header, "user_id")
    if claimed is None or claimed == context.caller.principal:
        return
    if not context.broker.users.has_tag(context.caller, _IMPERSONATOR):
        reason = f"user_id property set to '{claimed}' but authenticated user was '{context.caller.principal}'"
        raise AmqpRefusal(Code.PRECONDITION_FAILED, reason)


def _route(context: Context, event: Publish) -> PublishRoute | None:
    """Returns the route of a message that is published later; None for a direct reply."""
    if direct_replies.is_direct_reply(event):
        return None
    return context.broker.exchanges.route_publish(context.caller, event.exchange, event.key, event.header)


def _send(context: Context, channel: Channel, event: Publish, route: PublishRoute | None = None) -> PublishOutcome:
    """Publishes a message. `route`: the one found when a transaction kept it."""
    if direct_replies.is_direct_reply(event):
        direct_replies.deliver_reply(context, event)
        return _DIRECT_REPLY
    exchanges, caller = context.broker.exchanges, context.caller
    if route is None:
        published = exchanges.publish(caller, event.exchange, event.key, event.header, event.body)
        is_routed = published.is_routed
    else:
        published = exchanges.publish_routed(route, event.key, event.header, event.body)
        is_routed = not route.is_empty
    if event.is_mandatory and not is_routed:
        context.outlet.send(_write_return(context, channel, event, event.header, event.body))
    if context.broker.firehose.namespaces:
        trace_publishes(context, channel, event.exchange, event.key, [(event.header, event.body)])
    return published


def _tell_refused(
    context: Context, channel: Channel, event: Publish, reason: Refusal, contents: Sequence[tuple[bytes, bytes]]
) -> None:
    """Tells why a topic of another protocol refuses messages: a mandatory one is returned with the reason before its
    nack; a channel without confirms is closed."""
    if channel.confirms is None:
        raise reason
    for header, body in contents if event.is_mandatory else ():
        context.outlet.send(_write_return(context, channel, event, header, body, reason))


def _write_return(
    context: Context, channel: Channel, event: Publish, header: bytes, body: bytes, reason: Refusal | None = None
) -> Parts:
    code, text = Code.NO_ROUTE, Code.NO_ROUTE.name
    if reason is not None:
        code = code_of(reason)
        text = reply_text(code, str(reason))
    back = methods.BasicReturn(code, text, event.exchange, event.key)
    header = context.broker.exchanges.stored_header(header)
    content = write_content(channel.number, header, body, context.connection.frame_max)
    return [write_command(channel.number, back), *content]


def refuse_size(context: Context, event: Oversized) -> Refusal:
    return MessageTooLong(event.size, context.settings.message_bytes)


# -- confirms


def select_confirms(context: Context, channel: Channel, method: methods.ConfirmSelect) -> Reply | None:
    if channel.transaction is not None:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms(channel.number)
    return None if method.no_wait else context.answer(channel, methods.ConfirmSelectOk())


# -- transactions


def select_transactions(context: Context, channel: Channel, method: methods.TxSelect) -> Reply:
    if channel.confirms is not None:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.transaction is None:
        context.begin_transaction(channel)
    return context.answer(channel, methods.TxSelectOk())


def _transaction_of(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise AmqpRefusal(Code.PRECONDITION_FAILED, "channel is not transactional")
    return channel.transaction


def _keep(context: Context, transaction: Transaction, event: Publish, route: PublishRoute | None) -> None:
    """Keeps a publish until the end of the transaction. Refuses it if the connection holds too much memory."""
    held = context.connection.held
    if held.must_close():
        raise AmqpRefusal(Code.RESOURCE_ERROR, held.reason)
    size = event.held
    held.change(size)
    transaction.held += size
    transaction.publishes.append((event, route))


def commit(context: Context, channel: Channel, method: methods.TxCommit) -> Reply:
    """Publishes and acknowledges in one pass, and answers when all publishes are durable. basic.return precedes the
    answer. If publishing raises a refusal, no delivery is acknowledged: closing the channel requeues them."""
    transaction = _transaction_of(channel)
    context.broker.exchanges.admit_commit()
    outcomes = [_send(context, channel, event, route) for event, route in transaction.publishes]
    context.begin_transaction(channel)
    channel.commit_acknowledged(transaction.acknowledged)
    for acknowledgement in transaction.acknowledgements:
        apply_acknowledgement(context, acknowledgement)
    if channel.is_full:
        context.resume_delivery(channel)
    number = max((outcome.number for outcome in outcomes if outcome.needs_sync), default=0)

    def build() -> Parts:
        for outcome in outcomes:
            if (refusal := outcome.refusal()) is not None:
                raise refusal
        if any(outcome.is_refused for outcome in outcomes):  # by a full queue
            raise AmqpRefusal(Code.PRECONDITION_FAILED, "partial tx completion")
        return [write_command(channel.number, methods.TxCommitOk())]

    return Reply.when_durable(number, context.guard(channel, method, build), lane=channel.number)


def rollback(context: Context, channel: Channel, method: methods.TxRollback) -> Reply:
    """Discards the publishes and makes the acknowledged deliveries unacked again; does not redeliver them."""
    transaction = _transaction_of(channel)
    context.begin_transaction(channel)
    channel.restore_unacked(transaction.acknowledged)
    return context.answer(channel, methods.TxRollbackOk())
