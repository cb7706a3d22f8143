"""One queue assigned to a consumer: pulls ahead of the handlers, and hands messages out."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trimq.client.consuming.process_queue import BufferLimits, ProcessQueue
from trimq.client.consuming.received import Received, read_units
from trimq.client.errors import ClientError, Closed, Refused
from trimq.client.messages import MessageQueue
from trimq.client.timing import pause
from trimq.formats.rocketmq_unit.properties import TAGS, find_property
from trimq.formats.rocketmq_unit.ttl import expiry_ms
from trimq.wire.remoting import BadHeader, Command
from trimq.wire.remoting_codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from trimq.client.consuming.consumer import Consumer

log = logging.getLogger(__name__)

PULL_COUNT = 32
SUSPENDED_MS = 15_000
PULL_TIMEOUT_MS = 30_000
_AFTER_ERROR_MS = 1000
_SUSPENDS, _SUBSCRIBES = 2, 4  # bits of sysFlag
_NO_MESSAGE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
_EXPECTED = (ResponseCode.SUCCESS, *_NO_MESSAGE)
_TTL_MARK = b"TRIMQ_"


class Assigned:
    """`is_revoked`: no message may be handed out or settled any more."""

    def __init__(self, consumer: Consumer, queue: MessageQueue, offset: int, limits: BufferLimits) -> None:
        self._consumer = consumer
        self.queue = queue
        self._level = consumer.level_of(queue.topic)
        self.messages: ProcessQueue[Received] = ProcessQueue(offset, limits)
        self.committed = offset
        self.end = offset
        """End of the queue at the broker, as of the last pull."""
        self.is_revoked = False
        self.is_paused = False
        self.taken = 0
        """Messages that were handed out and are not settled."""
        self._handlers = 0
        self.suspended_until_ms = 0
        self._room: asyncio.Event = asyncio.Event()
        self._idle: asyncio.Event = asyncio.Event()
        self._task = asyncio.create_task(self._pull_always())
        self._resume_task: asyncio.Task[None] | None = None
        self._ended: list[asyncio.Task[None]] = []
        self._preferred_replica = 0

    # -- pulling

    async def _pull_always(self) -> None:
        timeline = self._consumer.timeline
        while True:
            while self.messages.is_full or self.is_paused:
                self._room.clear()
                await self._room.wait()
            if self._consumer.is_ordered and not self._consumer.locks.holds(self.queue):
                await pause(timeline, _AFTER_ERROR_MS)
                continue
            try:
                self._take_answer(await self._pull())
            except Closed:
                return
            except Refused as refused:
                self._consumer.pull_refused(self.queue, refused)
                await pause(timeline, _AFTER_ERROR_MS)
            except (ClientError, BadHeader, KeyError, ValueError) as error:
                log.info("%s: not pulled (%s)", self.queue, error)
                await pause(timeline, _AFTER_ERROR_MS)

    async def _pull(self) -> Command:
        consumer, queue = self._consumer, self.queue
        wanted = consumer.wanted[queue.topic].subscription
        fields = {
            "consumerGroup": consumer.group,
            "topic": queue.topic,
            "queueId": str(queue.id),
            "queueOffset": str(self.messages.next_offset),
            "maxMsgNums": str(PULL_COUNT),
            "sysFlag": str(_SUSPENDS | _SUBSCRIBES),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(SUSPENDED_MS),
            "subscription": wanted.subString,
            "subVersion": str(wanted.subVersion),
            "expressionType": wanted.expressionType,
        }
        address = await consumer.address_to_read(queue, self._preferred_replica)
        return await consumer.links.ask(
            address, RequestCode.PULL_MESSAGE, fields, timeout_ms=PULL_TIMEOUT_MS, expected=_EXPECTED
        )

    def _take_answer(self, answer: Command) -> None:
        fields = answer.fields
        next_offset = int(fields["nextBeginOffset"])
        self.end = max(int(fields.get("maxOffset", 0)), next_offset)
        self._preferred_replica = int(fields.get("suggestWhichBrokerId", 0))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            log.warning(
                "%s: offset %d does not exist; continuing at %d", self.queue, self.messages.next_offset, next_offset
            )
            self._continue_at(next_offset)
        elif answer.code != ResponseCode.SUCCESS:
            self.messages.next_offset = max(next_offset, self.messages.next_offset)
        else:
            self._put(answer.body, next_offset)

    def _put(self, body: bytes, next_offset: int) -> None:
        consumer, queue = self._consumer, self.queue
        tags = consumer.wanted[queue.topic].tags
        since = self.messages.next_offset
        serializer = consumer.serializer
        found: list[Received] = []
        for unit in read_units(body):
            if unit.queue_offset < since or (tags and find_property(unit.properties, TAGS) not in tags):
                continue
            if _TTL_MARK in unit.properties and consumer.is_expired(expiry_ms(unit.properties, unit.store_ms)):
                continue
            found.append(Received(unit, queue, consumer, self, serializer))
        self.messages.put(found, next_offset)
        if found:
            consumer.inbox.add(self)

    def jump(self, offset: int) -> None:
        """Continues at another offset; messages that no handler took are dropped."""
        self._task.cancel()
        self._ended = [task for task in self._ended if not task.done()]
        self._ended.append(self._task)
        self._continue_at(offset)
        self._task = asyncio.create_task(self._pull_always())

    def _continue_at(self, offset: int) -> None:
        self.messages.restart(offset)
        self.committed = -1  # differs from any offset, so that the next commit stores it
        self._room.set()

    # -- handing out

    @property
    def level(self) -> int:
        return self._level

    @property
    def has_ready(self) -> bool:
        if self.is_revoked or self.is_paused or not self.messages.waiting:
            return False
        return not self._consumer.is_ordered or (not self.taken and not self.suspended_until_ms)

    def take(self, limit: int) -> list[Received]:
        consumer, waiting = self._consumer, self.messages.waiting
        if consumer.is_ordered and not consumer.locks.holds(self.queue):
            consumer.lost(self)
            return []
        found = [waiting.popleft() for _ in range(min(limit, len(waiting)))]
        now_ms = consumer.timeline.now_ms()
        for message in found:
            message.handed_out_ms = now_ms
        self.taken += len(found)
        return found

    def finish(self, message: Received) -> None:
        """The message was settled."""
        message.is_settled = True
        self.messages.finish(message.offset)
        self._released()

    def return_in_place(self, message: Received, after_ms: int) -> None:
        """Hands the message out again after a while, before the later ones."""
        message.local_attempts += 1
        self.messages.waiting.appendleft(message)
        self.suspended_until_ms = self._consumer.timeline.now_ms() + after_ms
        self._resume_task = asyncio.ensure_future(self._resume(after_ms))
        self._released()

    async def _resume(self, after_ms: int) -> None:
        await pause(self._consumer.timeline, after_ms)
        self.suspended_until_ms = 0
        self._consumer.inbox.add(self)

    def put_back(self, message: Received) -> None:
        """Hands the message out again: it could not be settled, or its handler was cancelled."""
        self.messages.waiting.appendleft(message)
        self._released()
        self._consumer.inbox.add(self)

    def _released(self) -> None:
        self.taken -= 1
        if not self._room.is_set() and not self.messages.is_full:
            self._room.set()
        if self._consumer.is_ordered and not self.taken:
            self._consumer.inbox.add(self)

    def handler_began(self) -> None:
        self._handlers += 1

    def handler_ended(self) -> None:
        self._handlers -= 1
        if not self._handlers:
            self._idle.set()

    def pause(self) -> None:
        self.is_paused = True
        self._consumer.inbox.remove(self)

    def resume(self) -> None:
        self.is_paused = False
        self._room.set()
        self._consumer.inbox.add(self)

    # -- end

    def revoke(self) -> None:
        """Hands out nothing any more, and pulls nothing."""
        self.is_revoked = True
        self._consumer.inbox.remove(self)
        self._task.cancel()
        if self._resume_task is not None:
            self._resume_task.cancel()

    async def drained(self, within_ms: int) -> bool:
        """Waits for the running handlers. Returns False if they take longer."""
        if self._handlers:
            self._idle.clear()
            waiter = asyncio.ensure_future(self._idle.wait())
            timer = asyncio.ensure_future(pause(self._consumer.timeline, within_ms))
            try:
                await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                timer.cancel()
        return not self._handlers

    async def ended(self) -> None:
        tasks = [task for task in (self._task, self._resume_task, *self._ended) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
