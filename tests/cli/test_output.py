"""Output of commands."""

from __future__ import annotations

import io
import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.cli.output import (
    align,
    duration,
    escape_unprintable,
    local_time,
    print_json,
    print_json_line,
    print_table,
    progress_bar,
    shown,
    with_unit,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_numbers_are_right_aligned_and_texts_left_aligned() -> None:
    assert list(align(("name", "size"), [("a", 5), ("longer", 12345)])) == [
        "name     size",
        "a           5",
        "longer  12345",
    ]


@given(st.text())
def test_a_name_chosen_by_a_client_cannot_move_the_cursor(text: str) -> None:
    assert escape_unprintable(text).isprintable()
    assert escape_unprintable(text) == text or not text.isprintable()


def test_at_a_terminal_a_table_keeps_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("name", "size"), [("[red]orders[/red]", 5)])
    assert "[red]orders[/red]" in terminal.getvalue()
    assert "─" in terminal.getvalue()


def test_json_is_one_document_or_one_line(capsys) -> None:
    print_json({"a": [1, 2]})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"a": [1, 2]}
    assert shown.count("\n") > 1
    print_json_line({"a": "two\nlines"})
    assert capsys.readouterr().out == '{"a":"two\\nlines"}\n'


def test_progress_is_shown_at_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, terminal = io.StringIO(), Terminal()
    for stream in (quiet, terminal):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("verifying") as progress:
            progress(50, 100)
    assert quiet.getvalue() == ""
    assert "verifying" in terminal.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (5, "5"), (0.0, "0"), (0.123456, "0.123"), (12.3456, "12.3"), (98765.4321, "98765"), ("a", "a")],
)
def test_figures_are_rounded_for_people(value: object, text: str) -> None:
    assert shown(value) == text


def test_fractions_stand_right_too() -> None:
    assert list(align(("rate",), [(1234.5678,), (5,), (0.25,)])) == ["rate", "1235", "   5", "0.25"]


def test_times_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-3")
    time.tzset()
    try:
        assert local_time(1_700_000_000_000) == "2023-11-15 01:13:20"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention_ms", "604800000", "604800000 (7 days)"),
        ("segment_bytes", "1073741824", "1073741824 (1 GiB)"),
        ("retention_ms", "-1", "-1"),
        ("retention_ms", "3600000", "3600000 (1 hour)"),
        ("retention_ms", "90000", "90000 (1 min 30 s)"),
        ("retention_ms", "61", "61 ms"),
        ("message_bytes", "1048588", "1048588 bytes"),
        ("max_compaction_lag_ms", "9223372036854775807", "9223372036854775807 (no limit)"),
        ("cleanup", "delete", "delete"),
    ],
)
def test_durations_and_sizes_have_units(name: str, value: str, text: str) -> None:
    assert with_unit(name, value) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (3_021, "3.02 s"),
        (125_000, "2 min 5 s"),
        (5_400_000, "1 h 30 min"),
    ],
)
def test_durations_have_units(time_ms: int, text: str) -> None:
    assert duration(time_ms) == text
