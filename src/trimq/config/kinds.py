"""The sizes, times and forms of text that settings are declared with."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trimq.config.address import Address

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
INT32 = 2**31 - 1  # Kafka's positions in a segment, sizes of a batch and of a frame are signed 32-bit numbers
INT64 = 2**63 - 1

Listen = Address | None
Path = Annotated[str, Meta(pattern=r"^[^\x00]+$")]
Name = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,100}$", extra={"form": "letters, digits, _ and -", "placeholder": "NAME"})
]

DelayLevels = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,6}[smhd]( [1-9][0-9]{0,6}[smhd]){0,99}$",
        extra={"form": "times like 10s 5m 2h 1d, with a blank between", "placeholder": "TIMES"},
    ),
]


Hours = Annotated[
    str,
    Meta(
        pattern=r"^(([01][0-9]|2[0-3])(;([01][0-9]|2[0-3])){0,23})?$",
        extra={"form": "hours like 04 or 04;16, or nothing", "placeholder": "HOURS"},
    ),
]
