"""Choice of the queue of a message: in turn, by latency, by key, or by a function of the application."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Protocol

from trimq.client.errors import BadMessage
from trimq.client.messages import Message, MessageQueue
from trimq.client.sending.latency import BrokerHealth

Queues = tuple[MessageQueue, ...]
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Function of the application: gets all writable queues of the topic, sorted, and returns one of them."""

POINTS = 160
"""Points of each queue on the ring of `ByKey`."""


class Choice(Protocol):
    """Strategy of choice. `avoided` is the queue of the last try, if this is a further one."""

    def choose(
        self, queues: Queues, message: Message, health: BrokerHealth, avoided: MessageQueue | None
    ) -> MessageQueue: ...


class RoundRobin:
    """Takes the queues in turn, from a random one on; leaves out brokers that are slow or failed."""

    def __init__(self, rng: Random | None = None) -> None:
        self._rng = rng or Random()
        self._next: dict[str, int] = {}

    def choose(
        self, queues: Queues, message: Message, health: BrokerHealth, avoided: MessageQueue | None
    ) -> MessageQueue:
        if avoided is not None:
            queues = elsewhere(queues, avoided)
        if health.has_outages:
            queues = health.usable(queues)
        return self._take_turn(queues)

    def _take_turn(self, queues: Queues) -> MessageQueue:
        topic = queues[0].topic
        turn = self._next.get(topic)
        if turn is None:
            turn = self._rng.randrange(len(queues))
        self._next[topic] = turn + 1
        return queues[turn % len(queues)]


class LeastLatency(RoundRobin):
    """Takes the queues of the broker that responds the fastest at present, in turn. Brokers that have not been used for
    a while are tried again."""

    def choose(
        self, queues: Queues, message: Message, health: BrokerHealth, avoided: MessageQueue | None
    ) -> MessageQueue:
        if avoided is not None:
            queues = elsewhere(queues, avoided)
        if health.has_outages:
            queues = health.usable(queues)
        return self._take_turn(health.fastest(queues))


class ByKey:
    """Gives all messages of one key the same queue, by consistent hashing: if queues are added, few keys move."""

    def choose(
        self, queues: Queues, message: Message, health: BrokerHealth, avoided: MessageQueue | None
    ) -> MessageQueue:
        if message.key is None:
            raise BadMessage("ByKey needs a message with a key")
        points, owners = ring(queues)
        return owners[bisect(points, position(message.key)) % len(points)]


class BySelector:
    """Asks a function of the application."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector

    def choose(
        self, queues: Queues, message: Message, health: BrokerHealth, avoided: MessageQueue | None
    ) -> MessageQueue:
        chosen = self._selector(queues, message)
        if chosen not in queues:
            raise BadMessage(f"choose returned {chosen!r}, which is no writable queue of the topic")
        return chosen


def elsewhere(queues: Queues, avoided: MessageQueue) -> Queues:
    """Returns the queues of other brokers; if there is no other broker, the other queues; if none, all."""
    others = tuple([queue for queue in queues if queue.broker != avoided.broker])
    return others or tuple([queue for queue in queues if queue != avoided]) or queues


def position(text: str) -> int:
    """Returns the place of a text on the ring."""
    return int.from_bytes(hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()[:8], "big")


@lru_cache(maxsize=256)
def ring(queues: Queues) -> tuple[list[int], list[MessageQueue]]:
    """Returns the points of all queues on the ring, sorted, and the queue of each."""
    found = sorted(
        (position(f"{queue.topic}-{queue.broker}-{queue.id}#{point}"), queue)
        for queue in queues
        for point in range(POINTS)
    )
    return [point for point, _ in found], [queue for _, queue in found]
