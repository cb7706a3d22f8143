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
    """A writer that notes what it is told, and fails when it is to."""

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


def test_all_that_joined_is_written_together_and_settled_together() -> None:
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


def test_passes_that_share_a_round_are_settled_in_their_order() -> None:
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
    assert bench.progress() == (2, 1, 1), "those who wait for the pass must hear"
    assert bench.runner.failures == []


def test_a_write_that_cannot_be_undone_is_a_failure_of_the_broker() -> None:
    bench = Bench()
    bench.one.fails_to_write = bench.one.fails_to_undo = True
    bench.one.append()
    bench.runner.end_pass()
    (failure,) = bench.runner.failures
    assert isinstance(failure, OSError)
    assert failure.errno == errno.EIO


def test_a_listener_hears_when_a_pass_is_written_and_when_it_is_durable() -> None:
    bench = Bench()
    heard: list[tuple[int, int, int]] = []
    bench.passes.on_progress(lambda: heard.append(bench.progress()))
    bench.one.append()
    bench.runner.settle()
    assert heard == [(2, 1, 0), (2, 1, 1)]


def test_a_listener_hears_after_every_writer_is_settled() -> None:
    bench = Bench()
    bench.passes.on_progress(lambda: bench.notes.append("told"))
    bench.one.append()
    bench.two.append()
    bench.runner.settle()
    assert bench.notes[-3:] == ["one settled 1", "two settled 1", "told"]


def test_what_comes_afterwards_waits_for_its_pass_and_precedes_the_listeners() -> None:
    bench = Bench()
    bench.passes.on_progress(lambda: bench.notes.append("told"))
    first = bench.one.append()
    bench.passes.on_durable(first, lambda ticket: bench.notes.append(f"after {ticket.number}"))
    bench.runner.end_pass()
    second = bench.two.append()
    bench.passes.on_durable(second, lambda ticket: bench.notes.append(f"after {ticket.number}"))
    bench.runner.end_pass()
    bench.notes.clear()
    bench.runner.offload.run_one()
    assert bench.notes == ["one settled 1", "after 1", "told"]
    bench.notes.clear()
    bench.runner.end_pass()
    bench.runner.offload.run_one()
    assert bench.notes == ["two settled 2", "after 2", "told"]


def test_what_comes_afterwards_hears_of_a_refusal_too() -> None:
    bench = Bench()
    ticket = bench.one.append()
    ticket.refusal = WriteFailed("no room")
    heard: list[Refusal | None] = []
    bench.passes.on_durable(ticket, lambda told: heard.append(told.refusal))
    bench.runner.settle()
    assert heard == [ticket.refusal]


def test_a_writer_may_write_again_when_it_is_settled() -> None:
    bench = Bench()

    def append_once_more() -> None:
        if bench.passes.durable == 1:
            bench.one.append()

    bench.one.on_settled = append_once_more
    bench.one.append()
    bench.runner.settle()
    assert bench.notes == ["one written", "one settled 1", "one written", "one settled 2"]


@pytest.mark.parametrize("steps", range(4))
def test_passes_are_idle_when_nothing_is_unwritten_or_unsettled(steps: int) -> None:
    bench = Bench()
    if steps > 0:
        bench.one.append()
    if steps > 1:
        bench.runner.end_pass()
    if steps > 2:
        bench.runner.offload.run_one()
    assert bench.passes.is_idle is (steps in (0, 3))


def test_what_follows_a_pass_and_fails_is_told_of_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    ticket = bench.one.append()
    bench.passes.on_progress(lambda: bench.notes.append("told"))
    bench.passes.on_durable_guarded(ticket, lambda _: 1 // 0)
    bench.passes.on_durable_guarded(ticket, lambda _: bench.notes.append("next"))
    bench.runner.settle()
    assert bench.notes[-3:] == ["one settled 1", "next", "told"]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    bench.two.append()
    bench.runner.settle()
    assert bench.progress() == (3, 2, 2)


@pytest.mark.parametrize("register", [Passes.on_durable, Passes.on_synced])
def test_what_keeps_step_with_the_files_and_fails_is_heard_by_whoever_settles(
    register: Callable[[Passes, Ticket, Callable[[Ticket], object]], None],
) -> None:
    bench = Bench()
    register(bench.passes, bench.one.append(), lambda _: 1 // 0)
    bench.runner.end_pass()
    with pytest.raises(ZeroDivisionError):
        bench.runner.offload.run_one()


def test_what_has_joined_and_is_not_written_is_being_collected() -> None:
    bench = Bench()
    turns = bench.passes.turns
    assert not turns.is_collecting()
    bench.one.append()
    assert turns.is_collecting()
    bench.runner.end_pass()
    assert not turns.is_collecting()
