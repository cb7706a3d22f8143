"""The client for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import ssl as tls
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trimq.client.admin import Admin
from trimq.client.braking import BacklogBrake, Brake
from trimq.client.consuming.allocation import Allocation, Average
from trimq.client.consuming.filters import Filter
from trimq.client.consuming.lanes import Lanes
from trimq.client.consuming.offsets import LocalFile
from trimq.client.consuming.options import AT_LEAST_ONCE, PULL, ConsumerOptions, OnQueues
from trimq.client.consuming.process_queue import BufferLimits
from trimq.client.consuming.received import Received
from trimq.client.consuming.starts import Start
from trimq.client.credentials import Credentials
from trimq.client.errors import BadMessage, Closed
from trimq.client.instance import Instance, InstanceKey, fork_count, shared
from trimq.client.messages import NO_HEADERS, Message, MessageQueue, Sent
from trimq.client.once.guard import Guard
from trimq.client.peers import ANY_DELAY
from trimq.client.requests import Answer, Properties, ask, send_reply
from trimq.client.routes import parse_name_servers
from trimq.client.sending.accumulating import Accumulator
from trimq.client.sending.batches import check_batch, split_batch
from trimq.client.sending.busy import Drop, OnBusy, Spooled
from trimq.client.sending.choosing import ByKey, BySelector, Choice, RoundRobin
from trimq.client.sending.delivery import SendPlan
from trimq.client.sending.encoding import encode_batch_body, write_message_properties
from trimq.client.sending.pipeline import Dropped, Interceptor, Pipeline, Serializer
from trimq.client.sending.sender import DEFAULT_MOST_BYTES, DEFAULT_MOST_MESSAGES, WAIT, Sender
from trimq.client.timing import Duration, to_milliseconds
from trimq.client.transactions import Check, CheckBacks, Half, Transaction, half_properties
from trimq.clock import Clock, system_clock
from trimq.formats.rocketmq_unit.unit import TRANSACTION_PREPARED
from trimq.wire.extension import DEDUPLICATE

if TYPE_CHECKING:
    from trimq.client.consuming.consumer import Consumer

Choose = Choice | Callable[[Sequence[MessageQueue], Message], MessageQueue]

default_clock = system_clock()
"""Clock of all clients that are given none."""


class AsyncClient:
    """Client of TriMQ and Apache RocketMQ: `async with AsyncClient("127.0.0.1:9876", group="shop") as mq:`.

    `name_servers`: one address or several, separated by semicolons. `group`: producer group, which the broker asks
    about undecided transactional messages. `timeout`: default time of one operation in seconds, tries included.
    `retries`: further tries of a send. `retry_not_stored`: also when the message was stored, but not yet safely.
    `choose`: default choice of queues. `avoid_slow`: leaves out brokers that are slow or failed. `max_messages`,
    `max_bytes`: limit of what is under way. `accumulator`: gathers messages into batches. `on_busy`: what sends
    do when the broker is busy: `Wait`, `Drop` or `Spool`. `brake`: drops messages while a
    consumer group is too far behind."""

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
        self._key = InstanceKey(parse_name_servers(name_servers), credentials, ssl, clock)
        self.group = check_group(group)
        self._timeout_ms = to_milliseconds(timeout)
        self._retries = retries
        self._retry_not_stored = retry_not_stored
        self._avoid_slow = avoid_slow
        self._pipeline = Pipeline(interceptors, serializer)
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._accumulator = accumulator
        self._on_busy = on_busy
        self._brake = None if brake is None else Brake(brake, self._lag, clock.liveness)
        self._rng = rng or Random()
        self._round_robin = RoundRobin(self._rng)
        self._by_key = ByKey()
        self._choose = None if choose is None else as_choice(choose)
        self._plans: dict[tuple[Any, ...], SendPlan] = {}
        self._checks: list[Check] = []
        self._sender: Sender | None = None
        self._opened_in: tuple[int, asyncio.AbstractEventLoop] | None = None

    # -- life

    async def __aenter__(self) -> AsyncClient:
        sender = self._open()
        if sender.spooler is not None:
            try:
                await sender.spooler.open()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self) -> Sender:
        instance = shared(self._key, self._rng)
        instance.heartbeats.add_producer(self.group)
        self._sender = Sender(
            instance,
            self.group,
            avoid_slow=self._avoid_slow,
            most_messages=self._max_messages,
            most_bytes=self._max_bytes,
            accumulator=self._accumulator,
            on_busy=self._on_busy,
            plan_of=self._plan_again,
        )
        self._opened_in = fork_count(), asyncio.get_running_loop()
        return self._sender

    def _opened(self) -> Sender:
        """Returns the sender; in a forked process a new one, with connections of its own."""
        sender = self._sender
        if sender is not None and not sender.instance.is_closed:
            return sender
        if self._opened_in is None:
            raise Closed("the client is not open: use it in `async with AsyncClient(...) as mq:`")
        if self._opened_in[0] == fork_count():
            raise Closed("the client is closed")
        return self._open()

    async def close(self) -> None:
        """Ends what is under way, and closes the connections if no other client uses them."""
        sender, self._sender = self._sender, None
        if sender is None or sender.instance.is_closed:
            return
        for function in self._checks:
            sender.instance.part(CheckBacks).remove(self.group, function)
        self._checks.clear()
        if self._brake is not None:
            await self._brake.close()
        await sender.close()
        await sender.instance.heartbeats.remove_producer(self.group)
        await sender.instance.release()

    async def flush(self) -> None:
        """Returns when all sends have ended."""
        await self._opened().flush()

    @property
    def client_id(self) -> str:
        """Name under which brokers list this client."""
        return self._opened().instance.client_id

    # -- sending

    async def send(
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
        """Sends a message and returns where it was stored. Tries again elsewhere if a broker fails, within `timeout`.

        `ordered`: one send under way per queue and no second try, so that messages of one key stay in order. The other
        arguments are those of `Message`."""
        message = Message(body, key, tag, keys, headers, delay, deliver_at, level, ttl, id, once, priority)
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        sender, prepared = self._opened(), self._prepare(topic, message)
        if isinstance(prepared, Dropped):
            return prepared
        message, content = prepared
        if not sender.room.has_room(len(content)):
            timeout_ms = await sender.wait_for_room(len(content), timeout_ms)
        plan = self._plan(message, choose, self._retries, ordered, False)
        if sender.spooler is not None:
            return await sender.send_or_spool(topic, message, content, plan, timeout_ms)
        return await sender.send_nowait(topic, message, content, plan, timeout_ms)

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
    ) -> asyncio.Future[Sent] | asyncio.Future[Dropped] | asyncio.Future[Sent | Dropped | Spooled]:
        """Starts a send and returns its future. Tries again on the same broker. Raises BufferFull if too much is under
        way."""
        message = Message(body, key, tag, keys, headers, delay, deliver_at, level, ttl, id, once, priority)
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        sender, prepared = self._opened(), self._prepare(topic, message)
        if isinstance(prepared, Dropped):
            dropped: asyncio.Future[Dropped] = asyncio.get_running_loop().create_future()
            dropped.set_result(prepared)
            return dropped
        message, content = prepared
        plan = self._plan(message, choose, self._retries, ordered, True)
        if sender.spooler is not None:
            return asyncio.ensure_future(sender.send_or_spool(topic, message, content, plan, timeout_ms))
        return sender.send_nowait(topic, message, content, plan, timeout_ms)

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
        """Sends without a response: the message may be lost. One that finds no connection within `timeout` is dropped
        and counted in `dropped`."""
        message = Message(body, key, tag, keys, headers)
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        sender, prepared = self._opened(), self._prepare(topic, message)
        if not isinstance(prepared, Dropped):
            message, content = prepared
            sender.send_oneway(topic, message, content, self._plan(message, choose, 0, False, False), timeout_ms)

    async def send_all(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        choose: Choose | None = None,
        timeout: Duration | None = None,
    ) -> list[Sent]:
        """Sends several messages to one queue as one batch: all of them or none. Raises BadBatch, which names the first
        message that cannot be part of a batch. Messages that interceptors drop are left out."""
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        sender = self._opened()
        every = [self._prepare(topic, message) for message in messages]
        prepared = [each for each in every if not isinstance(each, Dropped)]
        if not prepared:
            return []
        check_batch(topic, [message for message, _ in prepared])
        ids = [message.id or sender.ids.next() for message, _ in prepared]
        body = encode_batch_body(
            (content, write_message_properties(message, id))
            for (message, content), id in zip(prepared, ids, strict=True)
        )
        if not sender.room.has_room(len(body)):
            timeout_ms = await sender.wait_for_room(len(body), timeout_ms)
        first = prepared[0][0]
        once = any(message.once for message, _ in prepared)
        plan = self._plan(first, choose, self._retries, False, False, needs=(DEDUPLICATE,) if once else ())
        sent = await sender.send_batch(topic, first, body, plan, timeout_ms)
        return split_batch(sent, ids)

    async def recall(self, handle: str, *, timeout: Duration | None = None) -> str:
        """Cancels a delayed message by the `recall` handle of its `Sent`. Returns the id of the message. Raises Refused
        if it was delivered already."""
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        return await self._opened().recall(handle, timeout_ms)

    async def request(
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
        """Sends a request and returns the answer of a consumer, which calls `message.reply`. Raises TimedOut if nobody
        answers within `timeout`."""
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        message = Message(body, key, tag, keys, headers)
        sender, prepared = self._opened(), self._prepare(topic, message)
        if isinstance(prepared, Dropped):
            raise BadMessage("an interceptor or the brake dropped the request")
        message, content = prepared
        plan = self._plan(message, choose, self._retries, False, False)

        async def send(properties: Properties, left_ms: int) -> None:
            left_ms = await sender.wait_for_room(len(content), left_ms)
            await sender.send_nowait(topic, message, content, plan, left_ms, None, properties)

        return await ask(sender.instance, topic, send, timeout_ms, self._pipeline.serializer)

    @property
    def admin(self) -> Admin:
        """Creates topics and finds stored messages."""
        return Admin(lambda: self._opened().instance, self._pipeline.serializer)

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
    ) -> Transaction:
        """Stores a half message on entry of `async with mq.transaction(...) as half:`. Leaving the block commits it, an
        exception rolls it back. If neither arrives, the broker asks the function given to `check`, of any process of
        this group, for the first time after `check_after`."""
        message = Message(body, key, tag, keys, headers, id=id)
        timeout_ms = self._timeout_ms if timeout is None else to_milliseconds(timeout)
        check_ms = None if check_after is None else to_milliseconds(check_after)

        async def begin() -> Half:
            sender, prepared = self._opened(), self._prepare(topic, message)
            if isinstance(prepared, Dropped):
                raise BadMessage("an interceptor or the brake dropped the message of a transaction")
            half, content = prepared
            if (half.delay, half.deliver_at, half.level) != (None, None, None):
                raise BadMessage("a message of a transaction cannot be delayed")
            plan = self._plan(half, choose, self._retries, False, False, TRANSACTION_PREPARED)
            left_ms = await sender.wait_for_room(len(content), timeout_ms)
            extra = half_properties(self.group, check_ms)
            return Half(await sender.send_nowait(topic, half, content, plan, left_ms, None, extra), topic, self.group)

        return Transaction(lambda: self._opened().instance, begin)

    def check(self, function: Check) -> Check:
        """Decorator of the function that decides about undecided half messages of this group: it gets the message and
        returns a Verdict. If it raises, the broker asks again later."""
        sender = self._opened()
        sender.instance.part(CheckBacks).add(self.group, function, self._pipeline.serializer)
        self._checks.append(function)
        return function

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
    ) -> Consumer:
        """Returns a member of a consumer group, to be opened with `async with`. `subscriptions`: filter by topic, tags
        like "paid || refunded" or `Sql`, or one topic. `ConsumerOptions` describes the other arguments."""
        from trimq.client.consuming.consumer import Consumer  # producers alone do not pay for its import

        options = ConsumerOptions(
            start, ordered, broadcast, allocate or Average(), commit, delivery, offsets, limits or BufferLimits(),
            max_attempts, retry_pause, revoke_grace, work_timeout, strict, mode, lease, once, lanes, on_assigned,
            on_revoked, on_lost,
        )  # fmt: skip
        return Consumer(
            self._instance_of, check_group(group), subscriptions, options, self._pipeline.serializer, self._reply
        )

    def _instance_of(self, group: str) -> Instance:
        """Returns an instance in which this group has no member yet: a broker knows one member of a group per
        connection."""
        self._opened()
        for number in itertools.count():
            instance = shared(self._key._replace(number=number), self._rng)
            if not instance.heartbeats.has_consumer(group):
                instance.heartbeats.reserve_consumer(group)
                return instance
            instance.drop_use()
        raise AssertionError("unreachable")

    async def _reply(self, message: Received, body: Any) -> None:
        sender, content = self._opened(), self._pipeline.body(body)
        reply, id = Message(content), sender.ids.next()
        await send_reply(sender.instance, self.group, message, reply, content, id, self._timeout_ms)

    @property
    def dropped(self) -> int:
        """One-way messages that could not be sent, and messages that `Drop` or the brake dropped."""
        return self._opened().dropped

    @property
    def spooled(self) -> int:
        """Messages that wait in the spool."""
        spooler = self._opened().spooler
        return 0 if spooler is None else spooler.count

    def _prepare(self, topic: str, message: Message) -> tuple[Message, bytes] | Dropped:
        """Applies interceptors, brake and serializer."""
        pipeline, body = self._pipeline, message.body
        if not pipeline.is_plain:
            changed = pipeline.intercept(topic, message)
            if changed is None:
                return Dropped.DROPPED
            message, body = changed, changed.body
        if self._brake is not None and self._brake.holds(topic, message):
            self._opened().dropped += 1
            return Dropped.BUSY
        if type(body) is not bytes or not pipeline.is_plain:
            body = pipeline.body(body)
        if not body:
            raise BadMessage("the body is empty, which brokers refuse")
        return message, body

    async def _lag(self, group: str, topic: str) -> Mapping[MessageQueue, int]:
        return await self.admin.lag(group, topic)

    def _plan_again(self, message: Message, needs: tuple[str, ...]) -> SendPlan:
        """Returns the plan of a message from the spool, whose features are known."""
        return self._plan(message, None, self._retries, False, False, 0, needs)

    def _plan(
        self, message: Message, choose: Choose | None, retries: int, is_ordered: bool, is_same_broker: bool,
        sys_flag: int = 0, needs: tuple[str, ...] = (),
    ) -> SendPlan:  # fmt: skip
        if choose is not None:
            choice = as_choice(choose)
        else:
            choice = self._choose or (self._by_key if message.key is not None else self._round_robin)
        if message.once or message.delay is not None or message.deliver_at is not None:
            needs = needs_of(message)
        key = (choice, retries, is_ordered, is_same_broker, sys_flag, needs)
        plan = self._plans.get(key)
        if plan is None:
            is_fixed = is_ordered or isinstance(choice, ByKey)
            may_batch = choose is None and not is_ordered and not sys_flag and not isinstance(self._on_busy, Drop)
            plan = SendPlan(
                choice, 0 if is_ordered else retries, is_same_broker or is_fixed, self._retry_not_stored, is_ordered,
                sys_flag, needs, may_batch,
            )  # fmt: skip
            if choose is None:
                self._plans[key] = plan
        return plan


def needs_of(message: Message) -> tuple[str, ...]:
    """Returns the features that the broker of this message must have."""
    found = (DEDUPLICATE,) if message.once else ()
    return found if message.delay is None and message.deliver_at is None else (*found, ANY_DELAY)


def as_choice(choose: Choose) -> Choice:
    return BySelector(choose) if callable(choose) else choose


_LEGAL_IN_GROUPS = frozenset("%|-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LONGEST_GROUP = 255


def check_group(name: str) -> str:
    """Returns the name. Raises ValueError if brokers would refuse it."""
    if not name or len(name) > _LONGEST_GROUP or not _LEGAL_IN_GROUPS.issuperset(name):
        raise ValueError(f"group {name[:60]!r}: 1 to {_LONGEST_GROUP} letters, digits, and any of % | - _ are allowed")
    return name
