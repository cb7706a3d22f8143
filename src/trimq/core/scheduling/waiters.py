"""Those who wait for one stream to grow. Knows neither the stream nor what they wait for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

Callback = Callable[[], None]


class Watch:
    """One who waits. It is woken at most once."""

    __slots__ = ("_callback", "_waiters")

    def __init__(self, waiters: Waiters, callback: Callback) -> None:
        self._waiters = waiters
        self._callback: Callback | None = callback

    def cancel(self) -> None:
        """The callback will not be called. Harmless when it was called already."""
        self._callback = None
        self._waiters._waiting.pop(self, None)

    def _wake(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return  # cancelled by one who was woken before it
        try:
            callback()
        except Exception:
            log.exception("a waiter failed when it was woken")  # the others must be woken all the same


class Waiters:
    """Woken in the order in which they came. A wake-up costs nothing while nobody waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def watch(self, callback: Callback) -> Watch:
        """Call `callback` at the next wake-up, and forget it then."""
        watch = Watch(self, callback)
        self._waiting[watch] = None
        return watch

    def wake(self) -> None:
        """Call everyone who waits now. Who begins to wait during it is called at the next one."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for watch in waiting:
                watch._wake()


class AnyWatch:
    """One who waits for any of several things, and is woken once."""

    __slots__ = ("_callback", "_watches")

    def __init__(self, watches: Sequence[Callable[[Callback], Watch]], callback: Callback) -> None:
        self._callback = callback
        self._watches = [watch(self._woken) for watch in watches]

    def _woken(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        """The callback will not be called. Harmless when it was called already."""
        for watch in self._watches:
            watch.cancel()
