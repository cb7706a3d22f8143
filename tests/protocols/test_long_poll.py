"""Long polls: answered by an event, at their deadline or at once on demand, rejected over the limit, or cancelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trimq.clock import ManualTime
from trimq.core.scheduling.waiters import Waiters
from trimq.metrics import Metrics
from trimq.protocols.client_counters import CountsOfAll
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.long_poll import LongPoll, WaitingRequest, Watch


class Request(WaitingRequest):
    """Request that is answered by the next element of `found`; an exception there is raised."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self.found: list[bytes | Exception] = []
        self.attempts = 0
        self.ends = 0
        self.has_deadline = True

    def watch(self, wake: Callable[[], None]) -> Watch | None:
        return self.waiters.watch(wake)

    def attempt(self) -> Reply | None:
        self.attempts += 1
        if not self.found:
            return None
        found = self.found.pop()
        if isinstance(found, Exception):
            raise found
        return Reply.now([found])

    def answer_now(self) -> Reply:
        return Reply.now([b"nothing"])

    def expire(self) -> Reply | None:
        return self.answer_now() if self.has_deadline else None

    def reject(self) -> Reply:
        return Reply.now([b"full"])

    def ended(self) -> None:
        self.ends += 1


class Bench:
    def __init__(self, request: Request | None = None) -> None:
        self.time = ManualTime(0)
        self.counts = CountsOfAll(Metrics()).of("test")
        self.request = request or Request()
        self.poll = LongPoll(self.request, self.time, self.counts, 1000, None)

    @property
    def reply(self) -> Reply:
        return self.poll.reply

    def answer(self) -> Parts | None:
        """Returns the answer, or None while the request waits."""
        return self.reply.take() if self.reply.is_ready(0, 0) else None

    def advance(self, duration_ms: int) -> None:
        until_ms = self.time.now_ms() + duration_ms
        while self.time.step(until_ms):
            pass

    def check_over(self) -> None:
        assert self.request.ends == 1
        assert len(self.request.waiters) == 0
        assert (self.counts.held_reads.value, self.counts.waiting_reads.value) == (1, 0)
        self.advance(5000)
        self.poll._wake()
        self.poll._reject_over_limit()
        assert self.request.ends == 1
        assert self.counts.waiting_reads.value == 0


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_request_waits_until_an_attempt_succeeds(bench: Bench) -> None:
    bench.request.waiters.wake()
    assert (bench.request.attempts, bench.answer()) == (1, None)
    assert (bench.counts.held_reads.value, bench.counts.waiting_reads.value) == (1, 1)
    bench.request.found.append(b"found")
    bench.request.waiters.wake()
    assert bench.answer() == [b"found"]
    bench.check_over()


def test_the_deadline_answers(bench: Bench) -> None:
    bench.advance(999)
    assert bench.answer() is None
    bench.advance(1)
    assert bench.answer() == [b"nothing"]
    bench.check_over()


def test_a_deadline_may_leave_the_answer_to_the_event(bench: Bench) -> None:
    bench.request.has_deadline = False
    bench.advance(1000)
    assert bench.answer() is None
    bench.request.found.append(b"found")
    bench.request.waiters.wake()
    assert bench.answer() == [b"found"]
    bench.check_over()


def test_it_is_answered_at_once_on_demand(bench: Bench) -> None:
    assert bench.reply.on_resolve_now is not None
    bench.reply.on_resolve_now()
    assert bench.answer() == [b"nothing"]
    bench.check_over()


def test_it_is_rejected_where_too_many_wait(bench: Bench) -> None:
    assert bench.reply.waits_for_event
    assert bench.reply.on_reject_over_limit is not None
    bench.reply.on_reject_over_limit()
    assert bench.answer() == [b"full"]
    bench.check_over()


def test_nothing_is_left_of_it_when_its_connection_is_closed(bench: Bench) -> None:
    bench.reply.cancel()
    bench.check_over()


def test_a_failed_attempt_fails_the_reply(bench: Bench) -> None:
    bench.request.found.append(ValueError("broken"))
    bench.request.waiters.wake()
    with pytest.raises(ValueError, match="broken"):
        bench.answer()
    bench.check_over()


def test_an_event_that_happens_at_once_needs_no_watch() -> None:
    class Ready(Request):
        def watch(self, wake: Callable[[], None]) -> Watch | None:
            if self.attempts:
                return super().watch(wake)
            wake()
            return None

    bench = Bench(Ready())
    assert (bench.request.attempts, len(bench.request.waiters)) == (1, 1)
    bench.advance(1000)
    assert bench.answer() == [b"nothing"]
    bench.check_over()
