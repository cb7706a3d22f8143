"""AMQP 0-9-1 front-end: one conversation per connection. Passes each command to its handler and each refusal to the
channel or connection that it closes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from trimq.clock import Clock
from trimq.config import Amqp
from trimq.core.api.broker import Broker
from trimq.core.security.authentication import Authenticator
from trimq.core.security.login_log import LoginLog
from trimq.errors import DiskFull, DiskStalled, ForcedClose, MemoryFull, ProtocolError, Refusal, Stopping
from trimq.model import Caller
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.deliveries import ReplyAddresses
from trimq.protocols.amqp.handlers import CONNECTION_HANDLERS, HANDLERS, basic, publish
from trimq.protocols.amqp.handlers.blocked_publisher import BlockedPublisher
from trimq.protocols.amqp.handlers.channel import close_channel, open_channel
from trimq.protocols.amqp.handlers.connection import greet
from trimq.protocols.amqp.handlers.context import Context, write_fault
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault, WrongProtocol
from trimq.protocols.amqp.wire.connection import SERVED_HEADERS, AmqpConnection, Phase
from trimq.protocols.amqp.wire.events import Acks, Command, Event, Greeting, Oversized, Publish
from trimq.protocols.contract import ConnectionDetails, Parts, Reply, SessionControl
from trimq.wire.receive_buffer import ReceiveMemory

PROTOCOL = "amqp"

# RabbitMQ's texts, and one for a disk that accepts writes but does not sync them.
_BLOCK_REASONS: dict[type[Refusal], str] = {
    DiskFull: "low on disk",
    DiskStalled: "disk does not sync",
    MemoryFull: "low on memory",
}

# Maximum number of consecutive messages that are handled as one request.
_MAX_PUBLISH_BATCH = 256


class UnfinishedBatch(NamedTuple):
    """Rest of a batch of messages for many queues, which is published in slices. It comes before everything that the
    client has sent after it."""

    event: Publish
    replies: Iterator[Reply | None]


class AmqpConversation:
    def __init__(self, context: Context, forget: Callable[[AmqpConversation], None]) -> None:
        self._context = context
        self._forget = forget
        self._connection = context.connection
        self._blocked_publisher = BlockedPublisher(context)
        self._next_events = context.next_events
        self._unfinished: UnfinishedBatch | None = None
        self.get_buffer = self._connection.get_buffer
        self.buffer_updated = self._connection.buffer_updated
        liveness, patience_ms = context.clock.liveness, context.settings.handshake_ms
        self._handshake = liveness.call_at(liveness.now_ms() + patience_ms, self._give_up_handshake)

    def identify(self, principal: str) -> None:
        self._context.certificate_user = principal

    def next_event(self) -> Event | Reply | UnfinishedBatch | None:
        if self._next_events:
            return self._take_next_event()
        if self._unfinished is not None:
            return self._unfinished
        return self._blocked_publisher.take_postponed() or self._connection.next_event()

    def handle(self, event: object) -> Reply | None:
        if isinstance(event, Publish):
            return self._publish(event)
        if isinstance(event, Acks):
            return self._ack(event)
        if isinstance(event, Command):
            return self._command(event)
        if isinstance(event, Oversized):
            return self._refuse_size(event)
        if isinstance(event, Reply):
            return event
        if isinstance(event, UnfinishedBatch):
            return self._continue(event)
        assert isinstance(event, Greeting)
        return greet(self._context)

    def _publish(self, event: Publish) -> Reply | None:
        """Publishes the message together with similar messages received right after it: cheaper, and one pass writes
        them. Further replies are queued until the first one was returned."""
        context, further = self._context, self._next_events
        channel = context.channels.get(event.channel)
        if channel is None:  # the channel closed while the message was postponed
            return None
        try:
            if not event.following and publish.is_batchable(channel, event):
                event.following = self._connection.next_similar(event, _MAX_PUBLISH_BATCH)
            if event.following:  # for a single message the batch path is slower
                self._take_replies(event, publish.publish_batch(context, channel, event))
            elif (reply := publish.publish(context, channel, event)) is not None:
                further.append(reply)
        except (DiskFull, DiskStalled, MemoryFull) as refusal:
            self._blocked_publisher.postpone(event, _BLOCK_REASONS[type(refusal)])
            return None
        except Refusal as refusal:
            try:
                parts = context.refuse(channel, refusal, methods.BasicPublish.ID)
                further.append(Reply.now(parts, lane=event.channel))
            except ProtocolError as error:
                further.append(error)
        self._blocked_publisher.publish_accepted()
        first = self._take_next_event()
        assert not isinstance(first, Command)  # no command is postponed while messages are published
        return first

    def _take_replies(self, event: Publish, replies: Iterator[Reply | None]) -> None:
        """Queues the replies of a batch. If others should have their turn, keeps the rest of the batch."""
        self._unfinished = None
        for reply in replies:
            if reply is None:
                self._unfinished = UnfinishedBatch(event, replies)
                return
            self._next_events.append(reply)

    def _continue(self, batch: UnfinishedBatch) -> Reply | None:
        channel = self._context.channels.get(batch.event.channel)
        self._unfinished = None
        if channel is None:  # it was closed meanwhile
            return None
        try:
            self._take_replies(batch.event, batch.replies)
        except Refusal as refusal:
            try:
                parts = self._context.refuse(channel, refusal, methods.BasicPublish.ID)
                self._next_events.append(Reply.now(parts, lane=batch.event.channel))
            except ProtocolError as error:
                self._next_events.append(error)
        first = self._take_next_event()
        assert not isinstance(first, Command)
        return first

    def _take_next_event(self) -> Reply | Command | None:
        found = self._next_events.popleft() if self._next_events else None
        if isinstance(found, ProtocolError):
            raise found
        return found

    def _ack(self, event: Acks) -> Reply | None:
        context = self._context
        channel = context.channels[event.channel]
        try:
            basic.ack(context, channel, event)
        except Refusal as refusal:
            return Reply.now(context.refuse(channel, refusal, methods.BasicAck.ID), lane=event.channel)
        return None

    def _command(self, event: Command) -> Reply | None:
        method = event.method
        if event.channel == 0:
            return CONNECTION_HANDLERS[method.ID](self._context, method)
        if method.ID == methods.ChannelOpen.ID:
            return open_channel(self._context, event.channel)
        if method.ID == methods.ChannelClose.ID:
            return close_channel(self._context, event.channel)
        handler = HANDLERS.get(method.ID)
        if handler is None:
            raise ConnectionFault(Code.COMMAND_INVALID, "unimplemented method", *method.class_and_method)
        channel = self._context.channels.get(event.channel)
        if channel is None:  # the channel closed while the command was postponed
            return None
        try:
            return handler(self._context, channel, method)
        except Refusal as refusal:
            return Reply.now(self._context.refuse(channel, refusal, method.ID), lane=event.channel)

    def _refuse_size(self, event: Oversized) -> Reply:
        context = self._context
        refusal = publish.refuse_size(context, event)
        parts = context.refuse(context.channels[event.channel], refusal, methods.BasicPublish.ID)
        return Reply.now(parts, lane=event.channel)

    def _give_up_handshake(self) -> None:
        if self._connection.phase is not Phase.RUNNING:
            self._context.outlet.abort()

    def on_congestion_end(self) -> None:
        """Resumes deliveries after the client has read."""
        for channel in self._context.channels.values():
            self._context.resume_delivery(channel)

    def release_memory(self) -> bool:
        return self._connection.release_memory()

    def closing_parts(self, error: ProtocolError) -> Parts:
        if isinstance(error, WrongProtocol):
            return [SERVED_HEADERS[0]]
        if isinstance(error, ForcedClose) or not isinstance(error, Stopping):
            self._context.release_all()  # at once: the client may take its time to hang up
        if isinstance(error, ForcedClose):
            error = ConnectionFault(Code.CONNECTION_FORCED, error.reason)
        elif isinstance(error, Stopping):
            error = ConnectionFault(Code.CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'")
        # Before the connection is open, RabbitMQ reports no error except a refused virtual host.
        if isinstance(error, ConnectionFault) and self._connection.phase in (Phase.OPENING, Phase.RUNNING):
            return write_fault(error)
        return []

    def describe(self) -> ConnectionDetails:
        context = self._context
        caller = context.caller
        namespace = caller.namespace if self._connection.phase is Phase.RUNNING else None
        return ConnectionDetails(
            caller.principal, namespace, caller.client_id, len(context.channels), context.client_properties
        )

    def rights_changed(self, principal: str | None) -> None:
        """Ends the consumers of queues that this user may not read any more. `principal` None: any user."""
        context = self._context
        if principal not in (None, context.caller.principal):
            return
        for channel in tuple(context.channels.values()):
            for subscriber in tuple(channel.consumers.values()):
                consumer = subscriber.consumer
                if consumer is not None and not context.broker.queues.may_read(context.caller, consumer.queue.name):
                    subscriber.revoke(consumer, context.broker.queues.unsubscribe)

    def close_if(self, namespace: str, reason: str) -> None:
        """Closes the connection if it belongs to the deleted namespace."""
        if self._connection.phase is not Phase.RUNNING or self._context.caller.namespace != namespace:
            return
        fault = ConnectionFault(Code.CONNECTION_FORCED, reason)
        self._context.release_all()
        self._context.outlet.send(write_fault(fault))
        self._context.outlet.close()

    def closed(self) -> None:
        self._unfinished = None
        self._forget(self)
        self._connection.drop()
        self._handshake.cancel()
        self._blocked_publisher.stop()
        if self._context.heartbeats is not None:
            self._context.heartbeats.stop()
            self._context.heartbeats = None  # it refers to the context and would keep the receive buffer alive
        self._context.release_all()
        if self._context.counted_in is not None:
            self._context.broker.tenant_limits.close_connection(
                self._context.counted_in, self._context.caller.principal
            )


class AmqpFrontEnd:
    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator,
        clock: Clock,
        settings: Amqp,
        rng: random.Random,
        cluster_name: str,
        login_log: LoginLog,
    ) -> None:
        self._login_log = login_log
        self._broker = broker
        self._authenticator = authenticator
        self._clock = clock
        self._settings = settings
        self._rng = rng
        self._cluster_name = cluster_name
        self._replies = ReplyAddresses()
        self._held_bytes = ReceiveMemory(settings.received_bytes)
        self._conversations: set[AmqpConversation] = set()
        authenticator.on_rights_changed(self._rights_changed)
        broker.namespaces.registry.on_deleted(self._namespace_deleted)

    def open_conversation(self, address: str, outlet: SessionControl) -> AmqpConversation:
        context = Context(
            broker=self._broker,
            authenticator=self._authenticator,
            login_log=self._login_log,
            caller=Caller(principal="", client_id="", address=address, protocol=PROTOCOL),
            clock=self._clock,
            outlet=outlet,
            connection=AmqpConnection(self._settings.message_bytes, self._held_bytes),
            settings=self._settings,
            rng=self._rng,
            replies=self._replies,
            cluster_name=self._cluster_name,
        )
        conversation = AmqpConversation(context, self._conversations.discard)
        self._conversations.add(conversation)
        return conversation

    def _rights_changed(self, principal: str | None) -> None:
        for conversation in tuple(self._conversations):
            conversation.rights_changed(principal)

    def _namespace_deleted(self, name: str) -> None:
        for conversation in tuple(self._conversations):
            conversation.close_if(name, f"vhost '{name}' was deleted")
