"""Limits the rate of idle frames (frames without effect) of a peer. Knows no frame."""

from __future__ import annotations

from collections.abc import Callable

from trimq.protocols.grpc.frames import ErrorCode, Http2ConnectionError

PERIOD_MS = 10_000

# Idle frames forgiven for each answered call.
_PER_CALL = 8


class FloodGuard:
    __slots__ = ("_count", "_limit", "_now_ms", "_since_ms")

    def __init__(self, limit: int, now_ms: Callable[[], int]) -> None:
        self._limit = limit
        self._now_ms = now_ms
        self._count = 0
        self._since_ms = now_ms()

    def count_idle_frame(self) -> None:
        """Counts an idle frame. Raises Http2ConnectionError if there were too many within the period. Reads the clock
        only when the count exceeds the limit."""
        self._count += 1
        if self._count > self._limit:
            now_ms = self._now_ms()
            if now_ms - self._since_ms < PERIOD_MS:
                reason = f"more than {self._limit} idle frames in {PERIOD_MS // 1000} s"
                raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, reason)
            self._since_ms = now_ms
            self._count = 0

    def call_answered(self) -> None:
        """Forgives some idle frames after an answered call."""
        if self._count > 0:
            self._count -= _PER_CALL
