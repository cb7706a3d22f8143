"""Companion files of a partition log: round trips, and garbage gives a result or `CorruptCompanion`."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.storage.checkpoints.file_names import CorruptCompanion
from trimq.storage.checkpoints.leader_epochs import (
    EpochStart,
    format_epochs,
    format_partition_metadata,
    parse_epochs,
    parse_partition_metadata,
)
from trimq.storage.partition_log import aborted_index
from trimq.storage.partition_log.aborted_index import AbortedTransaction, collect_aborted
from trimq.storage.partition_log.index import SegmentIndex, StoredIndex
from trimq.storage.partition_log.producers import ProducerState, ProducerStates, SentBatch

offsets = st.integers(0, (1 << 63) - 1)
times = st.integers(-1, (1 << 63) - 1)
epochs = st.integers(0, (1 << 31) - 1)
producer_ids = st.integers(0, (1 << 63) - 1)
INT16_MAX = (1 << 15) - 1


@st.composite
def producer_states(draw: st.DrawFn, open_from: int) -> ProducerState:
    timestamp_ms = draw(times)
    batches: tuple[SentBatch, ...] = ()
    if draw(st.booleans()):
        last_offset = draw(offsets)
        delta = draw(st.integers(0, min(last_offset, (1 << 31) - 1)))
        last_sequence = draw(st.integers(0, (1 << 31) - 1))
        first_sequence = (last_sequence - delta) % (1 << 31)
        batches = (SentBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp_ms),)
    coordinator_epoch = draw(st.integers(-1, (1 << 31) - 1))
    return ProducerState(draw(st.integers(0, INT16_MAX)), batches, timestamp_ms, coordinator_epoch, open_from)


@st.composite
def snapshots(draw: st.DrawFn) -> dict[int, ProducerState]:
    ids = draw(st.lists(producer_ids, unique=True, max_size=8))
    opened = draw(st.lists(offsets, unique=True, min_size=len(ids), max_size=len(ids)))
    return {
        producer_id: draw(producer_states(first if draw(st.booleans()) else -1))
        for producer_id, first in zip(ids, opened, strict=True)
    }


@given(snapshots())
def test_producer_states_survive_a_snapshot(states: dict[int, ProducerState]) -> None:
    found = ProducerStates.decode(ProducerStates(dict(states)).encode())
    assert dict(found.items()) == states
    opened = [state.open_from for state in states.values() if state.open_from >= 0]
    assert found.first_open_offset() == (min(opened) if opened else None)


@given(snapshots(), st.data())
def test_a_damaged_snapshot_is_never_accepted(states: dict[int, ProducerState], choice: st.DataObject) -> None:
    sound = ProducerStates(states).encode()
    spoiled = bytearray(sound)
    place = choice.draw(st.integers(0, len(sound) - 1))
    spoiled[place] = choice.draw(st.integers(0, 255))
    if spoiled != sound:
        with pytest.raises(CorruptCompanion):
            ProducerStates.decode(spoiled)


@given(st.binary(max_size=400))
def test_garbage_is_no_companion_file(data: bytes) -> None:
    for decode in (ProducerStates.decode, aborted_index.decode, parse_epochs, parse_partition_metadata):
        with suppress(CorruptCompanion):
            decode(data)
    with suppress(CorruptCompanion):
        collect_aborted(data, 3, 9)


@given(st.text(st.sampled_from("0123456789 \n\r\t-+:versiontopic_d=AZaz"), max_size=60))
def test_any_text_is_a_checkpoint_or_corrupt(text: str) -> None:
    with suppress(CorruptCompanion):
        starts = parse_epochs(text.encode())
        assert parse_epochs(format_epochs(starts)) == starts
    with suppress(CorruptCompanion):
        parse_partition_metadata(text.encode())


@given(st.uuids())
def test_the_id_of_a_topic_survives_encoding_and_decoding(topic: UUID) -> None:
    assert parse_partition_metadata(format_partition_metadata(topic)) == topic


@given(st.lists(st.tuples(epochs, offsets), max_size=8))
def test_epochs_survive_encoding_and_decoding(starts: list[tuple[int, int]]) -> None:
    rising = zip(sorted({epoch for epoch, _ in starts}), sorted({offset for _, offset in starts}), strict=False)
    expected = [EpochStart(*start) for start in rising]
    assert parse_epochs(format_epochs(expected)) == expected


@st.composite
def aborted_transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Transactions as a log produces them: markers in order, each transaction of a producer after its previous one."""
    transactions = []
    marker = 0
    for _ in range(draw(st.integers(0, 8))):
        marker += draw(st.integers(1, 6))
        first = draw(st.integers(max(marker - 12, 0), marker - 1))
        transactions.append(AbortedTransaction(draw(st.integers(0, 3)), first, marker, 0))
    stable = marker + 1
    for place in reversed(range(len(transactions))):
        # Never beyond its own marker, nor beyond a transaction that ends later.
        stable = min(stable, transactions[place].last_offset + 1)
        transactions[place] = transactions[place]._replace(last_stable_offset=stable)
        stable = min(stable, transactions[place].first_offset)
    return transactions


@given(aborted_transactions(), st.integers(0, 40), st.integers(1, 40), st.integers(0, 8))
def test_all_aborted_transactions_of_a_range_are_found_across_two_segments(
    transactions: list[AbortedTransaction], first: int, length: int, split: int
) -> None:
    files = [b"".join(map(aborted_index.encode, part)) for part in (transactions[:split], transactions[split:])]
    assert [entry for data in files for entry in aborted_index.decode(data)] == transactions
    found: list[AbortedTransaction] = []
    for data in files:
        aborted, is_complete = collect_aborted(data, first, first + length)
        found += aborted
        if is_complete:
            break
    overlapping = [
        entry for entry in transactions if entry.last_offset >= first and entry.first_offset < first + length
    ]
    assert found == overlapping


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 1 << 32), st.integers(0, 1 << 34), offsets)
def test_a_garbage_index_answers_within_its_segment_or_is_unusable(
    index: bytes, time_index: bytes, log_bytes: int, offsets_in_log: int, base: int
) -> None:
    with suppress(CorruptCompanion):
        stored = StoredIndex(base, index, time_index, log_bytes, base + offsets_in_log)
        for target in (base, base + 5, base + offsets_in_log):
            offset, position = stored.lookup(target)
            assert base <= offset <= max(target, base)
            assert 0 <= position < max(log_bytes, 1)
        for target in (0, 77, log_bytes):
            assert stored.boundary_before(target).position <= target
        for target in (0, 1 << 40):
            assert stored.lookup_timestamp(target).timestamp_ms <= target
        list(stored.offsets())
        list(stored.times())


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 1 << 32))
def test_an_index_resumes_from_garbage_within_the_trusted_log(
    index: bytes, time_index: bytes, trusted_bytes: int
) -> None:
    resumed, position = SegmentIndex.resume(0, 100, index, time_index, trusted_bytes)
    assert position == 0 or position < trusted_bytes
    resumed.note((1 << 31) - 1, position, (1 << 62) + 1)
