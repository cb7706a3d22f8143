"""Waiters for the growth of one stream. Knows neither the stream nor the purpose of a waiter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

Callback = Callable[[], None]


class Watch:
    """One waiter. Its callback is called at most once."""

    __slots__ = ("_callback", "_waiters")

    def __init__(self, waiters: Waiters, callback: Callback) -> None:
        self._waiters = waiters
        self._callback: Callback | None = callback

    def cancel(self) -> None:
        """Removes the waiter. Does nothing if its callback was called already."""
        self._callback = None
        self._waiters._waiting.pop(self, None)

    def _wake(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return  # cancelled by a waiter that was called before
        try:
            callback()
        except Exception:
            log.exception("waiter of a stream: callback failed")  # the other waiters must still be called


class Waiters:
    """Calls waiters in the order in which they registered. Waking costs nothing while there are none."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def watch(self, callback: Callback) -> Watch:
        """Registers `callback` for the next wake-up only."""
        watch = Watch(self, callback)
        self._waiting[watch] = None
        return watch

    def wake(self) -> None:
        """Calls all current waiters. Those that register during the call are called at the next wake-up."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for watch in waiting:
                watch._wake()


class AnyWatch:
    """Waiter for any of several events, called once."""

    __slots__ = ("_callback", "_watches")

    def __init__(self, watches: Sequence[Callable[[Callback], Watch]], callback: Callback) -> None:
        self._callback = callback
        self._watches = [watch(self._woken) for watch in watches]

    def _woken(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        """Removes the waiter. Does nothing if its callback was called already."""
        for watch in self._watches:
            watch.cancel()
