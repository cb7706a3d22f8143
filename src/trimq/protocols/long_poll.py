"""Long polls: requests that wait for an event, up to a deadline. Owns the watch, the timer, the counters and the
deferred reply of one request; knows no protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trimq.clock import Timeline
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import IN_ORDER, DeferredReply, Reply


class Watch(Protocol):
    def cancel(self) -> None:
        """Prevent the call-back. Harmless after it."""


class WaitingRequest:
    """A request that may have to wait for its answer, as the front-end implements it."""

    __slots__ = ()

    def watch(self, wake: Callable[[], None]) -> Watch | None:
        """Have `wake` called once, when it is worth another attempt. None: this cannot be cancelled."""
        raise NotImplementedError

    def attempt(self) -> Reply | None:
        """The answer, if there is one by now. None: wait for the next event."""
        raise NotImplementedError

    def answer_now(self) -> Reply:
        """The answer with what there is now: nobody waits any longer."""
        raise NotImplementedError

    def expire(self) -> Reply | None:
        """The answer at the deadline. None: the event that is watched for happens in a moment, wait for that."""
        return self.answer_now()

    def reject(self) -> Reply:
        """The answer when too many requests of the connection wait."""
        return self.answer_now()

    def ended(self) -> None:
        """The request waits no longer: it is answered, or its connection is closed."""


class LongPoll:
    """Holds one request until an attempt succeeds, its deadline passes, or its connection is closed. Ends once. What an
    attempt raises fails the reply."""

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
            return  # a watch that could not be cancelled
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
        self.reply.reject_over_limit = None  # it knows us: without this, both would wait for the collector
        self._request.ended()
