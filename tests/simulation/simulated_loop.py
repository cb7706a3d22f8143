"""An event loop without a selector or a clock: time jumps from one event to the next, and a seed decides the order of
external events. Hosts run on it and can be killed with all they had scheduled."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from simulated_network import Network, SimulatedServer
from simulated_trace import SimulationFailure, Trace

_HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("host")

# A pass of the loop takes a little time, and sometimes much longer: a garbage collection, a busy machine.
_PASS_US = 200
_LONG_PASS_US = 30_000
_LONG_PASS_CHANCE = 0.004

# More passes than any simulation needs: the loop is in an endless cycle.
_MAX_PASSES = 2_000_000


class Host:
    """One machine or process of the simulation: its scheduled callbacks are dropped when it is killed."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_alive = True
        self.context = contextvars.copy_context()
        self.context.run(_HOST.set, self)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        return self.loop.create_task(coroutine, name=name, context=self.context.copy())

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls `function` as this host: everything it schedules belongs to the host."""
        return self.context.copy().run(function, *args)


class _Handle(asyncio.TimerHandle):
    """A callback with its host."""

    __slots__ = ("host",)

    def __init__(
        self,
        due: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimulatedLoop,
        context: contextvars.Context | None,
    ) -> None:
        # Equals the constructors of both base classes, at half the cost.
        self._context = context if context is not None else contextvars.copy_context()
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._scheduled = False
        self._when = due
        self.host: Host | None = self._context.get(_HOST)


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, random: Random, network_random: Random, trace: Trace) -> None:
        self._random = random
        self.trace = trace
        self._now_us = 0
        self._spent_us = 0
        self._passes = 0
        self._ready: deque[_Handle] = deque()
        self._events: list[tuple[int, float, int, _Handle]] = []
        self._serial = itertools.count()
        self._failure: BaseException | None = None
        self._is_running = False
        self._tasks: dict[Host | None, list[asyncio.Task[Any]]] = {}
        self.after_pass: list[Callable[[], None]] = []
        self.network = Network(self, network_random)

    # -- time

    def time(self) -> float:
        return self._now_us / 1_000_000

    @property
    def now_us(self) -> int:
        return self._now_us

    def spend_us(self, microseconds: int) -> None:
        """Makes this pass longer by the given time."""
        self._spent_us += microseconds

    # -- callbacks

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(self._now_us, callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_at_us(self._now_us, callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at_us(round(when * 1_000_000), callback, *args, context=context)

    def call_at_us(
        self, due_us: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(due_us / 1_000_000, callback, args, self, context)
        # The seed decides the order of events at the same time.
        heapq.heappush(self._events, (due_us, self._random.random(), next(self._serial), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled handle is skipped when it is due."""

    # -- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coroutine: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self, name=name, context=context)
        host = (context if context is not None else contextvars.copy_context()).get(_HOST)
        # Kept, so that no garbage collection runs a dead host's `finally` at a moment that the seed does not choose.
        kept = self._tasks.setdefault(host, [])
        if len(kept) > 1000:
            kept[:] = [known for known in kept if not known.done()]
        kept.append(task)
        return task

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:
        raise SimulationFailure(f"a thread was requested without the offload: {function}")

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        """No signals are sent here."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    # -- hosts

    def host(self, name: str) -> Host:
        return Host(self, name)

    def kill(self, host: Host) -> None:
        """Drops everything that this host has scheduled; its connections break."""
        host.is_alive = False
        for task in self._tasks.get(host, ()):
            task._log_destroy_pending = False
        # Timers of a dead host must not advance the time.
        self._events = [event for event in self._events if event[3].host is not host]
        heapq.heapify(self._events)
        self.network.host_died(host)

    def end(self) -> None:
        """Releases everything, so that nothing outlives the simulation."""
        self._ready.clear()
        self._events.clear()
        self.after_pass.clear()
        for task in itertools.chain.from_iterable(self._tasks.values()):
            task._log_destroy_pending = False
            coroutine = task.get_coro()
            if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # avoids a warning about a coroutine that was never awaited
        self._tasks.clear()

    # -- the network

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int = 0,
        start_serving: bool = True,
        **options: Any,
    ) -> SimulatedServer:
        server = self.network.listen(protocol_factory, port, _HOST.get())
        if start_serving:
            server.serve()
        return server

    # -- running

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._failure is None:
            error = context.get("exception")
            # A BaseException such as KeyboardInterrupt is passed on to the caller of the simulation.
            is_passed_on = isinstance(error, SimulationFailure) or not isinstance(error, Exception | None)
            self._failure = error if is_passed_on else SimulationFailure(str(context))
            if self._failure is not error:
                self._failure.__cause__ = error

    def run_until(self, is_over: Callable[[], bool], limit_s: float) -> bool:
        """Runs until `is_over`. Returns False if `limit_s` of simulated time passed first, or no event is left."""
        limit_us = self._now_us + round(limit_s * 1_000_000)
        events._set_running_loop(self)
        self._is_running = True
        try:
            while not is_over():
                if self._now_us > limit_us or not (self._ready or self._events):
                    return False
                self._run_pass()
        finally:
            self._is_running = False
            events._set_running_loop(None)
        return True

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        if not self.run_until(task.done, limit_s=86_400):
            raise SimulationFailure(f"{task} hangs")
        return task.result()

    def _run_pass(self) -> None:
        self._passes += 1
        if self._passes > _MAX_PASSES:
            raise SimulationFailure("the loop is in an endless cycle")
        self._let_time_pass()
        while self._events and self._events[0][0] <= self._now_us:
            self._ready.append(heapq.heappop(self._events)[3])
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle._cancelled and (handle.host is None or handle.host.is_alive):
                handle._run()
        for look in self.after_pass:
            look()
        if self._failure is not None:
            raise self._failure

    def _let_time_pass(self) -> None:
        rng = self._random.random()
        long = rng < _LONG_PASS_CHANCE
        took_us = int(rng / _LONG_PASS_CHANCE * _LONG_PASS_US) if long else int(rng * _PASS_US)
        if not self._ready:
            while self._events and self._events[0][3]._cancelled:
                heapq.heappop(self._events)
            if self._events:
                self._now_us = max(self._now_us, self._events[0][0])
        self._now_us += took_us + self._spent_us
        self._spent_us = 0
        self.trace.now_us = self._now_us
