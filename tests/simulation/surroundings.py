"""Environment that the clients of one simulated world share: network, time, pace, and the expected state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from broker_promises import BrokerPromises
from simulated_loop import SimulatedLoop
from simulated_time import MESSAGE_EPOCH_MS


class Surroundings:
    def __init__(self, promises: BrokerPromises) -> None:
        self.promises = promises
        self.loop: SimulatedLoop
        self.tempo_s = 0.01
        self.is_up = False
        self.is_finishing = False
        self.life = 0
        self.may_forget = False
        """Acknowledged records may be lost: flush = async, or flipped bits."""
        self.damage_refusals: tuple[str, ...] = ()
        self._sleepers: dict[asyncio.Future[None], None] = {}

    def now_ms(self) -> int:
        return MESSAGE_EPOCH_MS + self.loop.now_us // 1000

    def outdated(self) -> Callable[[], bool]:
        """Returns a check whether responses of the current broker are no longer valid."""
        life = self.life
        return lambda: self.may_forget and self.life != life

    async def pause(self, seconds: float) -> None:
        """Waits; at most until a new run of the broker begins, or the simulation ends."""
        if not self.is_finishing:
            await self._sleep(seconds)

    async def think(self, random: Random) -> None:
        await self.pause(self.tempo_s * random.choice((0, 0.1, 1, 3)) * random.random())

    async def wait_until_up(self, random: Random) -> None:
        while not self.is_up:
            await self._sleep(86_400)
        await asyncio.sleep(random.random() * min(self.tempo_s, 0.1))

    async def _sleep(self, seconds: float) -> None:
        woken = self.loop.create_future()
        self._sleepers[woken] = None
        timer = self.loop.call_later(seconds, _wake, woken)
        await woken
        timer.cancel()
        self._sleepers.pop(woken, None)

    def begin_run(self, tempo_s: float) -> None:
        self.tempo_s = tempo_s
        self.is_up = True
        self.life += 1
        self._wake_all()

    def end_run(self) -> None:
        self.is_up = False

    def finish(self) -> None:
        self.is_finishing = True
        self._wake_all()

    def _wake_all(self) -> None:
        sleepers, self._sleepers = self._sleepers, {}
        for sleeper in sleepers:
            _wake(sleeper)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
