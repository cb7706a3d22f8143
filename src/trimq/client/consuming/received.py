"""Received messages, and the codec of what brokers send to consumers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from trimq.client.errors import ClientError
from trimq.client.messages import MessageQueue
from trimq.client.sending.encoding import KEY, RESERVED
from trimq.client.sending.pipeline import Serializer
from trimq.client.timing import Duration
from trimq.formats.kafka_batch.compression import BadCompression, Codec, decompress
from trimq.formats.rocketmq_unit.hosts import offset_message_id, unpack_host
from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, UNIQUE_KEY, find_property, read_properties, split_keys
from trimq.formats.rocketmq_unit.retries import ORIGIN_ID, RETRY_TOPIC
from trimq.formats.rocketmq_unit.unit import COMPRESSED, BadUnit, Unit, iterate_units

LONGEST_EXPANDED = 128 * 1024 * 1024
_CODECS = {1: Codec.LZ4, 2: Codec.ZSTD}
_OWN_PREFIX = "TRIMQ_"


class Settlement(Protocol):
    """Owner of received messages, which settles them."""

    async def ack(self, message: Received) -> None: ...

    async def retry(self, message: Received, after: Duration | None) -> None: ...

    async def give_up(self, message: Received, reason: str) -> None: ...

    async def extend(self, message: Received, by: Duration) -> None: ...

    async def reply(self, message: Received, body: Any) -> None: ...


class Source(Protocol):
    """Owner of a message within its consumer."""

    def handler_began(self) -> None: ...

    def handler_ended(self) -> None: ...

    def put_back(self, message: Received) -> None:
        """Hands the message out again: its handler was cancelled."""
        ...


class ReceivedFields:
    """Fields of a received message. `attempt` counts its deliveries to this group, from 1 on. Properties are parsed
    when they are first used."""

    __slots__ = ("_properties", "_topic", "local_attempts", "queue", "serializer", "unit")

    def __init__(self, unit: Unit, queue: MessageQueue, serializer: Serializer | None = None) -> None:
        self.unit = unit
        self.queue = queue
        self.local_attempts = 0
        self.serializer = serializer
        self._properties: dict[str, str] | None = None
        self._topic: str | None = None

    def __repr__(self) -> str:
        return f"<message {self.id} of {self.topic}, broker {self.queue.broker}, queue {self.queue.id}, {self.offset}>"

    # -- fields

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, those of the broker too."""
        found = self._properties
        if found is None:
            found = self._properties = read_properties(self.unit.properties)
        return found

    @property
    def id(self) -> str:
        """Id that the producer gave the message; the same in all redeliveries."""
        return self.properties.get(UNIQUE_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """Id made of the broker's address and the position."""
        return self.properties.get(ORIGIN_ID) or offset_message_id(self.unit.store_host, self.unit.position)

    @property
    def topic(self) -> str:
        """Topic that the message was sent to, also in a redelivery."""
        if self._topic is None:
            self._topic = find_property(self.unit.properties, RETRY_TOPIC) or self.unit.topic.decode()
        return self._topic

    @property
    def offset(self) -> int:
        return self.unit.queue_offset

    @property
    def position(self) -> int:
        """Position in the broker's commit log."""
        return self.unit.position

    @property
    def size(self) -> int:
        """Bytes of the message as stored."""
        return self.unit.size

    @property
    def body(self) -> bytes:
        return expand_body(self.unit)

    @property
    def value(self) -> Any:
        """The body as the client's deserializer reads it. Raises what that raises for a body that it cannot read."""
        if self.serializer is None:
            raise ClientError("this client has no serializer: use body")
        return self.serializer.loads(self.body)

    @property
    def tag(self) -> str | None:
        return find_property(self.unit.properties, TAGS)

    @property
    def key(self) -> str | None:
        return self.properties.get(KEY)

    @property
    def keys(self) -> list[str]:
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def headers(self) -> dict[str, str]:
        return {
            name: value
            for name, value in self.properties.items()
            if name not in RESERVED and name not in (KEYS, TAGS) and not name.startswith(_OWN_PREFIX)
        }

    @property
    def born(self) -> datetime:
        """Time of the send, by the producer's clock."""
        return datetime.fromtimestamp(self.unit.born_ms / 1000, UTC)

    @property
    def born_host(self) -> tuple[str, int]:
        return unpack_host(self.unit.born_host)

    @property
    def stored(self) -> datetime:
        """Time of the append, by the broker's clock."""
        return datetime.fromtimestamp(self.unit.store_ms / 1000, UTC)

    @property
    def attempt(self) -> int:
        return self.unit.reconsume_times + self.local_attempts + 1


class Received(ReceivedFields):
    """A received message, which is settled once: further calls have no effect."""

    __slots__ = ("_settlement", "handed_out_ms", "is_settled", "receipt", "source")

    def __init__(
        self,
        unit: Unit,
        queue: MessageQueue,
        settlement: Settlement,
        source: Source,
        serializer: Serializer | None = None,
        receipt: str = "",
    ) -> None:
        ReceivedFields.__init__(self, unit, queue, serializer)
        self._settlement = settlement
        self.source = source
        self.receipt = receipt
        self.is_settled = False
        self.handed_out_ms = 0

    async def ack(self) -> None:
        """The message is done."""
        if not self.is_settled:
            await self._settlement.ack(self)

    async def retry(self, after: Duration | None = None) -> None:
        """Delivers the message again, after this time or by the group's policy."""
        if not self.is_settled:
            await self._settlement.retry(self, after)

    async def give_up(self, reason: str = "") -> None:
        """Moves the message to the group's dead-letter topic."""
        if not self.is_settled:
            await self._settlement.give_up(self, reason)

    async def extend(self, by: Duration) -> None:
        """Gives the handler more time before the message is delivered again. Only with `mode="pop"`."""
        await self._settlement.extend(self, by)

    async def reply(self, body: Any) -> None:
        """Answers a request, see `AsyncClient.request`."""
        await self._settlement.reply(self, body)


def expand_body(unit: Unit) -> bytes:
    """Returns the body as the producer gave it. Raises ClientError if it cannot be expanded."""
    return expand(bytes(unit.body), unit.sys_flag)


def expand(body: bytes, sys_flag: int) -> bytes:
    """Returns a body as its sender gave it, which may have compressed it. Raises ClientError if it cannot be
    expanded."""
    if not sys_flag & COMPRESSED:
        return body
    codec = _CODECS.get(sys_flag >> 8 & 7)
    try:
        if codec is not None:
            return decompress(codec, body, LONGEST_EXPANDED)
        expander = zlib.decompressobj()
        expanded = expander.decompress(body, LONGEST_EXPANDED)
    except (BadCompression, zlib.error) as error:
        raise ClientError(f"the compressed body cannot be expanded: {error}") from None
    if not expander.eof:
        raise ClientError(f"the compressed body is cut, or expands beyond {LONGEST_EXPANDED} bytes")
    return expanded


def read_units(body: bytes) -> Iterator[Unit]:
    """Yields the messages of a response. Raises ClientError if it is malformed."""
    try:
        yield from iterate_units(body)
    except BadUnit as error:
        raise ClientError(f"malformed messages in a response: {error}") from None
