"""Dump: moves the backlog of a lane into another topic, and feeds it back later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from trimq.client.aio import AsyncClient
from trimq.client.consuming.consumer import Consumer
from trimq.client.consuming.lanes import Lanes
from trimq.client.consuming.received import Received
from trimq.client.consuming.starts import Start
from trimq.client.errors import ClientError
from trimq.client.sending.pipeline import Dropped
from trimq.client.timing import pause
from trimq.clock import Timeline, system_clock

Handler = Callable[[Received], Awaitable[Any]]


class Dump:
    """While more than `above` messages of a lane and of the lanes below it wait for a consumer, `handler` copies them
    to the topic `to` instead of working on them, with their ids, keys, tags and headers. A copy is stored before its
    message is finished, so a crash may copy a message twice and loses none."""

    def __init__(self, mq: AsyncClient, lanes: Lanes, lane: int, above: int, to: str) -> None:
        lanes.lane(lane)
        if to in lanes.topics:
            raise ValueError(f"{to} is one of the lanes")
        self._mq = mq
        self._low = frozenset(lanes.topics[lane:])
        self._target = lanes.lane(lane)
        self._above = above
        self.to = to
        self.dumped = 0

    def handler(self, consumer: Consumer, work: Handler) -> Handler:
        """Returns a handler for a pulling consumer of the lanes, which calls `work` for what is not dumped."""

        async def handle(message: Received) -> None:
            if message.topic in self._low and self._backlog(consumer) > self._above:
                await self._copy(message, self.to)
                self.dumped += 1
            else:
                await work(message)

        return handle

    def _backlog(self, consumer: Consumer) -> int:
        return sum(count for queue, count in consumer.lag().items() if queue.topic in self._low)

    async def _copy(self, message: Received, topic: str) -> None:
        sent = await self._mq.send(
            topic, message.body, key=message.key, tag=message.tag, keys=message.keys, headers=message.headers,
            id=message.id,
        )  # fmt: skip
        if sent is Dropped.BUSY:
            raise ClientError(f"{message!r} was not copied to {topic}: the broker is busy")

    async def replay(self, group: str, rate: float, quiet: float = 1.0, timeline: Timeline | None = None) -> int:
        """Sends what was dumped back to its lane, `rate` messages per second, until none arrives for `quiet` seconds.
        Returns the number of messages. `group` remembers what was sent back."""
        if rate <= 0:
            raise ValueError(f"rate must be above 0, not {rate}")
        timeline, count = timeline or system_clock().liveness, 0
        began_ms = timeline.now_ms()
        async with self._mq.consumer(group, self.to, start=Start.FIRST) as consumer:
            while messages := await consumer.receive(quiet, 1):
                await self._copy(messages[0], self._target)
                await messages[0].ack()
                count += 1
                ahead_ms = int(count * 1000 / rate) - (timeline.now_ms() - began_ms)
                if ahead_ms > 0:
                    await pause(timeline, ahead_ms)
        return count
