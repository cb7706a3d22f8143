"""A member of a consumer group: finds its queues, hands out their messages, commits, and returns failed ones."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Any

import msgspec

from trimq.client.consuming.assigned import Assigned
from trimq.client.consuming.filters import Filter, Wanted, read_filter, read_filters
from trimq.client.consuming.inbox import Inbox
from trimq.client.consuming.locks import RENEWED_MS, Locks
from trimq.client.consuming.offsets import BrokerOffsets, LocalFile, OffsetStore, QueueOffsets
from trimq.client.consuming.options import AT_MOST_ONCE, DEFAULT_ATTEMPTS, MANUAL, POP, ConsumerOptions
from trimq.client.consuming.popping import Popping
from trimq.client.consuming.received import Received
from trimq.client.consuming.returning import Returner
from trimq.client.consuming.starts import Start
from trimq.client.consuming.statistics import ConsumerStatistics
from trimq.client.errors import (
    ClientError,
    Closed,
    GiveUp,
    NoRoute,
    Refused,
    Retry,
    SubscriptionConflict,
    Unsupported,
)
from trimq.client.heartbeats import ConsumerData
from trimq.client.instance import Instance, RouteWatcher
from trimq.client.link import Link
from trimq.client.messages import MessageQueue
from trimq.client.once.guard import Guard, Outcome
from trimq.client.sending.pipeline import Serializer
from trimq.client.timing import Duration, pause, to_milliseconds
from trimq.wire.remoting import Command
from trimq.wire.remoting_codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

Handler = Callable[[Received], Awaitable[object] | object]
GuardedHandler = Callable[[Received, Any], Awaitable[object] | object]
BatchHandler = Callable[[list[Received]], Awaitable[object] | object]
Reply = Callable[[Received, Any], Awaitable[None]]

REBALANCE_MS = 20_000
_SOON_MS = 500
_TIMEOUT_MS = 3000
_RETRY_PREFIX = "%RETRY%"
_ACTIVELY = "CONSUME_PASSIVELY"


class _Members(msgspec.Struct):
    consumerIdList: list[str] = []


class _Rebalance(RouteWatcher):
    """Wakes the rebalance when a route or connection of the consumer's topics changes."""

    def __init__(self, wake: Callable[[], object], topics: Callable[[], Mapping[str, object]]) -> None:
        self._wake = wake
        self._topics = topics

    def route_changed(self, topic: str) -> None:
        if topic in self._topics():
            self._wake()

    def connection_lost(self, address: str) -> None:
        self._wake()


def _is_coroutine(handler: Callable[..., Any]) -> bool:
    """Returns whether the handler is a coroutine function, or an object whose calls are."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class Consumer:
    """Open it with `async with`; then `run` a handler, or iterate over it."""

    def __init__(
        self,
        open_instance: Callable[[str], Instance],
        group: str,
        subscriptions: Mapping[str, Filter] | str,
        options: ConsumerOptions,
        serializer: Serializer | None,
        reply: Reply,
    ) -> None:
        self.group = group
        self.options = options
        self.serializer = serializer
        self.is_ordered = options.ordered
        self.stats = ConsumerStatistics()
        self.inbox: Inbox[Received] = Inbox(options.lanes.shares if options.lanes is not None else (1,))
        self.wanted: dict[str, Wanted] = read_filters(subscriptions, 0)
        self._filters = {subscriptions: "*"} if isinstance(subscriptions, str) else dict(subscriptions)
        self._open_instance = open_instance
        self._reply = reply
        self._assigned: dict[MessageQueue, Assigned] = {}
        self._paused: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        self._rebalanced = asyncio.Event()
        self._is_open = False
        self._stop = asyncio.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._popping: Popping | None = None
        self._conflict: SubscriptionConflict | None = None
        self._instance: Instance
        self._watcher: _Rebalance

    # -- life

    async def __aenter__(self) -> Consumer:
        if self._is_open:
            raise RuntimeError("this consumer is open already")
        self._instance = instance = self._open_instance(self.group)
        self._is_open = True
        try:
            await self._start(instance)
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self, instance: Instance) -> None:
        self.links = instance.links
        self.timeline = instance.clock.liveness
        self.locks = Locks(instance, self.group)
        self._queue_offsets = QueueOffsets(instance)
        self._returner = Returner(instance, self.group, self.options.max_attempts or DEFAULT_ATTEMPTS)
        self._offsets = self._offset_store(instance)
        version = instance.clock.message.now_ms()
        self.wanted = read_filters(self._filters, version)
        if not self.options.broadcast and self.options.mode != POP:
            retry_topic = f"{_RETRY_PREFIX}{self.group}"
            self.wanted[retry_topic] = read_filter(retry_topic, "*", version)
        for topic in self._filters:
            try:
                await instance.routes.get(topic, _TIMEOUT_MS)
            except NoRoute as error:
                log.warning("group %s: %s; waiting until it exists", self.group, error)
        await self._check_filters(instance)
        if self.options.mode == POP:
            popping = self._make_popping(instance)
            await popping.check()
            self._popping = popping
        await self._check_subscriptions()  # before the broker replaces them by those of this member
        instance.heartbeats.put_consumer(self._heartbeat())
        instance.handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.group] = self._members_changed
        await instance.heartbeats.tell_all()
        self._watcher = _Rebalance(self._changed.set, lambda: self.wanted)
        instance.route_watchers.add(self._watcher)
        if self._popping is not None:
            self._tasks = [
                asyncio.create_task(self._keep_popping(self._popping)),
                asyncio.create_task(self._popping.renew_always()),
            ]
            await self._rebalanced.wait()
            return
        self._tasks = [asyncio.create_task(self._keep_balanced()), asyncio.create_task(self._sweep_always())]
        if self.options.commit != MANUAL:
            self._tasks.append(asyncio.create_task(self._commit_always()))
        if self.is_ordered:
            self._tasks.append(asyncio.create_task(self._renew_locks()))
        await self._rebalanced.wait()

    def _make_popping(self, instance: Instance) -> Popping:
        return Popping(
            instance, self.group, self.options, self.wanted, self.serializer, self.inbox, self.stats, self._reply
        )

    def _offset_store(self, instance: Instance) -> OffsetStore:
        local = self.options.offsets
        if local is None and self.options.broadcast:
            local = LocalFile()
        return BrokerOffsets(instance, self.group) if local is None else local.of_group(self.group)

    def _heartbeat(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            _ACTIVELY,
            "BROADCASTING" if self.options.broadcast else "CLUSTERING",
            self.options.start.name,
            tuple(wanted.subscription for wanted in self.wanted.values()),
        )

    async def _check_filters(self, instance: Instance) -> None:
        """Lets a broker check SQL filters. Raises Refused for a bad one."""
        for topic in self._filters:
            subscription = self.wanted[topic].subscription
            route = instance.routes.find(topic)
            if subscription.expressionType == "TAG" or route is None:
                continue
            body = msgspec.json.encode(
                {"clientId": instance.client_id, "group": self.group, "subscriptionData": subscription}
            )
            for broker in route.brokers:
                address = route.master(broker)
                if address is not None:
                    await self.links.ask(address, RequestCode.CHECK_CLIENT_CONFIG, body=body, timeout_ms=_TIMEOUT_MS)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for running handlers, commits, and leaves the group."""
        if not self._is_open:
            return
        self._is_open = False
        instance = self._instance
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stop.set()
        self.inbox.close()
        if not instance.is_closed:
            if self._popping is not None:
                await self._popping.close()
            await self._revoke(list(self._assigned.values()))
            instance.handlers.pop((RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.group), None)
            await instance.heartbeats.remove_consumer(self.group)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if not instance.is_closed:
            await instance.release()

    def stop(self) -> None:
        """Ends `run` and iterations after the messages that handlers work on."""
        self._stop.set()
        self.inbox.close()

    # -- handling

    async def run(
        self, handler: Handler | GuardedHandler | BatchHandler, *, concurrency: int = 20, batch: int = 1
    ) -> None:
        """Calls the handler for each message until the consumer is stopped or closed, up to `concurrency` calls at the
        same time. A handler is a coroutine function, or a function that runs in a thread. If it returns, the message is
        done; `Retry` or any other exception lets it be delivered again, `GiveUp` dead-letters it. With `batch` above 1
        the handler gets lists of up to so many messages of one queue. With `once` it gets a second argument from the
        guard: the cursor of the transaction to write in, or None."""
        if concurrency < 1 or batch < 1:
            raise ValueError("concurrency and batch must be at least 1")
        guard = self.options.once
        if guard is None:
            call = self._as_coroutine(handler, concurrency)
        elif batch > 1:
            raise ValueError("a guard decides about one message at a time: use batch=1")
        else:
            call = await self._guarded(guard, handler, concurrency)
        workers = [asyncio.create_task(self._work(call, batch)) for _ in range(concurrency)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for worker in done:
                worker.result()
            self._raise_conflict()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def _as_coroutine(self, handler: Callable[..., Any], concurrency: int) -> Callable[[Any], Awaitable[object]]:
        if _is_coroutine(handler):
            return handler
        pool = self._pool = ThreadPoolExecutor(concurrency, f"trimq-{self.group}")
        loop = asyncio.get_running_loop()
        return lambda argument: loop.run_in_executor(pool, handler, argument)

    async def _guarded(
        self, guard: Guard, handler: Callable[..., Any], concurrency: int
    ) -> Callable[[Any], Awaitable[object]]:
        pool = self._pool = ThreadPoolExecutor(concurrency, f"trimq-{self.group}")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, guard.prepare)
        is_coroutine = _is_coroutine(handler)

        def attempt(message: Received) -> None:
            def work(given: Any) -> None:
                found = handler(message, given)
                if is_coroutine:
                    asyncio.run_coroutine_threadsafe(found, loop).result()

            if guard.attempt(message, work) is Outcome.REPEAT:
                loop.call_soon_threadsafe(self._count_known)

        return lambda message: loop.run_in_executor(pool, attempt, message)

    def _count_known(self) -> None:
        self.stats.known += 1

    async def _work(self, call: Callable[[Any], Awaitable[object]], batch: int) -> None:
        while True:
            try:
                messages = await self.inbox.take(batch)
            except Closed:
                return
            source = messages[0].source
            source.handler_began()
            try:
                await self._handle(call, messages, batch == 1)
            except asyncio.CancelledError:
                for message in reversed(messages):
                    if self._popping is not None or self._owner(message) is not None:
                        source.put_back(message)
                raise
            finally:
                source.handler_ended()

    async def _handle(
        self, call: Callable[[Any], Awaitable[object]], messages: list[Received], is_single: bool
    ) -> None:
        if self.options.delivery == AT_MOST_ONCE:
            await self._commit_first(messages)
        try:
            await call(messages[0] if is_single else messages)
        except Retry as retry:
            self.stats.retried += 1
            for message in messages:
                await message.retry(retry.after)
        except GiveUp as reason:
            for message in messages:
                await message.give_up(str(reason))
        except Exception as error:
            self.stats.failed += 1
            log.warning("group %s: handler failed for %r", self.group, messages[0], exc_info=error)
            for message in messages:
                await message.retry()
        else:
            for message in messages:
                if message.is_settled:
                    continue
                if self._popping is None:
                    self.stats.handled += 1
                    self._finish(message)
                else:
                    await self._ack_popped(self._popping, message)

    async def _ack_popped(self, popping: Popping, message: Received) -> None:
        try:
            await popping.ack(message)
        except ClientError as error:
            log.warning("group %s: %r not acknowledged; it is delivered again (%s)", self.group, message, error)

    async def _commit_first(self, messages: list[Received]) -> None:
        for message in messages:
            self._finish(message)
        try:
            await self.commit()
        except ClientError as error:
            log.warning("group %s: not committed before the handler (%s)", self.group, error)

    def __aiter__(self) -> AsyncIterator[Received]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Received]:
        while True:
            try:
                found = await self.inbox.take()
            except Closed:
                self._raise_conflict()
                return
            yield found[0]

    async def receive(self, timeout: Duration, limit: int = 32) -> list[Received]:
        """Returns messages of one queue, up to `limit`; an empty list if none arrive in time."""
        waiter = asyncio.ensure_future(self.inbox.take(limit))
        timer = asyncio.ensure_future(pause(self.timeline, to_milliseconds(timeout)))
        try:
            await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if not waiter.done():
                waiter.cancel()
        if waiter.cancelled() or not waiter.done():
            return []
        return waiter.result()

    def level_of(self, topic: str) -> int:
        """Returns the priority of a topic: 0 is the most urgent."""
        lanes = self.options.lanes
        return 0 if lanes is None else lanes.level_of(topic)

    # -- settling

    def _owner(self, message: Received) -> Assigned | None:
        """Returns the queue that the message still belongs to."""
        found = self._assigned.get(message.queue)
        return None if found is not message.source or message.is_settled else found

    def _finish(self, message: Received) -> None:
        assigned = self._owner(message)
        if assigned is None:
            message.is_settled = True  # of a queue that went to another member
        elif self.is_ordered and not self.locks.holds(message.queue):
            message.is_settled = True  # another member may have handled it again
            self.lost(assigned)
        else:
            assigned.finish(message)

    async def ack(self, message: Received) -> None:
        self.stats.handled += 1
        self._finish(message)

    async def retry(self, message: Received, after: Duration | None) -> None:
        assigned = self._owner(message)
        if assigned is None:
            return
        if self.options.broadcast:
            log.warning("group %s: %r dropped: a broadcast consumer has no retries", self.group, message)
            assigned.finish(message)
        elif self.is_ordered:
            await self._retry_in_place(assigned, message, after)
        else:
            await self._send_back(assigned, message, after)

    async def _retry_in_place(self, assigned: Assigned, message: Received, after: Duration | None) -> None:
        limit = self.options.max_attempts
        if limit is not None and message.attempt >= limit:
            await self.give_up(message, f"failed {message.attempt} times")
            return
        assigned.return_in_place(message, to_milliseconds(self.options.retry_pause if after is None else after))

    async def _send_back(self, assigned: Assigned, message: Received, after: Duration | None) -> None:
        try:
            await self._returner.send_back(message, after)
        except ClientError as error:
            log.warning("group %s: %r not sent back, kept here (%s)", self.group, message, error)
            message.local_attempts += 1
            await pause(self.timeline, _SOON_MS)
            assigned.put_back(message)
        else:
            assigned.finish(message)

    async def give_up(self, message: Received, reason: str) -> None:
        assigned = self._owner(message)
        if assigned is None:
            return
        log.warning("group %s: %r given up: %s", self.group, message, reason or "no reason given")
        self.stats.given_up += 1
        if self.options.broadcast:
            assigned.finish(message)
            return
        try:
            await self._returner.dead_letter(message)
        except ClientError as error:
            log.warning("group %s: %r not dead-lettered, kept here (%s)", self.group, message, error)
            assigned.return_in_place(message, _SOON_MS)
        else:
            assigned.finish(message)

    async def extend(self, message: Received, by: Duration) -> None:
        raise Unsupported('a pulled message has no deadline at the broker: extend needs mode="pop"')

    async def reply(self, message: Received, body: Any) -> None:
        await self._reply(message, body)

    def is_expired(self, expires_ms: int | None) -> bool:
        """Returns whether a message with this expiry time is dropped, and counts it."""
        if expires_ms is None or expires_ms > self._instance.clock.message.now_ms():
            return False
        self.stats.expired += 1
        return True

    # -- offsets

    async def commit(self) -> None:
        """Commits what is finished in all queues. Raises ClientError if a broker does not accept it."""
        self._require_pull("commit")
        await self._commit(list(self._assigned.values()))

    async def _commit(self, queues: list[Assigned]) -> None:
        due = {each: each.messages.committable for each in queues}
        changed = {each.queue: offset for each, offset in due.items() if offset != each.committed}
        if not changed:
            return
        await self._offsets.write(changed)
        for each, offset in due.items():
            each.committed = offset

    async def _commit_always(self) -> None:
        every_ms = to_milliseconds(self.options.commit)  # type: ignore[arg-type]
        while True:
            await pause(self.timeline, every_ms)
            try:
                await self.commit()
            except ClientError as error:
                log.warning("group %s: not committed, trying again in %d ms (%s)", self.group, every_ms, error)

    async def _sweep_always(self) -> None:
        """Sends messages back whose handlers take longer than `work_timeout`."""
        limit_ms = to_milliseconds(self.options.work_timeout)
        while True:
            await pause(self.timeline, max(limit_ms // 4, 100))
            if self.is_ordered or self.options.broadcast:
                continue
            before_ms = self.timeline.now_ms() - limit_ms
            for assigned in list(self._assigned.values()):
                for message in assigned.messages.unfinished():
                    if 0 < message.handed_out_ms < before_ms and not message.is_settled:
                        log.warning(
                            "group %s: %r takes longer than %d ms; sending it back", self.group, message, limit_ms
                        )
                        self.stats.overdue += 1
                        await self._send_back(assigned, message, None)

    async def seek(self, queue: MessageQueue, to: int | datetime | Start) -> None:
        """Continues an assigned queue at an offset or a time; messages that no handler took are dropped."""
        self._require_pull("seek")
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise ValueError(f"{queue} is not assigned to this consumer")
        if isinstance(to, int):
            offset = to
        else:
            start = to if isinstance(to, Start) else Start.at(to)
            offset = await self._start_offset(queue, start)
        assigned.jump(offset)

    async def _start_offset(self, queue: MessageQueue, start: Start) -> int:
        if start == Start.LAST:
            return await self._queue_offsets.last(queue)
        if start == Start.FIRST:
            return await self._queue_offsets.first(queue)
        return await self._queue_offsets.at(queue, start.at_ms)

    def pause(self, *topics: str) -> None:
        """Hands out no messages of these topics, or of any topic if none is given, until `resume`."""
        self._paused.update(topics or self._filters)
        if self._popping is not None:
            self._popping.pause(set(topics or self._filters))
        for assigned in self._assigned.values():
            if assigned.queue.topic in self._paused:
                assigned.pause()

    def resume(self, *topics: str) -> None:
        self._paused.difference_update(topics or self._filters)
        if self._popping is not None:
            self._popping.resume(set(topics or self._filters))
        for assigned in self._assigned.values():
            if assigned.queue.topic not in self._paused:
                assigned.resume()

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """Queues of the subscribed topics that this member reads."""
        return tuple(sorted(queue for queue in self._assigned if queue.topic in self._filters))

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset that the next commit of an assigned queue stores."""
        self._require_pull("position")
        return self._assigned[queue].messages.committable

    def lag(self) -> dict[MessageQueue, int]:
        """Returns for each assigned queue the number of messages that are not finished, as of the last pull."""
        self._require_pull("lag")
        return {
            queue: max(each.end - each.messages.committable, 0)
            for queue, each in self._assigned.items()
            if queue.topic in self._filters
        }

    def _require_pull(self, name: str) -> None:
        if self._popping is not None:
            raise Unsupported(f'{name}: with mode="pop" the broker keeps the position of the group')

    # -- the group

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    def _members_changed(self, link: Link, command: Command) -> None:
        link.respond(command, ResponseCode.SUCCESS)
        self._changed.set()
        if self._is_open and self._conflict is None:
            self._spawn(self._check_again())

    def pull_refused(self, queue: MessageQueue, refused: Refused) -> None:
        log.info("%s: not pulled (%s)", queue, refused)
        if refused.code in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST):
            self._spawn(self._beat(refused.address))
        else:
            self._instance.routes.doubt(queue.topic)
            self._changed.set()

    async def _beat(self, address: str) -> None:
        try:
            await self._instance.heartbeats.beat(address)
        except ClientError as error:
            log.info("%s: heartbeat not accepted (%s)", address, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def address_to_read(self, queue: MessageQueue, replica: int) -> str:
        route = await self._instance.routes.get(queue.topic, _TIMEOUT_MS)
        address = route.reader(queue.broker, replica)
        if address is None:
            raise NoRoute(f"no address of broker {queue.broker} is known")
        if not self._instance.heartbeats.is_told(address):
            await self._instance.heartbeats.tell_all([address])
        return address

    async def _keep_popping(self, popping: Popping) -> None:
        while True:
            self._changed.clear()
            popping.balance()
            self._rebalanced.set()
            is_complete = all(self._instance.routes.find(topic) is not None for topic in self._filters)
            await self._wait_for_changes(is_complete)
            if not is_complete:
                await self._find_routes()

    async def _find_routes(self) -> None:
        for topic in self._filters:
            try:
                await self._instance.routes.get(topic, _TIMEOUT_MS)
            except ClientError as error:
                log.info("group %s: %s", self.group, error)

    async def _keep_balanced(self) -> None:
        while True:
            self._changed.clear()
            is_complete = await self._rebalance()
            self._rebalanced.set()
            await self._wait_for_changes(is_complete)

    async def _wait_for_changes(self, is_complete: bool) -> None:
        waiter = asyncio.ensure_future(self._changed.wait())
        timer = asyncio.ensure_future(pause(self.timeline, REBALANCE_MS if is_complete else _SOON_MS))
        try:
            await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            timer.cancel()

    async def _rebalance(self) -> bool:
        """Takes the queues that are this member's, and lets the others go. Returns False if it must be tried again
        soon."""
        is_complete = True
        for topic in list(self.wanted):
            try:
                mine = await self._share(topic)
                is_complete &= await self._move(topic, mine)
            except NoRoute:
                is_complete &= topic not in self._filters
            except ClientError as error:
                log.info("group %s: topic %s not rebalanced (%s)", self.group, topic, error)
                is_complete = False
        return is_complete

    async def _share(self, topic: str) -> set[MessageQueue]:
        """Returns the queues of a topic that are this member's. Raises ClientError if that cannot be found out."""
        route = await self._instance.routes.get(topic, _TIMEOUT_MS)
        queues = sorted(route.readable)
        if self.options.broadcast or not queues:
            return set(queues)
        address = route.reader(queues[0].broker)
        if address is None:
            raise NoRoute(f"no address of broker {queues[0].broker} is known")
        await self._instance.heartbeats.tell(address)
        fields = {"consumerGroup": self.group}
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        answer = await self.links.ask(address, code, fields, timeout_ms=_TIMEOUT_MS)
        members = sorted(set(msgspec.json.decode(answer.body or b"{}", type=_Members).consumerIdList))
        if self.client_id not in members:
            self._instance.heartbeats.lost(address)
            raise ClientError(f"{address} does not know this member")
        return set(self.options.allocate.allocate(self.client_id, members, queues))

    async def _move(self, topic: str, mine: set[MessageQueue]) -> bool:
        held = {queue for queue in self._assigned if queue.topic == topic}
        gone = [self._assigned[queue] for queue in sorted(held - mine)]
        if gone:
            self.stats.rebalances += 1
            await self._revoke(gone)
        fresh = sorted(mine - held)
        return await self._assign(fresh) if fresh else True

    async def _assign(self, queues: list[MessageQueue]) -> bool:
        """Begins to read queues. Returns False if some could not be taken yet."""
        taken = queues
        if self.is_ordered:
            locked = await self.locks.lock(queues)
            taken = [queue for queue in queues if queue in locked]
        offsets = await asyncio.gather(*map(self._first_offset, taken), return_exceptions=True)
        begun: list[MessageQueue] = []
        for queue, offset in zip(taken, offsets, strict=True):
            if isinstance(offset, ClientError):
                log.info("%s: its offset is not known yet (%s)", queue, offset)
            elif isinstance(offset, BaseException):
                raise offset
            else:
                assigned = self._assigned[queue] = Assigned(self, queue, offset, self.options.limits)
                if queue.topic in self._paused:
                    assigned.pause()
                begun.append(queue)
        shown = [queue for queue in begun if queue.topic in self._filters]
        if shown and self.options.on_assigned is not None:
            await self._call_back(self.options.on_assigned, shown)
        return len(begun) == len(queues)

    async def _first_offset(self, queue: MessageQueue) -> int:
        committed = await self._offsets.read(queue)
        if committed is not None:
            return committed
        # Retries belong to messages that the group has read.
        start = Start.FIRST if queue.topic.startswith(_RETRY_PREFIX) else self.options.start
        return await self._start_offset(queue, start)

    async def _revoke(self, gone: list[Assigned]) -> None:
        """Lets queues go: waits for running handlers, commits, unlocks."""
        for each in gone:
            each.revoke()
        grace_ms = to_milliseconds(self.options.revoke_grace)
        await asyncio.gather(*(each.drained(grace_ms) for each in gone))
        shown = [each.queue for each in gone if each.queue.topic in self._filters]
        if shown and self.options.on_revoked is not None:
            await self._call_back(self.options.on_revoked, shown)
        held = [each for each in gone if not self.is_ordered or self.locks.holds(each.queue)]
        try:
            await self._commit(held)
        except ClientError as error:
            log.warning("group %s: not committed before a rebalance (%s)", self.group, error)
        for each in gone:
            self.stats.repeated += len(each.messages.unfinished()) - len(each.messages.waiting)
            self._assigned.pop(each.queue, None)
            await each.ended()
        if self.is_ordered:
            await self.locks.unlock([each.queue for each in gone])

    def lost(self, assigned: Assigned) -> None:
        """The lock of a queue was lost: another member may read it."""
        if self._assigned.get(assigned.queue) is not assigned:
            return
        log.warning("group %s: lock of %s lost", self.group, assigned.queue)
        assigned.revoke()
        del self._assigned[assigned.queue]
        self.locks.forget(assigned.queue)
        if self.options.on_lost is not None:
            self._spawn(self._call_back(self.options.on_lost, [assigned.queue]))
        self._changed.set()

    async def _renew_locks(self) -> None:
        while True:
            await pause(self.timeline, RENEWED_MS)
            held = list(self._assigned.values())
            locked = await self.locks.lock([each.queue for each in held])
            for each in held:
                if each.queue not in locked and not self.locks.holds(each.queue):
                    self.lost(each)

    async def _call_back(self, call: Callable[[Any], Awaitable[object]], queues: list[MessageQueue]) -> None:
        try:
            await call(queues)
        except Exception:
            log.exception("group %s: callback about %d queues failed", self.group, len(queues))

    # -- one group, one subscription

    async def _check_subscriptions(self) -> None:
        """Compares the subscriptions of this member with those that the broker lists for the group: warns, or raises
        SubscriptionConflict if `strict`."""
        conflict = await self._find_conflict()
        if conflict is None:
            return
        self._conflict = SubscriptionConflict(conflict)
        if self.options.strict:
            raise self._conflict
        log.warning("%s", conflict)

    async def _check_again(self) -> None:
        """Compares the subscriptions after members came or went. If `strict`, `run` and iterations end and raise."""
        try:
            await self._check_subscriptions()
        except SubscriptionConflict:
            self.stop()

    def _raise_conflict(self) -> None:
        if self.options.strict and self._conflict is not None:
            raise self._conflict

    async def _find_conflict(self) -> str | None:
        route = next((found for topic in self._filters if (found := self._instance.routes.find(topic))), None)
        if route is None or not route.readable:
            return None
        address = route.reader(route.readable[0].broker)
        if address is None:
            return None
        fields = {"consumerGroup": self.group}
        try:
            answer = await self.links.ask(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields, timeout_ms=_TIMEOUT_MS
            )
        except ClientError:
            return None
        listed = msgspec.json.decode(answer.body or b"{}")
        ours = {topic: wanted.subscription for topic, wanted in self.wanted.items()}
        others = [each.get("clientId") for each in listed.get("connectionSet") or []]
        others = [each for each in others if each != self.client_id]
        if not others:
            return None
        for topic, theirs in (listed.get("subscriptionTable") or {}).items():
            if topic.startswith(_RETRY_PREFIX):
                continue  # popping members have none
            mine = ours.get(topic)
            expression = None if mine is None else mine.subString
            if theirs.get("subString") != expression:
                shown = "not at all" if expression is None else f"with {expression!r}"
                return (
                    f"group {self.group}: {', '.join(map(str, others))} subscribes to {topic} with "
                    f"{theirs.get('subString')!r}, this member {shown}; all members of a group must agree"
                )
        return None
