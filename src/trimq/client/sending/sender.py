"""Sends of one client: limits what is under way, and starts deliveries."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from trimq.client.errors import BufferFull, ClientError, Closed, NoRoute, Unsupported
from trimq.client.instance import Instance
from trimq.client.link import Link
from trimq.client.messages import Message, MessageQueue, Sent
from trimq.client.peers import RECALL
from trimq.client.sending.accumulating import Accumulator, Batcher
from trimq.client.sending.batches import broken_rule
from trimq.client.sending.busy import Drop, OnBusy, Spool, Spooled, Wait
from trimq.client.sending.delivery import Delivery, DroppedBusy, Lanes, SendPlan
from trimq.client.sending.encoding import MessageIds, encode_send, send_fields, write_message_properties
from trimq.client.sending.latency import BrokerHealth
from trimq.client.sending.pipeline import Dropped
from trimq.client.sending.recalling import read_recall_handle
from trimq.client.sending.spooling import Spooler, is_worth_spooling
from trimq.client.timing import pause
from trimq.wire.remoting import ONE_WAY, encode_request
from trimq.wire.remoting_codes import RequestCode

WAIT = Wait()
PlanOf = Callable[[Message, tuple[str, ...]], SendPlan]

DEFAULT_MOST_MESSAGES = 20_000
DEFAULT_MOST_BYTES = 32 * 1024 * 1024


class Room:
    """Limit of the messages and bytes under way. One message is let in whatever its size."""

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.messages = 0
        self.bytes = 0

    def has_room(self, size: int) -> bool:
        return not self.messages or (self.messages < self._most_messages and self.bytes + size <= self._most_bytes)

    def enter(self, size: int) -> None:
        self.messages += 1
        self.bytes += size

    def leave(self, size: int) -> None:
        self.messages -= 1
        self.bytes -= size
        if not self.messages:
            waiting, self._idle_waiters = self._idle_waiters, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def wait(self) -> None:
        """Returns when a message has left."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and self._waiters:
                next_one = self._waiters.popleft()  # passes its turn on
                if not next_one.done():
                    next_one.set_result(None)
            raise

    async def wait_until_empty(self) -> None:
        while self.messages:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def full(self) -> BufferFull:
        return BufferFull(
            f"{self.messages} messages with {self.bytes} bytes are under way, of {self._most_messages} and "
            f"{self._most_bytes} allowed"
        )


class Sender:
    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        avoid_slow: bool = True,
        most_messages: int = DEFAULT_MOST_MESSAGES,
        most_bytes: int = DEFAULT_MOST_BYTES,
        accumulator: Accumulator | None = None,
        on_busy: OnBusy = WAIT,
        plan_of: PlanOf | None = None,
    ) -> None:
        self.instance = instance
        self.group = group
        self.links = instance.links
        self.routes = instance.routes
        self.timeline = instance.clock.liveness
        self.wall = instance.clock.message
        self.health = BrokerHealth(self.timeline.now_ms, avoid_slow)
        self.lanes = Lanes()
        self.room = Room(most_messages, most_bytes)
        self.ids = MessageIds()
        self._batcher = None if accumulator is None else Batcher(self, accumulator)
        self.waits_when_busy = not isinstance(on_busy, Spool)
        self.drops_below = on_busy.below if isinstance(on_busy, Drop) else None
        self.spooler: Spooler | None = None
        if isinstance(on_busy, Spool):
            assert plan_of is not None, "a spool chooses queues again"
            self.spooler = Spooler(self, on_busy, plan_of)
        self.dropped = 0
        """One-way messages that could not be sent, and messages dropped because the broker was busy."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._under_way: dict[Delivery, None] = {}
        self._is_closed = False

    # -- modes

    def send_nowait(
        self, topic: str, message: Message, body: bytes, plan: SendPlan, timeout_ms: int,
        queue: MessageQueue | None = None, properties: tuple[tuple[str, str], ...] = (),
    ) -> asyncio.Future[Sent]:  # fmt: skip
        """Starts a send. Raises BufferFull if too much is under way, BadMessage for what cannot be sent."""
        if self._is_closed:
            raise Closed("the client is closed")
        size = len(body)
        if not self.room.has_room(size):
            raise self.room.full()
        id = message.id or self.ids.next()
        text = write_message_properties(message, id, properties)
        if self._batcher is not None and plan.may_batch and not properties and broken_rule(topic, message) is None:
            return self._batcher.add(topic, message, body, id, text, plan, timeout_ms)
        return self._start(topic, message, body, id, text, plan, timeout_ms, queue)

    def send_batch(
        self,
        topic: str,
        first: Message,
        body: bytes,
        plan: SendPlan,
        timeout_ms: int,
        queue: MessageQueue | None = None,
    ) -> asyncio.Future[Sent]:
        """Starts the send of an encoded batch; the result is that of its first message."""
        if self._is_closed:
            raise Closed("the client is closed")
        if not self.room.has_room(len(body)):
            raise self.room.full()
        return self._start(topic, first, body, "", "", plan, timeout_ms, queue, is_batch=True)

    def resend(
        self, topic: str, message: Message, body: bytes, id: str, properties: str, plan: SendPlan, timeout_ms: int,
        queue: MessageQueue | None, is_batch: bool = False,
    ) -> asyncio.Future[Sent]:  # fmt: skip
        """Starts the send of an encoded message or batch from the spool, whatever is under way."""
        if self._is_closed:
            raise Closed("the client is closed")
        return self._start(topic, message, body, id, properties, plan, timeout_ms, queue, is_batch)

    async def send_or_spool(
        self, topic: str, message: Message, body: bytes, plan: SendPlan, timeout_ms: int
    ) -> Sent | Dropped | Spooled:
        """Sends, or appends to the spool if the broker is busy or unreachable, or other messages wait there."""
        spooler = self.spooler
        assert spooler is not None
        await spooler.open()
        id = message.id or self.ids.next()
        message = msgspec.structs.replace(message, id=id)
        if not spooler.is_in_use:
            try:
                return await self.send_nowait(topic, message, body, plan, timeout_ms)
            except ClientError as error:
                if not is_worth_spooling(error):
                    raise
        return await spooler.append(topic, message, body, id, plan.needs)

    def _start(
        self, topic: str, message: Message, body: bytes, id: str, properties: str, plan: SendPlan, timeout_ms: int,
        queue: MessageQueue | None, is_batch: bool = False,
    ) -> asyncio.Future[Sent]:  # fmt: skip
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        size = len(body)

        def done(result: Sent | Exception) -> None:
            self.room.leave(size)
            if isinstance(result, DroppedBusy):
                self.dropped += 1
            if not future.done():
                if isinstance(result, DroppedBusy):
                    future.set_result(Dropped.BUSY)
                elif isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

        self.room.enter(size)
        deadline_ms = self.timeline.now_ms() + timeout_ms
        self.deliver(topic, message, body, id, properties, plan, deadline_ms, done, is_batch, queue)
        return future

    def deliver(
        self, topic: str, message: Message, body: bytes, id: str, properties: str, plan: SendPlan, deadline_ms: int,
        done: Callable[[Sent | Exception], object], is_batch: bool = False, queue: MessageQueue | None = None,
    ) -> None:  # fmt: skip
        """Starts a delivery, which the caller has counted."""

        def ended(result: Sent | Exception) -> None:
            del self._under_way[delivery]
            done(result)

        delivery = Delivery(self, topic, message, body, id, properties, plan, deadline_ms, ended, is_batch, queue)
        self._under_way[delivery] = None
        delivery.start()

    async def wait_for_room(self, size: int, timeout_ms: int) -> int:
        """Waits until a message of this size may start. Returns the time left. Raises BufferFull."""
        room = self.room
        deadline_ms = self.timeline.now_ms() + timeout_ms
        while not room.has_room(size):
            left_ms = deadline_ms - self.timeline.now_ms()
            if left_ms <= 0:
                raise room.full()
            waiter, timer = asyncio.ensure_future(room.wait()), asyncio.ensure_future(pause(self.timeline, left_ms))
            try:
                await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                timer.cancel()
        return max(deadline_ms - self.timeline.now_ms(), 1)

    def send_oneway(self, topic: str, message: Message, body: bytes, plan: SendPlan, timeout_ms: int) -> None:
        """Sends without waiting for a response. A message that cannot be sent in time is dropped and counted."""
        if self._is_closed:
            raise Closed("the client is closed")
        id = message.id or self.ids.next()
        text = write_message_properties(message, id)
        route = self.routes.find(topic)
        if route is not None and route.writable:
            queue = plan.choice.choose(route.writable, message, self.health, None)
            address = route.master(queue.broker)
            link = None if address is None else self.links.find(address)
            if link is not None:
                self._write_oneway(link, topic, queue, text, body)
                return
        size = len(body)
        if not self.room.has_room(size):
            raise self.room.full()
        self.room.enter(size)
        self.spawn(self._send_oneway_later(topic, message, body, text, plan, timeout_ms))

    async def _send_oneway_later(
        self, topic: str, message: Message, body: bytes, properties: str, plan: SendPlan, timeout_ms: int
    ) -> None:
        deadline_ms = self.timeline.now_ms() + timeout_ms
        try:
            route = await self.routes.get(topic, timeout_ms, may_create=True)
            if not route.writable:
                raise ClientError(f"topic {topic} has no writable queue")
            queue = plan.choice.choose(route.writable, message, self.health, None)
            address = route.master(queue.broker)
            if address is None:
                raise ClientError(f"the route of {topic} names no master of broker {queue.broker}")
            link = await self.connect(address, max(deadline_ms - self.timeline.now_ms(), 1))
        except ClientError:
            self.dropped += 1
        else:
            self._write_oneway(link, topic, queue, properties, body)
        finally:
            self.room.leave(len(body))

    def _write_oneway(self, link: Link, topic: str, queue: MessageQueue, properties: str, body: bytes) -> None:
        opaque, born_ms, size = link.next_opaque(), self.wall.now_ms(), len(body)
        if self.links.credentials is None:
            head = encode_send(self.group, topic, queue.id, properties, size, opaque, born_ms, is_one_way=True)
        else:
            fields = send_fields(self.group, topic, queue.id, properties, born_ms)
            signed = self.links.signed(fields, body)
            head = encode_request(RequestCode.SEND_MESSAGE_V2, opaque, ONE_WAY, signed, "PYTHON", size)
        link.write(head, body)

    async def recall(self, handle: str, timeout_ms: int) -> str:
        """Cancels a delayed message. Returns its id."""
        if not handle:
            raise Unsupported("the broker gave no recall handle: RocketMQ 5 and TriMQ do, for delay and deliver_at")
        topic, broker, _, _ = read_recall_handle(handle)
        deadline_ms = self.timeline.now_ms() + timeout_ms
        route = await self.routes.get(topic, timeout_ms)
        address = route.master(broker)
        if address is None:
            raise NoRoute(f"the route of {topic} names no master of broker {broker}")
        await self.instance.peers.require(address, RECALL, max(deadline_ms - self.timeline.now_ms(), 1))
        fields = {"producerGroup": self.group, "topic": topic, "recallHandle": handle}
        left_ms = max(deadline_ms - self.timeline.now_ms(), 1)
        answer = await self.links.ask(address, RequestCode.RECALL_MESSAGE, fields, timeout_ms=left_ms)
        return answer.fields.get("msgId", "")

    # -- connections and tasks

    def has(self, address: str, needs: tuple[str, ...]) -> bool:
        """Whether the broker is known to have these features."""
        peers = self.instance.peers
        return all(peers.has(address, need) for need in needs)

    async def connect(self, address: str, timeout_ms: int) -> Link:
        """Returns an open connection, over which the broker is told the groups of this client."""
        link = await self.links.get(address, timeout_ms)
        if not self.instance.heartbeats.is_told(address):
            self.spawn(self._tell(address))
        return link

    async def _tell(self, address: str) -> None:
        await self.instance.heartbeats.tell_all([address])

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def flush(self) -> None:
        """Returns when nothing is under way."""
        batcher = self._batcher
        if batcher is None:
            await self.room.wait_until_empty()
            return
        batcher.flush()
        batcher.is_flushing = True
        try:
            await self.room.wait_until_empty()
        finally:
            batcher.is_flushing = False

    async def close(self) -> None:
        """Ends what is under way."""
        if self.spooler is not None:
            await self.spooler.close()
        self._is_closed = True
        if self._batcher is not None:
            self._batcher.close()
        for delivery in list(self._under_way):
            delivery.abandon()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
