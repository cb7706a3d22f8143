"""Deliveries to a client: the consumers of a channel and the receivers of direct replies. Writes deliveries of the core
as frames, and stops the core when the client reads too slowly."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from trimq.errors import Refusal
from trimq.formats.amqp_content.property_list import EMPTY
from trimq.model import Buffer
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.wire.codes import AmqpRefusal, Code
from trimq.protocols.amqp.wire.contents import DeliveryFrames
from trimq.protocols.contract import SessionControl

if TYPE_CHECKING:
    from trimq.core.queues.consumers import Consumer
    from trimq.core.queues.unacked import Delivery


# If no body is longer, all frames are joined: cheaper than sending many pieces.
_JOINED_BYTES = 8 * 1024


class Subscriber:
    """One consumer of one channel; implements the core's receiver."""

    def __init__(
        self,
        channel: Channel,
        tag: str,
        no_ack: bool,
        outlet: SessionControl,
        frame_max: int,
        max_unacked_bytes: int,
        notify_cancelled: Callable[[Channel, str], None] | None,
        resume_delivery: Callable[[Channel], None],
        close_with_refusal: Callable[[Channel, Refusal], None],
        traced_namespaces: Collection[str],
        trace: Callable[[list[Delivery]], None],
    ) -> None:
        self.can_take = True
        self.consumer: Consumer | None = None
        self.tag = tag
        self._channel = channel
        self._no_ack = no_ack
        self._outlet = outlet
        self._frames = DeliveryFrames(channel.number, tag, frame_max)
        self._max_unacked_bytes = max_unacked_bytes
        self._notify_cancelled = notify_cancelled  # None: the client does not understand basic.cancel
        self._resume_delivery = resume_delivery
        self._close_with_refusal = close_with_refusal
        self._traced_namespaces = traced_namespaces
        self._trace = trace

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        channel, write = self._channel, self._frames.write
        if self._traced_namespaces:
            self._trace(deliveries)
        tags = channel.next_tags(len(deliveries))
        parts: list[Buffer] = []
        longest = 0
        for tag, delivery in zip(tags, deliveries, strict=True):
            exchange, key, _, body, _ = delivery.stored.content
            parts += write(tag, delivery.redelivered, exchange, key, delivery.header, body)
            longest = max(longest, len(body))
        self._outlet.send(parts if longest > _JOINED_BYTES else [b"".join(parts)])
        if not self._no_ack:
            channel.add_unacked(tags, deliveries, longest)
        if channel.unacked_bytes >= self._max_unacked_bytes:
            channel.is_full = True
        self.can_take = not channel.is_full and not self._outlet.is_congested

    def cancelled(self, consumer: Consumer) -> None:
        if self._channel.consumers.pop(self.tag, None) is not None and self._notify_cancelled is not None:
            self._notify_cancelled(self._channel, self.tag)

    def revoke(self, consumer: Consumer, unsubscribe: Callable[[Consumer], None]) -> None:
        """Ends the consumer because its user may not read the queue any more. Closes the channel if the client does not
        support basic.cancel from the server."""
        unsubscribe(consumer)
        if self._notify_cancelled is None:
            queue = consumer.queue
            reason = f"read access to queue '{queue.name}' in vhost '{queue.namespace}' was revoked"
            self._close_with_refusal(self._channel, AmqpRefusal(Code.ACCESS_REFUSED, reason))
        else:
            self.cancelled(consumer)

    def timed_out(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Removes deliveries that the core took back after the consumer timeout. Cancels the consumer; closes the
        channel if the client does not support basic.cancel from the server."""
        channel = self._channel
        if not channel.is_open:
            return
        channel.take_timed_out(deliveries)
        if self._notify_cancelled is None or channel.consumers.get(self.tag) is not self:
            self._close_with_refusal(channel, _ack_timeout(channel, consumer))
            return
        self.cancelled(consumer)
        if channel.is_full:
            self._resume_delivery(channel)


def _ack_timeout(channel: Channel, consumer: Consumer) -> AmqpRefusal:
    limit_ms = consumer.queue.consumer_timeout_ms if consumer.timeout_ms is None else consumer.timeout_ms
    reason = (
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {limit_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    return AmqpRefusal(Code.PRECONDITION_FAILED, reason)


class ReplyReceiver:
    """Channel that consumes direct replies. They pass from connection to connection and are not stored."""

    def __init__(
        self, channel: Channel, tag: str, outlet: SessionControl, frame_max: int, max_unread_bytes: int
    ) -> None:
        self.channel = channel
        self.tag = tag
        self._outlet = outlet
        self._frames = DeliveryFrames(channel.number, tag, frame_max)
        self._max_unread_bytes = max_unread_bytes
        self._unread_bytes = 0

    def deliver(self, address: str, header: bytes, body: bytes) -> None:
        """Sends a direct reply. Drops it if the client does not read and the limit of unread bytes is exceeded."""
        if self._outlet.is_congested:
            self._unread_bytes += len(body)
            if self._unread_bytes > self._max_unread_bytes:
                return
        else:
            self._unread_bytes = 0
        (tag,) = self.channel.next_tags(1)
        self._outlet.send(self._frames.write(tag, False, b"", address.encode(), header or EMPTY, body))


class ReplyAddresses:
    """Receivers of direct replies by their generated address."""

    def __init__(self) -> None:
        self._receivers: dict[str, ReplyReceiver] = {}

    def add(self, address: str, receiver: ReplyReceiver) -> None:
        self._receivers[address] = receiver

    def remove(self, address: str) -> None:
        self._receivers.pop(address, None)

    def get(self, address: str) -> ReplyReceiver | None:
        return self._receivers.get(address)
