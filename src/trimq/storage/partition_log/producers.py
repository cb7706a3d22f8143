"""State of the idempotent and transactional producers of a partition log, and Kafka's `.snapshot` format of it. Keeps
state; the layers above decide whether a producer may append.

     0  version 1     2      6  number of producers   4      then 46 bytes for each:
     2  CRC-32C       4     10  producers

     0  producer id   8     10  last sequence  4     22  offset delta  4     34  coordinator epoch              4
     8  epoch         2     14  last offset    8     26  timestamp     8     38  open transaction's first offset  8

The CRC covers byte 6 to the end. A snapshot holds only the last batch of each producer. A duplicate of a batch from
before the snapshot is recognised, by its sequence numbers, only if it is that one; the others of the last five are
recognised if the scan after the snapshot read them. Apache Kafka forgets the same.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from trimq.formats.checksum import crc32c
from trimq.formats.kafka_batch.header import NO_PRODUCER, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from trimq.model import Buffer
from trimq.storage.checkpoints.file_names import PRODUCER_SNAPSHOT, CorruptCompanion

KEPT_BATCHES = 5
NO_OFFSET = -1
NO_EPOCH = -1

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_COUNT = struct.Struct(">i")
_SEQUENCES = 1 << 31
_new_tuple = tuple.__new__  # takes half the time of the NamedTuple's constructor; one per batch of every producer


class SentBatch(NamedTuple):
    """One batch of a producer, kept to recognise duplicates. Sequences are -1 if the producer has none."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerState(NamedTuple):
    epoch: int
    batches: tuple[SentBatch, ...] = ()
    """Last five batches of this epoch, oldest first."""
    last_timestamp_ms: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_EPOCH
    open_from: int = NO_OFFSET
    """First offset of the open transaction; -1 if none is open."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate_batch(self, epoch: int, first_sequence: int, last_sequence: int) -> SentBatch | None:
        """Returns the kept batch with these sequences, which the producer is now sending again."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


class EndedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of its marker."""
    last_stable_offset: int
    """Offset after the marker, or the first offset of another open transaction."""
    is_aborted: bool


class ProducerStates:
    """Producers of one log. If a pass cannot be written, every state is restored to the beginning of the pass."""

    __slots__ = ("_before_pass", "_open", "_states")

    def __init__(self, states: dict[int, ProducerState] | None = None) -> None:
        self._states = states or {}
        # First offset to producer id. Sorted, since transactions open in the order of their first offsets.
        self._open: dict[int, int] = {}
        self._before_pass: dict[int, ProducerState | None] = {}
        if states:
            self._find_open()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def items(self) -> list[tuple[int, ProducerState]]:
        return list(self._states.items())

    def apply(self, header: BatchHeader) -> None:
        """Called for a data batch appended at the header's offsets. A batch without a producer id changes nothing."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER:
            return
        state = self._states.get(producer_id)
        self._before_pass.setdefault(producer_id, state)
        if state is None:
            state = ProducerState(header.producer_epoch)
        batches = state.batches if state.epoch == header.producer_epoch else ()
        last_offset = header.base_offset + header.last_offset_delta
        fields = (header.base_sequence, header.last_sequence, header.base_offset, last_offset, header.max_timestamp_ms)
        batch = _new_tuple(SentBatch, fields)
        open_from = state.open_from
        if header.is_transactional and open_from == NO_OFFSET:
            open_from = header.base_offset
            self._open[open_from] = producer_id
        kept = (*batches[1 - KEPT_BATCHES :], batch)
        self._states[producer_id] = _new_tuple(
            ProducerState, (header.producer_epoch, kept, header.max_timestamp_ms, state.coordinator_epoch, open_from)
        )

    def apply_control(self, header: BatchHeader, commit: bool, coordinator_epoch: int) -> EndedTransaction | None:
        """Called for an appended transaction marker. Returns the transaction that it ended, or None if this log has no
        record of it."""
        producer_id = header.producer_id
        state = self._states.get(producer_id)
        self._before_pass.setdefault(producer_id, state)
        if state is None:
            state = ProducerState(header.producer_epoch)
        self._states[producer_id] = ProducerState(
            header.producer_epoch,
            state.batches if state.epoch == header.producer_epoch else (),
            header.max_timestamp_ms,
            coordinator_epoch,
            NO_OFFSET,
        )
        if state.open_from == NO_OFFSET:
            return None
        self._open.pop(state.open_from, None)
        first_open = self.first_open_offset()
        last_stable_offset = header.base_offset + 1 if first_open is None else first_open
        return EndedTransaction(producer_id, state.open_from, header.base_offset, last_stable_offset, not commit)

    def first_open_offset(self) -> int | None:
        """Returns the first offset of the oldest open transaction, or None if none is open."""
        return next(iter(self._open)) if self._open else None

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Drops producers without an open transaction that were silent for `after_ms`. Returns their number."""
        silent = [
            producer_id
            for producer_id, state in self._states.items()
            if state.open_from == NO_OFFSET and now_ms - state.last_timestamp_ms >= after_ms
        ]
        for producer_id in silent:
            del self._states[producer_id]
        return len(silent)

    # -- passes

    def commit_pass(self) -> int | None:
        """Makes the changes so far final: they are written. Returns the `first_open_offset`."""
        if self._before_pass:
            self._before_pass = {}
        return next(iter(self._open)) if self._open else None

    def undo_pass(self) -> None:
        """Undoes the changes since `commit_pass`."""
        for producer_id, state in self._before_pass.items():
            if state is None:
                self._states.pop(producer_id, None)
            else:
                self._states[producer_id] = state
        self._before_pass = {}
        self._find_open()

    def _find_open(self) -> None:
        found = [(state.open_from, producer_id) for producer_id, state in self._states.items()]
        self._open = {offset: producer_id for offset, producer_id in sorted(found) if offset != NO_OFFSET}

    # -- the snapshot

    def encode(self) -> bytes:
        parts = [_COUNT.pack(len(self._states))]
        parts += [_encode_entry(producer_id, state) for producer_id, state in self._states.items()]
        body = b"".join(parts)
        return _HEAD.pack(_VERSION, crc32c(body), len(self._states)) + body[_COUNT.size :]

    @classmethod
    def decode(cls, data: Buffer) -> ProducerStates:
        """Returns the states of a snapshot. Raises CorruptCompanion if it is damaged: read an older snapshot or the log
        instead."""
        if len(data) < _HEAD.size:
            raise CorruptCompanion(f"{PRODUCER_SNAPSHOT}: {len(data)} bytes are too short")
        version, crc, count = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise CorruptCompanion(f"{PRODUCER_SNAPSHOT}: version {version} is not supported")
        body = memoryview(data)[_CRC_FROM:]
        if crc != crc32c(body):
            raise CorruptCompanion(f"{PRODUCER_SNAPSHOT}: the checksum does not match")
        if len(data) != _HEAD.size + count * _ENTRY.size:
            raise CorruptCompanion(f"{PRODUCER_SNAPSHOT}: {len(data)} bytes cannot hold {count} producers")
        return cls(dict(_decode_entry(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])))


def _encode_entry(producer_id: int, state: ProducerState) -> bytes:
    last = state.batches[-1] if state.batches else None
    return _ENTRY.pack(
        producer_id,
        state.epoch,
        last.last_sequence if last else NO_SEQUENCE,
        last.last_offset if last else NO_OFFSET,
        last.last_offset - last.first_offset if last else 0,
        state.last_timestamp_ms,
        state.coordinator_epoch,
        state.open_from,
    )


def _decode_entry(fields: tuple[int, ...]) -> tuple[int, ProducerState]:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, open_from = fields
    if last_offset < 0:
        return producer_id, ProducerState(epoch, (), timestamp_ms, coordinator_epoch, max(open_from, NO_OFFSET))
    first_sequence = (last_sequence - offset_delta) % _SEQUENCES if last_sequence >= 0 else NO_SEQUENCE
    batch = SentBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp_ms)
    return producer_id, ProducerState(epoch, (batch,), timestamp_ms, coordinator_epoch, max(open_from, NO_OFFSET))
