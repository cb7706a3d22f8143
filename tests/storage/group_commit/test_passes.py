from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from doubles import PassRunner

from trimq.errors import Refusal, WriteFailed
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.io.memory_files import MemoryFiles


class Notes:
    """A writer that records its calls, and fails on request."""

    def __init__(self, passes: Passes, notes: list[str], name: str = "") -> None:
        self._passes = passes
        self._notes = notes
        self._name = name
        self.fails_to_write = False
        self.fails_to_undo = False
        self.on_settled: Callable[[], None] | None = None

    def append(self) -> Ticket:
        return self._passes.join(self)

    def write_pass(self, dirty: Dirty) -> None:
        self._notes.append(f"{self._name} written")
        if self.fails_to_write:
            raise OSError(errno.ENOSPC, "no room")

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        self._notes.append(f"{self._name} undone: {refusal}")
        if self.fails_to_undo:
            raise OSError(errno.EIO, "input/output error")

    def mark_pass_durable(self, number: int) -> None:
        self._notes.append(f"{self._name} settled {number}")
        if self.on_settled is not None:
            self.on_settled()


class Bench:
    def __init__(self) -> None:
        self.runner = PassRunner(MemoryFiles())
        self.passes = self.runner.passes
        self.notes: list[str] = []
        self.one = Notes(self.passes, self.notes, "one")
        self.two = Notes(self.passes, self.notes, "two")

    def progress(self) -> tuple[int, int, int]:
        return (self.passes.current, self.passes.written, self.passes.durable)


def test_all_writers_of_a_pass_are_written_together_and_become_durable_together() -> None:
    bench = Bench()
    assert bench.one.append().number == bench.two.append().number == 1
    assert bench.notes == []
    bench.runner.end_pass()
    assert bench.notes == ["one written", "two written"]
    bench.runner.offload.run_one()
    assert bench.notes[2:] == ["one settled 1", "two settled 1"]


def test_the_numbers_follow_the_pass() -> None:
    bench = Bench()
    assert bench.progress() == (1, 0, 0)
    bench.one.append()
    assert bench.progress() == (1, 0, 0)
    bench.runner.end_pass()
    assert bench.progress() == (2, 1, 0)
    bench.runner.offload.run_one()
    assert bench.progress() == (2, 1, 1)


def test_a_pass_without_writers_has_no_number() -> None:
    bench = Bench()
    bench.passes.finish()
    assert bench.progress() == (1, 0, 0)
    assert len(bench.runner.offload) == 0


def test_passes_that_share_a_round_become_durable_in_order() -> None:
    bench = Bench()
    for writer in (bench.one, bench.two, bench.one):
        writer.append()
        bench.runner.end_pass()
    bench.notes.clear()
    bench.runner.offload.run_one()
    assert bench.notes == ["one settled 1"]
    bench.runner.end_pass()
    bench.runner.offload.run_one()
    assert bench.notes == ["one settled 1", "two settled 2", "one settled 3"]


def test_a_writer_whose_write_fails_is_undone_and_the_others_are_not() -> None:
    bench = Bench()
    bench.one.fails_to_write = True
    bench.one.append()
    bench.two.append()
    bench.runner.settle()
    assert bench.notes == [
        "one written",
        f"one undone: {WriteFailed('[Errno 28] no room')}",
        "two written",
        "two settled 1",
    ]
    assert bench.progress() == (2, 1, 1), "waiters for the pass must be called"
    assert bench.runner.failures == []


def test_a_write_that_cannot_be_undone_is_a_failure_of_the_broker() -> None:
    bench = Bench()
    bench.one.fails_to_write = bench.one.fails_to_undo = True
    bench.one.append()
    bench.runner.end_pass()
    (failure,) = bench.runner.failures
    assert isinstance(failure, OSError)
    assert failure.errno == errno.EIO


def test_a_listener_is_called_when_a_pass_is_written_and_when_it_is_durable() -> None:
    bench = Bench()
    calls: list[tuple[int, int, int]] = []
    bench.passes.on_progress(lambda: calls.append(bench.progress()))
    bench.one.append()
    bench.runner.settle()
    assert calls == [(2, 1, 0), (2, 1, 1)]


def test_a_listener_is_called_after_every_writer_is_notified() -> None:
    bench = Bench()
    bench.passes.on_progress(lambda: bench.notes.append("listener"))
    bench.one.append()
    bench.two.append()
    bench.runner.settle()
    assert bench.notes[-3:] == ["one settled 1", "two settled 1", "listener"]


def test_a_follow_up_waits_for_its_pass_and_runs_before_the_listeners() -> None:
    bench = Bench()
    bench.passes.on_progress(lambda: bench.notes.append("listener"))
    first = bench.one.append()
    bench.passes.on_durable(first, lambda ticket: bench.notes.append(f"after {ticket.number}"))
    bench.runner.end_pass()
    second = bench.two.append()
    bench.passes.on_durable(second, lambda ticket: bench.notes.append(f"after {ticket.number}"))
    bench.runner.end_pass()
    bench.notes.clear()
    bench.runner.offload.run_one()
    assert bench.notes == ["one settled 1", "after 1", "listener"]
    bench.notes.clear()
    bench.runner.end_pass()
    bench.runner.offload.run_one()
    assert bench.notes == ["two settled 2", "after 2", "listener"]


def test_a_follow_up_is_called_after_a_refusal_too() -> None:
    bench = Bench()
    ticket = bench.one.append()
    ticket.refusal = WriteFailed("no room")
    calls: list[Refusal | None] = []
    bench.passes.on_durable(ticket, lambda done: calls.append(done.refusal))
    bench.runner.settle()
    assert calls == [ticket.refusal]


def test_a_writer_may_append_again_when_it_is_notified() -> None:
    bench = Bench()

    def append_once_more() -> None:
        if bench.passes.durable == 1:
            bench.one.append()

    bench.one.on_settled = append_once_more
    bench.one.append()
    bench.runner.settle()
    assert bench.notes == ["one written", "one settled 1", "one written", "one settled 2"]


@pytest.mark.parametrize("steps", range(4))
def test_passes_are_idle_when_all_is_written_and_durable(steps: int) -> None:
    bench = Bench()
    if steps > 0:
        bench.one.append()
    if steps > 1:
        bench.runner.end_pass()
    if steps > 2:
        bench.runner.offload.run_one()
    assert bench.passes.is_idle is (steps in (0, 3))


def test_a_follow_up_that_fails_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    ticket = bench.one.append()
    bench.passes.on_progress(lambda: bench.notes.append("listener"))
    bench.passes.on_durable_guarded(ticket, lambda _: 1 // 0)
    bench.passes.on_durable_guarded(ticket, lambda _: bench.notes.append("next"))
    bench.runner.settle()
    assert bench.notes[-3:] == ["one settled 1", "next", "listener"]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    bench.two.append()
    bench.runner.settle()
    assert bench.progress() == (3, 2, 2)


@pytest.mark.parametrize("register", [Passes.on_durable, Passes.on_synced])
def test_an_error_in_a_durability_callback_is_raised_to_the_flusher(
    register: Callable[[Passes, Ticket, Callable[[Ticket], object]], None],
) -> None:
    bench = Bench()
    register(bench.passes, bench.one.append(), lambda _: 1 // 0)
    bench.runner.end_pass()
    with pytest.raises(ZeroDivisionError):
        bench.runner.offload.run_one()


def test_a_pass_with_unwritten_writers_is_collecting() -> None:
    bench = Bench()
    turns = bench.passes.turns
    assert not turns.is_collecting()
    bench.one.append()
    assert turns.is_collecting()
    bench.runner.end_pass()
    assert not turns.is_collecting()
