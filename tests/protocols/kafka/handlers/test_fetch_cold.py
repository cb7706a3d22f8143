"""Fetch of cold data: the event loop never waits for the disk, and the client gets the same data."""

from __future__ import annotations

import errno

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.handlers.test_fetch import Poll, asked, batch, request, waiting

from trimq.protocols.kafka.names.codes import Code

SIZE = len(batch())


@pytest.fixture
def desk() -> Desk:
    """Desk with one batch in each of three partitions, all cold."""
    desk = Desk()
    desk.create("t", 3)
    for partition in range(3):
        desk.produce("t", batch(), partition)
    desk.files.is_cold = True
    return desk


@pytest.mark.parametrize("wait_ms", [0, 5_000])
def test_cold_data_is_read_off_the_loop_and_then_returned(desk: Desk, wait_ms: int) -> None:
    poll = Poll(desk, request(asked(), wait_ms=wait_ms))
    assert not poll.is_answered
    desk.runner.settle()
    assert poll.found() == [(0, 0, SIZE)]
    assert desk.files.waits == 0
    assert waiting(desk) == 0


def test_all_that_is_on_disk_only_is_read_at_once(desk: Desk) -> None:
    warmed: list[str] = []
    desk.files.before = lambda operation, name: warmed.append(name) if operation == "warm" else None
    poll = Poll(desk, request(asked(0), asked(1), asked(2)))
    assert len(desk.runner.offload) == 1
    desk.runner.settle()
    assert poll.found() == [(0, 0, SIZE), (1, 0, SIZE), (2, 0, SIZE)]
    assert len(warmed) == 3
    assert desk.files.waits == 0


def test_no_more_is_read_into_memory_than_fits_the_answer(desk: Desk) -> None:
    warmed: list[str] = []
    desk.files.before = lambda operation, name: warmed.append(name) if operation == "warm" else None
    poll = Poll(desk, request(asked(0), asked(1), asked(2), max_bytes=SIZE))
    desk.runner.settle()
    assert poll.found() == [(0, 0, SIZE), (1, 0, 0), (2, 0, 0)]
    assert len(warmed) == 1


def test_the_end_of_the_wait_does_not_end_the_reading(desk: Desk) -> None:
    poll = Poll(desk, request(asked(), wait_ms=10))
    while desk.liveness.step(desk.liveness.now_ms() + 10):
        pass
    assert not poll.is_answered
    desk.runner.settle()
    assert poll.found() == [(0, 0, SIZE)]


def test_too_little_on_disk_is_waited_for_like_too_little_in_memory(desk: Desk) -> None:
    poll = Poll(desk, request(asked(), min_bytes=SIZE + 1))
    desk.runner.settle()
    assert not poll.is_answered
    desk.produce("t", batch())
    assert poll.found() == [(0, 0, 2 * SIZE)]


def test_a_long_poll_that_reaches_cold_data_does_not_block_the_loop(desk: Desk) -> None:
    desk.files.is_cold = False
    poll = Poll(desk, request(asked(), min_bytes=SIZE + 1))
    desk.produce("t", batch(), 1)
    desk.files.is_cold = True
    desk.core.broker.topics.get(desk.caller, "t").stream(0).wake()
    assert not poll.is_answered
    desk.runner.settle()
    assert desk.files.waits == 0


def test_a_fetch_at_its_deadline_returns_the_data_in_memory(desk: Desk) -> None:
    poll = Poll(desk, request(asked()))
    assert poll.reply.on_resolve_now is not None
    poll.reply.on_resolve_now()
    assert poll.found() == [(0, 0, 0)]
    desk.runner.settle()
    assert desk.files.waits == 0
    assert waiting(desk) == 0


def test_a_connection_closed_meanwhile_leaves_nothing(desk: Desk) -> None:
    poll = Poll(desk, request(asked()))
    assert poll.reply.on_abandon is not None
    poll.reply.on_abandon()
    desk.runner.settle()
    assert not poll.is_answered
    assert waiting(desk) == 0


def test_a_failed_read_is_reported(desk: Desk) -> None:
    def fail(operation: str, name: str) -> None:
        if operation == "warm":
            desk.files.is_cold = True
            raise OSError(errno.EIO, "a bad sector")

    desk.files.before = fail
    poll = Poll(desk, request(asked()))
    desk.runner.settle()
    assert poll.found() == [(0, Code.KAFKA_STORAGE_ERROR, 0)]
    assert desk.files.waits == 0


def test_data_that_is_evicted_repeatedly_is_read_on_the_loop_in_the_end(desk: Desk) -> None:
    warmings = 0

    def forget(operation: str, name: str) -> None:
        nonlocal warmings
        if operation == "warm":
            warmings += 1
            desk.files.is_cold = True

    desk.files.before = forget
    poll = Poll(desk, request(asked()))
    desk.runner.settle()
    assert poll.found() == [(0, 0, SIZE)]
    assert warmings == 3
    assert desk.files.waits > 0
