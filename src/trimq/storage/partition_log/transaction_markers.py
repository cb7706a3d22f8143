"""Applies the batches of a log to the state of producers, transaction markers included. Knows batches and states, no
log."""

from __future__ import annotations

from trimq.formats.kafka_batch.header import BatchHeader
from trimq.formats.kafka_batch.markers import read_control
from trimq.formats.kafka_batch.records import iterate_records
from trimq.model import Buffer
from trimq.storage.partition_log.producers import EndedTransaction, ProducerStates


def apply_batch(producers: ProducerStates, header: BatchHeader, batch: Buffer) -> EndedTransaction | None:
    """Applies `batch`, which is in the log at the header's offsets. Returns the transaction that it ends, if any.
    Raises BadBatch, without a change, if it is unreadable."""
    if not header.is_control:
        producers.apply(header)
        return None
    record = next(iterate_records(batch), None)
    if record is None:
        return None  # emptied by compaction: the whole transaction is removed
    marker = read_control(record)
    return None if marker is None else producers.apply_control(header, marker.commit, marker.coordinator_epoch)
