"""Routes of topics: which broker has which queues, asked from the name servers and cached. A cached route serves for as
long as no name server answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from trimq.client.errors import ClientError, NoRoute, Refused, TimedOut
from trimq.client.links import Links
from trimq.client.messages import MessageQueue
from trimq.client.timing import pause
from trimq.clock import Timeline
from trimq.wire.remoting import Command
from trimq.wire.remoting_codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

REFRESH_MS = 30_000
DEFAULT_TOPIC = "TBW102"
"""Topic whose route serves for topics that the first message creates."""

DEFAULT_QUEUES = 4

MASTER = 0
_WRITABLE, _READABLE = 2, 4
_ASK_MS = 3000


class _BrokerData(msgspec.Struct):
    brokerName: str
    brokerAddrs: dict[int, str]
    cluster: str = ""


class _QueueData(msgspec.Struct):
    brokerName: str
    readQueueNums: int
    writeQueueNums: int
    perm: int


class RouteData(msgspec.Struct):
    """Body of the response to GET_ROUTEINFO_BY_TOPIC."""

    brokerDatas: list[_BrokerData] = []
    queueDatas: list[_QueueData] = []


class Route(NamedTuple):
    """Queues to send to and to read from, and the addresses of the brokers by id (0: master)."""

    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]

    def master(self, broker: str) -> str | None:
        return self.brokers.get(broker, {}).get(MASTER)

    def reader(self, broker: str, preferred: int = MASTER) -> str | None:
        """Returns the address to read from: the preferred replica, the master, or any."""
        addresses = self.brokers.get(broker, {})
        return addresses.get(preferred) or addresses.get(MASTER) or next(iter(addresses.values()), None)


_decode = msgspec.json.Decoder(RouteData).decode


def read_route(topic: str, body: bytes, most_queues: int | None = None) -> Route:
    """Decodes a route. `most_queues` limits the queues of each broker. Raises ValueError if it is malformed."""
    data = _decode(body)
    brokers = {each.brokerName: each.brokerAddrs for each in data.brokerDatas}
    writable: list[MessageQueue] = []
    readable: list[MessageQueue] = []
    for queues in sorted(data.queueDatas, key=lambda each: each.brokerName):
        name = queues.brokerName
        if queues.perm & _WRITABLE and MASTER in brokers.get(name, {}):
            count = queues.writeQueueNums if most_queues is None else min(queues.writeQueueNums, most_queues)
            writable += [MessageQueue(topic, name, number) for number in range(count)]
        if queues.perm & _READABLE and name in brokers:
            readable += [MessageQueue(topic, name, number) for number in range(queues.readQueueNums)]
    return Route(tuple(writable), tuple(readable), brokers)


def parse_name_servers(text: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the addresses in "host:port;host:port". Raises ValueError for anything else."""
    words = text.replace(",", ";").split(";") if isinstance(text, str) else text
    found = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"name server {address!r}: expected host:port")
    if not found:
        raise ValueError("no name server: expected host:port, or several separated by semicolons")
    return found


class NameServers:
    """Asks one name server, chosen at random and then kept, and another one if it fails."""

    def __init__(self, addresses: Sequence[str], links: Links, rng: Random) -> None:
        self.addresses = list(addresses)
        self._links = links
        rng.shuffle(self.addresses)

    async def route(self, topic: str, timeout_ms: int) -> bytes | None:
        """Returns the encoded route, or None if the topic is unknown. Raises NoRoute if no name server answers."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            return (await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, timeout_ms)).body
        except Refused as refused:
            if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise

    async def ask(self, code: int, fields: Mapping[str, str], timeout_ms: int) -> Command:
        """Returns the response of the first name server that has one. Raises NoRoute if none does, Refused with code 17
        if the topic is unknown."""
        errors = []
        deadline_ms = self._links.timeline.now_ms() + timeout_ms
        for address in tuple(self.addresses):
            left_ms = deadline_ms - self._links.timeline.now_ms()
            try:
                return await self._links.ask(address, code, fields, timeout_ms=min(left_ms, _ASK_MS))
            except Refused as refused:
                if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                    raise
                errors.append(str(refused))
            except ClientError as error:
                errors.append(str(error))
            self.addresses.sort(key=lambda each, failed=address: each == failed)  # type: ignore[misc]
            if self._links.timeline.now_ms() >= deadline_ms:
                raise TimedOut(f"no name server answered request {code} in time: {'; '.join(errors)}")
        raise NoRoute(f"no name server answers: {'; '.join(errors)}")


class Routes:
    """Cache of routes, refreshed every 30 seconds. `on_change` is called with the topic when its queues change."""

    def __init__(self, servers: NameServers, timeline: Timeline, on_change: Callable[[str], object]) -> None:
        self._servers = servers
        self._timeline = timeline
        self._on_change = on_change
        self._routes: dict[str, Route] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self._is_provisional: set[str] = set()

    def find(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    def topics_on(self, broker: str) -> list[str]:
        return [topic for topic, route in self._routes.items() if broker in route.brokers]

    def brokers(self) -> dict[str, dict[int, str]]:
        """Returns the addresses of all brokers in cached routes, by name."""
        found: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            for name, addresses in route.brokers.items():
                found.setdefault(name, {}).update(addresses)
        return found

    async def get(self, topic: str, timeout_ms: int, *, may_create: bool = False) -> Route:
        """Returns the route. `may_create`: for an unknown topic, that of the default topic, through which the first
        message creates it. Raises NoRoute or TimedOut."""
        found = self._routes.get(topic)
        if found is not None and (may_create or topic not in self._is_provisional):
            return found
        return await self.refresh(topic, timeout_ms, may_create=may_create)

    async def refresh(self, topic: str, timeout_ms: int, *, may_create: bool = False) -> Route:
        """Asks for the route, once for all who wait for it."""
        key = f"{topic}\n{may_create}"
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(topic, timeout_ms, may_create))
            task.add_done_callback(lambda done: self._asked(key, done))
        timer = asyncio.ensure_future(pause(self._timeline, timeout_ms))
        try:
            await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not task.done():
            raise TimedOut(f"no name server told the route of {topic} in time")
        return task.result()

    def _asked(self, key: str, task: asyncio.Task[Route]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # those who wait for it get it

    async def _ask(self, topic: str, timeout_ms: int, may_create: bool) -> Route:
        body = await self._servers.route(topic, timeout_ms)
        is_provisional = body is None
        if body is None and may_create:
            body = await self._servers.route(DEFAULT_TOPIC, timeout_ms)
        if body is None:
            self._routes.pop(topic, None)
            raise NoRoute(f"topic {topic} does not exist" + (f", nor {DEFAULT_TOPIC}" if may_create else ""))
        try:
            route = read_route(topic, body, DEFAULT_QUEUES if is_provisional else None)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NoRoute(f"the route of {topic} is malformed: {error}") from None
        (self._is_provisional.add if is_provisional else self._is_provisional.discard)(topic)
        known = self._routes.get(topic)
        self._routes[topic] = route
        if known is not None and known != route:
            self._on_change(topic)
        return route

    def doubt(self, topic: str) -> None:
        """Asks anew, without waiting, after an error that an outdated route may have caused."""
        key = f"{topic}\nTrue"
        if key not in self._asking and topic in self._routes:
            task = self._asking[key] = asyncio.create_task(self._ask(topic, _ASK_MS, True))
            task.add_done_callback(lambda done: self._asked(key, done))

    async def keep_fresh(self) -> None:
        """Refreshes all cached routes every 30 seconds, until cancelled."""
        while True:
            await pause(self._timeline, REFRESH_MS)
            await self.refresh_all()

    async def refresh_all(self) -> None:
        for topic in list(self._routes):
            try:
                await self.refresh(topic, _ASK_MS, may_create=topic in self._is_provisional)
            except ClientError as error:
                log.info("route of %s: not refreshed (%s)", topic, error)

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
