"""The fast walk over a log accepts exactly the batches that the full checks accept, and stops where they object."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import BadBatch, check_stored, stamp_batch, walk_plain
from trimq.model import Record

EPOCH = 3
FIRST = 40


def log_of(bodies: list[list[bytes]]) -> bytearray:
    """Returns a batch for each list of bodies, numbered from FIRST on."""
    log, offset = bytearray(), FIRST
    for place, batch in enumerate(bodies):
        records = [Record(body, timestamp_ms=1000 + place) for body in batch]
        sealed = from_records(records, leader_epoch=EPOCH)
        stamp_batch(sealed, offset, EPOCH)
        log += sealed
        offset += len(batch)
    return log


def fully_checked(log: bytearray, end_offset: int, epoch: int) -> list[tuple[int, int, int, int]]:
    found, position, next_offset = [], 0, FIRST
    while position < len(log):
        try:
            header = check_stored(log, position)
        except BadBatch:
            break
        is_plain = header.producer_id < 0 and header.leader_epoch <= epoch and header.record_count > 0
        if not is_plain or header.base_offset != next_offset or header.last_offset >= end_offset:
            break
        found.append((header.last_offset, position, header.size, header.max_timestamp_ms))
        position, next_offset = position + header.size, header.next_offset
    return found


logs = st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), max_size=5).map(log_of)


@given(logs, st.integers(FIRST, FIRST + 16), st.integers(EPOCH - 1, EPOCH + 1))
def test_the_fast_walk_stops_at_the_end_and_at_a_later_epoch(log: bytearray, end_offset: int, epoch: int) -> None:
    assert list(walk_plain(memoryview(log), 0, FIRST, end_offset, epoch)) == fully_checked(log, end_offset, epoch)


@given(logs, st.data())
def test_the_fast_walk_stops_at_damage_as_the_full_checks_do(log: bytearray, data: st.DataObject) -> None:
    if log:
        for _ in range(data.draw(st.integers(1, 3))):
            log[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        del log[data.draw(st.integers(0, len(log))) :]
    assert list(walk_plain(memoryview(log), 0, FIRST, 1 << 40, EPOCH)) == fully_checked(log, 1 << 40, EPOCH)


def test_a_batch_with_a_producer_id_ends_the_fast_walk() -> None:
    log = log_of([[b"a"]])
    sealed = from_records([Record(b"b")], producer_id=7, producer_epoch=0, base_sequence=0)
    stamp_batch(sealed, FIRST + 1, EPOCH)
    assert [each[0] for each in walk_plain(memoryview(log + sealed), 0, FIRST, 1 << 40, EPOCH)] == [FIRST]
