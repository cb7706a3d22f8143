"""Retries requests while the broker restarts: pauses between attempts, and the total time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pyspark_trimq.mistakes import Unreachable

T = TypeVar("T")

# 30 seconds in total.
_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, *[2.0] * 13)


class RetryPolicy:
    """Retries for 30 s. Before the first response it retries only once, because the address may be wrong, unless
    `waits_for_broker`."""

    def __init__(self, waits_for_broker: bool) -> None:
        self._waits_for_broker = waits_for_broker

    def call(self, exchange: Callable[[], T], failed: Callable[[Exception], Unreachable]) -> T:
        """Calls `exchange` until it returns. Retries on OSError; raises the result of `failed` after the last
        attempt."""
        for wait_s in (*_WAITS_S, None) if self._waits_for_broker else (0, None):
            try:
                answer = exchange()
            except OSError as error:
                if wait_s is None:
                    raise failed(error) from None
                threading.Event().wait(wait_s)
            else:
                self._waits_for_broker = True
                return answer
        raise AssertionError("the last attempt returns or raises above")
