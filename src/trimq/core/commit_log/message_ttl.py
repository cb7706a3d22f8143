"""Which messages of one topic are too old to be given to anybody. Whether any may be is a mark of the topic: without it
no message is looked at."""

from __future__ import annotations

from collections.abc import Callable

from trimq.formats.rocketmq_unit.ttl import expiry_ms
from trimq.formats.rocketmq_unit.unit import Unit


class Freshness:
    """`passed_over` is told of each message that is not given, each time."""

    __slots__ = ("_now_ms", "_passed_over", "is_on")

    def __init__(self, now_ms: Callable[[], int], passed_over: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._passed_over = passed_over
        self.is_on = False

    def is_over(self, unit: Unit) -> bool:
        limit_ms = expiry_ms(unit.properties, unit.store_ms)
        if limit_ms is None or self._now_ms() < limit_ms:
            return False
        self._passed_over()
        return True
