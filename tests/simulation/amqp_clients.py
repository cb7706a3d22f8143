"""AMQP clients of the simulated broker: publishers, consumers, and an auditor that drains the queues at the end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from amqp_link import AmqpLink
from amqp_promises import DEAD, AmqpPromises, FirstDeliveries, Kind, Message
from client_connection import Lost
from clients import Client
from simulated_trace import SimulationFailure
from surroundings import Surroundings

from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.handshake import CAPABILITIES
from trimq.protocols.amqp.wire.method_codec import read_method

AMQP_PORT = 5672
NOWHERE = "nowhere"
FAN = "fan"

_PERSISTENT = write_properties(delivery_mode=2)
_TRANSIENT = write_properties(delivery_mode=1)

_LOGIN = methods.ConnectionStartOk(
    {"capabilities": dict.fromkeys(CAPABILITIES, True)}, "PLAIN", b"\0guest\0guest", "en_US"
)


def declaration(kind: Kind) -> methods.QueueDeclare:
    arguments: dict[str, Any] = {}
    if kind.is_quorum:
        arguments |= {"x-queue-type": "quorum", "x-delivery-limit": 2 if kind.may_expire else 10_000}
    elif kind.may_expire:
        arguments["x-message-ttl"] = 2_000
    if kind.buries:
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    if kind.buries and kind.is_quorum:
        arguments |= {"x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once"}
    return methods.QueueDeclare(queue=kind.name, is_durable=kind.is_durable, arguments=arguments)


class AmqpClient(Client):
    def __init__(
        self, name: str, random: Random, surroundings: Surroundings, promises: AmqpPromises, kinds: list[Kind]
    ) -> None:
        super().__init__(name, random, surroundings)
        self.messages = promises
        self.kinds = kinds
        self._link: AmqpLink | None = None
        self._links = 0

    async def connection(self) -> AmqpLink:
        """Returns an open connection with a channel on which all queues are declared."""
        while self._link is None or self._link.is_over:
            await self.surroundings.wait_until_up(self.random)
            loop = self.surroundings.loop
            try:
                peer = loop.network.connect(AMQP_PORT)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01 + self.random.random())
                continue
            self._links += 1
            link = AmqpLink(loop, peer, self.random.choice((4096, 131_072)))
            self._link = self._connection = link
            await self._open(link)
        return self._link

    async def _open(self, link: AmqpLink) -> None:
        await self.answer(link.greet(), "hello")
        await self.answer(link.ask(_LOGIN, channel=0), "login")
        link.send_methods(methods.ConnectionTuneOk(2047, link.frame_max, 0), channel=0)
        await self.answer(link.ask(methods.ConnectionOpen("/"), channel=0), "open")
        await self.ask(link, methods.ChannelOpen())
        for kind in self.kinds:
            await self.ask(link, declaration(kind))
        await self.begin(link)

    async def begin(self, link: AmqpLink) -> None:
        """Runs the set-up of every new link."""

    async def ask(self, link: AmqpLink, method: methods.Method) -> methods.Method:
        return read_method(await self.answer(link.ask(method), method.NAME))


class Publisher(AmqpClient):
    """Waits for its confirms after every burst."""

    _number = 0
    body_bytes = 300

    @property
    def _fan_out_targets(self) -> list[Kind]:
        """Returns the queues bound to the exchange: all but the dead-letter queue."""
        return [kind for kind in self.kinds if kind.name != DEAD]

    async def begin(self, link: AmqpLink) -> None:
        await self.ask(link, methods.ConfirmSelect())
        await self.ask(link, methods.ExchangeDeclare(exchange=FAN, type="fanout", is_durable=True))
        for kind in self._fan_out_targets:
            await self.ask(link, methods.QueueBind(queue=kind.name, exchange=FAN))
        self._tag = 0
        self._unconfirmed: dict[int, list[Message]] = {}
        self._returned: list[bytes] = []
        link.unasked = self._handle_unasked

    async def act(self) -> bool:
        link = await self.connection()
        last = None
        for _ in range(self.random.choice((1, 1, 4, 12))):
            self._publish(link)
            last = link.expect_confirm(self._tag)
        assert last is not None
        await self.answer(last, "a confirm")
        while link._confirms:  # earlier messages may be confirmed after this one
            await self.answer(next(iter(link._confirms.values())), "a confirm")
        return True

    def _publish(self, link: AmqpLink) -> None:
        self._tag += 1
        self._number += 1
        random = self.random
        is_fan = random.random() < 0.15
        size = 10_000 if is_fan else random.choice((0, self.body_bytes, self.body_bytes, 5_000))
        body = f"{self.name}.{self._number}|".encode() + random.randbytes(random.randint(0, size))
        if random.random() < 0.03:
            self._unconfirmed[self._tag] = []
            link.publish("", NOWHERE, _PERSISTENT, body)
            return
        kinds = self._fan_out_targets if is_fan else [random.choice(self.kinds)]
        is_persistent = random.random() < 0.85
        source = self.name, self._links
        copies = [Message(body, kind, source, self._number, link.life, is_persistent) for kind in kinds]
        self._unconfirmed[self._tag] = copies
        self.messages.asked(copies)
        names = (FAN, "") if is_fan else ("", kinds[0].name)
        link.publish(*names, _PERSISTENT if is_persistent else _TRANSIENT, body)

    def _handle_unasked(self, method: methods.Method, body: bytes) -> None:
        if isinstance(method, methods.BasicReturn):
            if method.routing_key != NOWHERE:
                raise SimulationFailure(f"{self.name}: {body[:24]!r} was returned from {method.routing_key}")
            self._returned.append(body)
            return
        if not isinstance(method, methods.BasicAck | methods.BasicNack):
            raise SimulationFailure(f"{self.name} got {method.NAME}")
        tags = (
            [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
            if method.is_multiple
            else [method.delivery_tag]
        )
        for tag in tags:
            self._settle(tag, isinstance(method, methods.BasicAck))

    def _settle(self, tag: int, is_confirmed: bool) -> None:
        if tag not in self._unconfirmed:
            raise SimulationFailure(f"{self.name} got a confirm of message {tag}, which is not outstanding")
        copies = self._unconfirmed.pop(tag)
        if not copies:
            if is_confirmed and not self._returned:
                raise SimulationFailure(f"{self.name}: an unroutable message was confirmed before it was returned")
            del self._returned[:1]
        elif is_confirmed:
            self.messages.confirmed(copies)
        else:
            self.note(f"is refused {copies[0]}")
            self.messages.refused(copies)


class Taker(AmqpClient):
    """Holds its unacked deliveries, in the order of their tags."""

    async def begin(self, link: AmqpLink) -> None:
        self._tag = 0
        self._held: dict[int, list[Message]] = {}
        self._unheard: list[tuple[str, Message]] = []
        self._first_deliveries = FirstDeliveries()
        link.unasked = lambda method, body: self._take(link, method, body)

    def _queue_of(self, method: methods.Method) -> str:
        raise NotImplementedError

    def _take(self, link: AmqpLink, method: methods.Method, body: bytes) -> None:
        assert isinstance(method, methods.BasicDeliver | methods.BasicGetOk)
        self._tag += 1
        if method.delivery_tag != self._tag:
            raise SimulationFailure(f"{self.name} got tag {method.delivery_tag} after {self._tag - 1}")
        if not link.is_sound:
            return
        queue = self._queue_of(method)
        copies = self.messages.delivered(queue, body, method.is_redelivered, link.life)
        if not method.is_redelivered and queue != DEAD:
            self._first_deliveries.add(copies[0])
        self._held[self._tag] = copies

    def _acknowledge(self, link: AmqpLink, queue: str, tag: int, is_multiple: bool) -> None:
        tags = [each for each in self._held if each <= tag] if is_multiple else [tag]
        for each in tags:
            for message in self._held.pop(each):
                message.acknowledged.add(queue)
                self._unheard.append((queue, message))
        link.send_methods(methods.BasicAck(tag, is_multiple))

    async def _make_sure(self, link: AmqpLink, queue: str) -> None:
        """Waits for a reply: then the broker has processed all earlier methods."""
        unheard, self._unheard = self._unheard, []
        await self.ask(link, methods.QueueDeclare(queue=queue, is_passive=True))
        if link.is_sound:
            for name, message in unheard:
                if name in message.acknowledged:  # no recovery in between
                    message.settled.add(name)


class Consumer(Taker):
    async def begin(self, link: AmqpLink) -> None:
        await super().begin(link)
        self._kind = self.random.choice(self.kinds)
        self._prefetch = self.random.choice((1, 3, 20, 0))
        if self._prefetch:
            await self.ask(link, methods.BasicQos(prefetch_count=self._prefetch))
        await self.ask(link, methods.BasicConsume(queue=self._kind.name, consumer_tag=self.name))

    def _queue_of(self, method: methods.Method) -> str:
        return self._kind.name

    def _take(self, link: AmqpLink, method: methods.Method, body: bytes) -> None:
        super()._take(link, method, body)
        if self._prefetch and len(self._held) > self._prefetch:
            raise SimulationFailure(
                f"{self.name} holds {len(self._held)} unacked messages, {self._prefetch} is its prefetch"
            )

    async def act(self) -> bool:
        link = await self.connection()
        if not self._held:
            await self.surroundings.pause(self.surroundings.tempo_s)
        for _ in range(min(len(self._held), self.random.choice((1, 5, 50)))):
            if self._held and not link.is_over:
                self._settle_one(link)
        if self.random.random() < 0.4:
            await self._make_sure(link, self._kind.name)
        if self.random.random() < 0.05:
            link.close()
        return True

    def _settle_one(self, link: AmqpLink) -> None:
        tag = self.random.choice(list(self._held)[:5])
        rng = self.random.random()
        if rng < 0.7:
            self._acknowledge(link, self._kind.name, tag, is_multiple=self.random.random() < 0.2)
        elif rng < 0.85:
            del self._held[tag]
            link.send_methods(methods.BasicNack(tag, requeue=True))
        elif self._kind.buries:
            (message,) = self._held.pop(tag)
            message.is_rejected = True
            link.send_methods(methods.BasicReject(tag, requeue=False))


class Auditor(Taker):
    """Drains all queues after the other clients have ended: no message may be missing."""

    def _queue_of(self, method: methods.Method) -> str:
        return self._asked

    async def act(self) -> bool:
        if not self.surroundings.is_finishing:
            await self.surroundings.pause(86_400)
            return True
        while self.is_busy():
            await asyncio.sleep(0.1)
        for _ in range(100):
            link = await self.connection()
            for kind in self.kinds:
                await self._empty(link, kind.name)
            if not any(self.messages.owed(link.life)):
                return True
            await asyncio.sleep(1)
        owed = list(self.messages.owed(link.life))
        raise SimulationFailure(f"{len(owed)} messages were never delivered, among them {owed[0]}")

    def is_busy(self) -> bool:
        """Returns whether another client has not ended."""
        return False

    async def _empty(self, link: AmqpLink, queue: str) -> None:
        self._asked = queue
        while isinstance(await self.ask(link, methods.BasicGet(queue=queue)), methods.BasicGetOk):
            if not self._held:
                raise Lost
            self._acknowledge(link, queue, next(reversed(self._held)), is_multiple=True)
        await self._make_sure(link, queue)
