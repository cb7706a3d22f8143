"""One client towards the brokers: connections, routes and heartbeats, shared by all clients of a process that use the
same event loop and the same settings."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from trimq.client.credentials import Credentials
from trimq.client.heartbeats import Heartbeats
from trimq.client.link import Link
from trimq.client.links import Links
from trimq.client.peers import Peers
from trimq.client.routes import NameServers, Routes
from trimq.clock import Clock
from trimq.errors import ProtocolError
from trimq.wire.remoting import BadHeader, Command
from trimq.wire.remoting_codes import ResponseCode

T = TypeVar("T")

OnCommand = Callable[[Link, Command], object]


class InstanceKey(NamedTuple):
    """Settings that clients must have in common to share an instance. `number` tells apart instances whose settings
    are equal: a broker knows one member of a group per connection."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None
    tls: ssl.SSLContext | None
    clock: Clock
    number: int = 0


_numbers = itertools.count(1)


class Instance:
    """Acquired with `acquire`, released with `release`; the last release closes it."""

    def __init__(self, key: InstanceKey, rng: Random) -> None:
        self.key = key
        self.clock = clock = key.clock
        self.rng = rng
        self.client_id = f"{_own_address()}@{os.getpid()}#{next(_numbers)}#{rng.getrandbits(48):012x}"
        self.links = Links(clock.liveness, self._handle, self._lost, key.tls, key.credentials)
        self.peers = Peers(self.links)
        self.servers = NameServers(key.name_servers, self.links, rng)
        self.routes = Routes(self.servers, clock.liveness, self._route_changed)
        self.heartbeats = Heartbeats(self.client_id, self.links, self.routes.brokers)
        self.handlers: dict[tuple[int, str], OnCommand] = {}
        """Handlers of the brokers' requests, by code and group; an empty group stands for all."""
        self.route_watchers: WeakSet[RouteWatcher] = WeakSet()
        self._parts: dict[object, object] = {}
        self.is_closed = False
        self._users = 0
        self._tasks = [
            asyncio.create_task(self.routes.keep_fresh()),
            asyncio.create_task(self.heartbeats.keep_alive()),
        ]

    # -- requests of brokers

    def _handle(self, link: Link, command: Command) -> None:
        try:
            fields = command.fields
            group = fields.get("consumerGroup") or fields.get("group") or fields.get("producerGroup") or ""
        except BadHeader as error:
            raise ProtocolError(f"request of the broker: {error}") from None
        handler = self.handlers.get((command.code, group)) or self.handlers.get((command.code, ""))
        if handler is None:
            link.respond(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {command.code}: not handled")
            return
        handler(link, command)

    def _lost(self, address: str) -> None:
        self.heartbeats.lost(address)
        self.peers.forget(address)
        for watcher in list(self.route_watchers):
            watcher.connection_lost(address)

    def _route_changed(self, topic: str) -> None:
        for watcher in list(self.route_watchers):
            watcher.route_changed(topic)

    def part(self, kind: Callable[[Instance], T]) -> T:
        """Returns the part of this kind, made on first use and shared by all clients of the instance."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        return cast(T, found)

    # -- life

    def acquire(self) -> Instance:
        self._users += 1
        return self

    def drop_use(self) -> None:
        """Gives back an acquisition while others remain."""
        self._users -= 1

    async def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            await self.close()

    async def close(self) -> None:
        self.is_closed = True
        _forget(self)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.routes.close()
        await self.peers.close()
        await self.heartbeats.close()
        await self.links.close()


class RouteWatcher:
    """Parts of a client that act on changes of routes and connections."""

    def route_changed(self, topic: str) -> None:
        """The queues of the topic changed."""

    def connection_lost(self, address: str) -> None:
        """The connection to this address ended."""


_Instances = dict[InstanceKey, Instance]
_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, _Instances] = WeakKeyDictionary()


def shared(key: InstanceKey, rng: Random) -> Instance:
    """Returns the instance of the running loop with this key, acquired once more."""
    known = _instances.setdefault(asyncio.get_running_loop(), {})
    found = known.get(key)
    if found is None:
        found = known[key] = Instance(key, rng)
    return found.acquire()


def _forget(instance: Instance) -> None:
    for known in _instances.values():
        if known.get(instance.key) is instance:
            del known[instance.key]


def _own_address() -> str:
    """Returns an address of this machine, which tells members of a group apart for people who read lists of them."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return "127.0.0.1"


# -- forked processes

_fork_count = 0


def fork_count() -> int:
    """Returns how often the process that runs was forked from one that had loaded this module: an instance of before
    belongs to the parent."""
    return _fork_count


def _after_fork() -> None:
    global _fork_count
    _fork_count += 1
    for known in list(_instances.values()):
        for instance in known.values():
            instance.is_closed = True
            instance.links.abandon()
    _instances.clear()


os.register_at_fork(after_in_child=_after_fork)
