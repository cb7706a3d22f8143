"""Idempotent producers: decides whether a batch is new, a duplicate, or out of sequence. The log stores the state."""

from __future__ import annotations

from trimq.core.partitions.stream import Appended, Stream
from trimq.errors import OutOfOrderSequence, StaleProducer
from trimq.errors.transactions import WrongTransactionState
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.storage.partition_log.producers import NO_OFFSET

_SEQUENCES = 1 << 31


def find_duplicate(stream: Stream, header: BatchHeader) -> Appended | None:
    """Returns the first append of a duplicate batch, or None if the batch is new. Raises a refusal if it is out of
    sequence."""
    state = stream.log.producers.get(header.producer_id)
    if state is None or state.epoch < 0:
        return None  # expired, unknown, or without an epoch so far: any first sequence is valid
    if header.producer_epoch < state.epoch:
        raise StaleProducer(header.producer_id, state.epoch)
    if state.open_from != NO_OFFSET and not header.is_transactional:
        raise WrongTransactionState(f"producer {header.producer_id} has an open transaction on this stream")
    sent = state.find_duplicate_batch(header.producer_epoch, header.base_sequence, header.last_sequence)
    if sent is not None:
        return Appended(sent.first_offset, stream.log.latest_ticket(), sent.timestamp_ms)
    # Every epoch begins with 0, also one begun by a transaction marker: else its first batch could be lost unnoticed.
    expected = 0
    if header.producer_epoch == state.epoch and state.batches:
        expected = (state.batches[-1].last_sequence + 1) % _SEQUENCES
    if header.base_sequence != expected:
        raise OutOfOrderSequence(header.producer_id, expected, header.base_sequence)
    return None
