"""Waiting for a broker that restarts: how often, and how long in all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pyspark_trimq.mistakes import Unreachable

T = TypeVar("T")

# Half a minute in all.
_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, *[2.0] * 13)


class RetryPolicy:
    """Whoever never had an answer is told at once that there is none: the address may be wrong."""

    def __init__(self, waits_for_broker: bool) -> None:
        self._waits_for_broker = waits_for_broker

    def call(self, exchange: Callable[[], T], failed: Callable[[Exception], Unreachable]) -> T:
        """Try until there is an answer. OSError: of one try. Unreachable: of the last."""
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
        raise AssertionError("the last try ends above")
