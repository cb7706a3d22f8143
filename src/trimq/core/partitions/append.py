"""Appends to partition logs, after checks of the write gate, the owner, the size, the batch itself and idempotence."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.core.metadata.cluster import Cluster
from trimq.core.partitions.batch_validation import BatchValidator, Review
from trimq.core.partitions.compaction_schedule import CompactionSchedule
from trimq.core.partitions.idempotence import find_duplicate
from trimq.core.partitions.stream import Appended, Stream
from trimq.core.write_gate import WriteGate
from trimq.errors import MessageTooLong, OutOfOrderSequence, ReadOnly
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import BatchHeader, check_sent
from trimq.model import Buffer, Record


class PartitionAppender:
    def __init__(
        self, gate: WriteGate, cluster: Cluster, admission: BatchValidator, compaction: CompactionSchedule
    ) -> None:
        self._gate = gate
        self._cluster = cluster
        self._validator = admission
        self._compaction = compaction

    @property
    def expanded_bytes(self) -> int:
        """Uncompressed bytes of all compressed batches so far."""
        return self._validator.expanded_bytes

    def append(
        self,
        stream: Stream,
        batch: Buffer,
        header: BatchHeader,
        review: Review | None = None,
        may_defer: bool = False,
        highest_sequence: int | None = None,
    ) -> Appended:
        """Appends one batch. If `may_defer`, raises LargeBatch for a large one, which has to be reviewed first.
        `highest_sequence`: a batch with a later sequence number has to wait for others."""
        self._gate.require_writable()
        self._cluster.require_owner(stream.id)
        if not stream.rules.is_writable:
            raise ReadOnly(f"topic {stream.topic}")
        size = len(batch)
        if size > stream.message_bytes:
            raise MessageTooLong(size, stream.message_bytes)
        batch, header, append_time_ms = self._validator.validate(stream.rules, batch, header, review, may_defer)
        if len(batch) != size:  # recompressed with another codec; it may have grown
            size = len(batch)
            if size > stream.message_bytes:
                raise MessageTooLong(size, stream.message_bytes)
        if highest_sequence is not None and header.base_sequence > highest_sequence:
            raise OutOfOrderSequence(header.producer_id, highest_sequence, header.base_sequence)
        if header.producer_id >= 0:
            duplicate = find_duplicate(stream, header)
            if duplicate is not None:
                return duplicate
        self._gate.count(size)
        log = stream.log
        base_offset = log.end
        appended = Appended(base_offset, log.append(batch, header, self._cluster.leader_epoch(stream.id)))
        if stream.rules.needs_keys:
            self._compaction.note(stream)
        return appended if append_time_ms < 0 else appended._replace(append_time_ms=append_time_ms)

    def throttle_ms(self) -> int:
        return self._gate.throttle_ms()

    def append_records(self, stream: Stream, records: Sequence[Record]) -> Appended:
        batch = from_records(records)
        return self.append(stream, batch, check_sent(batch))
