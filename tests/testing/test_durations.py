"""Durations as tests write them."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.testing.durations import Duration, parse_duration


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1h 30m", 5_400_000),
        ("1.5s", 1500),
        ("0s", 0),
        ("90m", 5_400_000),
        (timedelta(hours=2), 7_200_000),
        (timedelta(microseconds=1500), 2),
        (3, 3000),
        (0.25, 250),
        (0, 0),
    ],
)
def test_a_duration_is_read(duration: Duration, milliseconds: int) -> None:
    assert parse_duration(duration) == milliseconds


@pytest.mark.parametrize(
    ("duration", "complaint"),
    [
        ("", "'' is not a duration: write it as"),
        ("2", "'2' is not a duration: write it as"),
        ("2 hours", "largest unit first"),
        ("30m1h", "largest unit first"),
        ("1h1h", "is not a duration"),
        ("-1s", "is not a duration"),
        ("1e3s", "is not a duration"),
        ("٣s", "is not a duration"),
        (-1, "it must not be negative"),
        (timedelta(seconds=-1), "it must not be negative"),
        (float("nan"), "it must be finite"),
        (float("inf"), "it must be finite"),
        (True, "is not a duration"),
        (None, "is not a duration"),
    ],
)
def test_an_invalid_duration_is_refused_with_a_message(duration: Duration, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_duration(duration)


@given(st.integers(0, 10**6), st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]))
def test_every_number_of_every_unit_is_read(number: int, unit: tuple[str, int]) -> None:
    assert parse_duration(f"{number}{unit[0]}") == number * unit[1]


@given(st.text("0123456789.dhms -", max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) >= 0
