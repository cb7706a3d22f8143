"""Fields that are kept when a stored unit is copied into a new one."""

from __future__ import annotations

import pytest

from trimq.formats.rocketmq_unit.copies import read_copy_source
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.unit import TRANSACTION_COMMIT, UnitDraft, encode_unit, read_unit

V4, V6 = pack_host("10.0.0.1", 77), pack_host("::1", 77)


def unit_of(
    body: bytes = b"body", topic: bytes = b"t", born: bytes = V4, store: bytes = V4, sys_flag: int = 1
) -> bytes:
    return encode_unit(UnitDraft(topic, 3, body, b"a\x01b\x02", 7, sys_flag, 1000, born, 2), 5, 4096, 3000, store)


@pytest.mark.parametrize("body", [b"", b"body", bytes(70_000)])
def test_a_copy_keeps_the_fields_that_a_reader_finds(body: bytes) -> None:
    data = unit_of(body)
    unit = read_unit(data)
    found = read_copy_source(memoryview(data))
    assert found is not None
    assert found[:7] == (
        unit.crc, unit.flag, unit.sys_flag, unit.born_ms, unit.born_host, unit.store_ms, unit.reconsume_times,
    )  # fmt: skip
    assert (bytes(found[7]), found[8]) == (body, unit.properties)


@pytest.mark.parametrize(
    "data",
    [
        unit_of(topic=b"t" * 200),
        unit_of(born=V6),
        unit_of(store=V6),
        unit_of(sys_flag=TRANSACTION_COMMIT),
        unit_of()[:-1],
        unit_of() + b"x",
        unit_of()[:50],
        b"",
    ],
)
def test_unusual_units_are_refused_by_the_fast_path(data: bytes) -> None:
    assert read_copy_source(memoryview(data)) is None


def test_damaged_lengths_never_reach_beyond_the_unit() -> None:
    data = unit_of()
    for at in range(len(data)):
        for changed in (0, 0x7F, 0xFF):
            found = read_copy_source(memoryview(data[:at] + bytes([changed]) + data[at + 1 :]))
            if found is not None:
                assert len(found[7]) + len(found[8]) <= len(data)
