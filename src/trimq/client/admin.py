"""Administration over the client's own connections: creates topics and finds stored messages."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec

from trimq.client.consuming.offsets import BrokerOffsets, QueueOffsets
from trimq.client.consuming.received import ReceivedFields, read_units
from trimq.client.errors import NoRoute
from trimq.client.instance import Instance
from trimq.client.messages import MessageQueue
from trimq.client.routes import DEFAULT_TOPIC, MASTER
from trimq.client.sending.pipeline import Serializer
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.wire.remoting_codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

READ, WRITE = 4, 2

_TIMEOUT_MS = 5000
_PAGE = 64
_LATEST_MS = 2**62


class _Broker(msgspec.Struct):
    brokerName: str
    brokerAddrs: dict[int, str]


class _Cluster(msgspec.Struct):
    brokerAddrTable: dict[str, _Broker] = {}


_BARE_NUMBER = re.compile(rb"([{,])(\d+):")
"""Name of a member without quotation marks, as name servers write the numbers of brokers."""

_decode_cluster = msgspec.json.Decoder(_Cluster).decode


class Admin:
    """Reached as `AsyncClient.admin`."""

    def __init__(self, instance: Callable[[], Instance], serializer: Serializer | None) -> None:
        self._instance = instance
        self._serializer = serializer

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        read: int | None = None,
        write: int | None = None,
        perm: int = READ | WRITE,
    ) -> None:
        """Creates or changes a topic on all brokers of the name server. `read` and `write`: numbers of queues to read
        from and to send to, if they differ; `perm`: 4 to read, 2 to write, 6 for both."""
        instance = self._instance()
        fields = {
            "topic": topic,
            "defaultTopic": DEFAULT_TOPIC,
            "readQueueNums": str(queues if read is None else read),
            "writeQueueNums": str(queues if write is None else write),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        for address in await self._masters(instance):
            await instance.links.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields, timeout_ms=_TIMEOUT_MS)
        if instance.routes.find(topic) is not None:
            await instance.routes.refresh(topic, _TIMEOUT_MS)

    async def _masters(self, instance: Instance) -> list[str]:
        answer = await instance.servers.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, _TIMEOUT_MS)
        try:
            brokers = _decode_cluster(_BARE_NUMBER.sub(rb'\1"\2":', answer.body)).brokerAddrTable.values()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NoRoute(f"the list of brokers is malformed: {error}") from None
        found = [each.brokerAddrs[MASTER] for each in brokers if MASTER in each.brokerAddrs]
        if not found:
            raise NoRoute("the name server knows no broker")
        return found

    async def lag(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Returns for each queue how many messages the consumer group has not committed yet; all of them if it never
        committed."""
        instance = self._instance()
        offsets, committed = QueueOffsets(instance), BrokerOffsets(instance, group)
        route = await instance.routes.get(topic, _TIMEOUT_MS)
        found = {}
        for queue in route.readable:
            done = await committed.read(queue)
            found[queue] = await offsets.last(queue) - (await offsets.first(queue) if done is None else done)
        return found

    async def find(
        self,
        topic: str,
        *,
        key: str | None = None,
        id: str | None = None,
        between: tuple[datetime | None, datetime | None] = (None, None),
    ) -> AsyncIterator[ReceivedFields]:
        """Yields the stored messages with this key or id, newest first for each broker. `between`: only those stored in
        this time, both ends included. Raises ValueError unless one of `key` and `id` is given."""
        wanted = key if id is None else id
        if wanted is None or not wanted or (key is not None and id is not None):
            raise ValueError("give either key or id")
        begin_ms, end_ms = (None if each is None else int(each.timestamp() * 1000) for each in between)
        instance = self._instance()
        route = await instance.routes.get(topic, _TIMEOUT_MS)
        for broker in sorted(route.brokers):
            address = route.reader(broker)
            if address is None:
                continue
            async for unit in self._pages(instance, address, topic, wanted, begin_ms or 0, end_ms or _LATEST_MS):
                found = ReceivedFields(unit, MessageQueue(topic, broker, unit.queue_id), self._serializer)
                if (found.id == id) if id is not None else (key in found.keys or key == found.key):
                    yield found

    async def _pages(
        self, instance: Instance, address: str, topic: str, wanted: str, begin_ms: int, end_ms: int
    ) -> AsyncIterator[Unit]:
        """Yields what the index has under this key or id, hash collisions included. A broker answers with the newest
        64; the next page ends where the last one began. More than 64 of one millisecond cannot be asked for."""
        seen: set[int] = set()
        while begin_ms <= end_ms:
            fields = {
                "topic": topic,
                "key": wanted,
                "maxNum": str(_PAGE),
                "beginTimestamp": str(begin_ms),
                "endTimestamp": str(end_ms),
            }
            answer = await instance.links.ask(
                address,
                RequestCode.QUERY_MESSAGE,
                fields,
                timeout_ms=_TIMEOUT_MS,
                expected=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
            )
            units = list(read_units(answer.body)) if answer.code == ResponseCode.SUCCESS else []
            fresh = sorted((unit for unit in units if unit.position not in seen), key=lambda unit: -unit.position)
            for unit in fresh:
                yield unit
            seen.update(unit.position for unit in fresh)
            if len(units) < _PAGE:
                return
            oldest_ms = min(unit.store_ms for unit in units)
            if oldest_ms == end_ms:
                log.warning("%s: more than %d messages under %r in one millisecond", address, _PAGE, wanted)
            end_ms = oldest_ms if oldest_ms < end_ms else end_ms - 1
