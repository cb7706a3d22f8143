from __future__ import annotations

import struct
from pathlib import Path

import pytest
from storage.kafka_folders import FOLDERS, base_of, batches_of, companions, named, printed

from trimq.formats.checksum import crc32c
from trimq.formats.kafka_batch.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from trimq.storage.checkpoints.file_names import CorruptCompanion
from trimq.storage.partition_log import aborted_index
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.producers import EndedTransaction, ProducerState, ProducerStates, SentBatch


def data(
    offset: int, producer_id: int = 1, sequence: int = 0, count: int = 1, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return BatchHeader(offset, 0, 0, 2, 0, attributes, count - 1, 0, offset * 10, producer_id, epoch, sequence, count)


def marker(offset: int, producer_id: int = 1, epoch: int = 0) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    return BatchHeader(offset, 0, 0, 2, 0, attributes, 0, 0, offset * 10, producer_id, epoch, -1, 1)


def state_of(states: ProducerStates, producer_id: int = 1) -> ProducerState:
    state = states.get(producer_id)
    assert state is not None
    return state


# -- same bytes as Kafka


def replayed(folder: Path, up_to: int) -> tuple[ProducerStates, list[tuple[int, EndedTransaction]]]:
    """Returns the producer states at an offset of a Kafka folder, and the transactions that ended before it, with their
    segments."""
    states = ProducerStates()
    ended = []
    for path in sorted(folder.glob("*.log")):
        for _, header, found in batches_of(path.read_bytes()):
            if header.base_offset >= up_to:
                break
            if found is None:
                states.apply(header)
            elif transaction := states.apply_control(header, found.commit, found.coordinator_epoch):
                ended.append((base_of(path), transaction))
    return states, ended


def last_batches(states: ProducerStates) -> dict[int, ProducerState]:
    """Returns the state that a snapshot keeps: the last batch and the last timestamp of each producer."""
    return {
        producer_id: state._replace(
            batches=tuple(batch._replace(timestamp_ms=state.last_timestamp_ms) for batch in state.batches[-1:])
        )
        for producer_id, state in states.items()
    }


@pytest.mark.parametrize("path", companions(".snapshot"), ids=named)
def test_replaying_a_kafka_log_gives_kafkas_producer_snapshot(path: Path) -> None:
    kafka = ProducerStates.decode(path.read_bytes())
    ours, _ = replayed(path.parent, base_of(path))
    assert dict(kafka.items()) == last_batches(ours)
    assert kafka.first_open_offset() == ours.first_open_offset()


@pytest.mark.parametrize("path", companions(".snapshot"), ids=named)
def test_kafkas_own_snapshot_is_written_again_byte_for_byte(path: Path) -> None:
    assert ProducerStates.decode(path.read_bytes()).encode() == path.read_bytes()


@pytest.mark.parametrize("path", companions(".snapshot"), ids=named)
def test_a_snapshot_has_the_values_that_kafkas_tool_prints(path: Path) -> None:
    found = [
        {
            "producerId": producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": state.open_from,
            "lastTimestamp": state.last_timestamp_ms,
            "firstSequence": state.batches[0].first_sequence,
            "lastSequence": state.batches[0].last_sequence,
            "lastOffset": state.batches[0].last_offset,
            "offsetDelta": state.batches[0].last_offset - state.batches[0].first_offset,
            "timestamp": state.batches[0].timestamp_ms,
        }
        for producer_id, state in ProducerStates.decode(path.read_bytes()).items()
    ]
    assert found == printed(path)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_replaying_a_kafka_log_gives_kafkas_transaction_indexes(folder: Path) -> None:
    _, ended = replayed(folder, 1 << 62)
    found: dict[int, bytes] = {}
    for base, transaction in ended:
        if transaction.is_aborted:
            entry = AbortedTransaction(*transaction[:4])
            found[base] = found.get(base, b"") + aborted_index.encode(entry)
    assert found == {base_of(path): path.read_bytes() for path in folder.glob("*.txnindex")}


# -- data


def test_a_producer_s_last_five_batches_are_kept() -> None:
    states = ProducerStates()
    for number in range(7):
        states.apply(data(10 * number, sequence=2 * number, count=2))
    state = state_of(states)
    assert state.batches[0] == SentBatch(4, 5, 20, 21, 200)
    assert [batch.last_sequence for batch in state.batches] == [5, 7, 9, 11, 13]
    assert (state.last_sequence, state.last_timestamp_ms) == (13, 600)


def test_a_batch_that_is_sent_again_is_found_by_its_sequences_and_epoch() -> None:
    states = ProducerStates()
    states.apply(data(0, sequence=0, count=3, epoch=2))
    states.apply(data(3, sequence=3, count=1, epoch=2))
    state = state_of(states)
    assert state.find_duplicate_batch(2, 0, 2) == SentBatch(0, 2, 0, 2, 0)
    assert state.find_duplicate_batch(2, 3, 3) == SentBatch(3, 3, 3, 3, 30)
    for epoch, first, last in [(1, 0, 2), (2, 0, 1), (2, 1, 2), (2, 4, 4)]:
        assert state.find_duplicate_batch(epoch, first, last) is None


def test_a_new_epoch_begins_without_batches() -> None:
    states = ProducerStates()
    states.apply(data(0, sequence=0))
    states.apply(data(1, sequence=0, epoch=1))
    assert state_of(states).epoch == 1
    assert [batch.first_offset for batch in state_of(states).batches] == [1]


def test_a_batch_without_a_producer_leaves_no_trace() -> None:
    states = ProducerStates()
    states.apply(data(0, producer_id=-1, sequence=-1))
    assert len(states) == 0


def test_sequences_wrap_around() -> None:
    states = ProducerStates()
    states.apply(data(0, sequence=(1 << 31) - 2, count=5))
    assert state_of(states).last_sequence == 2
    assert dict(ProducerStates.decode(states.encode()).items()) == dict(states.items())


# -- transactions


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    states = ProducerStates()
    states.apply(data(3, sequence=0, transactional=True))
    states.apply(data(4, sequence=1, transactional=True))
    assert states.first_open_offset() == state_of(states).open_from == 3
    assert states.apply_control(marker(5), True, 9) == EndedTransaction(1, 3, 5, 6, False)
    assert states.first_open_offset() is None
    assert state_of(states).open_from == -1
    assert state_of(states).coordinator_epoch == 9
    assert state_of(states).last_timestamp_ms == 50
    assert state_of(states).last_sequence == 1


def test_the_last_stable_offset_stays_before_another_open_transaction() -> None:
    states = ProducerStates()
    for producer_id in (1, 2, 3):
        states.apply(data(producer_id, producer_id, transactional=True))
    assert states.apply_control(marker(4, 2), False, 0) == EndedTransaction(2, 2, 4, 1, True)
    assert states.first_open_offset() == 1
    assert states.apply_control(marker(5, 1), False, 0) == EndedTransaction(1, 1, 5, 3, True)
    assert states.first_open_offset() == 3
    assert states.apply_control(marker(6, 3), True, 0) == EndedTransaction(3, 3, 6, 7, False)


def test_a_marker_without_a_transaction_ends_nothing_but_is_stored() -> None:
    states = ProducerStates()
    assert states.apply_control(marker(0, epoch=4), False, 7) is None
    assert state_of(states) == ProducerState(4, (), 0, 7, -1)
    assert dict(ProducerStates.decode(states.encode()).items()) == dict(states.items())


def test_a_marker_of_the_next_epoch_clears_the_batches() -> None:
    states = ProducerStates()
    states.apply(data(0, transactional=True))
    assert states.apply_control(marker(1, epoch=1), True, 0) == EndedTransaction(1, 0, 1, 2, False)
    assert state_of(states) == ProducerState(1, (), 10, 0, -1)


# -- expiry


def test_an_idle_producer_expires_unless_its_transaction_is_open() -> None:
    states = ProducerStates()
    states.apply(data(1, producer_id=1))
    states.apply(data(2, producer_id=2, transactional=True))
    states.apply(data(3, producer_id=3))
    assert states.expire(now_ms=110, after_ms=100) == 1
    assert [producer_id for producer_id, _ in states.items()] == [2, 3]
    assert states.expire(now_ms=10**9, after_ms=100) == 1
    assert [producer_id for producer_id, _ in states.items()] == [2]


# -- passes


def test_an_undone_pass_leaves_no_trace() -> None:
    states = ProducerStates()
    states.apply(data(0, producer_id=1, transactional=True))
    states.apply(data(1, producer_id=2, transactional=True))
    states.apply(data(2, producer_id=3))
    states.commit_pass()
    before = dict(states.items())
    states.apply_control(marker(3, 1), False, 5)
    states.apply(data(4, producer_id=1, sequence=1, transactional=True))
    states.apply(data(5, producer_id=3, sequence=1, transactional=True))
    states.apply(data(6, producer_id=4, transactional=True))
    assert states.first_open_offset() == 1
    states.undo_pass()
    assert dict(states.items()) == before
    assert states.first_open_offset() == 0
    assert states.apply_control(marker(3, 1), True, 5) == EndedTransaction(1, 0, 3, 1, False)
    assert states.first_open_offset() == 1


def test_states_applied_before_the_pass_are_not_undone() -> None:
    states = ProducerStates()
    states.apply(data(0))
    states.commit_pass()
    states.undo_pass()
    assert state_of(states).last_sequence == 0


# -- the snapshot


def test_no_producers_make_a_snapshot_of_ten_bytes() -> None:
    assert ProducerStates().encode() == b"\x00\x01" + struct.pack(">I", crc32c(bytes(4))) + bytes(4)
    assert len(ProducerStates.decode(ProducerStates().encode())) == 0


def some_states() -> ProducerStates:
    states = ProducerStates()
    for number in range(3):
        states.apply(data(10 * number, producer_id=number, sequence=number, count=3, transactional=number == 2))
    return states


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction() -> None:
    states = some_states()
    states.apply(data(30, producer_id=0, sequence=3))
    found = ProducerStates.decode(memoryview(states.encode()))
    assert dict(found.items()) == last_batches(states)
    assert found.first_open_offset() == 20


def test_a_snapshot_with_any_byte_changed_is_unusable() -> None:
    sound = some_states().encode()
    assert len(sound) == 10 + 3 * 46
    for place in range(len(sound)):
        spoiled = bytearray(sound)
        spoiled[place] ^= 0x10
        with pytest.raises(CorruptCompanion):
            ProducerStates.decode(spoiled)


def test_a_snapshot_that_was_cut_is_unusable() -> None:
    sound = some_states().encode()
    for size in range(len(sound)):
        with pytest.raises(CorruptCompanion):
            ProducerStates.decode(sound[:size])


@pytest.mark.parametrize("count", [-1, 0, 2, (1 << 31) - 1])
def test_a_snapshot_with_a_wrong_count_is_unusable_although_its_checksum_matches(count: int) -> None:
    body = struct.pack(">i", count) + some_states().encode()[10:]
    with pytest.raises(CorruptCompanion, match=f"cannot hold {count} producers"):
        ProducerStates.decode(struct.pack(">hI", 1, crc32c(body)) + body)
