from __future__ import annotations

import pytest

from trimq.formats.kafka_batch.builder import encode_record
from trimq.formats.kafka_batch.survey import TooManyHeaders, scan_records
from trimq.formats.varints import BadVarint


def run_of(count: int, *, value: bytes = b"v" * 100, times: tuple[int, ...] = (0,)) -> list[bytes]:
    return [encode_record(times[n % len(times)], n, b"key", value) for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 66, 500, 8191, 8192, 8193, 8300])
@pytest.mark.parametrize("times", [(0,), (5, 1, 7, 7, -3), (1000, 2000), (60, 61, 62, 63, 64, 65)])
def test_sequences_of_equal_records_are_walked_to_their_end(count: int, times: tuple[int, ...]) -> None:
    data = b"".join(run_of(count, times=times))
    survey = scan_records(data, count)
    assert survey.end == len(data)
    assert (survey.first_null_key_index, survey.offsets_in_order) == (None, True)
    if count:
        deltas = [times[n % len(times)] for n in range(count)]
        assert (survey.earliest_delta_ms, survey.latest_delta_ms) == (min(deltas), max(deltas))
        assert survey.latest_offset_delta == deltas.index(max(deltas))


@pytest.mark.parametrize("odd_one", [5, 40, 63, 64, 65, 90, 119])
@pytest.mark.parametrize(
    ("record", "field", "expected"),
    [
        (lambda n: encode_record(0, n, None, b"v" * 103), "first_null_key_index", lambda n: n),
        (lambda n: encode_record(0, n + 1, b"key", b"v" * 100), "offsets_in_order", lambda n: False),
        (lambda n: encode_record(50, n, b"key", b"v" * 100), "latest_offset_delta", lambda n: n),
        (lambda n: encode_record(900, n, b"key", b"v" * 99), "latest_offset_delta", lambda n: n),
        (lambda n: encode_record(-50, n, b"key", b"v" * 100), "earliest_delta_ms", lambda n: -50),
        (lambda n: encode_record(0, n, b"key", b"v" * 96, [(b"", b"")]), "offsets_in_order", lambda n: True),
        (lambda n: encode_record(0, n, b"key", b"v" * 150), "latest_delta_ms", lambda n: 0),
    ],
)
def test_a_different_record_among_equal_ones_is_noticed(odd_one, record, field, expected) -> None:  # type: ignore[no-untyped-def]
    records = run_of(120)
    records[odd_one] = record(odd_one)
    survey = scan_records(b"".join(records), 120)
    assert survey.end == sum(map(len, records))
    assert getattr(survey, field) == expected(odd_one)


@pytest.mark.parametrize("odd_one", [1, 5, 63, 64, 65, 119])
@pytest.mark.parametrize("at", [0, 1, -1, "key", "value"])
def test_a_wrong_length_among_equal_ones_is_noticed(odd_one: int, at: int | str) -> None:
    records = [bytearray(record) for record in run_of(120)]
    bad = records[odd_one]
    places = {"key": bad.index(b"\x06key"), "value": bad.index(b"key") + 3}
    bad[places[at] if isinstance(at, str) else at] ^= 2
    with pytest.raises((BadVarint, IndexError)):
        scan_records(b"".join(records), 120)


@pytest.mark.parametrize("odd_one", [5, 63, 64, 119])
@pytest.mark.parametrize(("delta", "size"), [(1500, 100), (7, 101), (60_000, 99), (10**12, 96)])
def test_a_different_timestamp_among_long_ones_is_noticed(odd_one: int, delta: int, size: int) -> None:
    records = run_of(120, times=(1000,))
    records[odd_one] = encode_record(delta, odd_one, b"key", b"v" * size)
    survey = scan_records(b"".join(records), 120)
    assert survey.end == sum(map(len, records))
    assert (survey.earliest_delta_ms, survey.latest_delta_ms) == (min(delta, 1000), max(delta, 1000))
    assert survey.latest_offset_delta == (odd_one if delta > 1000 else 0)


@pytest.mark.parametrize("odd_one", [5, 63, 64, 119])
def test_headers_are_checked_in_every_record(odd_one: int) -> None:
    records = [encode_record(0, n, b"key", b"v" * 50, [(b"name", b"content")]) for n in range(120)]
    assert scan_records(b"".join(records), 120).end == sum(map(len, records))
    records[odd_one] = records[odd_one].replace(b"\x08name", b"\x0aname")
    with pytest.raises((BadVarint, IndexError)):
        scan_records(b"".join(records), 120)


def test_a_truncated_last_record_is_refused() -> None:
    data = b"".join(run_of(50))
    for cut in (1, 50, 104):
        with pytest.raises((BadVarint, IndexError)):
            scan_records(data[:-cut], 50)


def test_a_count_below_the_number_of_records_ends_early() -> None:
    records = run_of(100)
    assert scan_records(b"".join(records), 30).end == sum(map(len, records[:30]))


def test_headers_are_walked_up_to_a_limit() -> None:
    records = b"".join(encode_record(0, n, None, b"v", [(b"h", b"x")] * 4) for n in range(10))
    assert scan_records(records, 10, 40).end == len(records)
    with pytest.raises(TooManyHeaders):
        scan_records(records, 10, 39)
    with pytest.raises(TooManyHeaders):
        scan_records(encode_record(0, 0, None, None, [(b"", b"")] * 100_000), 1, 1000)
