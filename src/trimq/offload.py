"""The only access to threads: runs blocking work off the event loop and returns its result to the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from trimq.errors import Busy

# A hanging disk must not prevent the process from ending.
STOP_TIMEOUT_S = 10.0

Work = Callable[[], object]
Done = Callable[[object, BaseException | None], None]


class Offload(Protocol):
    def __call__(self, work: Work, done: Done) -> None:
        """Runs `work` off the event loop, in the order of the calls; then `done(result, error)` on the loop."""


class BoundedOffload:
    """Offload that refuses work with `Busy` while `limit` items wait or run: nobody can make the others wait for long
    by asking for much. `what`: the work, for the error."""

    def __init__(self, inner: Offload, limit: int, what: str) -> None:
        self._inner = inner
        self._limit = limit
        self._what = what
        self.count = 0
        """Items that wait or run."""

    def __call__(self, work: Work, done: Done) -> None:
        if self.count >= self._limit:
            raise Busy(f"{self.count} {self._what} wait already")
        self.count += 1

        def finish(result: object, error: BaseException | None) -> None:
            self.count -= 1
            done(result, error)

        self._inner(work, finish)


class ThreadOffload:
    """One thread that runs its work items one after the other."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __call__(self, work: Work, done: Done) -> None:
        self._queue.put((work, done))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            result: object = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as caught:  # every error must reach the loop
                error = caught
            del work
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:  # the loop is closed: nobody waits for the result
                return
            del item, done, result, error

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Finishes all queued work, then ends the thread. Returns False if the thread did not end in time; it is a
        daemon and ends with the process."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
