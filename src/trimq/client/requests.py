"""Requests by messages: a request waits for the reply of whoever consumes it. Matches replies, which brokers push to
the requesting client, to requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from trimq.client.consuming.received import Received, expand
from trimq.client.errors import BadMessage, ClientError, TimedOut
from trimq.client.instance import Instance
from trimq.client.link import Link
from trimq.client.messages import Message
from trimq.client.sending.encoding import RESERVED, send_fields, write_message_properties
from trimq.client.sending.pipeline import Serializer
from trimq.client.timing import pause
from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, UNIQUE_KEY, read_properties
from trimq.wire.remoting import BadHeader, Command
from trimq.wire.remoting_codes import RequestCode, ResponseCode

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TIME_LEFT_MS = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
CLUSTER = "CLUSTER"

Properties = tuple[tuple[str, str], ...]

_REPLY = "reply"
_REPLY_TOPIC = "_REPLY_TOPIC"


class Answer:
    """Reply to a request."""

    __slots__ = ("_serializer", "body", "properties")

    def __init__(self, body: bytes, properties: Mapping[str, str], serializer: Serializer | None) -> None:
        self.body = body
        self.properties = properties
        self._serializer = serializer

    def __repr__(self) -> str:
        return f"<answer {self.properties.get(UNIQUE_KEY, '')}, {len(self.body)} bytes>"

    @property
    def value(self) -> Any:
        """The body as the client's deserializer reads it."""
        if self._serializer is None:
            raise ClientError("this client has no serializer: use body")
        return self._serializer.loads(self.body)

    @property
    def headers(self) -> dict[str, str]:
        return {
            name: value
            for name, value in self.properties.items()
            if name not in RESERVED and name not in (KEYS, TAGS) and not name.startswith("TRIMQ_")
        }


class Requests:
    """Requests of one instance that wait for their replies. A reply that nobody waits for is dropped and counted."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[tuple[bytes, dict[str, str]]]] = {}
        self.late = 0
        instance.handlers[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ""] = self._pushed

    def begin(self, timeout_ms: int) -> tuple[str, Properties]:
        """Returns a correlation id and the properties of a request with it."""
        id = str(UUID(int=self._instance.rng.getrandbits(128), version=4))
        self._waiting[id] = asyncio.get_running_loop().create_future()
        properties = (
            (CORRELATION_ID, id),
            (REPLY_TO_CLIENT, self._instance.client_id),
            (TIME_LEFT_MS, str(timeout_ms)),
        )
        return id, properties

    async def wait(self, id: str, timeout_ms: int, serializer: Serializer | None) -> Answer:
        """Returns the reply. Raises TimedOut if nobody replies in time."""
        waiting = self._waiting[id]
        timer = asyncio.ensure_future(pause(self._instance.clock.liveness, timeout_ms))
        try:
            await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not waiting.done():
            raise TimedOut(f"nobody replied to request {id} in time")
        body, properties = waiting.result()
        return Answer(body, properties, serializer)

    def end(self, id: str) -> None:
        self._waiting.pop(id, None)

    def _pushed(self, link: Link, command: Command) -> None:
        try:
            fields = command.fields
            properties = read_properties(fields.get("properties", ""))
            body = expand(command.body, int(fields.get("sysFlag", "0")))
        except (BadHeader, ValueError, ClientError) as error:
            link.respond(command, ResponseCode.SYSTEM_ERROR, f"the reply cannot be read: {error}")
            return
        waiting = self._waiting.get(properties.get(CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            self.late += 1
        else:
            waiting.set_result((body, properties))
        link.respond(command, ResponseCode.SUCCESS)


async def ask(
    instance: Instance,
    topic: str,
    send: Callable[[Properties, int], Awaitable[object]],
    timeout_ms: int,
    serializer: Serializer | None,
) -> Answer:
    """Sends a request by `send`, which gets the properties to add and the time left, and waits for its reply."""
    timeline, requests = instance.clock.liveness, instance.part(Requests)
    deadline_ms = timeline.now_ms() + timeout_ms
    id, properties = requests.begin(timeout_ms)
    try:
        await tell_brokers(instance, topic, timeout_ms)
        await send(properties, max(deadline_ms - timeline.now_ms(), 1))
        return await requests.wait(id, max(deadline_ms - timeline.now_ms(), 0), serializer)
    finally:
        requests.end(id)


async def tell_brokers(instance: Instance, topic: str, timeout_ms: int) -> None:
    """Registers this client with the brokers of the topic, which push the reply to registered clients only. Raises
    ClientError if none accepts it."""
    route = await instance.routes.get(topic, timeout_ms, may_create=True)
    errors = []
    masters = [address for broker in route.brokers if (address := route.master(broker)) is not None]
    for address in masters:
        try:
            await instance.heartbeats.tell(address)
        except ClientError as error:
            errors.append(error)
    if errors and len(errors) == len(masters):
        raise errors[-1]


async def send_reply(
    instance: Instance, group: str, message: Received, reply: Message, body: bytes, id: str, timeout_ms: int
) -> None:
    """Sends a reply to the broker that stored the request. Returns when the requesting client has accepted it; raises
    Refused if that client is gone, BadMessage if the message is no request."""
    properties = message.properties
    try:
        cluster, correlation, client = properties[CLUSTER], properties[CORRELATION_ID], properties[REPLY_TO_CLIENT]
    except KeyError as missing:
        raise BadMessage(f"message {message.id} is no request: it has no property {missing}") from None
    topic = f"{cluster}{_REPLY_TOPIC}"
    extra = (
        (MESSAGE_TYPE, _REPLY),
        (CORRELATION_ID, correlation),
        (REPLY_TO_CLIENT, client),
        (TIME_LEFT_MS, properties.get(TIME_LEFT_MS, str(timeout_ms))),
    )
    route = await instance.routes.get(topic, timeout_ms)
    broker = message.queue.broker if route.master(message.queue.broker) else next(iter(route.brokers), "")
    address = route.master(broker)
    if address is None:
        raise ClientError(f"the route of {topic} names no master of broker {message.queue.broker}")
    text = write_message_properties(reply, id, extra)
    fields = send_fields(group, topic, 0, text, instance.clock.message.now_ms())
    await instance.links.ask(address, RequestCode.SEND_REPLY_MESSAGE_V2, fields, body, timeout_ms=timeout_ms)
