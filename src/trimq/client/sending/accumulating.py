"""Accumulator: gathers messages for a short time and sends those of one queue as one batch. Messages without a key
share a batch, whose queue is chosen when it is sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trimq.client.errors import BadMessage, ClientError, Closed, NoRoute
from trimq.client.messages import Message, MessageQueue, Sent
from trimq.client.sending.batches import split_batch
from trimq.client.sending.choosing import RoundRobin
from trimq.client.sending.delivery import SendPlan
from trimq.client.sending.encoding import encode_batch_body
from trimq.client.timing import Duration, to_milliseconds
from trimq.clock import Timer

if TYPE_CHECKING:
    from trimq.client.sending.sender import Sender


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A batch is sent when it has `bytes`, or when its first message is `linger` old. `in_flight`: batches of one queue
    under way at a time; with 1 the messages of a key stay in order. Memory is limited by the client's `max_bytes`."""

    bytes: int = 32 * 1024
    linger: Duration = 0.01
    in_flight: int = 5

    def __post_init__(self) -> None:
        if self.bytes < 1 or self.in_flight < 1:
            raise ValueError("bytes and in_flight must be 1 or more")
        to_milliseconds(self.linger)


class _Entry(NamedTuple):
    message: Message
    body: bytes
    id: str
    properties: str
    deadline_ms: int
    future: asyncio.Future[Sent]

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _LaneKey(NamedTuple):
    topic: str
    plan: SendPlan
    queue: MessageQueue | None
    """None: the queue is chosen for each batch."""


class _Lane:
    __slots__ = ("entries", "key", "ready", "size", "timer", "under_way")

    def __init__(self, key: _LaneKey) -> None:
        self.key = key
        self.entries: list[_Entry] = []
        self.size = 0
        self.ready: deque[list[_Entry]] = deque()
        self.under_way = 0
        self.timer: Timer | None = None


class Batcher:
    """Batches of one client."""

    def __init__(self, sender: Sender, settings: Accumulator) -> None:
        self._sender = sender
        self._most_bytes = settings.bytes
        self._linger_ms = to_milliseconds(settings.linger)
        self._in_flight = settings.in_flight
        self._lanes: dict[_LaneKey, _Lane] = {}
        self._unrouted: dict[tuple[str, SendPlan], list[_Entry]] = {}
        """Messages with a key whose route is being asked for."""
        self.is_flushing = False
        """True: messages that had no route are sent at once."""

    def add(
        self, topic: str, message: Message, body: bytes, id: str, properties: str, plan: SendPlan, timeout_ms: int
    ) -> asyncio.Future[Sent]:
        """The caller has checked that there is room."""
        sender = self._sender
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        entry = _Entry(message, body, id, properties, sender.timeline.now_ms() + timeout_ms, future)
        sender.room.enter(len(body))
        if isinstance(plan.choice, RoundRobin):
            self._put(_LaneKey(topic, plan, None), entry)
            return future
        route = sender.routes.find(topic)
        waiting = self._unrouted.get((topic, plan))
        if waiting is not None:
            waiting.append(entry)
        elif route is None or not route.writable:
            self._unrouted[topic, plan] = [entry]
            sender.spawn(self._find_route(topic, plan, timeout_ms))
        else:
            self._choose(topic, plan, route.writable, entry)
        return future

    async def _find_route(self, topic: str, plan: SendPlan, timeout_ms: int) -> None:
        try:
            route = await self._sender.routes.get(topic, timeout_ms, may_create=True)
            if not route.writable:
                raise NoRoute(f"topic {topic} has no writable queue")
        except ClientError as error:
            self._end(self._unrouted.pop((topic, plan)), error)
            return
        for entry in self._unrouted.pop((topic, plan)):
            self._choose(topic, plan, route.writable, entry)
        if self.is_flushing:
            self.flush()

    def _choose(self, topic: str, plan: SendPlan, queues: tuple[MessageQueue, ...], entry: _Entry) -> None:
        try:
            queue = plan.choice.choose(queues, entry.message, self._sender.health, None)
        except BadMessage as error:
            self._end([entry], error)
        else:
            self._put(_LaneKey(topic, plan, queue), entry)

    def _put(self, key: _LaneKey, entry: _Entry) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        size = len(entry.body) + len(entry.properties)
        if lane.entries and lane.size + size > self._most_bytes:
            self._close_batch(lane)
        lane.entries.append(entry)
        lane.size += size
        if lane.size >= self._most_bytes:
            self._close_batch(lane)
        elif lane.timer is None:
            timeline = self._sender.timeline
            now_ms = timeline.now_ms()
            linger_ms = min(self._linger_ms, (entry.deadline_ms - now_ms) // 2)  # leaves time to send
            lane.timer = timeline.call_at(now_ms + linger_ms, lambda: self._linger_over(lane))

    def _linger_over(self, lane: _Lane) -> None:
        lane.timer = None
        self._close_batch(lane)

    def _close_batch(self, lane: _Lane) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if lane.entries:
            lane.ready.append(lane.entries)
            lane.entries, lane.size = [], 0
            self._send_ready(lane)

    def _send_ready(self, lane: _Lane) -> None:
        while lane.ready and lane.under_way < self._in_flight:
            self._send(lane, lane.ready.popleft())
        if not lane.under_way and not lane.entries and not lane.ready:
            self._lanes.pop(lane.key, None)

    def _send(self, lane: _Lane, entries: list[_Entry]) -> None:
        lane.under_way += 1
        topic, plan, queue = lane.key
        first = entries[0]

        def done(result: Sent | Exception) -> None:
            lane.under_way -= 1
            self._end(entries, result)
            self._send_ready(lane)

        if len(entries) == 1:
            id, properties, body = first.id, first.properties, first.body
        else:
            id, properties, body = "", "", encode_batch_body([(each.body, each.properties) for each in entries])
        deadline_ms = first.deadline_ms
        self._sender.deliver(
            topic, first.message, body, id, properties, plan, deadline_ms, done, len(entries) > 1, queue
        )

    def _end(self, entries: Sequence[_Entry], result: Sent | Exception) -> None:
        leave = self._sender.room.leave
        for entry in entries:
            leave(len(entry.body))
        if isinstance(result, Exception):
            for entry in entries:
                entry.fail(result)
            return
        found = [result] if len(entries) == 1 else split_batch(result, [entry.id for entry in entries])
        for entry, sent in zip(entries, found, strict=True):
            if not entry.future.done():
                entry.future.set_result(sent)

    def flush(self) -> None:
        """Sends what waits, without its linger."""
        for lane in list(self._lanes.values()):
            self._close_batch(lane)

    def close(self) -> None:
        """Fails what waits."""
        error = Closed("the client was closed before the message was sent")
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
            for entries in (*lane.ready, lane.entries):
                self._end(entries, error)
            lane.ready.clear()
            lane.entries = []
        unrouted, self._unrouted = self._unrouted, {}
        for entries in unrouted.values():
            self._end(entries, error)
