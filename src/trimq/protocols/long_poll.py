"""Long polls: requests that wait for an event, up to a deadline. Owns the watch, the timer, the counters and the
deferred reply of one request; knows no protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from trimq.clock import Timeline
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import IN_ORDER, DeferredReply, Reply


class Watch(Protocol):
    def cancel(self) -> None:
        """Prevents the callback. Harmless after the callback."""


class WaitingRequest(ABC):
    """Request that may have to wait for its answer; implemented by front-ends."""

    __slots__ = ()

    @abstractmethod
    def watch(self, wake: Callable[[], None]) -> Watch | None:
        """Registers `wake` to be called once, when another attempt is worthwhile. Returns None if the watch cannot be
        cancelled."""

    @abstractmethod
    def attempt(self) -> Reply | None:
        """Returns the answer, or None to wait for the next event."""

    @abstractmethod
    def answer_now(self) -> Reply:
        """Returns the answer from the available data, since the wait is over."""

    def expire(self) -> Reply | None:
        """Returns the answer at the deadline, or None if the watched event is imminent and the request should wait for
        it."""
        return self.answer_now()

    def reject(self) -> Reply:
        """Returns the answer when too many requests of the connection wait."""
        return self.answer_now()

    @abstractmethod
    def ended(self) -> None:
        """Called when the request waits no longer: it is answered, or its connection is closed."""


class LongPoll:
    """Holds one request until an attempt succeeds, its deadline passes, or its connection is closed. Ends once. An
    error raised by an attempt fails the reply."""

    __slots__ = ("_counts", "_is_over", "_request", "_timer", "_watch", "reply")

    def __init__(
        self, request: WaitingRequest, liveness: Timeline, counts: Counts, wait_ms: int, lane: object = IN_ORDER
    ) -> None:
        self._request = request
        self._counts = counts
        self._is_over = False
        self._watch: Watch | None = None
        counts.held_reads.value += 1
        counts.waiting_reads.value += 1
        self.reply = DeferredReply(
            lane,
            on_abandon=self._end,
            on_resolve_now=self._resolve_now,
            on_reject_over_limit=self._reject_over_limit,
        )
        self._timer = liveness.call_at(liveness.now_ms() + max(wait_ms, 0), self._expire)
        self._wait()

    def _wait(self) -> None:
        watch = self._request.watch(self._wake)
        if watch is not None:
            self._watch = watch

    def _wake(self) -> None:
        if self._is_over:
            return  # woken by a watch that could not be cancelled
        self._watch = None
        self._try(self._request.attempt)
        if not self._is_over:
            self._wait()

    def _expire(self) -> None:
        self._try(self._request.expire)

    def _resolve_now(self) -> None:
        self._try(self._request.answer_now)

    def _reject_over_limit(self) -> None:
        self._try(self._request.reject)

    def _try(self, attempt: Callable[[], Reply | None]) -> None:
        if self._is_over:
            return
        try:
            answer = attempt()
        except Exception as error:
            self._end()
            self.reply.fail(error)
        else:
            if answer is not None:
                self._end()
                self.reply.resolve_as(answer)

    def _end(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._counts.waiting_reads.value -= 1
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self.reply.on_reject_over_limit = None  # breaks the reference cycle, so that both are freed at once
        self._request.ended()
