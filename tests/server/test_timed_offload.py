"""Offloaded work with measured time."""

from __future__ import annotations

import pytest
from doubles import ManualOffload

from trimq.server import timed_offload
from trimq.server.timed_offload import TimedOffload


def test_each_piece_of_work_is_timed_and_its_outcome_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter((10.0, 10.5, 20.0, 23.0))
    monkeypatch.setattr(timed_offload, "monotonic_seconds", lambda: next(readings))
    inner, took, outcomes = ManualOffload(), [], []
    offload = TimedOffload(inner, took.append)
    error = OSError("planted")

    def fail() -> None:
        raise error

    offload(lambda: "done", lambda *outcome: outcomes.append(outcome))
    offload(fail, lambda *outcome: outcomes.append(outcome))
    assert took == []
    inner.run_all()
    assert outcomes == [("done", None), (None, error)]
    assert took == [0.5, 3.0]


def test_the_time_is_reported_before_the_outcome() -> None:
    inner, order = ManualOffload(), []
    TimedOffload(inner, lambda seconds: order.append("took"))(lambda: 1, lambda *_: order.append("done"))
    inner.run_all()
    assert order == ["took", "done"]


def test_exceptions_other_than_errors_pass_through() -> None:
    class PowerCut(BaseException):
        pass

    def cut() -> None:
        raise PowerCut

    inner = ManualOffload()
    TimedOffload(inner, lambda seconds: None)(cut, lambda *_: None)
    with pytest.raises(PowerCut):
        inner.run_all()
