"""Unfinished TLS handshakes of one listener: each must end in time, and their number is bounded. Knows no TLS."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trimq.clock import Timeline, Timer

log = logging.getLogger(__name__)


class Handshake:
    """One unfinished handshake. `end` must be called when it is finished or the connection is lost."""

    __slots__ = ("_all", "abort", "source", "timer")

    def __init__(self, all_of_listener: Handshakes, source: str, abort: Callable[[str], None]) -> None:
        self._all = all_of_listener
        self.source = source
        self.abort = abort
        self.timer: Timer | None = None

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self._all.forget(self)


class Handshakes:
    def __init__(self, timeline: Timeline, limit_ms: int, limit: int) -> None:
        self._timeline = timeline
        self._limit_ms = limit_ms
        self._limit = limit
        self._count = 0
        # By address, oldest first.
        self._unfinished: dict[str, dict[Handshake, None]] = {}

    def __len__(self) -> int:
        return self._count

    def begin(self, source: str, abort: Callable[[str], None]) -> Handshake:
        """Starts the time of a handshake of a client at this address. `abort` closes its connection and gets the
        reason. If there are too many, the oldest of the address that has most yields, not the newcomer."""
        if self._count >= self._limit:
            most = max(self._unfinished.values(), key=len)
            oldest = next(iter(most))
            oldest.end()
            oldest.abort("limit of unfinished TLS handshakes reached")
        made = Handshake(self, source, abort)
        made.timer = self._timeline.call_at(self._timeline.now_ms() + self._limit_ms, lambda: self._timed_out(made))
        self._unfinished.setdefault(source, {})[made] = None
        self._count += 1
        return made

    def forget(self, ended: Handshake) -> None:
        of_address = self._unfinished[ended.source]
        del of_address[ended]
        self._count -= 1
        if not of_address:
            del self._unfinished[ended.source]

    def _timed_out(self, late: Handshake) -> None:
        late.end()
        late.abort("the TLS handshake took too long")
