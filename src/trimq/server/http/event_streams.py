"""Live numbers for open pages, as server-sent events: one sample a second, made once for all pages, none while no page
is open. Knows no socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from trimq.clock import Timeline, Timer

EVENT_STREAM = "text/event-stream"
INTERVAL_MS = 1000

# Samples that a page may be behind: then its connection is closed. The browser connects again.
_MOST_SKIPPED = 60


class EventWatcher(Protocol):
    """Open page that receives events."""

    @property
    def is_congested(self) -> bool:
        """True if the page reads too slowly."""

    def send_event(self, event: bytes) -> None: ...

    def give_up(self) -> None:
        """Called when the page has not read for too long: no event follows."""


class LiveEvents:
    """`sample`: returns the numbers of now. `limit`: maximum number of pages."""

    def __init__(self, timeline: Timeline, sample: Callable[[], dict[str, Any]], limit: int) -> None:
        self._limit = limit
        self._timeline = timeline
        self._sample = sample
        self._skipped: dict[EventWatcher, int] = {}
        self._timer: Timer | None = None

    @property
    def is_full(self) -> bool:
        return len(self._skipped) >= self._limit

    def watch(self, watcher: EventWatcher) -> bytes:
        """Returns the event of now; the watcher is sent one every second from then on."""
        self._skipped[watcher] = 0
        if self._timer is None:
            self._schedule()
        return self._event()

    def forget(self, watcher: EventWatcher) -> None:
        self._skipped.pop(watcher, None)
        if not self._skipped and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + INTERVAL_MS, self._send)

    def _send(self) -> None:
        self._schedule()
        event = self._event()
        for watcher, skipped in list(self._skipped.items()):
            if not watcher.is_congested:
                self._skipped[watcher] = 0
                watcher.send_event(event)
            elif skipped < _MOST_SKIPPED:
                self._skipped[watcher] = skipped + 1
            else:
                self.forget(watcher)
                watcher.give_up()

    def _event(self) -> bytes:
        return b"data: " + msgspec.json.encode(self._sample()) + b"\n\n"
