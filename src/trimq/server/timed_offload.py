"""Offload that measures the duration of each work item."""

from __future__ import annotations

from collections.abc import Callable

from trimq.clock import monotonic_seconds
from trimq.offload import Done, Offload, Work


class TimedOffload:
    """Calls `took` on the event loop with the duration of each work item in seconds, also if the work failed."""

    def __init__(self, inner: Offload, took: Callable[[float], object]) -> None:
        self._inner = inner
        self._took = took

    def __call__(self, work: Work, done: Done) -> None:
        seconds = 0.0

        def timed() -> object:
            nonlocal seconds
            started_seconds = monotonic_seconds()
            try:
                return work()
            finally:
                seconds = monotonic_seconds() - started_seconds

        def finish(result: object, error: BaseException | None) -> None:
            self._took(seconds)
            done(result, error)

        self._inner(timed, finish)
