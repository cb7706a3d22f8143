"""Validation and normalisation of incoming batches."""

from __future__ import annotations

import pytest

from trimq.core.partitions.batch_validation import MAX_FAULTS, BatchRules, BatchValidator
from trimq.errors import InvalidRecords, MissingKey, UntimelyRecord
from trimq.formats.kafka_batch.builder import encode_record, from_records
from trimq.formats.kafka_batch.compression import Codec, compress
from trimq.formats.kafka_batch.header import LOG_APPEND_TIME_BIT, BadBatch, BatchHeader, build_batch, check, check_sent
from trimq.formats.kafka_batch.records import BatchTooLarge, expand, to_records
from trimq.model import Record

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
FULL = BatchValidator(lambda: NOW_MS, 1 << 20, opens_every_batch=True, max_records=5000)
HEADER = BatchValidator(lambda: NOW_MS, 1 << 20, opens_every_batch=False, max_records=5000)
BOTH = pytest.mark.parametrize("admission", [FULL, HEADER], ids=["full", "header"])


def batch(*times: int, key: bytes | None = b"k", codec: int = Codec.NONE) -> bytearray:
    records = [Record(b"body", key, timestamp_ms=NOW_MS if not times else time) for time in times or (0,)]
    return from_records(records, codec=codec)


def admitted(admission: BatchValidator, rules: BatchRules, sent: bytearray) -> tuple[bytes, BatchHeader, int]:
    kept, header, append_time_ms = admission.validate(rules, sent, check_sent(sent))
    assert check(kept) == header
    return bytes(kept), header, append_time_ms


@BOTH
@pytest.mark.parametrize("codec", list(Codec))
def test_a_valid_batch_is_stored_byte_for_byte(admission: BatchValidator, codec: int) -> None:
    sent = batch(NOW_MS - 5, NOW_MS, codec=codec)
    before = bytes(sent)
    kept, _, append_time_ms = admitted(admission, BatchRules(), sent)
    assert kept == before
    assert append_time_ms == -1


@BOTH
def test_a_batch_has_no_more_records_than_allowed(admission: BatchValidator) -> None:
    admitted(admission, BatchRules(), batch(*[NOW_MS] * 5000))
    sent = batch(*[NOW_MS] * 5001, codec=Codec.ZSTD)
    with pytest.raises(BatchTooLarge):
        admission.validate(BatchRules(), sent, check_sent(sent))


def test_headers_count_like_records() -> None:
    records = [Record(b"body", timestamp_ms=NOW_MS, headers=(("a", b"b"),) * 499)] * 10
    admitted(FULL, BatchRules(), from_records(records))
    sent = from_records([*records, records[0]])
    with pytest.raises(BatchTooLarge):
        FULL.validate(BatchRules(), sent, check_sent(sent))


@BOTH
def test_a_compacted_stream_refuses_records_without_a_key(admission: BatchValidator) -> None:
    records = [Record(b"a", b"k", timestamp_ms=1), Record(b"b", None, timestamp_ms=2)]
    sent = from_records(records, codec=Codec.GZIP)
    with pytest.raises(MissingKey) as refused:
        admission.validate(BatchRules(needs_keys=True), sent, check_sent(sent))
    assert [fault.index for fault in refused.value.faults] == [1]
    admitted(admission, BatchRules(needs_keys=True), batch(key=b""))


@BOTH
def test_a_refusal_names_every_bad_record_up_to_a_limit(admission: BatchValidator) -> None:
    records = [Record(b"a", None if n % 10 == 3 else b"k", timestamp_ms=NOW_MS) for n in range(100)]
    sent = from_records(records, codec=Codec.LZ4)
    with pytest.raises(MissingKey) as refused:
        admission.validate(BatchRules(needs_keys=True), sent, check_sent(sent))
    assert [fault.index for fault in refused.value.faults] == list(range(3, 100, 10))
    many = BatchValidator(lambda: NOW_MS, 1 << 20, opens_every_batch=False, max_records=50_000)
    sent = from_records([Record(b"a", None, timestamp_ms=NOW_MS)] * 30_000, codec=Codec.LZ4)
    with pytest.raises(MissingKey) as refused:
        many.validate(BatchRules(needs_keys=True), sent, check_sent(sent))
    assert len(refused.value.faults) == MAX_FAULTS


@BOTH
def test_a_batch_with_untimely_records_and_missing_keys_is_untimely(admission: BatchValidator) -> None:
    late = NOW_MS + 2 * HOUR_MS
    records = [
        Record(b"a", None, timestamp_ms=late),
        Record(b"a", b"k", timestamp_ms=late),
        Record(b"a", b"k", timestamp_ms=-1),
        Record(b"a", None, timestamp_ms=NOW_MS),
    ]
    sent = from_records(records)
    with pytest.raises(UntimelyRecord) as refused:
        admission.validate(BatchRules(needs_keys=True), sent, check_sent(sent))
    assert [fault.index for fault in refused.value.faults] == [0, 1, 3]
    assert "no key" in refused.value.faults[0].reason  # the key is checked first, as in Kafka


@BOTH
@pytest.mark.parametrize(
    ("time", "rules", "is_taken"),
    [
        (NOW_MS + HOUR_MS, BatchRules(), True),
        (NOW_MS + HOUR_MS + 1, BatchRules(), False),
        (0, BatchRules(), True),
        (-1, BatchRules(max_age_ms=10, has_timestamp_window=True), True),
        (NOW_MS - 10, BatchRules(max_age_ms=10, has_timestamp_window=True), True),
        (NOW_MS - 11, BatchRules(max_age_ms=10, has_timestamp_window=True), False),
        (NOW_MS + 11, BatchRules(max_lead_ms=10, has_timestamp_window=True), False),
        (NOW_MS + 2 * HOUR_MS, BatchRules(keeps_append_time=True), True),
    ],
)
def test_a_timestamp_outside_the_allowed_window_is_refused(
    admission: BatchValidator, time: int, rules: BatchRules, is_taken: bool
) -> None:
    sent = batch(NOW_MS, time)
    if is_taken:
        admitted(admission, rules, sent)
    else:
        with pytest.raises(UntimelyRecord) as refused:
            admission.validate(rules, sent, check_sent(sent))
        assert [fault.index for fault in refused.value.faults] == [1]


@BOTH
def test_a_stream_may_stamp_its_records_with_log_append_time(admission: BatchValidator) -> None:
    kept, header, append_time_ms = admitted(admission, BatchRules(keeps_append_time=True), batch(5, 6, codec=Codec.LZ4))
    assert append_time_ms == NOW_MS
    assert header.is_log_append_time
    assert [record.timestamp_ms for record in to_records(kept)] == [NOW_MS, NOW_MS]


@BOTH
def test_a_producer_may_not_send_log_append_time(admission: BatchValidator) -> None:
    sent = build_batch(check(batch())._replace(attributes=LOG_APPEND_TIME_BIT), batch()[61:])
    with pytest.raises(UntimelyRecord):
        admission.validate(BatchRules(keeps_append_time=True), sent, check_sent(sent))
    kept, header, _ = admitted(admission, BatchRules(), sent)
    assert not header.is_log_append_time
    assert [record.timestamp_ms for record in to_records(kept)] == [NOW_MS]


def test_a_header_with_a_wrong_max_timestamp_is_corrected() -> None:
    sent = batch(NOW_MS - 5, NOW_MS)
    liar = build_batch(check(sent)._replace(max_timestamp_ms=NOW_MS + 2 * HOUR_MS), sent[61:])
    assert admitted(FULL, BatchRules(), liar)[0] == bytes(sent)


@BOTH
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("sent_codec", list(Codec))
def test_a_stream_may_recompress_its_batches_with_its_own_codec(
    admission: BatchValidator, codec: int, sent_codec: int
) -> None:
    sent = batch(NOW_MS, NOW_MS + 1, codec=sent_codec)
    before = bytes(sent)
    kept, header, _ = admitted(admission, BatchRules(codec=codec), sent)
    assert header.codec == codec
    assert to_records(kept) == to_records(before)
    assert (kept == before) == (codec == sent_codec)


def test_a_higher_level_compresses_more() -> None:
    records = [Record(b"%d %d" % (number, number * 7919 % 1000), timestamp_ms=NOW_MS) for number in range(5000)]
    sizes = [
        len(FULL.validate(BatchRules(codec=Codec.GZIP, level=level), sent, check_sent(sent)).batch)
        for level in (1, 9)
        for sent in [from_records(records)]
    ]
    assert sizes[1] < sizes[0]


def test_records_are_decoded_only_where_full_validation_is_set() -> None:
    broken = build_batch(check(batch()), b"\xff\xff\xff")
    with pytest.raises(BadBatch):
        FULL.validate(BatchRules(), broken, check_sent(broken))
    HEADER.validate(BatchRules(), broken, check_sent(broken))
    for rules in (
        BatchRules(needs_keys=True),
        BatchRules(has_timestamp_window=True),
        BatchRules(codec=Codec.GZIP, needs_keys=True),
    ):
        with pytest.raises(BadBatch):
            HEADER.validate(rules, broken, check_sent(broken))


def test_offsets_inside_a_compressed_batch_count_from_0() -> None:
    payload = encode_record(0, 1, b"k", b"a") + encode_record(0, 0, b"k", b"b")
    header = check(batch(NOW_MS, NOW_MS))
    plain = build_batch(header, payload)
    FULL.validate(BatchRules(), plain, check_sent(plain))
    packed = build_batch(header._replace(attributes=Codec.GZIP), compress(Codec.GZIP, payload))
    with pytest.raises(InvalidRecords):
        FULL.validate(BatchRules(), packed, check_sent(packed))


def test_a_read_only_buffer_is_copied_before_it_is_changed() -> None:
    sent = bytes(batch(5))
    kept, header, _ = FULL.validate(BatchRules(keeps_append_time=True), sent, check_sent(sent))
    assert header.max_timestamp_ms == NOW_MS
    assert bytes(kept) != sent
    assert expand(kept)[1] == expand(sent)[1]
