"""AMQP heartbeats in both directions: sends one every half interval, and detects a peer that was silent for two
intervals. Knows no socket."""

from __future__ import annotations

from collections.abc import Callable

from trimq.clock import Timeline, Timer


class Heartbeats:
    """Heartbeat timer of one connection. `receive_count` returns the number of reads; any received bytes count as a
    heartbeat."""

    def __init__(
        self,
        timeline: Timeline,
        interval_s: int,
        receive_count: Callable[[], int],
        send: Callable[[], None],
        on_silence: Callable[[], None],
    ) -> None:
        self._timeline = timeline
        self._half_ms = interval_s * 500
        self._receive_count = receive_count
        self._send = send
        self._on_silence = on_silence
        self._seen = receive_count()
        self._silent_halves = 0
        self.ignores_silence = False
        """True while the broker does not read from the peer, so that silence has no meaning."""
        self._timer: Timer | None = None
        self._due_ms = timeline.now_ms()
        self._wait()

    def _wait(self) -> None:
        self._due_ms += self._half_ms
        self._timer = self._timeline.call_at(self._due_ms, self._beat)

    def _beat(self) -> None:
        found = self._receive_count()
        self._silent_halves = 0 if found != self._seen or self.ignores_silence else self._silent_halves + 1
        self._seen = found
        if self._silent_halves > 4:  # two intervals, plus the half in which the last bytes may have arrived
            self._timer = None
            self._on_silence()
            return
        self._send()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
