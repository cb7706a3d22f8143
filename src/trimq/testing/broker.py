"""Embedded broker for tests: runs in this process on its own thread and event loop, on free ports, in memory by
default, with a clock that the test controls."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from trimq.clock import Clock, WallTime
from trimq.model import Layout, Record
from trimq.server.direct_access import DirectAccess
from trimq.server.embedded import BrokerRun, FolderStore, MemoryStore, Store
from trimq.server.node import Node
from trimq.testing.durations import Duration, parse_duration
from trimq.testing.keywords import IN_MEMORY_SETTINGS, Value, settings_from
from trimq.testing.loop_thread import LoopThread
from trimq.testing.ports import ReservedPorts
from trimq.testing.sightings import EventRecorder
from trimq.testing.timelines import MessageTime, ShiftedTime, advance

T = TypeVar("T")
Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

# How long the broker may take to write, sync and send the effects of one step of time.
_PATIENCE_S = 20.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999  # end of the year 9999, the last date of `datetime`


class BrokerFailed(Exception):
    """The broker failed internally, by no fault of the test. `__cause__` is the first failure."""


class _BrokerRun:
    """One run of the broker and its clock."""

    def __init__(self, run: BrokerRun, message: MessageTime, liveness: ShiftedTime, addresses: dict[str, str]) -> None:
        self.run = run
        self.message = message
        self.liveness = liveness
        self.addresses = addresses
        self.unanswered: set[asyncio.Future[Any]] = set()
        self.watcher: asyncio.Task[None] | None = None

    async def watch(self, failed: Callable[[BaseException], None]) -> None:
        """Fails all pending calls when the disk fails, since nothing is acknowledged after that."""
        await self.run.node.failed.wait()
        assert self.run.node.failure is not None
        failed(self.run.node.failure)
        self.fail_unanswered()

    def fail_unanswered(self) -> None:
        for future in tuple(self.unanswered):
            if not future.done():
                future.set_exception(RuntimeError("the broker ended before it responded"))

    def end(self) -> None:
        """Stops the clocks and fails all pending calls."""
        self.message.close()
        self.liveness.close()
        self.fail_unanswered()
        if self.watcher is not None:
            self.watcher.cancel()


class Broker:
    """Embedded broker: `with Broker() as broker:` runs a broker that stores everything in memory.

    `folder`: stores the data in this folder instead. `on_disk`: in a temporary folder. `now`: message time at the
    start, instead of the machine's; without a time zone it is local. Other keywords are settings of the broker, named
    `section_field`: `kafka_num_partitions=3`, `flush="async"`. Methods may be called from any thread except the
    broker's own.
    """

    def __init__(
        self,
        *,
        folder: str | os.PathLike[str] | None = None,
        on_disk: bool = False,
        now: datetime | None = None,
        **settings: Value,
    ) -> None:
        _require(now=(now, (datetime, type(None))))
        if folder is not None and on_disk:
            raise TypeError("give either folder= or on_disk=True: a broker with a folder is always on disk")
        is_in_memory = folder is None and not on_disk
        self._settings = settings_from({**IN_MEMORY_SETTINGS, **settings} if is_in_memory else settings)
        self._given_folder = None if folder is None else Path(folder)
        self._on_disk = on_disk
        self._folder: Path | None = self._given_folder
        self._opened = ExitStack()
        self._sightings = EventRecorder()
        self._thread: LoopThread | None = None
        self._store: Store
        self._broker_run: _BrokerRun | None = None
        self._addresses: dict[str, str] = {}
        self._starts_at_ms = None if now is None else int(now.timestamp() * 1000)
        self._now_ms = 0
        self._reported_failures = 0

    # -- start and stop

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerFailed as failed:
            if error is None:
                raise
            error.add_note(str(failed))  # the failure of the test itself has priority

    def start(self) -> Broker:
        """Starts the broker without `with`; the caller must call `close`."""
        if self._thread is not None:
            raise RuntimeError("this broker has been started already")
        try:
            self._open()
            self._start_broker()
        except BaseException:
            self._thread = None
            self._opened.close()
            raise
        return self

    def _open(self) -> None:
        self._sightings = EventRecorder()
        self._reported_failures = 0
        self._sightings.open()
        self._opened.callback(self._sightings.end)
        if self._on_disk:
            self._folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="trimq-")))
        self._store = MemoryStore() if self._folder is None else FolderStore(str(self._folder))
        ports = ReservedPorts()
        self._opened.callback(ports.release)
        self._bound_settings = ports.choose(self._settings)
        self._thread = LoopThread("trimq-broker", self._sightings.fail)
        self._opened.callback(self._thread.close)
        self._sightings.follow(self._thread.ident)
        self._now_ms = WallTime().now_ms() if self._starts_at_ms is None else self._starts_at_ms

    def close(self) -> None:
        """Stops the broker and releases all threads, sockets and files. Raises BrokerFailed if the broker failed
        internally."""
        if self._thread is None:
            return
        try:
            if self._broker_run is not None:
                self._end("stopped")
        finally:
            self._thread = None
            self._opened.close()
        self._check()

    def _start_broker(self) -> None:
        self._broker_run = self._call(self._start_run)
        self._addresses = self._broker_run.addresses
        places = ", ".join(f"{name} {address}" for name, address in self._addresses.items())
        self._sightings.title = f"the broker at {places}"
        self._sightings.add_event(f"started: {places}")

    async def _start_run(self) -> _BrokerRun:
        message, liveness = MessageTime(self._now_ms), ShiftedTime()
        run = BrokerRun(self._bound_settings, self._store, Clock(message, liveness), self._sightings.add_event)
        try:
            broker_run = _BrokerRun(run, message, liveness, await run.start())
            broker_run.watcher = asyncio.create_task(broker_run.watch(self._sightings.fail))
            return broker_run
        except BaseException:
            message.close()
            liveness.close()
            raise

    def _end(self, note: str) -> str:
        """Ends this run, by a crash if `note` is empty. Returns a sentence about how it ended."""
        broker_run = self._require_run()
        self._now_ms = broker_run.message.now_ms()
        self._broker_run = None
        try:
            if note:
                self._call(broker_run.run.stop)
            else:
                note = self._call(broker_run.run.crash)
        finally:
            self._call(lambda: _run(broker_run.end))
        self._sightings.add_event(note)
        return note

    def stop(self) -> None:
        """Responds to pending requests, makes all writes durable and closes all connections. `restart` starts it
        again."""
        self._end("stopped")
        self._check()

    def crash(self) -> str:
        """Ends the broker at once and drops unsynced writes: no acknowledged message may be missing afterwards.

        In memory, the default, this simulates a power cut. On a real folder it equals `kill -9`: the page cache of the
        machine keeps data that was written but not synced. Returns a sentence that says which of the two it was."""
        return self._end("")

    def restart(self) -> None:
        """Recovers the stored data and listens at the same addresses. Stops the broker first if it is running."""
        if self._thread is None:
            raise RuntimeError("this broker is not started; use `with Broker() as broker:`")
        if self._broker_run is not None:
            self.stop()
        self._start_broker()

    # -- addresses

    @property
    def addresses(self) -> dict[str, str]:
        """`host:port` by listener. Stays the same across `stop`, `crash` and `restart`."""
        return dict(self._addresses)

    @property
    def kafka(self) -> str:
        """Address for `bootstrap.servers`."""
        return self._address("kafka")

    @property
    def amqp(self) -> str:
        """URL for RabbitMQ's clients, with the user that is accepted while no user is defined."""
        return f"amqp://guest:guest@{self._address('amqp')}/"

    @property
    def rocketmq(self) -> str:
        """Address of the name server, for `namesrvAddr`."""
        return self._address("rocketmq")

    @property
    def rocketmq_grpc(self) -> str:
        """Address for `endpoints` of gRPC clients. Needs the extra `grpc`."""
        return self._address("rocketmq_grpc")

    @property
    def http(self) -> str:
        """Base URL of health, metrics and administration."""
        return f"http://{self._address('http')}"

    def _address(self, name: str) -> str:
        if name not in self._addresses:
            raise RuntimeError(f"this broker has no {name} listener: it is off, or the broker is not started")
        return self._addresses[name]

    @property
    def folder(self) -> Path | None:
        """Data folder of the broker; None if it is in memory."""
        return self._folder

    # -- time

    def now(self) -> datetime:
        """Returns the message time in UTC: the time of the start plus all advances."""
        return _EPOCH + timedelta(milliseconds=self.now_ms())

    def now_ms(self) -> int:
        """Returns the message time in milliseconds since 1970."""
        return self._now_ms if self._broker_run is None else self._broker_run.message.now_ms()

    def advance(self, duration: Duration, *, liveness: bool = False) -> None:
        """Advances message time: "250ms", "10s", "5m", "2h", "7d", "1h30m", a timedelta, or seconds.

        Due timers run one after the other, each at its own time, and the effects of each are written, synced and sent
        before the next. `liveness`: also advances heartbeats, sessions and long polls, which otherwise follow real
        time."""
        broker_run, by_ms = self._require_run(), parse_duration(duration)
        if broker_run.message.now_ms() + by_ms > _LAST_MS:
            raise ValueError(f"{duration!r} ends after the year 9999")
        self._sightings.add_event(f"time: advancing by {by_ms} ms{' with liveness' if liveness else ''}")
        moved = broker_run.liveness if liveness else None
        self._call(
            lambda: advance(broker_run.message, moved, by_ms, lambda: broker_run.run.wait_until_quiet(_PATIENCE_S))
        )
        self._check()

    # -- definitions and messages, without a client

    def create_topic(self, name: str, partitions: int = 1, *, home: str = "partition-log", **settings: Value) -> None:
        """Creates a topic and waits until it is durable. Settings have the broker's names: `retention_ms=60_000`.
        `home="commit-log"`: a RocketMQ topic with this number of queues; its only setting is `message_type`."""
        layout = _layout(home)
        given = {key: str(value) for key, value in settings.items()}
        if layout is Layout.COMMIT_LOG:
            given = {key.replace("_", "."): value for key, value in given.items()}
        self._write(lambda node: DirectAccess(node).create_topic(name, partitions, layout, given))
        self._call(lambda: _run(self._require_run().run.report_new_topics))

    def create_queue(
        self,
        name: str = "",
        arguments: Mapping[str, str | int | bool] | None = None,
        *,
        durable: bool = True,
        vhost: str = "/",
    ) -> str:
        """Declares an AMQP queue and waits until it is durable. Returns its name, which the broker chooses if it is
        empty. `arguments`: as clients give them, `{"x-message-ttl": 60_000}`."""
        _require(name=(name, (str,)), vhost=(vhost, (str,)))
        return self._write(lambda node: DirectAccess(node).create_queue(name, vhost, durable, arguments or {}))

    def create_group(self, name: str, *, orderly: bool = False, retries: int = 16) -> None:
        """Creates a RocketMQ group and waits until it is durable; gRPC clients need it before they connect."""
        _require(name=(name, (str,)))
        self._write(lambda node: DirectAccess(node).create_group(name, orderly, retries))

    def send(
        self,
        topic: str,
        body: bytes | str | None,
        key: bytes | str | None = None,
        headers: Headers = (),
        *,
        partition: int = 0,
        timestamp_ms: int | None = None,
        vhost: str = "/",
    ) -> int:
        """Appends one record to a topic or an AMQP queue, waits until it is acknowledged and returns its offset.
        `headers` are the properties of a RocketMQ message, `key` its keys. Raises TypeError if an argument is neither
        text nor bytes."""
        _require(topic=(topic, (str,)), body=(body, _TEXT), key=(key, _TEXT))
        pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        stamp_ms = self.now_ms() if timestamp_ms is None else timestamp_ms
        record = Record(_bytes(body), _bytes(key), pairs, stamp_ms)
        return self._write(lambda node: DirectAccess(node).send(topic, partition, vhost, record))

    def records(self, topic: str, partition: int = 0, *, vhost: str = "/") -> list[Record]:
        """Returns every record that a consumer could read, from the first offset on, and consumes none. `topic` may be
        a Kafka topic, a RocketMQ topic (`partition`: its queue) or an AMQP queue. Of a queue, messages of the highest
        priority come first; those that are delivered and unacked are included."""
        _require(topic=(topic, (str,)))
        return self.on_loop(lambda node: list(DirectAccess(node).records(topic, partition, vhost)))

    def on_loop(self, call: Callable[[Node], T]) -> T:
        """Calls a function with the node on its event loop: for tests of the broker itself, not of applications."""
        node = self._require_run().run.node
        return self._call(lambda: _run(lambda: call(node)))

    def _write(self, write: Callable[[Node], tuple[T, Any]]) -> T:
        """Calls `write`, which returns a result and a ticket or None. Returns the result once the ticket's pass is
        durable, or raises the refusal of that pass."""
        broker_run = self._require_run()

        async def write_and_wait() -> T:
            if broker_run.run.node.failure is not None:
                raise BrokerFailed("the broker has failed and accepts no more writes") from broker_run.run.node.failure
            result, ticket = write(broker_run.run.node)
            broker_run.run.node.passes.end_soon()  # with flush = pooled it would wait
            if ticket is None:  # nothing was written that must become durable
                return result
            settled = asyncio.get_running_loop().create_future()
            broker_run.unanswered.add(settled)
            settled.add_done_callback(broker_run.unanswered.discard)
            broker_run.run.node.passes.on_durable(ticket, lambda done: settled.set_result(done.refusal))
            refusal = await settled
            if refusal is not None:
                raise refusal
            return result

        return self._call(write_and_wait)

    # -- recorded events

    def sightings(self) -> list[str]:
        """Returns the last connections, requests with their outcome, new topics and log messages, oldest first, as the
        report of a failing test shows them."""
        return self._sightings.lines()

    def _require_run(self) -> _BrokerRun:
        if self._broker_run is None:
            down = "call restart() first" if self._thread is not None else "use `with Broker() as broker:`"
            raise RuntimeError(f"the broker is not running: {down}")
        return self._broker_run

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert self._thread is not None
        return self._thread.call(make)

    def _check(self) -> None:
        """Raises BrokerFailed for failures inside the broker since the last check, each once."""
        failures = self._sightings.failures[self._reported_failures :]
        self._reported_failures += len(failures)
        if failures:
            more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
            raise BrokerFailed(f"the broker failed: {failures[0]!r}{more}") from failures[0]


async def _run(call: Callable[[], T]) -> T:
    return call()


def _layout(home: str) -> Layout:
    try:
        return Layout(home)
    except ValueError:
        raise TypeError(f"home must be partition-log (Kafka) or commit-log (RocketMQ), not {home!r}") from None


_TEXT = (bytes, str, type(None))


def _require(**arguments: tuple[object, tuple[type, ...]]) -> None:
    for name, (value, types) in arguments.items():
        if not isinstance(value, types):
            wanted = " or ".join("None" if wanted is type(None) else wanted.__name__ for wanted in types)
            raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}: {value!r:.100}")


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
