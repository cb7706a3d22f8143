"""Abilities of each broker: its version, and the features of TriMQ that it announces in its answer to HELLO. A broker
is asked once, on first use; Apache RocketMQ does not know the request, and so has none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from trimq.client.errors import Refused, Unsupported
from trimq.client.links import Links
from trimq.wire.extension import ASSIGN_STICKY, AUDIENCES, DEDUPLICATE, EXTENSION_VERSION
from trimq.wire.remoting_codes import RequestCode, ResponseCode

ANY_DELAY = "delays of any length"
RECALL = "recall"

FIRST_VERSION_5 = 413
"""Version number of RocketMQ 5.0.0 in responses."""

_OF_VERSION_5 = frozenset((ANY_DELAY, RECALL))
_TITLES = {
    ANY_DELAY: "delays other than the levels need RocketMQ 5 or TriMQ: use level",
    RECALL: "delayed messages can be recalled from RocketMQ 5 and TriMQ",
    DEDUPLICATE: "once needs TriMQ: Apache RocketMQ stores a repeated message again",
    ASSIGN_STICKY: "sticky assignment needs TriMQ",
    AUDIENCES: "audiences at the broker need TriMQ",
}


class Peer(NamedTuple):
    """`extension`: version of TriMQ's extension, 0 without it."""

    version: int
    extension: int = 0
    features: frozenset[str] = frozenset()

    def has(self, feature: str) -> bool:
        return feature in self.features or (feature in _OF_VERSION_5 and self.version >= FIRST_VERSION_5)


class Peers:
    def __init__(self, links: Links) -> None:
        self._links = links
        self._known: dict[str, Peer] = {}
        self._asking: dict[str, asyncio.Task[Peer]] = {}

    @property
    def known(self) -> Mapping[str, Peer]:
        """Brokers that have answered, by address."""
        return self._known

    async def get(self, address: str, timeout_ms: int) -> Peer:
        """Raises ClientError if the broker does not answer."""
        found = self._known.get(address)
        if found is not None:
            return found
        task = self._asking.get(address)
        if task is None:
            task = self._asking[address] = asyncio.create_task(self._ask(address, timeout_ms))
            task.add_done_callback(lambda done: self._asked(address, done))
        return await asyncio.shield(task)

    def _asked(self, address: str, task: asyncio.Task[Peer]) -> None:
        self._asking.pop(address, None)
        if not task.cancelled():
            task.exception()  # those who wait for it get it

    async def _ask(self, address: str, timeout_ms: int) -> Peer:
        answer = await self._links.ask(
            address,
            RequestCode.HELLO,
            {"version": str(EXTENSION_VERSION)},
            timeout_ms=timeout_ms,
            expected=(ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        )
        peer = Peer(answer.version)
        if answer.code == ResponseCode.SUCCESS:
            features = answer.fields.get("features", "")
            version = answer.fields.get("version", "")
            if not (version.isascii() and version.isdecimal()):
                raise Refused(answer.code, f"HELLO was answered with version {version[:40]!r}", address)
            peer = Peer(answer.version, int(version[:9]), frozenset(features.split(",")) - {""})
        self._known[address] = peer
        return peer

    def forget(self, address: str) -> None:
        """Asks again over the next connection: another broker may have taken the address."""
        self._known.pop(address, None)

    def has(self, address: str, feature: str) -> bool:
        """Whether this broker is known to have the feature."""
        found = self._known.get(address)
        return found is not None and found.has(feature)

    async def require(self, address: str, feature: str, timeout_ms: int) -> None:
        """Raises Unsupported if the broker lacks the feature."""
        if not (await self.get(address, timeout_ms)).has(feature):
            raise Unsupported(f"{address}: {_TITLES.get(feature, feature)}")

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
