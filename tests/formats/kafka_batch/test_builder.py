from __future__ import annotations

import pytest

from trimq.formats.kafka_batch.builder import encode_record, from_records, recompress, retain
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import build_batch, check_sent, check_stored, read_header
from trimq.formats.kafka_batch.records import iterate_records, to_records
from trimq.model import Record

NOW = 1_700_000_000_000
HORIZON = NOW + 86_400_000
# Keys a to e at NOW, NOW + 1 and so on; c is a tombstone.
FIVE = [
    Record(body=None if key == "c" else b"v", key=key.encode(), headers=(("n", b"x"),), timestamp_ms=NOW + n)
    for n, key in enumerate("abcde")
]
PRODUCER = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 2**31 - 2, "leader_epoch": 6}


def keeping(*keys: bytes):  # type: ignore[no-untyped-def]
    return lambda record: record.key in keys


def keys_of(batch: bytes | None) -> list[bytes | None]:
    assert batch is not None
    return [record.key for record in iterate_records(batch)]


def test_a_record_has_kafkas_layout() -> None:
    encoded = encode_record(300, 1, b"k", None, [(b"h", b"x"), (b"", None)])
    assert encoded.hex() == "1c" + "00" + "d804" + "02" + "026b" + "01" + "04" + "0268" + "0278" + "00" + "01"


@pytest.mark.parametrize("codec", Codec)
def test_a_new_batch_is_valid_for_sending(codec: Codec) -> None:
    made = from_records(FIVE, codec=codec, transactional=True, **PRODUCER)
    header = check_sent(made)
    assert (header.codec, header.is_transactional, header.is_control) == (codec, True, False)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (
        4711,
        3,
        2**31 - 2,
        6,
    )
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW, NOW + 4)
    assert (header.record_count, header.last_offset_delta, header.last_sequence) == (5, 4, 2)


def test_a_new_batch_is_writable_and_numbered() -> None:
    made = from_records(FIVE, base_offset=1000)
    made[0] = 0
    assert [record.offset for record in to_records(made)] == [1000, 1001, 1002, 1003, 1004]


def test_append_time_overrides_the_timestamps_of_the_records() -> None:
    made = from_records(FIVE, append_time_ms=NOW + 77)
    assert check_sent(made).is_log_append_time
    assert {record.timestamp_ms for record in to_records(made)} == {NOW + 77}


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        from_records([])


def test_a_record_field_without_a_counterpart_is_refused() -> None:
    with pytest.raises(ValueError, match="priority"):
        from_records([Record(body=b"v", extras={"priority": 4})])


@pytest.mark.parametrize("old", Codec)
@pytest.mark.parametrize("new", Codec)
def test_another_codec_changes_nothing_else(old: Codec, new: Codec) -> None:
    before = b"..." + bytes(from_records(FIVE, codec=old, base_offset=9, transactional=True, **PRODUCER))
    after = recompress(before, new, 3)
    check_stored(after)
    same = {"length": 0, "crc": 0, "attributes": 0}
    assert read_header(after)._replace(**same) == read_header(before, 3)._replace(**same)
    assert read_header(after).attributes == new | 0x10
    assert list(iterate_records(after)) == list(iterate_records(before, 3))


@pytest.mark.parametrize("codec", Codec)
def test_compaction_keeps_selected_records_at_their_offsets(codec: Codec) -> None:
    before = from_records(FIVE, codec=codec, base_offset=40, transactional=True, **PRODUCER)
    after = retain(before, keeping(b"b", b"d"), None)
    assert after is not None
    header, original = check_stored(after), read_header(before)
    assert list(iterate_records(after)) == [record for record in iterate_records(before) if record.key in (b"b", b"d")]
    assert header.record_count == 2
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW + 1, NOW + 3)
    unchanged = (
        "base_offset",
        "last_offset",
        "last_sequence",
        "attributes",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
    )
    assert [getattr(header, name) for name in unchanged] == [getattr(original, name) for name in unchanged]


def test_a_batch_without_kept_records_is_none() -> None:
    assert retain(from_records(FIVE), lambda record: False, HORIZON) is None


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_with_all_records_kept_is_unchanged(codec: Codec) -> None:
    before = bytes(from_records(FIVE, codec=codec))
    assert retain(b"." + before + b".", lambda record: True, None, 1) == before


@pytest.mark.parametrize("codec", Codec)
def test_the_delete_horizon_is_set_once_and_timestamps_are_kept(codec: Codec) -> None:
    before = from_records(FIVE, codec=codec, base_offset=40)
    once = retain(before, lambda record: True, HORIZON)
    assert once is not None
    header = check_stored(once)
    assert (header.delete_horizon_ms, header.base_timestamp_ms, header.max_timestamp_ms) == (HORIZON, HORIZON, NOW + 4)
    assert list(iterate_records(once)) == list(iterate_records(before))
    assert retain(once, lambda record: True, HORIZON + 5) == once
    thinner = retain(once, keeping(b"a", b"c"), HORIZON + 5)
    assert thinner is not None
    assert check_stored(thinner).delete_horizon_ms == HORIZON
    assert [record.timestamp_ms for record in iterate_records(thinner)] == [NOW, NOW + 2]


def test_the_delete_horizon_is_set_for_kept_tombstones() -> None:
    before = from_records(FIVE)
    after = retain(before, keeping(b"a", b"b"), HORIZON)
    assert after is not None
    assert not check_stored(after).has_delete_horizon
    assert keys_of(after) == [b"a", b"b"]


def test_the_delete_horizon_of_a_control_batch_is_set_by_the_caller() -> None:
    before = from_records(FIVE[:1], control=True)
    assert retain(before, lambda record: True, None) == before
    after = retain(before, lambda record: True, HORIZON)
    assert after is not None
    assert check_stored(after).delete_horizon_ms == HORIZON


def test_append_time_is_kept_for_all_kept_records() -> None:
    before = from_records(FIVE, append_time_ms=NOW + 500)
    for horizon_ms in (None, HORIZON):
        after = retain(before, keeping(b"b", b"c"), horizon_ms)
        assert after is not None
        assert check_stored(after).max_timestamp_ms == NOW + 500
        assert {record.timestamp_ms for record in iterate_records(after)} == {NOW + 500}


def test_extreme_timestamps_survive_a_delete_horizon() -> None:
    times = (-(2**63), 2**63 - 1, -1)
    head = read_header(from_records([Record(body=b"v", timestamp_ms=0)] * 3))
    before = build_batch(head, b"".join(encode_record(time, n, b"k", None) for n, time in enumerate(times)))
    after = retain(before, lambda record: True, HORIZON)
    assert after is not None
    assert [record.timestamp_ms for record in iterate_records(after)] == list(times)


def test_a_batch_may_be_compacted_repeatedly() -> None:
    batch: bytes | None = bytes(from_records(FIVE, base_offset=40, codec=Codec.ZSTD))
    for keys in ([b"a", b"c", b"e"], [b"c", b"e"], [b"e"]):
        assert batch is not None
        batch = retain(batch, lambda record, keys=keys: record.key in keys, HORIZON)
        assert keys_of(batch) == keys
    assert batch is not None
    header = check_stored(batch)
    assert (header.base_offset, header.last_offset) == (40, 44)
    assert [(record.offset, record.timestamp_ms) for record in iterate_records(batch)] == [(44, NOW + 4)]
