"""Stream: one ordered sequence of records, with its three ends and its waiters. Knows a log, no protocol."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from trimq.core.partitions.batch_validation import BatchRules
from trimq.core.scheduling.waiters import Waiters, Watch
from trimq.errors import DamagedSegment, OffsetOutOfRange, Refusal
from trimq.formats.kafka_batch.header import NO_TIMESTAMP, BatchHeader, walk
from trimq.formats.kafka_batch.records import to_records
from trimq.model import Buffer, Record, StreamId
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.guards.damages import DamageReports
from trimq.storage.partition_log.aborted_index import AbortedTransaction
from trimq.storage.partition_log.expected_segments import remedy
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.reader import (
    BatchSlice,
    OffsetAndTimestamp,
    collect_aborted,
    find_latest,
    find_time,
    read_batches,
)

# Bytes of a log that `records` reads at a time.
_READ_BYTES = 1 << 20


class Appended(NamedTuple):
    """Position of an appended batch. The append is durable when the ticket's pass is durable and the ticket has no
    refusal."""

    base_offset: int
    ticket: Ticket
    append_time_ms: int = NO_TIMESTAMP
    """The broker's time, if the records carry that. For a duplicate: the latest timestamp of its records."""
    joined: Ticket | None = None
    """Ticket with which the stream was added to the transaction. If that is refused, the batch does not count
    either."""

    @property
    def number(self) -> int:
        """Number of the pass that decides whether the append is durable."""
        return self.ticket.number if self.joined is None else max(self.ticket.number, self.joined.number)

    @property
    def refusal(self) -> Refusal | None:
        return self.ticket.refusal or (None if self.joined is None else self.joined.refusal)


class Stream:
    """`end` (appended) >= `durable_end` (synced here) >= `readable_end` (visible to consumers)."""

    def __init__(
        self, id: StreamId, topic: str, log: PartitionLog, message_bytes: int, rules: BatchRules, damages: DamageReports
    ) -> None:
        self.id = id
        self._damages = damages
        self.topic = topic
        self.log = log
        self.message_bytes = message_bytes
        self.rules = rules
        self._waiters: Waiters | None = None
        log.on_durable_end = self.wake

    @property
    def start(self) -> int:
        return self.log.start

    @property
    def end(self) -> int:
        return self.log.end

    @property
    def durable_end(self) -> int:
        return self.log.durable_end

    @property
    def readable_end(self) -> int:
        """With one replica, all durable records may be read."""
        return self.log.durable_end

    @property
    def stable_end(self) -> int:
        """Last stable offset: every transaction before it is decided."""
        first_unstable_offset = self.log.first_unstable_offset
        end = self.readable_end
        return end if first_unstable_offset is None else min(first_unstable_offset, end)

    def append(self, batch: Buffer, header: BatchHeader, leader_epoch: int) -> Appended:
        base_offset = self.log.end
        return Appended(base_offset, self.log.append(batch, header, leader_epoch))

    def read(self, offset: int, max_bytes: int, limit: int | None = None, may_wait: bool = True) -> BatchSlice:
        """Returns whole batches, from the one that contains `offset` on, none beyond `limit`; at least one, if there is
        any. Raises ColdRead for cold data if `may_wait` is False."""
        end = self.readable_end
        if not self.log.start <= offset <= end:
            raise OffsetOutOfRange(offset, self.log.start, end)
        try:
            return read_batches(self.log, offset, max_bytes, end if limit is None else min(limit, end), may_wait)
        except DamagedSegment as damage:
            self._damages.found(damage, remedy(damage.file))
            raise

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records between `from_offset` and, exclusively, `to_offset`."""
        return collect_aborted(self.log, from_offset, to_offset)

    def records(self, offset: int, max_expanded_bytes: int) -> Iterator[Record]:
        """Yields all readable records from `offset` on, without transaction markers."""
        while offset < self.readable_end:
            found = self.read(offset, _READ_BYTES)
            for part in found.parts:
                for position, _ in walk(part, 0, len(part)):
                    for record in to_records(part, position, max_expanded_bytes):
                        if record.offset >= offset:
                            yield record
            offset = found.next_offset

    def find_time(
        self,
        timestamp_ms: int,
        max_expanded_bytes: int,
        limit: int | None = None,
        outcomes: Mapping[Hashable, object] | None = None,
    ) -> OffsetAndTimestamp | None:
        """Returns the first record that is not older than `timestamp_ms`. Raises LargeSearch if a large batch must be
        searched first, unless `outcomes` is None."""
        end = self.readable_end if limit is None else limit
        with self._reporting_damage():
            return find_time(self.log, timestamp_ms, end, max_expanded_bytes, outcomes)

    def find_latest(
        self, max_expanded_bytes: int, outcomes: Mapping[Hashable, object] | None = None
    ) -> OffsetAndTimestamp | None:
        """Returns the record with the largest timestamp; the lowest offset among equals. Raises LargeSearch as
        `find_time` does."""
        with self._reporting_damage():
            return find_latest(self.log, self.readable_end, max_expanded_bytes, outcomes)

    @contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        try:
            yield
        except DamagedSegment as damage:
            self._damages.found(damage, remedy(damage.file))
            raise

    # -- waiters

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Calls back once, when `readable_end` has grown or the topic was deleted."""
        if self._waiters is None:
            self._waiters = Waiters()
        return self._waiters.watch(callback)

    def wake(self) -> None:
        if self._waiters is not None:
            self._waiters.wake()
