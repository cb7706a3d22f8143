"""Due times of delayed units."""

from __future__ import annotations

import pytest

from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.schedule import consume_queue_code, parse_levels, parse_time_ms
from trimq.formats.rocketmq_unit.unit import UnitDraft, encode_unit, read_unit

HOST = pack_host("127.0.0.1", 1)


def test_levels_are_times_with_units() -> None:
    assert parse_levels("1s 5m 2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)


@pytest.mark.parametrize(
    ("topic", "queue", "properties", "code"),
    [
        (b"t", 0, b"TAGS\x01TagA\x02", 2598919),
        (b"t", 0, b"TIMER_OUT_MS\x017\x02", 0),
        (b"SCHEDULE_TOPIC_XXXX", 1, b"TAGS\x01TagA\x02", 50 + 300_000),
        (b"SCHEDULE_TOPIC_XXXX", 9, b"", 50 + 300_000),
        (b"rmq_sys_wheel_timer", 0, b"TIMER_OUT_MS\x0177\x02", 77),
        (b"rmq_sys_wheel_timer", 0, b"", 0),
    ],
)
def test_the_code_of_a_unit(topic: bytes, queue: int, properties: bytes, code: int) -> None:
    unit = read_unit(encode_unit(UnitDraft(topic, queue, b"x", properties, 0, 0, 1, HOST), 0, 0, 50, HOST))
    assert consume_queue_code(unit, (1000, 300_000)) == code


@pytest.mark.parametrize(("text", "time_ms"), [("12", 12), ("", 0), (None, 0), ("-1", 0), ("x", 0), ("9" * 30, 0)])
def test_an_invalid_time_is_0(text: str | None, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms
