"""Storage of the failure ledger: a log beside those of queues. Its oldest segments are deleted when it is too large or
too old. Knows records and offsets, never their meaning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import msgspec

from trimq.core.failures.ledger import LedgerEntry, to_record
from trimq.core.failures.queue_entries import is_of_failed_batch, read_failed_message
from trimq.errors import DamagedSegment, InvalidRecords, WriteFailed
from trimq.formats.amqp_content.content import NEVER, Content, encode_content
from trimq.model import Record
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog

log = logging.getLogger(__name__)

_PARTS = 4  # a quarter of the ledger is deleted at a time


class _StoredRecord(msgspec.Struct, array_like=True, frozen=True):
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    body: bytes | None
    timestamp_ms: int


class LedgerLog:
    """`make_log` creates the log when it is first needed. With `max_bytes` 0 nothing is stored."""

    def __init__(
        self, make_log: Callable[[], QueueLog], now_ms: Callable[[], int], max_bytes: int, max_ms: int
    ) -> None:
        self._make_log = make_log
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        self._max_ms = max_ms
        self._log: QueueLog | None = None

    @property
    def logs(self) -> list[QueueLog]:
        return [] if self._log is None else [self._log]

    def open(self, found: QueueLog | None) -> None:
        self._log = found
        if found is not None:
            found.caches_recent = False  # the ledger is rarely read: leave the memory to queues

    def append(self, record: Record) -> Ticket | None:
        """Returns None if the entry could not be stored. The failed message leaves its queue all the same."""
        if not self._max_bytes:
            return None
        kept = _StoredRecord(record.key, list(record.headers), record.body, record.timestamp_ms)
        content = Content(b"", b"", b"", msgspec.msgpack.encode(kept), self._now_ms())
        return self._append(lambda log: log.append(encode_content(content)))

    def append_batch(self, contents: Sequence[Content]) -> Ticket | None:
        """Same as `append`, for at least one message in the format of `queue_entries`."""
        if not self._max_bytes:
            return None
        return self._append(lambda log: log.append_all(contents, NEVER, 0))

    def _append(self, write: Callable[[QueueLog], Ticket]) -> Ticket | None:
        try:
            if self._log is None:
                self.open(self._make_log())
            assert self._log is not None
            ticket = write(self._log)
            if self._log.segments[-1].segment.size > self._max_bytes // _PARTS:
                self._log.roll()
        except WriteFailed as error:
            log.warning("failure ledger: entry not written (%s)", error)
            return None
        self.trim()
        return ticket

    def read(self, from_offset: int) -> Iterator[Record]:
        """Yields the durable records from an offset on."""
        held = self._log
        offset = None if held is None else held.next_live(max(from_offset, held.segments[0].base))
        while held is not None and offset is not None:
            try:
                yield _read(held.peek(offset).content, offset)
            except (DamagedSegment, msgspec.MsgspecError) as error:
                raise InvalidRecords(f"the failure ledger has a damaged record at {offset}: {error}") from error
            offset = held.next_live(offset + 1)

    def append_entry(self, entry: LedgerEntry) -> Ticket:
        """Same as `append`, for an entry. Returns a ticket of pass 0 if the entry could not be stored."""
        ticket = self.append(to_record(entry))
        return Ticket(0) if ticket is None else Ticket(ticket.number)

    def pending_ticket(self) -> Ticket | None:
        """Returns the ticket of the last entry while it cannot be read yet."""
        if self._log is None or self._log.readable_end == self._log.end:
            return None
        return self._log.latest_ticket()

    def covers_since(self, time_ms: int) -> bool:
        """Returns whether all entries since this time are still stored."""
        if self._log is None or self._log.segments[0].base == 0:
            return self._max_bytes > 0
        oldest = next(self.read(0), None)
        return oldest is not None and oldest.timestamp_ms < time_ms

    def since(self, time_ms: int) -> Iterator[Record]:
        """Returns the durable records, including all since this time; the first ones may be older."""
        segments = [] if self._log is None else self._log.segments
        newer = (segment.base for segment in segments[:-1] if segment.newest_ms >= time_ms)
        return self.read(next(newer, segments[-1].base if segments else 0))

    def trim(self) -> None:
        """Deletes whole segments: those that are too old, and the oldest while the log is too large."""
        if self._log is None:
            return
        segments = self._log.segments
        excess = sum(segment.segment.size for segment in segments) - self._max_bytes
        oldest_ms = self._now_ms() - self._max_ms
        for segment in segments[:-1]:
            if segment.end > self._log.readable_end or (excess <= 0 and segment.newest_ms >= oldest_ms):
                break
            excess -= segment.segment.size
            self._log.acks.ack_range(segment.base, segment.end)


def _read(content: Content, offset: int) -> Record:
    if is_of_failed_batch(content):
        return read_failed_message(content, offset)
    kept = msgspec.msgpack.decode(content.body, type=_StoredRecord)
    return Record(kept.body, kept.key, tuple(kept.headers), kept.timestamp_ms, offset)
