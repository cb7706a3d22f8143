"""The blocking client: the same methods as `AsyncClient`, whose event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import ssl as tls
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from trimq.client.admin import READ, WRITE, Admin
from trimq.client.aio import AsyncClient, Choose, default_clock
from trimq.client.braking import BacklogBrake
from trimq.client.consuming.allocation import Allocation
from trimq.client.consuming.consumer import Consumer
from trimq.client.consuming.filters import Filter
from trimq.client.consuming.lanes import Lanes
from trimq.client.consuming.offsets import LocalFile
from trimq.client.consuming.options import AT_LEAST_ONCE, PULL, OnQueues
from trimq.client.consuming.process_queue import BufferLimits
from trimq.client.consuming.received import Received, ReceivedFields
from trimq.client.consuming.starts import Start
from trimq.client.consuming.statistics import ConsumerStatistics
from trimq.client.credentials import Credentials
from trimq.client.errors import Closed
from trimq.client.instance import fork_count
from trimq.client.loop_thread import LoopThread, copy_outcome
from trimq.client.messages import NO_HEADERS, Message, MessageQueue, Sent
from trimq.client.once.guard import Guard
from trimq.client.requests import Answer
from trimq.client.sending.accumulating import Accumulator
from trimq.client.sending.busy import OnBusy, Spooled
from trimq.client.sending.pipeline import Dropped, Interceptor, Serializer
from trimq.client.sending.sender import DEFAULT_MOST_BYTES, DEFAULT_MOST_MESSAGES, WAIT
from trimq.client.timing import Duration
from trimq.client.transactions import Check, Half, Transaction, UndecidedHalf, Verdict
from trimq.clock import Clock

T = TypeVar("T")

Call = Callable[[Coroutine[Any, Any, Any]], Any]


class Client:
    """Blocking client of TriMQ and Apache RocketMQ: `with Client("127.0.0.1:9876", group="shop") as mq:`. Its methods
    may be called from any thread. The arguments are those of `AsyncClient`."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str = "trimq-client",
        credentials: Credentials | None = None,
        ssl: tls.SSLContext | None = None,
        timeout: Duration = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        choose: Choose | None = None,
        avoid_slow: bool = True,
        interceptors: Sequence[Interceptor] = (),
        serializer: Serializer | None = None,
        max_messages: int = DEFAULT_MOST_MESSAGES,
        max_bytes: int = DEFAULT_MOST_BYTES,
        accumulator: Accumulator | None = None,
        on_busy: OnBusy = WAIT,
        brake: BacklogBrake | None = None,
        clock: Clock = default_clock,
        rng: Random | None = None,
    ) -> None:
        self.group = group
        self._make = partial(
            AsyncClient, name_servers, group=group, credentials=credentials, ssl=ssl, timeout=timeout, retries=retries,
            retry_not_stored=retry_not_stored, choose=choose, avoid_slow=avoid_slow, interceptors=interceptors,
            serializer=serializer, max_messages=max_messages, max_bytes=max_bytes, accumulator=accumulator,
            on_busy=on_busy, brake=brake, clock=clock, rng=rng,
        )  # fmt: skip
        self._core = self._make()
        self._thread: LoopThread | None = None
        self._forks = -1

    # -- life

    def __enter__(self) -> Client:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> LoopThread:
        self._thread = thread = LoopThread("trimq-client")
        self._forks = fork_count()
        thread.call(self._core.__aenter__())
        return thread

    def _opened(self) -> LoopThread:
        """Returns the thread; in a forked process a new one, since threads do not survive a fork."""
        if self._thread is None:
            raise Closed("the client is not open: use it in `with Client(...) as mq:`")
        if self._forks != fork_count():
            self._core = self._make()
            return self._open()
        return self._thread

    def close(self) -> None:
        """Ends what is under way, and closes the connections if no other client of this thread uses them."""
        thread, self._thread = self._thread, None
        if thread is not None and self._forks == fork_count():
            try:
                thread.call(self._core.close())
            finally:
                thread.close()

    def flush(self) -> None:
        """Returns when all sends have ended."""
        self._opened().call(self._core.flush())

    @property
    def client_id(self) -> str:
        """Name under which brokers list this client."""
        self._opened()
        return self._core.client_id

    # -- sending

    def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        level: int | None = None,
        ttl: Duration | None = None,
        id: str | None = None,
        once: bool = False,
        priority: int = 0,
        choose: Choose | None = None,
        ordered: bool = False,
        timeout: Duration | None = None,
    ) -> Sent | Dropped | Spooled:
        """Sends a message and returns where it was stored. See `AsyncClient.send`."""
        return self._opened().call(
            self._core.send(
                topic, body, key=key, tag=tag, keys=keys, headers=headers, delay=delay, deliver_at=deliver_at,
                level=level, ttl=ttl, id=id, once=once, priority=priority, choose=choose, ordered=ordered,
                timeout=timeout,
            )
        )  # fmt: skip

    def send_nowait(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        level: int | None = None,
        ttl: Duration | None = None,
        id: str | None = None,
        once: bool = False,
        priority: int = 0,
        choose: Choose | None = None,
        ordered: bool = False,
        timeout: Duration | None = None,
    ) -> Future[Sent] | Future[Dropped] | Future[Sent | Dropped | Spooled]:
        """Starts a send and returns its future, which also carries BufferFull and BadMessage."""
        thread, outcome = self._opened(), Future[Any]()
        begin = partial(
            self._core.send_nowait, topic, body, key=key, tag=tag, keys=keys, headers=headers, delay=delay,
            deliver_at=deliver_at, level=level, ttl=ttl, id=id, once=once, priority=priority, choose=choose,
            ordered=ordered, timeout=timeout,
        )  # fmt: skip

        def start() -> None:
            try:
                copy_outcome(begin(), outcome)
            except Exception as error:
                outcome.set_exception(error)

        thread.post(start)
        return outcome

    def send_oneway(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        choose: Choose | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Sends without a response: the message may be lost. See `AsyncClient.send_oneway`."""
        send = self._core.send_oneway

        async def start() -> None:
            send(topic, body, key=key, tag=tag, keys=keys, headers=headers, choose=choose, timeout=timeout)

        self._opened().call(start())

    def send_all(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        choose: Choose | None = None,
        timeout: Duration | None = None,
    ) -> list[Sent]:
        """Sends several messages to one queue as one batch: all of them or none."""
        return self._opened().call(self._core.send_all(topic, messages, choose=choose, timeout=timeout))

    def recall(self, handle: str, *, timeout: Duration | None = None) -> str:
        """Cancels a delayed message by the `recall` handle of its `Sent`. See `AsyncClient.recall`."""
        return self._opened().call(self._core.recall(handle, timeout=timeout))

    def request(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        choose: Choose | None = None,
        timeout: Duration | None = None,
    ) -> Answer:
        """Sends a request and returns the answer of a consumer. See `AsyncClient.request`."""
        return self._opened().call(
            self._core.request(
                topic, body, key=key, tag=tag, keys=keys, headers=headers, choose=choose, timeout=timeout
            )
        )

    @property
    def admin(self) -> BlockingAdmin:
        """Creates topics and finds stored messages."""
        return BlockingAdmin(self._core.admin, self._opened())

    # -- transactions

    def transaction(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        headers: Mapping[str, str] = NO_HEADERS,
        id: str | None = None,
        choose: Choose | None = None,
        check_after: Duration | None = None,
        timeout: Duration | None = None,
    ) -> BlockingTransaction:
        """Stores a half message on entry of `with mq.transaction(...) as half:`. See `AsyncClient.transaction`."""
        thread = self._opened()
        transaction = self._core.transaction(
            topic, body, key=key, tag=tag, keys=keys, headers=headers, id=id, choose=choose, check_after=check_after,
            timeout=timeout,
        )  # fmt: skip
        return BlockingTransaction(transaction, thread)

    def check(self, function: Check) -> Check:
        """Decorator of the function that decides about undecided half messages of this group. It runs in a thread of
        its own. See `AsyncClient.check`."""
        core = self._core

        async def decide(half: UndecidedHalf) -> Verdict:
            found = await asyncio.to_thread(function, half)
            return await found if inspect.isawaitable(found) else found

        async def add() -> None:
            core.check(decide)

        self._opened().call(add())
        return function

    @property
    def dropped(self) -> int:
        """One-way messages that could not be sent, and messages that `Drop` dropped."""
        self._opened()
        return self._core.dropped

    @property
    def spooled(self) -> int:
        """Messages that wait in the spool."""
        self._opened()
        return self._core.spooled

    # -- consuming

    def consumer(
        self,
        group: str,
        subscriptions: Mapping[str, Filter] | str,
        *,
        start: Start = Start.LAST,
        ordered: bool = False,
        broadcast: bool = False,
        allocate: Allocation | None = None,
        commit: Duration | str = 5.0,
        delivery: str = AT_LEAST_ONCE,
        offsets: LocalFile | None = None,
        limits: BufferLimits | None = None,
        max_attempts: int | None = None,
        retry_pause: Duration = 1.0,
        revoke_grace: Duration = 5.0,
        work_timeout: Duration = 900.0,
        strict: bool = False,
        mode: str = PULL,
        lease: Duration = 60.0,
        once: Guard | None = None,
        lanes: Lanes | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        on_lost: OnQueues | None = None,
    ) -> BlockingConsumer:
        """Returns a member of a consumer group, to be opened with `with`. See `AsyncClient.consumer`."""
        thread = self._opened()
        member = self._core.consumer(
            group, subscriptions, start=start, ordered=ordered, broadcast=broadcast, allocate=allocate, commit=commit,
            delivery=delivery, offsets=offsets, limits=limits, max_attempts=max_attempts, retry_pause=retry_pause,
            revoke_grace=revoke_grace, work_timeout=work_timeout, strict=strict, mode=mode, lease=lease, once=once,
            lanes=lanes, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost,
        )  # fmt: skip
        return BlockingConsumer(member, thread)


class BlockingAdmin:
    """Reached as `Client.admin`. See `Admin`."""

    def __init__(self, admin: Admin, thread: LoopThread) -> None:
        self._admin = admin
        self._thread = thread

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        read: int | None = None,
        write: int | None = None,
        perm: int = READ | WRITE,
    ) -> None:
        """Creates or changes a topic on all brokers of the name server. See `Admin.create_topic`."""
        self._thread.call(self._admin.create_topic(topic, queues, read=read, write=write, perm=perm))

    def lag(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Returns for each queue how many messages the consumer group has not committed yet. See `Admin.lag`."""
        return self._thread.call(self._admin.lag(group, topic))

    def find(
        self,
        topic: str,
        *,
        key: str | None = None,
        id: str | None = None,
        between: tuple[datetime | None, datetime | None] = (None, None),
    ) -> Iterator[ReceivedFields]:
        """Yields the stored messages with this key or id. See `Admin.find`."""
        messages = aiter(self._admin.find(topic, key=key, id=id, between=between))

        async def following() -> ReceivedFields:
            return await anext(messages)

        while True:
            try:
                yield self._thread.call(following())
            except StopAsyncIteration:
                return


class BlockingTransaction:
    """Result of `Client.transaction`, to be used with `with`."""

    def __init__(self, transaction: Transaction, thread: LoopThread) -> None:
        self._transaction = transaction
        self._thread = thread

    def __enter__(self) -> Half:
        return self._thread.call(self._transaction.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.call(self._transaction.__aexit__(kind, error, traceback))


class BlockingReceived(ReceivedFields):
    """A received message, which is settled once: further calls have no effect."""

    __slots__ = ("_call", "_message")

    def __init__(self, message: Received, call: Call) -> None:
        ReceivedFields.__init__(self, message.unit, message.queue, message.serializer)
        self.local_attempts = message.local_attempts
        self._message = message
        self._call = call

    def ack(self) -> None:
        """The message is done."""
        self._call(self._message.ack())

    def retry(self, after: Duration | None = None) -> None:
        """Delivers the message again, after this time or by the group's policy."""
        self._call(self._message.retry(after))

    def give_up(self, reason: str = "") -> None:
        """Moves the message to the group's dead-letter topic."""
        self._call(self._message.give_up(reason))

    def extend(self, by: Duration) -> None:
        """Gives the handler more time before the message is delivered again."""
        self._call(self._message.extend(by))

    def reply(self, body: Any) -> None:
        """Answers a request."""
        self._call(self._message.reply(body))


class BlockingConsumer:
    """Open it with `with`; then `run` a handler, or iterate over it."""

    def __init__(self, consumer: Consumer, thread: LoopThread) -> None:
        self._consumer = consumer
        self._thread = thread
        self.group = consumer.group

    def __enter__(self) -> BlockingConsumer:
        self._thread.call(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for running handlers, commits, and leaves the group."""
        self._thread.call(self._consumer.close())

    def stop(self) -> None:
        """Ends `run` and iterations after the messages that handlers work on."""
        self._thread.post(self._consumer.stop)

    def run(
        self,
        handler: Callable[[BlockingReceived], object] | Callable[[list[BlockingReceived]], object],
        *,
        concurrency: int = 20,
        batch: int = 1,
    ) -> None:
        """Calls the handler for each message, in up to `concurrency` threads, until the consumer is stopped. See
        `Consumer.run`."""
        function: Callable[..., object] = handler
        call = self._thread.call

        def one(message: Received, *given: Any) -> None:
            function(BlockingReceived(message, call), *given)

        def several(messages: list[Received]) -> None:
            function([BlockingReceived(message, call) for message in messages])

        self._thread.call(self._consumer.run(one if batch == 1 else several, concurrency=concurrency, batch=batch))

    def __iter__(self) -> Iterator[BlockingReceived]:
        messages = aiter(self._consumer)
        while True:
            try:
                yield BlockingReceived(self._thread.call(_next(messages)), self._thread.call)
            except StopAsyncIteration:
                return

    def receive(self, timeout: Duration, limit: int = 32) -> list[BlockingReceived]:
        """Returns messages of one queue, up to `limit`; an empty list if none arrive in time."""
        found = self._thread.call(self._consumer.receive(timeout, limit))
        return [BlockingReceived(message, self._thread.call) for message in found]

    def commit(self) -> None:
        """Commits what is finished in all queues."""
        self._thread.call(self._consumer.commit())

    def seek(self, queue: MessageQueue, to: int | datetime | Start) -> None:
        """Continues an assigned queue at an offset or a time."""
        self._thread.call(self._consumer.seek(queue, to))

    def pause(self, *topics: str) -> None:
        """Hands out no messages of these topics, or of any topic if none is given, until `resume`."""
        self._now(partial(self._consumer.pause, *topics))

    def resume(self, *topics: str) -> None:
        self._now(partial(self._consumer.resume, *topics))

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset that the next commit of an assigned queue stores."""
        return self._now(partial(self._consumer.position, queue))

    def lag(self) -> dict[MessageQueue, int]:
        """Returns for each assigned queue the number of messages that are not finished, as of the last pull."""
        return self._now(self._consumer.lag)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """Queues of the subscribed topics that this member reads."""
        return self._now(lambda: self._consumer.assignment)

    @property
    def stats(self) -> ConsumerStatistics:
        return self._consumer.stats

    @property
    def client_id(self) -> str:
        return self._consumer.client_id

    def _now(self, call: Callable[[], T]) -> T:
        """Calls a function on the loop."""

        async def run() -> T:
            return call()

        return self._thread.call(run())


async def _next(messages: Any) -> Received:
    found: Received = await anext(messages)
    return found
