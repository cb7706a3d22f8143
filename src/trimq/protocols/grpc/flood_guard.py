"""Counts what a peer sends that asks for nothing: some is ordinary, a flood of it is not. Knows no frame."""

from __future__ import annotations

from collections.abc import Callable

from trimq.protocols.grpc.frames import ErrorCode, Http2ConnectionError

PERIOD_MS = 10_000

# So many are forgotten for each call that was answered: whoever works may also talk.
_PER_CALL = 8


class FloodGuard:
    __slots__ = ("_count", "_limit", "_now_ms", "_since_ms")

    def __init__(self, limit: int, now_ms: Callable[[], int]) -> None:
        self._limit = limit
        self._now_ms = now_ms
        self._count = 0
        self._since_ms = now_ms()

    def count_idle_frame(self) -> None:
        """BrokenConnection: it was too often in too short a time. The clock is read when it was often only."""
        self._count += 1
        if self._count > self._limit:
            now_ms = self._now_ms()
            if now_ms - self._since_ms < PERIOD_MS:
                reason = f"more than {self._limit} frames that ask for nothing in {PERIOD_MS // 1000} s"
                raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, reason)
            self._since_ms = now_ms
            self._count = 0

    def call_answered(self) -> None:
        """A call was answered."""
        if self._count > 0:
            self._count -= _PER_CALL
