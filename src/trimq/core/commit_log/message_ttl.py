"""Which messages of one topic are too old to be given to anybody. Whether any may be is a mark of the topic: without it
no message is looked at."""

from __future__ import annotations

from collections.abc import Callable

from trimq.formats.rocketmq_unit.ttl import expiry_ms
from trimq.formats.rocketmq_unit.unit import Unit


class MessageTtl:
    """`on_expired` is told of each message that is not given, each time."""

    __slots__ = ("_now_ms", "_on_expired", "is_on")

    def __init__(self, now_ms: Callable[[], int], on_expired: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._on_expired = on_expired
        self.is_on = False

    def has_expired(self, unit: Unit) -> bool:
        limit_ms = expiry_ms(unit.properties, unit.store_ms)
        if limit_ms is None or self._now_ms() < limit_ms:
            return False
        self._on_expired()
        return True
