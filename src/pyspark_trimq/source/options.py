"""Options of the source, read and checked once. An unknown option or an invalid value raises Mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark_trimq.broker.encryption import CA_FILE, Encryption, read_encryption
from pyspark_trimq.broker.login import LOGIN_OPTIONS, Login, read_login
from pyspark_trimq.broker.option_reader import OptionReader
from pyspark_trimq.mistakes import Mistake

T = TypeVar("T")

EARLIEST = "earliest"
LATEST = "latest"

Offsets = dict[str, dict[int, int]]
"""Offsets by topic and stream; -2 means earliest, -1 latest."""

Bound = str | Offsets

_NAMES = (
    "bootstrap",
    "namespace",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "keepGroup",
    "includeHeaders",
    "isolation",
    *LOGIN_OPTIONS,
    CA_FILE,
)
_TOPIC_OPTIONS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class SourceOptions:
    """None means not given. Exactly one of `subscribe`, `pattern` and `assigned` is given."""

    bootstrap: str
    namespace: str
    subscribe: tuple[str, ...] | None
    pattern: str | None
    assigned: dict[str, list[int]] | None
    starting: Bound | None
    ending: Bound | None
    starting_ms: int | None
    ending_ms: int | None
    max_offsets: int | None
    max_bytes: int | None
    min_partitions: int | None
    fails_on_loss: bool
    keeps_group: bool
    has_headers: bool
    is_committed: bool
    login: Login | None
    encryption: Encryption | None


def read_source_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises Mistake if an option is unknown or its value is invalid."""
    options = OptionReader(given, _NAMES)
    ways = [name for name in _TOPIC_OPTIONS if options.text(name) is not None]
    if len(ways) != 1:
        raise Mistake(
            f"give one of the options {', '.join(_TOPIC_OPTIONS)}" + (f", not {' and '.join(ways)}" if ways else "")
        )
    return SourceOptions(
        bootstrap=options.required("bootstrap", "host:9092 or http://host:8180"),
        namespace=options.text("namespace") or "",
        subscribe=options.parsed("subscribe", _names),
        pattern=options.parsed("subscribePattern", _pattern),
        assigned=options.parsed("assign", _assigned),
        starting=options.parsed("startingOffsets", _bound),
        ending=options.parsed("endingOffsets", _bound),
        starting_ms=options.parsed("startingTimestamp", _whole_number),
        ending_ms=options.parsed("endingTimestamp", _whole_number),
        max_offsets=options.parsed("maxOffsetsPerTrigger", _positive),
        max_bytes=options.parsed("maxBytesPerTrigger", _positive),
        min_partitions=options.parsed("minPartitions", _positive),
        fails_on_loss=_or_default(options.parsed("failOnDataLoss", _boolean), True),
        keeps_group=_or_default(options.parsed("keepGroup", _boolean), True),
        has_headers=_or_default(options.parsed("includeHeaders", _boolean), False),
        is_committed=_or_default(options.parsed("isolation", _isolation), True),
        login=read_login(options.text),
        encryption=read_encryption(options.text("bootstrap") or "", options.text(CA_FILE)),
    )


def _or_default(value: T | None, default: T) -> T:
    return default if value is None else value


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("it must be a whole number")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("it must be a whole number above 0")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _isolation(text: str) -> bool:
    if text not in ("read_committed", "read_uncommitted"):
        raise ValueError("it must be read_committed or read_uncommitted")
    return text == "read_committed"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("it must be a topic, or several separated by commas")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it must be a regular expression: {error}") from None
    return text


def _object(text: str, shape: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"it must be JSON like {shape}")
    return value


def _assigned(text: str) -> dict[str, list[int]]:
    shape = '{"orders": [0, 1]}'
    value = _object(text, shape)
    for numbers in value.values():
        if not isinstance(numbers, list) or not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError(f"it must be JSON like {shape}")
    return value


def _bound(text: str) -> Bound:
    if text in (EARLIEST, LATEST):
        return text
    return read_offsets(text)


def read_offsets(text: str) -> Offsets:
    """Raises ValueError if the text is not JSON of that form."""
    shape = '{"orders": {"0": 23, "1": -2}}, with -2 for the earliest and -1 for the latest, or earliest, or latest'
    found: Offsets = {}
    for topic, streams in _object(text, shape).items():
        if not isinstance(streams, dict):
            raise ValueError(f"it must be JSON like {shape}")
        found[topic] = {}
        for number, offset in streams.items():
            if not number.isdigit() or not isinstance(offset, int) or isinstance(offset, bool) or offset < -2:
                raise ValueError(f"it must be JSON like {shape}")
            found[topic][int(number)] = offset
    return found
