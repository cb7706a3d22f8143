"""Parser of durations as tests write them. Reads no clock."""

from __future__ import annotations

import math
import re
from datetime import timedelta

Duration = str | timedelta | int | float

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = r"\d+(?:\.\d+)?"
_TEXT = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit}(?![a-z]))?" for unit in _UNITS_MS), re.ASCII)
_FORM = 'write it as "250ms", "10s", "5m", "2h", "7d" or "1h30m", largest unit first'


def parse_duration(duration: Duration) -> int:
    """Returns whole milliseconds. A number is in seconds. Raises ValueError with the reason if the duration is
    invalid."""
    if isinstance(duration, str):
        return _parse_text(duration)
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise ValueError(f"{duration!r} is not a duration: {_FORM}")
    else:
        seconds = duration
    if not math.isfinite(seconds):
        raise ValueError(f"{duration!r} is not a duration: it must be finite")
    if seconds < 0:
        raise ValueError(f"{duration!r} is not a duration: it must not be negative")
    return round(seconds * 1000)


def _parse_text(text: str) -> int:
    match = _TEXT.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration: {_FORM}")
    parts = zip(match.groups(), _UNITS_MS.values(), strict=True)
    return round(sum(float(number) * unit_ms for number, unit_ms in parts if number))
