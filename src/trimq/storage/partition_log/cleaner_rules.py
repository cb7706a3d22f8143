"""Rules of compaction: keeps the last record of each key, tombstones and markers for a while, and the last batch of
each producer. Decides batch by batch in log order; knows no files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b

from trimq.formats.kafka_batch.builder import retain
from trimq.formats.kafka_batch.header import BatchHeader, empty_batch, read_header
from trimq.formats.kafka_batch.records import BatchRecord, iterate_records
from trimq.model import Buffer
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.producers import ProducerStates

NEVER = -1
_DIGEST_BYTES = 16


class OffsetMap:
    """Last offset of each key up to `map_end`, the first offset not examined."""

    __slots__ = ("_limit", "_offsets", "map_end")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._offsets: dict[bytes, int] = {}
        self.map_end = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def takes(self, records: int) -> bool:
        """Returns whether that many more keys stay within the limit. The first batch always does, so that compaction
        makes progress."""
        return not self._offsets or len(self._offsets) + records <= self._limit

    def note(self, key: bytes, offset: int) -> None:
        self._offsets[_short(key)] = offset

    def is_last(self, key: bytes, offset: int) -> bool:
        """Returns whether no later record of the key was noted."""
        return self._offsets.get(_short(key), -1) <= offset


def _short(key: bytes) -> bytes:
    # Short keys are stored as they are, so that no key can be crafted to equal the digest of another.
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class TransactionFilter:
    """Distinguishes aborted from committed data, and markers with remaining data from markers whose data is removed.
    Needs all batches, in log order."""

    __slots__ = ("_aborted", "_ahead", "_by_marker", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=_first_offset))
        self._by_marker = {transaction.last_offset: transaction for transaction in self._ahead}
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        while self._ahead and self._ahead[0].first_offset <= header.base_offset:
            begun = self._ahead.popleft()
            self._aborted[begun.producer_id] = begun
        self._with_data.add(header.producer_id)
        found = self._aborted.get(header.producer_id)
        return found is not None and header.base_offset < found.last_offset

    def ended_by(self, marker: BatchHeader) -> bool:
        """Returns whether the filter has seen a batch, empty or not, of the transaction that this marker ends."""
        has_data = marker.producer_id in self._with_data
        self._with_data.discard(marker.producer_id)
        return has_data

    def aborted_by(self, marker: BatchHeader) -> AbortedTransaction | None:
        return self._by_marker.get(marker.base_offset)


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset


def note_last_offsets(
    last: OffsetMap,
    transactions: TransactionFilter,
    batch: memoryview,
    header: BatchHeader,
    from_offset: int,
    max_expanded_bytes: int,
) -> None:
    """Notes the keys of one batch. Aborted data and markers have none."""
    if not header.is_control and not transactions.is_aborted(header):
        for record in iterate_records(batch, 0, max_expanded_bytes):
            if record.key is not None and record.offset >= from_offset:
                last.note(record.key, record.offset)
    last.map_end = header.next_offset


class BatchCleaner:
    """Decides which records stay. `due_ms` is the time at which the last of the kept tombstones and markers may be
    removed; -1 if there are none."""

    def __init__(
        self,
        last: OffsetMap,
        transactions: TransactionFilter,
        producers: ProducerStates,
        now_ms: int,
        delete_retention_ms: int,
        max_expanded_bytes: int,
    ) -> None:
        self._last = last
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._max_expanded_bytes = max_expanded_bytes
        self._aborted: list[AbortedTransaction] = []
        self.due_ms = NEVER

    def clean(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        """Returns the remaining part of a batch, `batch` itself if nothing changes, or None if nothing remains."""
        kept = self._clean_marker(batch, header) if header.is_control else self._clean_data(batch, header)
        if kept is not None:
            horizon_ms = read_header(kept).delete_horizon_ms
            if horizon_ms is not None and horizon_ms >= self._now_ms:
                self.due_ms = max(self.due_ms, horizon_ms)
        return kept

    def take_aborted(self) -> list[AbortedTransaction]:
        """Returns the aborted transactions with remaining batches whose markers were cleaned since the last call."""
        taken, self._aborted = self._aborted, []
        return taken

    def _clean_data(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        kept: Buffer | None
        if self._transactions.is_aborted(header):
            # Even beyond the offset map: once the marker's segment is replaced, no index marks this batch as aborted.
            kept = None
        elif header.base_offset >= self._last.map_end:
            return batch
        else:
            kept = self._retain(batch, header)
        if kept is None and self._is_last_of_producer(header):
            return empty_batch(header) if header.record_count else batch
        return kept

    def _retain(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        horizon_ms = header.delete_horizon_ms
        with_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        is_last = self._last.is_last

        def keep(record: BatchRecord) -> bool:
            key = record.key
            return key is not None and (record.value is not None or with_tombstones) and is_last(key, record.offset)

        kept = retain(batch, keep, self._horizon_ms, max_expanded_bytes=self._max_expanded_bytes)
        return batch if kept is not None and batch == kept else kept

    def _clean_marker(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        if not header.is_transactional:
            return batch
        if self._transactions.ended_by(header):
            aborted = self._transactions.aborted_by(header)
            if aborted is not None:
                self._aborted.append(aborted)
            return batch
        if header.base_offset >= self._last.map_end or self._is_last_of_producer(header):
            return batch
        if not header.record_count:
            return None
        if header.delete_horizon_ms is None:
            return retain(batch, lambda record: True, self._horizon_ms, max_expanded_bytes=self._max_expanded_bytes)
        return batch if self._now_ms < header.delete_horizon_ms else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Returns whether a producer's last sequence number or epoch would be lost from the log without this batch."""
        state = self._producers.get(header.producer_id)
        if state is None:
            return False
        if not state.batches:
            return header.is_control and header.producer_epoch == state.epoch
        return not header.is_control and header.last_offset == state.batches[-1].last_offset
