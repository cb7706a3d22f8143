"""Parses durations such as `90s`, `10 minutes` or `2h`."""

from __future__ import annotations

import re

from trimq.errors import StartupError

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS = {"millisecond": "ms", "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}


def parse_duration(text: str) -> int:
    """Returns milliseconds. Raises StartupError if the text is not a duration above 0."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", text.lower())
    unit = match[2] if match else ""
    unit = _WORDS.get(unit.removesuffix("s") if len(unit) > 2 else unit, unit)
    if match is None or unit not in UNITS_MS or int(match[1]) == 0:
        raise StartupError(f"{text!r} is not a duration: write 90s, 10 minutes, 2h or 7d")
    return int(match[1]) * UNITS_MS[unit]
