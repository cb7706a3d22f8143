"""Messages on their way to a client: each consumer of a channel, and those who wait for direct replies. Turns what the
core delivers into frames, and tells it when the client reads too slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimq.formats.property_list import EMPTY
from trimq.model import Buffer
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.contents import DeliveryPrefix, write_command, write_content
from trimq.protocols.contract import Outlet

if TYPE_CHECKING:
    from trimq.core.consumers import Consumer
    from trimq.core.deliveries import Delivery


class Subscriber:
    """One consumer tag of one channel: what the core calls a receiver."""

    def __init__(
        self,
        channel: Channel,
        tag: str,
        no_ack: bool,
        outlet: Outlet,
        frame_max: int,
        most_unacked_bytes: int,
        is_told_of_cancel: bool,
    ) -> None:
        self.can_take = True
        self.consumer: Consumer | None = None
        self.tag = tag
        self._channel = channel
        self._no_ack = no_ack
        self._outlet = outlet
        self._frame_max = frame_max
        self._most_unacked_bytes = most_unacked_bytes
        self._is_told_of_cancel = is_told_of_cancel
        self._names = (b"", b"")
        self._prefix = DeliveryPrefix(channel.number, tag, b"", b"")

    def deliver(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        channel, frame_max, no_ack = self._channel, self._frame_max, self._no_ack
        parts: list[Buffer] = []
        for delivery in deliveries:
            message = delivery.message
            tag = channel.remember(None if no_ack else delivery)
            parts.append(self._prefix_for(message.exchange, message.key).write(tag, delivery.redelivered))
            parts += write_content(channel.number, delivery.header, message.body, frame_max)
        self._outlet.send(parts)
        if channel.unacked_bytes >= self._most_unacked_bytes:
            channel.is_full = True
        self.can_take = not channel.is_full and not self._outlet.is_congested

    def _prefix_for(self, exchange: bytes, key: bytes) -> DeliveryPrefix:
        names = (exchange, key)
        if names != self._names:
            self._prefix = DeliveryPrefix(self._channel.number, self.tag, exchange, key)
            self._names = names
        return self._prefix

    def cancelled(self, consumer: Consumer) -> None:
        if self._channel.consumers.pop(self.tag, None) is not None and self._is_told_of_cancel:
            self._outlet.send([write_command(self._channel.number, methods.BasicCancel(self.tag, no_wait=True))])

    def timed_out(self, consumer: Consumer, delivery: Delivery) -> None:
        """The core has taken the message back: it can no longer be settled from here."""
        channel = self._channel
        for tag, unacked in list(channel.unacked.items()):
            if unacked is delivery:
                channel.take([tag])
        self.cancelled(consumer)


class ReplyReceiver:
    """A channel that waits for direct replies: they pass from connection to connection and are kept nowhere."""

    def __init__(self, channel: Channel, tag: str, outlet: Outlet, frame_max: int) -> None:
        self.channel = channel
        self.tag = tag
        self._outlet = outlet
        self._frame_max = frame_max

    def deliver(self, address: str, header: bytes, body: bytes) -> None:
        prefix = DeliveryPrefix(self.channel.number, self.tag, b"", address.encode())
        tag = self.channel.remember(None)
        content = write_content(self.channel.number, header or EMPTY, body, self._frame_max)
        self._outlet.send([prefix.write(tag, False), *content])


class ReplyAddresses:
    """Who waits for direct replies, by the generated names that they are asked for under."""

    def __init__(self) -> None:
        self._receivers: dict[str, ReplyReceiver] = {}

    def add(self, address: str, receiver: ReplyReceiver) -> None:
        self._receivers[address] = receiver

    def remove(self, address: str) -> None:
        self._receivers.pop(address, None)

    def get(self, address: str) -> ReplyReceiver | None:
        return self._receivers.get(address)
