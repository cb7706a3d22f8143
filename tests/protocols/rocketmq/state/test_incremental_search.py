"""Searches that take longer than one turn of the loop."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from trimq.clock import ManualTime
from trimq.errors import NotRunning, Refusal
from trimq.protocols.contract import Parts
from trimq.protocols.rocketmq.state.incremental_search import IncrementalSearches
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode


def refuse(refusal: Refusal) -> Parts:
    return [str(refusal).encode()]


def steps(count: int, error: Exception | None = None) -> Iterator[Parts | None]:
    for _ in range(count):
        yield None
    if error is not None:
        raise error
    yield [b"found"]


def test_an_answer_of_the_first_step_is_ready() -> None:
    time = ManualTime(0)
    reply = IncrementalSearches(time).begin(steps(0), refuse)
    assert (reply.take(), time.next_due_ms()) == ([b"found"], None)


def test_a_refusal_of_the_first_step_is_the_callers() -> None:
    searches = IncrementalSearches(ManualTime(0))
    with pytest.raises(NotRunning):
        searches.begin(steps(0, NotRunning()), refuse)
    assert len(searches) == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RemotingRefusal(ResponseCode.SYSTEM_ERROR, "no"), b"no"),
        (OSError(errno.EIO, "the disk gives nothing"), b"could not be read: [Errno 5] the disk gives nothing"),
    ],
)
def test_a_later_failure_is_reported_and_the_others_continue(error: Exception, expected: bytes) -> None:
    time = ManualTime(0)
    searches = IncrementalSearches(time)
    wrong, right = searches.begin(steps(2, error), refuse), searches.begin(steps(5), refuse)
    while time.step(0):
        pass
    (answer,) = wrong.take()
    assert bytes(answer).endswith(expected)
    assert (right.take(), len(searches)) == ([b"found"], 0)


def test_a_search_that_is_given_up_is_looked_at_no_more() -> None:
    time = ManualTime(0)
    searches = IncrementalSearches(time)
    taken = steps(5)
    searches.begin(taken, refuse).cancel()
    assert (len(searches), time.next_due_ms()) == (0, None)
    assert len(list(taken)) == 5, "the cancelled search took another step"


def test_nothing_goes_on_after_a_stop() -> None:
    time = ManualTime(0)
    searches = IncrementalSearches(time)
    reply = searches.begin(steps(5), refuse)
    searches.stop()
    assert (reply.take(), time.next_due_ms()) == (refuse(NotRunning()), None)
    with pytest.raises(NotRunning):
        searches.begin(steps(5), refuse)
