"""Keeps the state of producers in step with the batches of a log, those that end transactions among them. Knows batches
and states, no log."""

from __future__ import annotations

from trimq.formats.kafka_batch.header import BatchHeader
from trimq.formats.kafka_batch.markers import read_control
from trimq.formats.kafka_batch.records import iterate_records
from trimq.model import Buffer
from trimq.storage.partition_log.producers import EndedTransaction, ProducerStates


def apply_batch(producers: ProducerStates, header: BatchHeader, batch: Buffer) -> EndedTransaction | None:
    """`batch` is in the log at the header's offsets. Gives back the transaction that it ends. BadBatch: it says nothing
    that could be understood, and changes nothing."""
    if not header.is_control:
        producers.apply(header)
        return None
    record = next(iterate_records(batch), None)
    if record is None:
        return None  # compaction emptied it: the whole transaction is gone
    marker = read_control(record)
    return None if marker is None else producers.apply_control(header, marker.commit, marker.coordinator_epoch)
