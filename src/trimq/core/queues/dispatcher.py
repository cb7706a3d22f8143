"""Dispatches each queue at most once in each turn of the loop, however many events ask for it. Knows the due queues,
never the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)


class Dispatchable(Protocol):
    def dispatch(self) -> None: ...


class Dispatcher:
    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._due: dict[Dispatchable, None] = {}
        self._is_scheduled = False

    def due(self, queue: Dispatchable) -> None:
        """Dispatches the queue at the end of this turn, or in the next turn if it is being dispatched now."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)
        self._due[queue] = None

    def run_now(self, queue: Dispatchable) -> None:
        """Dispatches the queue at once if it is due."""
        if queue in self._due:
            del self._due[queue]
            _dispatch(queue)

    def _run(self) -> None:
        self._is_scheduled = False
        due, self._due = self._due, {}
        for queue in due:
            _dispatch(queue)


def _dispatch(queue: Dispatchable) -> None:
    try:
        queue.dispatch()
    except Exception:
        log.exception("queue dispatch failed; continuing with the other queues")
