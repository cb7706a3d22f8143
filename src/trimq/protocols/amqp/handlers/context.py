"""Context of AMQP handlers: the broker, the caller, the connection with its channels, and the kinds of replies."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from trimq.clock import Clock
from trimq.config import Amqp
from trimq.core.api.broker import Broker
from trimq.core.queues.queue import PendingPass
from trimq.core.security.authentication import Authenticator
from trimq.core.security.login_log import LoginLog
from trimq.errors import ColdRead, ProtocolError, Refusal
from trimq.formats.amqp_content.field_tables import FieldTable
from trimq.model import Caller
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel, Transaction
from trimq.protocols.amqp.deliveries import ReplyAddresses
from trimq.protocols.amqp.heartbeats import Heartbeats
from trimq.protocols.amqp.wire.codes import CLOSES_CHANNEL, ConnectionFault, code_of, reply_text
from trimq.protocols.amqp.wire.connection import AmqpConnection
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.amqp.wire.error_texts import rabbitmq_text
from trimq.protocols.amqp.wire.events import Command
from trimq.protocols.amqp.wire.handshake import has_capability
from trimq.protocols.contract import DeferredReply, Parts, Reply, SessionControl


class DurableChange(Protocol):
    """Ticket of a change: its pass, and its refusal if the change failed."""

    number: int
    refusal: Refusal | None


@dataclass(slots=True)
class Context:
    broker: Broker
    authenticator: Authenticator
    login_log: LoginLog
    caller: Caller
    clock: Clock
    outlet: SessionControl
    connection: AmqpConnection
    settings: Amqp
    rng: random.Random
    replies: ReplyAddresses
    cluster_name: str
    channels: dict[int, Channel] = field(default_factory=dict)
    client_properties: FieldTable = field(default_factory=dict)
    counted_in: str | None = None
    """Namespace whose limit of connections counts this one."""
    certificate_user: str | None = None
    """User that the verified certificate of the client names."""
    heartbeats: Heartbeats | None = None
    offered: methods.ConnectionTune = field(default_factory=methods.ConnectionTune)
    cancelled_consumers: list[tuple[Channel, str]] | None = None
    """Consumers whose queue this connection is deleting: basic.cancel follows queue.delete-ok, as in RabbitMQ."""
    next_events: deque[Reply | ProtocolError | Command] = field(default_factory=deque)
    """Handled before the events that the client sent next."""

    @property
    def owner(self) -> object:
        """Owner of exclusive queues: they are deleted when it is released."""
        return self.connection

    @property
    def wants_cancel_notify(self) -> bool:
        return has_capability(self.client_properties, "consumer_cancel_notify")

    # -- answers

    def answer(self, channel: Channel, method: methods.Method) -> Reply:
        return Reply.now([write_command(channel.number, method)], lane=channel.number)

    def answer_when_durable(
        self,
        channel: Channel,
        asked: methods.Method,
        ticket: DurableChange | None,
        answer: methods.Method,
        no_wait: bool,
    ) -> Reply | None:
        """Replies when the change is durable. Returns None if the client set `no_wait`."""
        if no_wait:
            return None
        if ticket is None:
            return self.answer(channel, answer)
        pending = ticket

        def build() -> Parts:
            if pending.refusal is not None and channel.is_open:
                raise pending.refusal
            return [write_command(channel.number, answer)]

        return Reply.when_durable(pending.number, self.guard(channel, asked, build), lane=channel.number)

    def run_when_readable(
        self, channel: Channel, asked: methods.Method, wait: PendingPass | None, act: Callable[[], Parts]
    ) -> Reply:
        """Runs `act` now, or, if publishes of this connection are not readable yet, when they are. Until then no
        further command is read."""
        if wait is None:
            return Reply.now(act(), lane=channel.number)
        return self.run_in_order(channel, asked, wait, act)

    def run_in_order(
        self, channel: Channel, asked: methods.Method, wait: PendingPass | None, act: Callable[[], Parts]
    ) -> Reply:
        """Runs `act` when this reply is sent, because `act` may send more frames at once (deliveries after
        consume-ok)."""
        self.outlet.hold_reading()
        build = self.guard(channel, asked, lambda: act() if channel.is_open else [])

        def resume() -> Parts:
            self.outlet.release_reading()
            return build()

        number, needs_sync = (0, False) if wait is None else wait
        return Reply(channel.number, None, resume, number, needs_sync)

    def postpone(self, channel: Channel, asked: methods.Method, wait: PendingPass) -> Reply:
        """Handles a command again when the pass is over. Until then no further command is read."""
        self.outlet.hold_reading()

        def resume() -> Parts:
            self.outlet.release_reading()
            if channel.is_open:
                self.next_events.append(Command(channel.number, asked))
            return []

        return Reply(channel.number, None, resume, *wait)

    def run_when_warm(self, channel: Channel, asked: methods.Method, cold: ColdRead, act: Callable[[], Parts]) -> Reply:
        """Runs `act` after the cold data it needs was read from disk, without blocking other connections."""
        self.outlet.hold_reading()
        build = self.guard(channel, asked, lambda: act() if channel.is_open else [])
        is_waiting = True

        def resume() -> Parts:
            self.outlet.release_reading()
            return build()

        def forget() -> None:
            nonlocal is_waiting
            is_waiting = False

        def answer() -> None:
            if is_waiting:
                forget()
                reply.resolve_when_durable(0, resume)

        reply = DeferredReply(channel.number, on_abandon=forget, on_resolve_now=answer)
        self.broker.queues.warm(cold, answer)
        return reply

    # -- deliveries

    def notify_cancelled(self, channel: Channel, tag: str) -> None:
        """Tells the client that the queue of a consumer was deleted; later if `cancelled_consumers` collects them."""
        if self.cancelled_consumers is None:
            self.outlet.send(_write_cancels([(channel, tag)]))
        else:
            self.cancelled_consumers.append((channel, tag))

    def cancel_after(self, reply: Reply | None, cancelled: list[tuple[Channel, str]]) -> Reply | None:
        """Adds basic.cancel of consumers to a reply; sends them at once if there is none."""
        if not cancelled:
            return reply
        if reply is None:
            self.outlet.send(_write_cancels(cancelled))
        else:
            reply.wrap(lambda build: [*build(), *_write_cancels(cancelled)])
        return reply

    def resume_delivery(self, channel: Channel) -> None:
        """Resumes consumers of a channel after an acknowledgement or after the client has read."""
        if channel.unacked_bytes >= self.settings.unacked_bytes or self.outlet.is_congested:
            return
        channel.is_full = False
        for subscriber in channel.consumers.values():
            if not subscriber.can_take and subscriber.consumer is not None:
                subscriber.can_take = True
                self.broker.queues.wake(subscriber.consumer)

    # -- refusals

    def guard(self, channel: Channel, asked: methods.Method, act: Callable[[], Parts]) -> Callable[[], Parts]:
        """Wraps a deferred action: a refusal closes the channel or the connection, since no caller can catch it."""

        def guarded() -> Parts:
            if channel.is_refused:
                return []
            try:
                return act()
            except Refusal as refusal:
                try:
                    return self.refuse(channel, refusal, asked.ID)
                except ConnectionFault as fault:
                    self.outlet.close()
                    return write_fault(fault)

        return guarded

    def refuse(self, channel: Channel, refusal: Refusal, method_id: int) -> Parts:
        """Closes the channel with the code of the refusal. Raises ConnectionFault if that code closes the
        connection."""
        code = code_of(refusal)
        class_id, number = method_id >> 16, method_id & 0xFFFF
        if code not in CLOSES_CHANNEL:
            raise ConnectionFault(code, rabbitmq_text(refusal), class_id, number)
        self.release(channel)
        channel.is_refused = True
        self.connection.refuse_channel(channel.number)
        text = reply_text(code, rabbitmq_text(refusal))
        return [write_command(channel.number, methods.ChannelClose(code, text, class_id, number))]

    def close_with_refusal(self, channel: Channel, refusal: Refusal) -> None:
        """Closes a channel for a reason other than a command of its client."""
        self.outlet.send(self.refuse(channel, refusal, 0))

    # -- transactions

    def begin_transaction(self, channel: Channel) -> None:
        """Starts a new transaction and stops counting the memory of the last one."""
        if channel.transaction is not None:
            self.connection.held.change(-channel.transaction.held)
        channel.transaction = Transaction()

    # -- release

    def release(self, channel: Channel) -> None:
        """Cancels the consumers of the channel, requeues its unacked deliveries and removes its reply address."""
        if self.channels.pop(channel.number, None) is None:
            return
        self.broker.tenant_limits.close_channel(self.caller.principal)
        channel.is_open = False
        if channel.confirms is not None:
            channel.confirms.stop_confirming()
        for subscriber in list(channel.consumers.values()):
            if subscriber.consumer is not None:
                self.broker.queues.unsubscribe(subscriber.consumer)
        channel.consumers.clear()
        if channel.transaction is not None:
            channel.restore_unacked(channel.transaction.acknowledged)
            self.begin_transaction(channel)
        unacked = channel.take_all_unacked()
        if unacked:
            self.broker.queues.return_all(unacked)
        self.replies.remove(channel.reply_address)

    def release_all(self) -> None:
        for channel in list(self.channels.values()):
            self.release(channel)
        self.broker.queues.release_owner(self.owner)


def _write_cancels(cancelled: list[tuple[Channel, str]]) -> Parts:
    return [
        write_command(channel.number, methods.BasicCancel(tag, no_wait=True))
        for channel, tag in cancelled
        if channel.is_open
    ]


def write_fault(fault: ConnectionFault) -> Parts:
    close = methods.ConnectionClose(fault.code, fault.text, fault.class_id, fault.method_id)
    return [write_command(0, close)]
