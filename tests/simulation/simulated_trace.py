"""What happened in a simulation: the last events in words, and a hash over all of them that tells two runs apart."""

from __future__ import annotations

import hashlib
from collections import deque

KEPT_EVENTS = 300


class SimulationFailure(AssertionError):
    """An invariant does not hold, or somebody hangs."""


class Trace:
    def __init__(self) -> None:
        self._events: deque[str] = deque(maxlen=KEPT_EVENTS)
        self._hash = hashlib.blake2b(digest_size=16)
        self.now_us = 0

    def note(self, event: str) -> None:
        line = f"{self.now_us / 1_000_000:14.6f} {event}"
        self._events.append(line)
        self._hash.update(line.encode())

    def digest(self) -> str:
        return self._hash.hexdigest()

    def __str__(self) -> str:
        return "\n".join(self._events)
