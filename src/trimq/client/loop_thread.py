"""Event loop in a thread of its own, with calls onto it from other threads. Knows nothing of messages."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _check(self) -> None:
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError(
                "this call waits for the client's event loop and would block it for ever: use AsyncClient in callbacks"
            )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and returns its result."""
        try:
            self._check()
        except RuntimeError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # if the wait itself was interrupted
            raise

    def post(self, call: Callable[[], object]) -> None:
        """Calls a function on the loop soon. Many posts share one wake-up of the loop."""
        with self._lock:
            self._calls.append(call)
            if self._is_woken:
                return
            self._is_woken = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._is_woken = False
        for call in calls:
            call()

    def close(self) -> None:
        """Ends loop and thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def copy_outcome(source: asyncio.Future[Any], target: Future[Any]) -> None:
    """Passes the outcome of a future of the loop to one of other threads."""

    def done(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            target.cancel()
        elif (error := future.exception()) is not None:
            target.set_exception(error)
        else:
            target.set_result(future.result())

    if target.set_running_or_notify_cancel():
        source.add_done_callback(done)
