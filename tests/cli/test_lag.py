"""`trimq pipeline lag` without Spark."""

from __future__ import annotations

from typing import Any

import pytest

import trimq.cli.pipeline
from trimq.cli.lag import Pace, Place, Progress, drain_notes, measure
from trimq.cli.main import main

GROUP = {"name": "billing", "protocol": "consumer", "state": "stable", "members": []}


def cursor(topic: str, offset: int | None, end: int, lag: int) -> dict[str, Any]:
    return {"topic": topic, "stream": 0, "offset": offset, "end": end, "lag": lag}


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimq.cli.pipeline, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_spark")
def test_lag_is_measured_without_spark(broker_http, capsys: pytest.CaptureFixture[str]) -> None:
    broker_http.answers["GET", "/api/groups"] = (
        200,
        {"groups": [GROUP | {"members": 1}, GROUP | {"name": "spark-sink-1"}]},
    )
    cursors = [cursor("orders", 3, 5, 2), cursor("refunds", None, 7, 4)]
    broker_http.answers["GET", "/api/groups/billing"] = 200, GROUP | {"cursors": cursors}
    assert main(["pipeline", "lag", "--seconds", "0", "--http", broker_http.address]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["billing", "6", "0", "0", "-"]
    assert printed[2] == "The backlog stays: nothing was read during the measurement."
    assert "pip install 'trimq[spark]'" in printed[3]
    assert (
        main(["pipeline", "lag", "billing", "--topic", "orders", "--seconds", "0", "--http", broker_http.address]) == 0
    )
    assert capsys.readouterr().out.splitlines()[1].split() == ["billing", "2", "0", "0", "-"]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--report", "x.html"], "--report, --json, --continuous, --checkpoint and --cores need Spark"),
        (["--bootstrap", "here:9092"], "give --http beside --bootstrap here:9092"),
    ],
)
def test_what_needs_spark_is_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "lag", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_rates_and_the_time_to_drain_are_those_of_all_streams() -> None:
    first = {Place("g", "a", 0): Progress(0, 100), Place("g", "a", 1): Progress(0, 50)}
    last = {
        Place("g", "a", 0): Progress(60, 110),
        Place("g", "a", 1): Progress(40, 50),
        Place("g", "b", 0): Progress(1, 1),
    }
    assert measure(first, last, 10) == [Pace("g", 60, 1.0, 10.0, 60 / 9)]


def test_nothing_is_said_of_draining_unless_a_group_is_stuck() -> None:
    assert drain_notes([Pace("g", 5, 1.0, 2.0, 5.0), Pace("h", 0, 0.0, 0.0, 0.0)]) == []
    assert "arrive at least as fast" in drain_notes([Pace("g", 5, 2.0, 1.0, None)])[0]
    (note,) = drain_notes([Pace("g", 5, 0.0, 0.0, None)])
    assert ("nothing was read" in note, "No time to drain" in note) == (True, False)
