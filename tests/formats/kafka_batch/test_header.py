from __future__ import annotations

import struct
from typing import Any

import pytest

from trimq.formats.checksum import crc32c
from trimq.formats.kafka_batch import header as batch
from trimq.formats.kafka_batch.builder import encode_record
from trimq.formats.kafka_batch.header import BatchHeader

RECORD = encode_record(0, 0, b"k", b"v")
PLAIN = BatchHeader(0, 0, -1, 2, 0, 0, 0, 1_700_000_000_000, 1_700_000_000_001, -1, -1, -1, 1)


def craft(payload: bytes = RECORD, **fields: Any) -> bytearray:
    """A batch with any fields, and the right length, magic and CRC unless given."""
    made = batch.build_batch(
        PLAIN._replace(**{k: v for k, v in fields.items() if k not in ("length", "magic", "crc")}), payload
    )
    if "length" in fields:
        struct.pack_into(">i", made, 8, fields["length"])
    if "magic" in fields:
        struct.pack_into(">b", made, 16, fields["magic"])
    if "crc" in fields:
        struct.pack_into(">I", made, 17, fields["crc"])
    return made


def test_every_field_has_kafkas_position() -> None:
    covered = struct.pack(">hiqqqhii", 0x71, 9, 100, 200, 4711, 3, 40, 8)
    head = struct.pack(">qiibI", 1000, 9 + len(covered), 6, 2, crc32c(covered))
    header = batch.read_header(b"...." + head + covered, 4)
    assert header == (1000, 49, 6, 2, crc32c(covered), 0x71, 9, 100, 200, 4711, 3, 40, 8)
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (61, 1009, 1010, 49)
    assert header.codec == 1
    assert header.is_transactional
    assert header.is_control
    assert header.has_delete_horizon
    assert not header.is_log_append_time
    assert header.delete_horizon_ms == 100
    assert batch.HEADER_BYTES == 61


def test_a_plain_batch_has_no_flags() -> None:
    header = batch.read_header(craft())
    flags = (header.is_transactional, header.is_control, header.has_delete_horizon, header.is_log_append_time)
    assert (header.codec, flags, header.delete_horizon_ms) == (0, (False,) * 4, None)


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [(-1, 5, -1), (0, 0, 0), (10, 5, 15), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6)],
)
def test_sequences_wrap_to_zero(base_sequence: int, last_offset_delta: int, last_sequence: int) -> None:
    header = PLAIN._replace(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == last_sequence


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_valid_batch_passes_every_check(kind: type) -> None:
    sound = kind(bytes(craft()))
    header = batch.read_header(sound)
    assert batch.check(sound) == batch.check_stored(sound) == batch.check_sent(sound) == header
    assert header.size == len(sound)


def test_a_batch_is_checked_inside_a_larger_buffer() -> None:
    around = b"before" + bytes(craft()) + b"after"
    assert batch.check(around, 6) == batch.read_header(craft())


SENT_BADLY = {
    "nothing": (b"", batch.TruncatedBatch),
    "ten bytes": (craft()[:10], batch.TruncatedBatch),
    "sixty bytes": (craft()[:60], batch.TruncatedBatch),
    "the last byte is missing": (craft()[:-1], batch.TruncatedBatch),
    "length too great": (craft(length=2**31 - 1), batch.TruncatedBatch),
    "length negative": (craft(length=-1), batch.BadFraming),
    "length least": (craft(length=-(2**31)), batch.BadFraming),
    "length zero": (craft(length=0), batch.BadFraming),
    "length of half a header": (craft(length=20), batch.BadLength),
    "length one below a header": (craft(length=48), batch.BadLength),
    "magic 0": (craft(magic=0), batch.OldMagic),
    "magic 1": (craft(magic=1), batch.OldMagic),
    "magic 3": (craft(magic=3), batch.UnsupportedMagic),
    "magic -1": (craft(magic=-1), batch.UnsupportedMagic),
    "crc": (craft(crc=1), batch.BadChecksum),
    "base offset 7": (craft(base_offset=7), batch.BadBaseOffset),
    "base offset -1": (craft(base_offset=-1), batch.BadBaseOffset),
    "count 0": (craft(record_count=0), batch.BadCount),
    "count 0, delta -1": (craft(record_count=0, last_offset_delta=-1), batch.BadCount),
    "count negative": (craft(record_count=-5), batch.BadCount),
    "count and delta negative": (craft(record_count=-5, last_offset_delta=-6), batch.BadCount),
    "count too great": (craft(record_count=2), batch.BadCount),
    "delta too great": (craft(last_offset_delta=1), batch.BadCount),
    "control": (craft(attributes=0x30), batch.UnexpectedControl),
    "producer without sequence": (craft(producer_id=5, producer_epoch=0), batch.MissingSequence),
    "two": (craft() + craft(), batch.SecondBatch),
    "garbage after it": (craft() + b"\xff" * 70, batch.BadLength),
    "another format after it": (craft() + craft(magic=9), batch.BadLength),
}


@pytest.mark.parametrize(("sent", "error"), SENT_BADLY.values(), ids=SENT_BADLY)
def test_an_invalid_batch_of_a_producer_is_refused_with_its_error(sent: bytes, error: type[batch.BadBatch]) -> None:
    with pytest.raises(batch.BadBatch) as caught:
        batch.check_sent(sent)
    assert caught.type is error


@pytest.mark.parametrize(
    "sent",
    [
        craft() + b"x",
        craft() + craft()[:40],
        craft() + craft()[:-1],
        craft(leader_epoch=77),
        craft(attributes=0x100),
        craft(base_sequence=3),
        craft(producer_id=5, base_sequence=0),
        craft(base_timestamp_ms=-1, max_timestamp_ms=-1),
    ],
    ids=["trailing byte", "torn head", "torn batch", "epoch", "reserved bit", "no producer", "no epoch", "no time"],
)
def test_a_batch_that_kafka_accepts_is_accepted(sent: bytes) -> None:
    assert batch.check_sent(sent).record_count == 1


STORED_BADLY = {
    "torn": (craft()[:-1], batch.TruncatedBatch),
    "zeros": (bytes(100), batch.BadFraming),
    "crc": (craft(crc=1), batch.BadChecksum),
    "old": (craft(magic=1), batch.OldMagic),
    "negative offset": (craft(base_offset=-1), batch.BadBaseOffset),
    "negative count": (craft(record_count=-1), batch.BadCount),
    "more records than offsets": (craft(record_count=2), batch.BadCount),
    "no offset": (craft(record_count=0, last_offset_delta=-1), batch.BadCount),
}


@pytest.mark.parametrize(("stored", "error"), STORED_BADLY.values(), ids=STORED_BADLY)
def test_an_invalid_stored_batch_is_refused_with_its_error(stored: bytes, error: type[batch.BadBatch]) -> None:
    with pytest.raises(batch.BadBatch) as caught:
        batch.check_stored(stored)
    assert caught.type is error


@pytest.mark.parametrize(
    "stored",
    [
        craft(base_offset=900),
        craft(last_offset_delta=6),
        craft(b"", last_offset_delta=6, record_count=0),
        craft(attributes=0x30, producer_id=1, producer_epoch=1),
        craft() + craft(),
    ],
    ids=["placed", "compacted", "emptied", "marker", "followed by another"],
)
def test_batches_written_by_compaction_and_the_broker_are_valid(stored: bytes) -> None:
    batch.check_stored(stored)


def test_read_header_needs_61_bytes() -> None:
    with pytest.raises(batch.TruncatedBatch):
        batch.read_header(craft()[:60])
    with pytest.raises(batch.TruncatedBatch):
        batch.read_header(craft(), 30)


def test_a_walk_finds_every_batch() -> None:
    pieces = [craft(base_offset=n, payload=RECORD * n) for n in range(4)]
    log = b"?" + b"".join(pieces) + b"?"
    found = list(batch.walk(log, 1, len(log) - 1))
    assert [header.base_offset for _, header in found] == [0, 1, 2, 3]
    assert [position for position, _ in found] == [1 + sum(map(len, pieces[:n])) for n in range(4)]
    assert list(batch.walk(log, 5, 5)) == []


@pytest.mark.parametrize("cut", [1, 5, 50, 69])
def test_a_walk_stops_at_a_torn_tail_after_the_whole_batches(cut: int) -> None:
    log = craft() + craft()
    walking = batch.walk(log, 0, len(log) - cut)
    assert next(walking)[0] == 0
    with pytest.raises(batch.TruncatedBatch):
        next(walking)


def test_a_walk_ends_at_zeros_or_a_length_of_zero() -> None:
    with pytest.raises(batch.BadLength):
        list(batch.walk(bytes(1000), 0, 1000))
    with pytest.raises(batch.BadLength):
        list(batch.walk(craft(length=-12), 0, 70))


def test_a_stamp_sets_offset_and_epoch_and_keeps_the_rest() -> None:
    log = b"head" + craft()
    stamped = bytearray(log)
    batch.stamp_batch(stamped, 2**40, 9, 4)
    header = batch.check(stamped, 4)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert stamped[:4] == b"head"
    assert stamped[12:16] == log[12:16]
    assert stamped[20:] == log[20:]


def test_a_stamp_can_be_returned_without_writing() -> None:
    original = b"head" + bytes(craft())
    prefix = batch.stamped_prefix(memoryview(original), 2**40, 9, 4)
    stamped = bytearray(original[4:])
    batch.stamp_batch(stamped, 2**40, 9)
    assert prefix + original[20:] == stamped


def test_append_time_sets_the_bit_the_timestamp_and_a_new_checksum() -> None:
    made = craft(attributes=0x11, base_offset=5)
    batch.stamp_append_time(made, 1_800_000_000_000)
    header = batch.check(made)
    assert header.is_log_append_time
    assert header.attributes == 0x19
    assert (header.max_timestamp_ms, header.base_timestamp_ms) == (1_800_000_000_000, PLAIN.base_timestamp_ms)
    assert made[61:] == RECORD
    assert header.base_offset == 5


def test_create_time_clears_the_bit_and_corrects_the_max_timestamp() -> None:
    made = craft(attributes=0x08, max_timestamp_ms=2**60)
    batch.stamp_create_time(made, 1_700_000_000_000)
    header = batch.check(made)
    assert (header.attributes, header.max_timestamp_ms) == (0, 1_700_000_000_000)


def test_a_correct_timestamp_changes_nothing() -> None:
    made = craft()
    batch.stamp_create_time(made, PLAIN.max_timestamp_ms)
    assert made == craft()


def test_timestamps_are_set_inside_a_larger_buffer() -> None:
    log = craft() + craft() + craft()
    batch.stamp_append_time(memoryview(log), 42, len(craft()))
    assert [h.max_timestamp_ms for _, h in batch.walk(log, 0, len(log))] == [
        PLAIN.max_timestamp_ms,
        42,
        PLAIN.max_timestamp_ms,
    ]
    assert all(batch.check(log, at) for at, _ in batch.walk(log, 0, len(log)))


@pytest.mark.parametrize("log_append_time", [True, False])
@pytest.mark.parametrize("max_timestamp_ms", [PLAIN.max_timestamp_ms, 42])
def test_a_whole_header_can_be_stamped_without_writing(log_append_time: bool, max_timestamp_ms: int) -> None:
    original = bytes(craft()) + b"next"
    head = batch.stamped_header(original, 77, 3, log_append_time=log_append_time, max_timestamp_ms=max_timestamp_ms)
    header = batch.check(head + original[61:-4])
    assert (header.base_offset, header.leader_epoch, header.is_log_append_time, header.max_timestamp_ms) == (
        77,
        3,
        log_append_time,
        max_timestamp_ms,
    )


def test_an_empty_batch_keeps_the_producer_and_its_sequences() -> None:
    header = batch.read_header(
        craft(attributes=0x5C, base_offset=50, last_offset_delta=4, producer_id=8, producer_epoch=2, base_sequence=7)
    )
    empty = batch.check_stored(batch.empty_batch(header))
    assert empty.size == 61
    assert (empty.attributes, empty.record_count, empty.base_timestamp_ms) == (0x18, 0, -1)
    kept = ("base_offset", "last_offset", "last_sequence", "producer_id", "producer_epoch", "max_timestamp_ms")
    assert [getattr(empty, name) for name in kept] == [getattr(header, name) for name in kept]
