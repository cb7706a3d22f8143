"""POP consumption: every member takes messages of every queue, each with a lease at the broker. Renews the leases of
messages that are worked on; acknowledges, returns and dead-letters them one by one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trimq.client.consuming.filters import Wanted
from trimq.client.consuming.inbox import Inbox
from trimq.client.consuming.offsets import master_of
from trimq.client.consuming.options import DEFAULT_ATTEMPTS, ConsumerOptions
from trimq.client.consuming.receipts import Receipt, read_receipt, read_starts, receipt_of
from trimq.client.consuming.received import Received, read_units
from trimq.client.consuming.returning import Returner
from trimq.client.consuming.starts import Start
from trimq.client.consuming.statistics import ConsumerStatistics
from trimq.client.errors import ClientError, Closed, NoRoute, Refused, Unsupported
from trimq.client.instance import Instance
from trimq.client.messages import MessageQueue
from trimq.client.sending.pipeline import Serializer
from trimq.client.timing import Duration, pause, to_milliseconds
from trimq.formats.rocketmq_unit.properties import TAGS, find_property
from trimq.formats.rocketmq_unit.ttl import expiry_ms
from trimq.wire.remoting import BadHeader, Command
from trimq.wire.remoting_codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

POP_COUNT = 32
POLL_MS = 15_000
_POLL_TIMEOUT_MS = 30_000
_TIMEOUT_MS = 3000
_AFTER_ERROR_MS = 1000
_ANY_QUEUE = "-1"
_FROM_FIRST, _FROM_LAST = "0", "1"
_SETTLE_TRIES = 3
_SETTLE_PAUSE_MS = 500
_EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT)
_EXPECTED = (ResponseCode.SUCCESS, *_EMPTY)

RETRY_SECONDS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Pauses before the next delivery of a failed message, by its attempts."""

_late: set[asyncio.Task[None]] = set()
"""Requests of closed consumers whose responses may still bring messages, which are given back."""


class Popped:
    """Messages of one topic popped from one broker."""

    def __init__(self, popping: Popping, topic: str, broker: str) -> None:
        self._popping = popping
        self.topic = topic
        self.broker = broker
        lanes = popping.options.lanes
        self._level = 0 if lanes is None else lanes.level_of(topic)
        self.waiting: deque[Received] = deque()
        self.unfinished: dict[Received, int] = {}
        """Messages that are not settled, and when to renew their leases."""
        self.bytes = 0
        self.is_paused = False
        self._handlers = 0
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._task = asyncio.create_task(self._pop_always())
        self._asking: asyncio.Task[Command] | None = None

    # -- popping

    @property
    def _is_full(self) -> bool:
        limits = self._popping.options.limits
        return len(self.waiting) >= POP_COUNT or len(self.unfinished) >= limits.messages or self.bytes >= limits.bytes

    async def _pop_always(self) -> None:
        timeline = self._popping.timeline
        while True:
            while self.is_paused or self._is_full:
                self._room.clear()
                await self._room.wait()
            self._asking = asyncio.create_task(self._popping.pop(self.topic, self.broker))
            try:
                self._put(await asyncio.shield(self._asking))
            except Closed:
                return
            except (ClientError, BadHeader, KeyError, ValueError) as error:
                log.info("topic %s, broker %s: not popped (%s)", self.topic, self.broker, error)
                await self._popping.not_popped(self.topic, error)
                await pause(timeline, _AFTER_ERROR_MS)
            else:
                self._asking = None

    def _put(self, answer: Command) -> None:
        due_ms = self._popping.renewal_ms()
        now_ms = self._popping.timeline.now_ms()
        for message in self._popping.read(answer, self):
            message.handed_out_ms = now_ms
            self.unfinished[message] = due_ms
            self.bytes += message.size
            self.waiting.append(message)
        if self.waiting:
            self._popping.inbox.add(self)

    # -- handing out

    @property
    def level(self) -> int:
        return self._level

    @property
    def has_ready(self) -> bool:
        return bool(self.waiting) and not self.is_paused

    def take(self, limit: int) -> list[Received]:
        found = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
        now_ms = self._popping.timeline.now_ms()
        for message in found:
            message.handed_out_ms = now_ms
        self._wake()
        return found

    def put_back(self, message: Received) -> None:
        if message in self.unfinished:
            self.waiting.appendleft(message)
            self._popping.inbox.add(self)

    def drop(self, message: Received) -> None:
        """The message is settled, or its lease is over."""
        message.is_settled = True
        if self.unfinished.pop(message, None) is not None:
            self.bytes -= message.size
            self._wake()

    def _wake(self) -> None:
        if not self._is_full:
            self._room.set()

    def pause(self) -> None:
        self.is_paused = True
        self._popping.inbox.remove(self)

    def resume(self) -> None:
        self.is_paused = False
        self._room.set()
        self._popping.inbox.add(self)

    def handler_began(self) -> None:
        self._handlers += 1

    def handler_ended(self) -> None:
        self._handlers -= 1
        if not self._handlers:
            self._idle.set()

    # -- end

    async def stop(self) -> None:
        """Pops nothing any more. Messages of a request under way are given back when they arrive."""
        self._popping.inbox.remove(self)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._asking is not None:
            late = asyncio.create_task(self._give_back_late(self._asking))
            _late.add(late)
            late.add_done_callback(_late.discard)

    async def _give_back_late(self, asking: asyncio.Task[Command]) -> None:
        try:
            found = list(self._popping.read(await asking, self))
        except (ClientError, BadHeader, KeyError, ValueError):
            return
        for message in found:
            await self._popping.give_back(message)

    async def drained(self, within_ms: int) -> None:
        """Waits for the running handlers, but not longer than this."""
        if not self._handlers:
            return
        self._idle.clear()
        waiter = asyncio.ensure_future(self._idle.wait())
        timer = asyncio.ensure_future(pause(self._popping.timeline, within_ms))
        try:
            await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            timer.cancel()


class Popping:
    """Popped messages of one consumer, which it settles. `wanted`: filters of the subscribed topics."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        options: ConsumerOptions,
        wanted: Mapping[str, Wanted],
        serializer: Serializer | None,
        inbox: Inbox[Received],
        stats: ConsumerStatistics,
        reply: Callable[[Received, Any], Awaitable[None]],
    ) -> None:
        self.options = options
        self.inbox = inbox
        self.timeline = instance.clock.liveness
        self.stats = stats
        self._instance = instance
        self._group = group
        self._wanted = wanted
        self._serializer = serializer
        self._reply = reply
        self._lease_ms = to_milliseconds(options.lease)
        self._attempts = options.max_attempts or DEFAULT_ATTEMPTS
        self._returner = Returner(instance, group, self._attempts)
        self._sources: dict[tuple[str, str], Popped] = {}
        self._paused: set[str] = set()
        self._renewing: dict[Received, asyncio.Task[None]] = {}

    async def check(self) -> None:
        """Raises Unsupported if a broker of the subscribed topics cannot pop."""
        for topic in self._wanted:
            route = self._instance.routes.find(topic)
            for broker in () if route is None else route.brokers:
                address = route.master(broker) if route is not None else None
                if address is None:
                    continue
                fields = {"consumerGroup": self._group, "topic": topic, "queueId": _ANY_QUEUE}
                try:
                    await self._instance.links.ask(address, RequestCode.POLLING_INFO, fields, timeout_ms=_TIMEOUT_MS)
                except Refused as refused:
                    if refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        raise Unsupported(
                            f'{address} does not know POP: mode="pop" needs RocketMQ 5 or TriMQ'
                        ) from None

    def balance(self) -> None:
        """Pops from every broker that has readable queues of a subscribed topic. One that leaves the route is tried
        again until it is back."""
        found: set[tuple[str, str]] = set()
        for topic in self._wanted:
            route = self._instance.routes.find(topic)
            if route is not None:
                found |= {(topic, queue.broker) for queue in route.readable if route.master(queue.broker) is not None}
        for place in found - self._sources.keys():
            source = self._sources[place] = Popped(self, *place)
            if source.topic in self._paused:
                source.pause()

    # -- popping

    async def pop(self, topic: str, broker: str) -> Command:
        wanted = self._wanted[topic].subscription
        fields = {
            "consumerGroup": self._group,
            "topic": topic,
            "queueId": _ANY_QUEUE,
            "maxMsgNums": str(POP_COUNT),
            "invisibleTime": str(self._lease_ms),
            "pollTime": str(POLL_MS),
            "bornTime": str(self._instance.clock.message.now_ms()),
            "initMode": _FROM_FIRST if self.options.start == Start.FIRST else _FROM_LAST,
            "exp": wanted.subString,
            "expType": wanted.expressionType,
            "order": "false",
        }
        address = await self._address(topic, broker)
        return await self._instance.links.ask(
            address, RequestCode.POP_MESSAGE, fields, timeout_ms=_POLL_TIMEOUT_MS, expected=_EXPECTED
        )

    async def _address(self, topic: str, broker: str) -> str:
        route = await self._instance.routes.get(topic, _TIMEOUT_MS)
        address = route.master(broker)
        if address is None:
            raise NoRoute(f"no address of broker {broker} is known")
        if not self._instance.heartbeats.is_told(address):
            await self._instance.heartbeats.tell_all([address])
        return address

    async def not_popped(self, topic: str, error: Exception) -> None:
        if isinstance(error, Refused):
            self._instance.routes.doubt(topic)

    def read(self, answer: Command, source: Popped) -> list[Received]:
        """Returns the messages of a response that are for the handler; the others are acknowledged."""
        if answer.code != ResponseCode.SUCCESS:
            return []
        fields, found = answer.fields, []
        starts = read_starts(fields.get("startOffsetInfo", ""))
        tags = self._wanted[source.topic].tags
        now_ms = self._instance.clock.message.now_ms()
        for unit in read_units(answer.body):
            queue = MessageQueue(source.topic, source.broker, unit.queue_id)
            receipt = receipt_of(unit, source.broker, fields, starts)
            message = Received(unit, queue, self, source, self._serializer, receipt.text)
            expires_ms = expiry_ms(unit.properties, unit.store_ms)
            if expires_ms is not None and expires_ms <= now_ms:
                self.stats.expired += 1
            elif not tags or find_property(unit.properties, TAGS) in tags:
                found.append(message)
                continue
            self._begin(message, self._settle(RequestCode.ACK_MESSAGE, message))
        return found

    # -- leases

    def renewal_ms(self) -> int:
        return self.timeline.now_ms() + self._lease_ms // 2

    async def renew_always(self) -> None:
        """Renews leases when half of their time is over, for messages that are not older than `work_timeout`."""
        limit_ms = to_milliseconds(self.options.work_timeout)
        while True:
            await pause(self.timeline, max(min(self._lease_ms // 8, limit_ms // 4), 10))
            now_ms = self.timeline.now_ms()
            for source in list(self._sources.values()):
                for message, due_ms in list(source.unfinished.items()):
                    if message in self._renewing:
                        continue
                    if now_ms - message.handed_out_ms > limit_ms:
                        self._overdue(source, message)
                    elif due_ms <= now_ms:
                        source.unfinished[message] = self.renewal_ms()
                        self._begin(message, self._renew(source, message))

    def _begin(self, message: Received, work: Awaitable[None]) -> None:
        task = self._renewing[message] = asyncio.ensure_future(_logged(work, self._group, message))
        task.add_done_callback(lambda _: self._renewing.pop(message, None))

    async def _renew(self, source: Popped, message: Received) -> None:
        try:
            await self._change(message, self._lease_ms)
        except Refused as refused:
            if refused.code == ResponseCode.NO_MESSAGE:  # the lease was over: another member gets the message
                self._overdue(source, message)
            raise

    def _overdue(self, source: Popped, message: Received) -> None:
        log.warning("group %s: the lease of %r is over; its result will be ignored", self._group, message)
        self.stats.overdue += 1
        if message in source.waiting:
            source.waiting.remove(message)
        source.drop(message)

    async def _change(self, message: Received, invisible_ms: int) -> None:
        answer = await self._ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, message, {"invisibleTime": str(invisible_ms)}
        )
        message.receipt = read_receipt(message.receipt).renewed(answer.fields).text

    async def _ask(self, code: RequestCode, message: Received, more: Mapping[str, str]) -> Command:
        receipt: Receipt = read_receipt(message.receipt)
        fields = {
            "consumerGroup": self._group,
            "topic": receipt.stored_topic(message.queue.topic, self._group),
            "queueId": receipt.queue,
            "extraInfo": message.receipt,
            "offset": receipt.offset,
            **more,
        }
        address = master_of(self._instance.routes, message.queue)
        return await self._instance.links.ask(address, code, fields, timeout_ms=_TIMEOUT_MS)

    async def _settle(self, code: RequestCode, message: Received, more: Mapping[str, str] | None = None) -> None:
        """Sends a request about the message, again if it gets lost."""
        for left in reversed(range(_SETTLE_TRIES)):
            try:
                await self._ask(code, message, more or {})
                return
            except Refused:
                raise
            except ClientError:
                if not left or self._instance.is_closed:
                    raise
                await pause(self.timeline, _SETTLE_PAUSE_MS)

    async def _taken(self, message: Received) -> Popped | None:
        """Returns the source of a message that is to be settled now; waits for a renewal, which changes its receipt.
        None if it was settled before."""
        renewal = self._renewing.get(message)
        if renewal is not None:
            await asyncio.wait((renewal,))
        source = message.source
        assert isinstance(source, Popped)
        if message.is_settled:
            return None
        source.drop(message)
        return source

    # -- settling

    async def ack(self, message: Received) -> None:
        """Raises ClientError if the broker did not confirm it: then the message is delivered again."""
        if await self._taken(message) is not None:
            self.stats.handled += 1
            await self._settle(RequestCode.ACK_MESSAGE, message)

    async def retry(self, message: Received, after: Duration | None) -> None:
        if message.attempt >= self._attempts:
            await self.give_up(message, f"failed {message.attempt} times")
            return
        if await self._taken(message) is None:
            return
        if after is None:
            after = RETRY_SECONDS[min(message.unit.reconsume_times, len(RETRY_SECONDS) - 1)]
        more = {"invisibleTime": str(to_milliseconds(after))}
        await _logged(self._settle(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, message, more), self._group, message)

    async def give_up(self, message: Received, reason: str) -> None:
        if await self._taken(message) is None:
            return
        log.warning("group %s: %r given up: %s", self._group, message, reason or "no reason given")
        self.stats.given_up += 1
        try:
            await self._returner.dead_letter(message)
            await self._settle(RequestCode.ACK_MESSAGE, message)
        except ClientError as error:
            log.warning("group %s: %r not dead-lettered; it is delivered again (%s)", self._group, message, error)

    async def extend(self, message: Received, by: Duration) -> None:
        """Lets the lease end at this time from now. Raises Refused if it is over already."""
        renewal = self._renewing.get(message)
        if renewal is not None:
            await asyncio.wait((renewal,))
        source = message.source
        assert isinstance(source, Popped)
        if message.is_settled:
            raise ClientError(f"{message!r} is settled: there is nothing to extend")
        by_ms = to_milliseconds(by)
        await self._change(message, by_ms)
        if message in source.unfinished:
            source.unfinished[message] = self.timeline.now_ms() + by_ms // 2

    async def reply(self, message: Received, body: Any) -> None:
        await self._reply(message, body)

    async def give_back(self, message: Received) -> None:
        """Lets another member have the message at once."""
        message.is_settled = True
        more = {"invisibleTime": "0"}
        await _logged(self._settle(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, message, more), self._group, message)

    # -- flow and end

    def pause(self, topics: set[str]) -> None:
        self._paused |= topics
        for source in self._sources.values():
            if source.topic in topics:
                source.pause()

    def resume(self, topics: set[str]) -> None:
        self._paused -= topics
        for source in self._sources.values():
            if source.topic in topics:
                source.resume()

    async def close(self) -> None:
        """Waits for running handlers, and gives back what no handler took."""
        sources = list(self._sources.values())
        for source in sources:
            await source.stop()
        grace_ms = to_milliseconds(self.options.revoke_grace)
        await asyncio.gather(*(source.drained(grace_ms) for source in sources))
        if self._renewing:
            await asyncio.wait(list(self._renewing.values()))
        waiting = [message for source in sources for message in source.waiting]
        for source in sources:
            source.waiting.clear()
        await asyncio.gather(*map(self.give_back, waiting))


async def _logged(work: Awaitable[None], group: str, message: Received) -> None:
    try:
        await work
    except ClientError as error:
        log.info("group %s: %r: %s; it is delivered again when its lease is over", group, message, error)
