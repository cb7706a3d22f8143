"""Brake of producers: thins out what is sent to a topic while a consumer group is too far behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from trimq.client.errors import ClientError
from trimq.client.messages import Message, MessageQueue
from trimq.client.timing import Duration, to_milliseconds
from trimq.clock import Timeline

log = logging.getLogger(__name__)

Lag = Callable[[str, str], Awaitable[Mapping[MessageQueue, int]]]
"""Gets group and topic. Returns the number of messages that wait in each queue."""


@dataclass(frozen=True, slots=True)
class BacklogBrake:
    """While more than `lag` messages of a topic wait for the consumer group `group`, messages to it with a priority
    below `below` are dropped. The backlog is asked for every `every` seconds while something is sent."""

    group: str
    lag: int
    below: int
    every: Duration = 5.0


class Brake:
    """State of one client's brake. A backlog that is not known yet, or cannot be asked for, brakes nothing."""

    def __init__(self, settings: BacklogBrake, lag: Lag, timeline: Timeline) -> None:
        self._settings = settings
        self._lag = lag
        self._timeline = timeline
        self._every_ms = to_milliseconds(settings.every)
        self._asked_ms: dict[str, int] = {}
        self._braked: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def holds(self, topic: str, message: Message) -> bool:
        """Whether this message must be dropped."""
        now_ms = self._timeline.now_ms()
        asked_ms = self._asked_ms.get(topic)
        if asked_ms is None or now_ms - asked_ms >= self._every_ms:
            self._asked_ms[topic] = now_ms
            task = asyncio.ensure_future(self._ask(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return topic in self._braked and message.priority < self._settings.below

    async def _ask(self, topic: str) -> None:
        try:
            backlog = sum((await self._lag(self._settings.group, topic)).values())
        except ClientError as error:
            log.info("backlog of %s in %s is not known (%s)", self._settings.group, topic, error)
            backlog = 0
        (self._braked.add if backlog > self._settings.lag else self._braked.discard)(topic)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
