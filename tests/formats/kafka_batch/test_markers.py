from __future__ import annotations

import pytest

from trimq.formats.kafka_batch.header import check_stored
from trimq.formats.kafka_batch.markers import Marker, control_batch, read_control
from trimq.formats.kafka_batch.records import BadRecord, BatchRecord, iterate_records

NOW = 1_700_000_000_000


@pytest.mark.parametrize(("commit", "kind"), [(True, "0001"), (False, "0000")])
def test_a_marker_equals_that_of_apache_kafka(commit: bool, kind: str) -> None:
    made = control_batch(4711, 3, 5, commit, NOW, 1234, leader_epoch=2)
    assert len(made) == 78
    assert made[61:].hex() == "20" + "00" + "00" + "00" + "08" + "0000" + kind + "0c" + "0000" + "00000005" + "00"
    header = check_stored(made)
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (1234, 1235, 2)
    assert (header.attributes, header.base_sequence, header.last_sequence) == (0x30, -1, -1)
    assert (header.producer_id, header.producer_epoch) == (4711, 3)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW, NOW)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_read_back(commit: bool) -> None:
    (record,) = iterate_records(control_batch(1, 0, 77, commit, NOW, 0))
    assert read_control(record) == Marker(commit, 77)


def test_other_kinds_of_control_records_are_ignored() -> None:
    assert read_control(BatchRecord(0, NOW, b"\x00\x00\x00\x02", b"", ())) is None


def test_later_versions_may_be_longer() -> None:
    record = BatchRecord(0, NOW, b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x09more", ())
    assert read_control(record) == Marker(True, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x05"),
    ],
)
def test_a_malformed_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BadRecord):
        read_control(BatchRecord(0, NOW, key, value, ()))
