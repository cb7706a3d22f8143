"""Every figure of `make bench` is measured with tiny sizes and printed in the right form. The values are ignored: no
test depends on the speed of a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import MEASURES, main
from bench.figures import Figure, at_least_times_floor, at_most, at_most_times_floor
from bench.sizes import FULL, TINY

FIELDS = {"figure", "value", "unit", "floor", "ratio", "goal", "met", "note"}


@pytest.mark.parametrize("name", MEASURES)
def test_a_measurement_runs_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    figures = [json.loads(figure.as_json()) for figure in MEASURES[name](TINY, tmp_path)]
    assert figures
    assert all(figure.keys() == FIELDS and figure["value"] > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_lines_come_first_and_then_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--only", "syncfs", "--folder", str(tmp_path)]) == 0
    line, *rest = capsys.readouterr().out.splitlines()
    assert json.loads(line)["unit"] == "files"
    assert any("load average" in each for each in rest)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_measurement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing of that kind"]) == 2
    assert "group commit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "ratio", "is_met"),
    [
        (Figure("a", 3.0, "us", 2.0, at_most_times_floor(1.5)), 1.5, True),
        (Figure("a", 3.1, "us", 2.0, at_most_times_floor(1.5)), 1.55, False),
        (Figure("a", 8.0, "per s", 10.0, at_least_times_floor(0.8)), 0.8, True),
        (Figure("a", 7.9, "per s", 10.0, at_least_times_floor(0.8)), 0.79, False),
        (Figure("a", 3.0, "s", goal=at_most(3)), None, True),
        (Figure("a", 3.1, "s", goal=at_most(3)), None, False),
        (Figure("a", 3.0, "s"), None, None),
    ],
)
def test_a_figure_is_held_against_its_goal(figure: Figure, ratio: float | None, is_met: bool | None) -> None:
    shown = json.loads(figure.as_json())
    assert (shown["ratio"], shown["met"]) == (ratio, is_met)


def test_the_full_size_measures_the_goals() -> None:
    assert FULL.recovery_bytes == 1 << 30
    assert FULL.topics * FULL.streams_per_topic == 10_000
    assert FULL.commit_streams == (1, 64, 1000)
