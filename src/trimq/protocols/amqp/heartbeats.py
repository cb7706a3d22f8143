"""Signs of life in both directions: sends one when half the agreed time has passed, and notices that the peer has been
silent for twice that time. Knows no socket."""

from __future__ import annotations

from collections.abc import Callable

from trimq.clock import Timeline, Timer


class Heartbeats:
    """`receptions` tells how often bytes came; any of them is a sign of life."""

    def __init__(
        self,
        timeline: Timeline,
        interval_s: int,
        receptions: Callable[[], int],
        send: Callable[[], None],
        fell_silent: Callable[[], None],
    ) -> None:
        self._timeline = timeline
        self._half_ms = interval_s * 500
        self._receptions = receptions
        self._send = send
        self._fell_silent = fell_silent
        self._seen = receptions()
        self._silent_halves = 0
        self.is_deaf = False
        """Nothing is read from the peer, so its silence means nothing."""
        self._timer: Timer | None = None
        self._due_ms = timeline.now_ms()
        self._wait()

    def _wait(self) -> None:
        self._due_ms += self._half_ms
        self._timer = self._timeline.call_at(self._due_ms, self._beat)

    def _beat(self) -> None:
        found = self._receptions()
        self._silent_halves = 0 if found != self._seen or self.is_deaf else self._silent_halves + 1
        self._seen = found
        if self._silent_halves > 4:  # two whole intervals, and the half in which the last sign may have come
            self._timer = None
            self._fell_silent()
            return
        self._send()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
