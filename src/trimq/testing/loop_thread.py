"""Event loop in its own thread, with calls onto it from other threads. Reports errors on the loop to a callback. Knows
nothing of brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_POLL_S = 1.0
_ENDED = "the broker's event loop has ended"


class LoopThread:
    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._live())
        except BaseException as error:  # every error that ends the loop must fail the test
            self._failed(error)
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._handle)
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._failed(error if error is not None else RuntimeError(context["message"]))

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the loop and returns its result or raises its exception."""
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError(
                "this call waits for the broker's event loop and would deadlock on it: call it from another thread"
            )
        if not self._thread.is_alive():
            raise RuntimeError(_ENDED)
        future = asyncio.run_coroutine_threadsafe(make(), self._loop)
        while True:
            try:
                return future.result(_POLL_S)
            except TimeoutError:
                self._check(future)
            except CancelledError:
                raise RuntimeError(_ENDED) from None

    def _check(self, future: Future[T]) -> None:
        if future.done():
            future.result()  # the coroutine itself raised TimeoutError
        elif not self._thread.is_alive():
            raise RuntimeError(_ENDED)

    def close(self) -> None:
        """Ends the loop and the thread. No effect if they have ended."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
