"""The offload thread of the simulation: work runs at a later moment that the seed chooses, and its result arrives later
still. All of it is dropped with its host."""

from __future__ import annotations

from collections import deque
from random import Random

from simulated_loop import SimulatedLoop

from trimq.offload import Done, Work


class DiskSpeed:
    """Current duration of blocking work."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.usual_us = (200, 4_000)
        self.slow_us = (20_000, 100_000)
        self.slow_chance = 0.02

    def worsen(self, random: Random) -> None:
        self.slow_us = (50_000, random.choice((300_000, 2_000_000, 8_000_000)))
        self.slow_chance = random.choice((0.1, 0.6))

    def choose_us(self, random: Random) -> int:
        return random.randint(*(self.slow_us if random.random() < self.slow_chance else self.usual_us))


class SimulatedOffload:
    def __init__(self, loop: SimulatedLoop, random: Random, speed: DiskSpeed) -> None:
        self._loop = loop
        self._random = random
        self._speed = speed
        self._queue: deque[tuple[Work, Done]] = deque()
        self._is_busy = False

    def __call__(self, work: Work, done: Done) -> None:
        self._queue.append((work, done))
        if not self._is_busy:
            self._begin()

    def _begin(self) -> None:
        self._is_busy = True
        self._later(self._speed.choose_us(self._random), self._work)

    def _work(self) -> None:
        work, done = self._queue.popleft()
        result: object = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as caught:
            error = caught
        # The result takes some time from the thread to the loop.
        self._later(self._random.randint(0, 300), done, result, error)
        self._is_busy = False
        if self._queue:
            self._begin()

    def _later(self, delay_us: int, callback: object, *args: object) -> None:
        self._loop.call_at_us(self._loop.now_us + delay_us, callback, *args)
