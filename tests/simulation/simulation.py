"""One simulated world from one seed: a broker that is crashed and restarted, a workload, and faults all along. Knows
when things happen, not the behaviour of a broker or a workload."""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, NamedTuple, Protocol

from simulated_files import SimulatedFiles
from simulated_loop import Host, SimulatedLoop
from simulated_offload import DiskSpeed, SimulatedOffload
from simulated_time import simulated_clock
from simulated_trace import SimulationFailure, Trace

from trimq.clock import Clock
from trimq.errors import Damage, StartupError

BOOT_LIMIT_S = 300
FINISH_LIMIT_S = 1800


class Environment(NamedTuple):
    """Everything that a broker may use."""

    loop: SimulatedLoop
    host: Host
    files: SimulatedFiles
    clock: Clock
    offload: SimulatedOffload
    work_offload: SimulatedOffload
    random: Random
    failed: Callable[[BaseException], None]


class Death(Enum):
    """How a run of the broker ended."""

    STOP = "it was stopped cleanly"
    KILL = "the process was killed: the page cache survives"
    POWER = "the power was cut"


class Workload(Protocol):
    """Purpose of the world. Clients run on their own host, which never dies."""

    async def start_broker(self, environment: Environment) -> Any:
        """Opens or recovers a broker and serves. `recovered` checks it before any client connects."""

    async def stop_broker(self, broker: Any) -> None:
        """Stops cleanly."""

    def begin(self, clients: Host) -> None: ...

    def recovered(self, broker: Any) -> None:
        """Compares the recovered state with the expected one; from now on clients may use this broker."""

    def died(self, way: Death) -> None:
        """The broker is gone, with all pending requests of clients."""

    def would_not_start(self, error: Exception) -> None:
        """The broker refused to start: raises unless that is expected."""

    def choose_lifetime_s(self) -> float:
        """Returns the duration of a run of the broker, unless it ends by itself."""

    def check(self) -> None:
        """Checks invariants after every pass of the loop."""

    def finish(self) -> None:
        """All faults are healed: ends the clients."""

    def still_waiting(self) -> list[str]:
        """Returns the clients that have not ended."""


@dataclass
class Outcome:
    seed: int
    digest: str
    simulated_s: float
    crashes: int


class Simulation:
    def __init__(
        self, seed: int, make_workload: Callable[[Random], Workload], replay: str = "", flips_bits: bool = False
    ) -> None:
        self.seed = seed
        self._flips_bits = flips_bits
        self._replay = replay
        self.trace = Trace()
        self._random = self._source("faults")
        self.loop = SimulatedLoop(self._source("order"), self._source("network"), self.trace)
        self.files = SimulatedFiles(self._source("files"), self.trace)
        self._speed = DiskSpeed()
        self._workload = make_workload(self._source("workload"))
        self._host: Host | None = None
        self._broker: Any = None
        self._life = 0
        self._has_failed = False
        self._gave_up = asyncio.Event()
        self._pace = 1.0
        self.crashes = 0

    def _source(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")

    def run(self) -> Outcome:
        was_collecting = gc.isenabled()
        gc.disable()  # finalizers run when references end, never at a moment that the seed does not choose
        try:
            with self.trace.listening():
                self._run()
        except Exception as error:
            raise SimulationFailure(self._report(error)) from error
        finally:
            self.loop.end()
            if was_collecting:
                gc.enable()
        return Outcome(self.seed, self.trace.digest(), self.loop.time(), self.crashes)

    def _report(self, error: BaseException) -> str:
        reason = "".join(traceback.format_exception(error))
        return f"seed {self.seed}: {error}\n\nthe last events:\n{self.trace}\n\n{reason}\nreplay: {self._replay}"

    def _run(self) -> None:
        chaos = self.loop.host("chaos").start(self._live_through())
        self.loop.after_pass.append(self._check_mistakes)
        self.loop.after_pass.append(self._workload.check)
        self._workload.begin(self.loop.host("clients"))
        if not self.loop.run_until(chaos.done, limit_s=30 * 86_400):
            raise SimulationFailure(f"the simulation itself does not end; waiting: {self._workload.still_waiting()}")
        chaos.result()

    def _check_mistakes(self) -> None:
        if self.trace.mistakes:
            raise SimulationFailure(f"the broker logged an unexpected error: {self.trace.mistakes[0]}")

    # -- course of events

    async def _live_through(self) -> None:
        for _ in range(self._random.randint(2, 6)):
            if await self._boot():
                await self._inject_faults(self._workload.choose_lifetime_s())
            await self._end_life()
            self._flip_bits()
            await asyncio.sleep(self._random.choice((0, 0.01, 1, 60, 3600)) * self._random.random())
        await self._heal_and_finish()
        await self._lose_power()
        await self._boot(calm=True)

    async def _heal_and_finish(self) -> None:
        self._heal()
        self.trace.note("all faults are healed")
        await self._boot(calm=True)
        self._workload.finish()
        waited_s = 0.0
        while waiting := self._workload.still_waiting():
            if self._has_failed or waited_s > FINISH_LIMIT_S:
                raise SimulationFailure(f"clients that hang after healing: {', '.join(waiting)}")
            await asyncio.sleep(1)
            waited_s += 1

    async def _inject_faults(self, lifetime_s: float) -> None:
        ends = self.loop.time() + lifetime_s
        self._pace = max(lifetime_s / 10, 1)
        while (left := ends - self.loop.time()) > 0 and not self._has_failed:
            pause_s = self._pace * self._random.choice((0.005, 0.05, 1)) * self._random.random()
            if not await self._has_given_up(min(left, pause_s)):
                self._inject()

    def _inject(self) -> None:
        fault = self._random.choice(
            (self._fill_disk, self._fail_write, self._slow_disk, self._worsen_weather)
            + (self._cut_wire, self._cut_wire, self._freeze_wire) * bool(self.loop.network.vulnerable_wires())
            + (self._fail_sync, self._fail_undo) * (self._random.random() < 0.2)
        )
        self.trace.note(f"fault: {fault.__name__.strip('_')}")
        fault()

    # -- faults

    def _later(self, callback: Callable[[], None]) -> None:
        self.loop.call_later(self._pace * self._random.choice((0.005, 0.1, 2)) * self._random.random(), callback)

    def _fill_disk(self) -> None:
        self.files.is_full = True
        self._later(self._make_room)

    def _make_room(self) -> None:
        self.files.is_full = False

    def _fail_write(self) -> None:
        self.files.writes_until_failure = self._random.randint(1, 4)

    def _fail_sync(self) -> None:
        self.files.fails_next_sync = True

    def _fail_undo(self) -> None:
        self._fail_write()
        self.files.fails_next_resize = True

    def _slow_disk(self) -> None:
        self._speed.worsen(self._random)
        self._later(self._speed.clear)

    def _worsen_weather(self) -> None:
        self.loop.network.weather.worsen(self._random)
        self._later(self.loop.network.weather.clear)

    def _cut_wire(self) -> None:
        self._random.choice(self.loop.network.vulnerable_wires()).cut()

    def _freeze_wire(self) -> None:
        wire = self._random.choice(self.loop.network.vulnerable_wires())
        wire.freeze(self._random.choice((0.1, 3, 90)) * self._random.random())

    def _flip_bits(self) -> None:
        """Flips bits on the medium while the broker is down."""
        if self._flips_bits and self._random.random() < 0.6:
            self.files.flip_some_bits(self._random.choice((1, 1, 2, 5)))

    def _heal(self) -> None:
        self.files.heal()
        self._speed.clear()
        self.loop.network.weather.clear()

    # -- starts and stops of the broker

    async def _boot(self, calm: bool = False) -> bool:
        """Starts a broker, which may be crashed while it starts. Returns False if it did not start."""
        self._life += 1
        self._has_failed = False
        self._gave_up.clear()
        # A broker stops if its disk fails during recovery, and is started again: here it starts on a working disk.
        self.files.heal()
        self._host = self.loop.host(f"broker {self._life}")
        environment = Environment(
            self.loop,
            self._host,
            self.files,
            simulated_clock(self.loop),
            SimulatedOffload(self.loop, self._source(f"offload {self._life}"), self._speed),
            SimulatedOffload(self.loop, self._source(f"work {self._life}"), self._speed),
            self._source(f"broker {self._life}"),
            self._failed,
        )
        self.trace.note(f"life {self._life} starts")
        start = self._host.start(self._workload.start_broker(environment))
        may_crash = not calm and self._random.random() < 0.15
        await asyncio.wait({start}, timeout=self._random.random() * 0.01 if may_crash else BOOT_LIMIT_S)
        if not start.done():
            if may_crash:
                return False
            raise SimulationFailure("the broker does not start")
        try:
            self._broker = start.result()
        except (Damage, StartupError) as error:
            await self._restore(error)
            return await self._boot(calm)
        self._workload.recovered(self._broker)
        return True

    async def _restore(self, error: Exception) -> None:
        """The broker reports damage: restores a copy."""
        self.trace.note(f"the broker refuses to start: {type(error).__name__}")
        self._workload.would_not_start(error)
        self._kill(Death.KILL)
        self.files.die()
        if not self.files.restore():
            raise SimulationFailure(f"the broker refuses to start without damage: {error}")

    async def _has_given_up(self, wait_s: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gave_up.wait(), wait_s)
            # A process that stops takes a moment to end, in which it must not send anything wrong.
            await asyncio.sleep(self._random.choice((0, 0.001, 0.5)) * self._random.random())
        return self._has_failed

    def _failed(self, error: BaseException) -> None:
        """The broker reports that it cannot continue. It ends after a moment."""
        self.trace.note(f"the broker gives up: {type(error).__name__}")
        self._has_failed = True
        self._gave_up.set()

    async def _end_life(self) -> None:
        if self._has_failed or self.files.had_failed_sync:
            await self._lose_power()  # the state of pages with a failed sync is unknown
            return
        way = self._random.choice(("power", "power", "kill", "stop"))
        if way == "stop" and self._broker is not None:
            await self._stop()
        elif way == "kill":
            self.trace.note("the process is killed")
            self._kill(Death.KILL)
            self.files.die()
        else:
            await self._lose_power()

    async def _stop(self) -> None:
        assert self._host is not None
        self.trace.note("the broker gets a stop signal")
        stop = self._host.start(self._workload.stop_broker(self._broker))
        gave_up = asyncio.ensure_future(self._gave_up.wait())
        await asyncio.wait({stop, gave_up}, timeout=FINISH_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        gave_up.cancel()
        if self._has_failed:
            await self._lose_power()
            return
        if not stop.done():
            raise SimulationFailure("the broker does not stop")
        stop.result()
        self._kill(Death.STOP)
        if self._random.random() < 0.5:
            self.trace.note("the power is cut after the stop")
            self.files.lose_power()
        else:
            self.files.die()

    async def _lose_power(self) -> None:
        self.trace.note("the power is cut")
        self._kill(Death.POWER)
        self.files.lose_power()

    def _kill(self, way: Death) -> None:
        assert self._host is not None
        self.crashes += way is not Death.STOP
        self.loop.kill(self._host)
        self._broker = None
        self._workload.died(way)
