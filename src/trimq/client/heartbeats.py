"""Heartbeats: tell every broker which groups this client produces and consumes for, when that changes and every 30
seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from trimq.client.errors import ClientError
from trimq.client.links import Links
from trimq.client.routes import MASTER
from trimq.client.timing import pause
from trimq.wire.remoting_codes import RequestCode

log = logging.getLogger(__name__)

INTERVAL_MS = 30_000
_TIMEOUT_MS = 3000


class Subscription(msgspec.Struct, frozen=True):
    """Filter of one topic, as in a heartbeat."""

    topic: str
    subString: str
    subVersion: int
    tagsSet: tuple[str, ...] = ()
    codeSet: tuple[int, ...] = ()
    expressionType: str = "TAG"
    classFilterMode: bool = False


class ConsumerData(msgspec.Struct, frozen=True):
    """Consumer group of this client, as in a heartbeat."""

    groupName: str
    consumeType: str
    messageModel: str
    consumeFromWhere: str
    subscriptionDataSet: tuple[Subscription, ...]
    unitMode: bool = False


class Heartbeats:
    """Groups of one client. `brokers` returns the addresses of all brokers in use."""

    def __init__(self, client_id: str, links: Links, brokers: Callable[[], Mapping[str, Mapping[int, str]]]) -> None:
        self._client_id = client_id
        self._links = links
        self._brokers = brokers
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, ConsumerData] = {}
        self._reserved: set[str] = set()
        self._told: set[str] = set()
        """Addresses that know the present groups over their present connection."""
        self._telling: dict[str, asyncio.Task[None]] = {}

    # -- groups

    def add_producer(self, group: str) -> None:
        count = self._producers[group] = self._producers.get(group, 0) + 1
        if count == 1:
            self._told.clear()

    async def remove_producer(self, group: str) -> None:
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister("producerGroup", group)

    def has_consumer(self, group: str) -> bool:
        return group in self._reserved

    def reserve_consumer(self, group: str) -> None:
        """This client will have the only member of the group on its connections."""
        self._reserved.add(group)

    def put_consumer(self, data: ConsumerData) -> None:
        self._consumers[data.groupName] = data
        self._told.clear()

    async def remove_consumer(self, group: str) -> None:
        self._reserved.discard(group)
        if self._consumers.pop(group, None) is not None:
            await self._unregister("consumerGroup", group)

    async def _unregister(self, field: str, group: str) -> None:
        fields = {"clientID": self._client_id, field: group}
        for address in self._addresses():
            if self._links.find(address) is not None:
                try:
                    await self._links.ask(address, RequestCode.UNREGISTER_CLIENT, fields, timeout_ms=_TIMEOUT_MS)
                except ClientError as error:
                    log.info("%s: group %s not unregistered (%s)", address, group, error)

    # -- sending

    def lost(self, address: str) -> None:
        """The connection ended: the broker must be told again over the next one."""
        self._told.discard(address)

    def is_told(self, address: str) -> bool:
        return address in self._told

    async def tell(self, address: str) -> None:
        """Sends a heartbeat unless this broker knows the present groups, once for all who wait."""
        if address in self._told:
            return
        task = self._telling.get(address)
        if task is None:
            task = self._telling[address] = asyncio.create_task(self.beat(address))
            task.add_done_callback(lambda done: self._tellers_done(address, done))
        await asyncio.shield(task)

    def _tellers_done(self, address: str, task: asyncio.Task[None]) -> None:
        self._telling.pop(address, None)
        if not task.cancelled():
            task.exception()

    async def beat(self, address: str) -> None:
        """Sends a heartbeat. Raises ClientError if the broker does not accept it."""
        if not self._producers and not self._consumers:
            return
        data: dict[str, Any] = {
            "clientID": self._client_id,
            "producerDataSet": [{"groupName": group} for group in self._producers],
            "consumerDataSet": list(self._consumers.values()),
        }
        before = (tuple(self._producers), tuple(self._consumers.values()))
        body = msgspec.json.encode(data)
        await self._links.ask(address, RequestCode.HEART_BEAT, body=body, timeout_ms=_TIMEOUT_MS)
        if before == (tuple(self._producers), tuple(self._consumers.values())):
            self._told.add(address)

    def _addresses(self) -> list[str]:
        """Addresses of all brokers; slaves only if this client consumes."""
        found: dict[str, None] = {}
        for addresses in self._brokers().values():
            for number, address in addresses.items():
                if number == MASTER or self._consumers:
                    found[address] = None
        return list(found)

    async def tell_all(self, addresses: Iterable[str] | None = None) -> None:
        """Sends a heartbeat to all brokers that do not know the present groups."""
        await self._all(self.tell, addresses)

    async def _all(self, send: Callable[[str], Any], addresses: Iterable[str] | None = None) -> None:
        for address in self._addresses() if addresses is None else addresses:
            try:
                await send(address)
            except ClientError as error:
                log.info("%s: heartbeat not accepted (%s)", address, error)

    async def keep_alive(self) -> None:
        """Sends a heartbeat to all brokers every 30 seconds, until cancelled."""
        while True:
            await pause(self._links.timeline, INTERVAL_MS)
            await self._all(self.beat)

    async def close(self) -> None:
        tasks = list(self._telling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
