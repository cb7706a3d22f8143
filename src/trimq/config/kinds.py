"""Units, limits and text patterns used in the declarations of settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trimq.config.address import Address

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
INT32 = 2**31 - 1  # Kafka: segment positions, batch sizes and frame sizes are signed 32-bit
INT64 = 2**63 - 1

Listen = Address | None
Path = Annotated[str, Meta(pattern=r"^[^\x00]+$")]
Name = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,100}$", extra={"form": "letters, digits, _ and -", "placeholder": "NAME"})
]

UserName = Annotated[
    str,
    Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}$", extra={"form": "a name of 1 to 255 characters", "placeholder": "NAME"}),
]
UserNames = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]{0,4096}$",
        extra={"form": "names separated by ;, or empty", "placeholder": "NAMES"},
    ),
]
Text = Annotated[str, Meta(extra={"form": "a text, or empty", "placeholder": "TEXT"})]
_HOST = r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,252})"
HostNames = Annotated[
    str,
    Meta(
        pattern=rf"^(\*|{_HOST}(;{_HOST}){{0,31}})?$",
        extra={"form": "host names like broker;mq.example, *, or empty", "placeholder": "NAMES"},
    ),
]

DelayLevels = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,6}[smhd]( [1-9][0-9]{0,6}[smhd]){0,99}$",
        extra={"form": "durations like 10s 5m 2h 1d, separated by spaces", "placeholder": "TIMES"},
    ),
]


Hours = Annotated[
    str,
    Meta(
        pattern=r"^(([01][0-9]|2[0-3])(;([01][0-9]|2[0-3])){0,23})?$",
        extra={"form": "hours like 04 or 04;16, or empty", "placeholder": "HOURS"},
    ),
]

_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST_PORT = rf"([a-zA-Z0-9._-]{{1,253}}|\[[0-9a-fA-F:.]+\]):{_PORT}"

Addresses = Annotated[
    str,
    Meta(
        pattern=f"^({_HOST_PORT}(;{_HOST_PORT}){{0,31}})?$",
        extra={
            "form": "addresses like 10.0.0.1:9876 or names:9876, separated by ;, or empty",
            "placeholder": "ADDRESSES",
        },
    ),
]
