"""Decides which messages of one topic have expired (TTL). A topic is marked once it has received a message with a TTL;
without the mark no message is checked."""

from __future__ import annotations

from collections.abc import Callable

from trimq.formats.rocketmq_unit.ttl import expiry_ms
from trimq.formats.rocketmq_unit.unit import Unit


class MessageTtl:
    """TTL check of one topic. `on_expired` is called for each expired message, each time a reader skips it."""

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
