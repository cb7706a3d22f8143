"""Due times of delayed message units. Owns the delay levels and the names of the topics with delayed units; the
scheduler decides when to deliver."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.formats.rocketmq_unit.properties import TAGS, find_property, tags_code
from trimq.formats.rocketmq_unit.unit import Unit

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
WHEEL_TOPIC = "rmq_sys_wheel_timer"

DELAY = "DELAY"
TIMER_OUT_MS = "TIMER_OUT_MS"

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SCHEDULE, _WHEEL = SCHEDULE_TOPIC.encode(), WHEEL_TOPIC.encode()


def parse_levels(text: str) -> tuple[int, ...]:
    """Returns the delay of each level in milliseconds. The first level is number 1."""
    return tuple(int(word[:-1]) * _UNITS_MS[word[-1]] for word in text.split())


def consume_queue_code(unit: Unit, levels_ms: Sequence[int]) -> int:
    """Returns the tags code of a unit's queue entry; the due time if the unit is delayed."""
    if unit.topic == _SCHEDULE:
        return unit.store_ms + levels_ms[min(max(unit.queue_id, 0), len(levels_ms) - 1)]
    if unit.topic == _WHEEL:
        return parse_time_ms(find_property(unit.properties, TIMER_OUT_MS))
    return tags_code(find_property(unit.properties, TAGS) or "")


def parse_time_ms(text: str | None) -> int:
    """Returns 0 if the text is not a time."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
