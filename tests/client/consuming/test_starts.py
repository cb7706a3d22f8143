"""Start positions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trimq.client.consuming.starts import Start


def test_a_start_is_a_datetime_or_digits_in_local_time() -> None:
    assert Start.at(datetime(2021, 7, 1, 8, tzinfo=UTC)).at_ms == 1_625_126_400_000
    assert Start.at("20210701080000") == Start.at(datetime(2021, 7, 1, 8))
    with pytest.raises(ValueError, match="2021-07-01"):
        Start.at("2021-07-01")


def test_names_are_those_of_the_wire() -> None:
    names = [each.name for each in (Start.LAST, Start.FIRST, Start.at("20210701080000"))]
    assert names == ["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"]
