"""Trace of a simulation: the last events as text, and a hash over all of them for the comparison of two runs."""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_EVENTS = 300


class SimulationFailure(AssertionError):
    """An invariant does not hold, or a client hangs."""


class Trace:
    def __init__(self) -> None:
        self._events: deque[str] = deque(maxlen=KEPT_EVENTS)
        self._hash = hashlib.blake2b(digest_size=16)
        self.now_us = 0
        self.mistakes: list[str] = []

    def note(self, event: str) -> None:
        line = f"{self.now_us / 1_000_000:14.6f} {event}"
        self._events.append(line)
        self._hash.update(line.encode())

    def remark(self, line: str) -> None:
        """Adds a line for the reader: not part of the hash."""
        self._events.append(line)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Adds the broker's log lines to the trace, for the reader only: they are not part of the hash."""
        log = logging.getLogger("trimq")
        handler, propagated = _Listener(self), log.propagate
        log.addHandler(handler)
        # Another handler that keeps records would keep their errors, and with them the whole simulation.
        log.propagate = False
        try:
            yield
        finally:
            log.propagate = propagated
            log.removeHandler(handler)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def __str__(self) -> str:
        return "\n".join(self._events)


class _Listener(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._trace.remark(f"{'':14} {record.levelname.lower()}: {text}")
        if record.exc_info is not None:  # an unexpected exception: a bug, whatever its consequences
            self._trace.mistakes.append(f"{text}\n{''.join(traceback.format_exception(record.exc_info[1]))}")
