"""Where the ledger of failures is kept: a log beside those of queues, whose oldest part goes when it is too long or too
old. Knows records and their places, never what they tell."""

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

_PARTS = 4  # the ledger is forgotten a quarter at a time


class _StoredRecord(msgspec.Struct, array_like=True, frozen=True):
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    body: bytes | None
    timestamp_ms: int


class LedgerLog:
    """`make_log` gives its log, which is made when it is first needed. `most_bytes` 0: nothing is kept."""

    def __init__(
        self, make_log: Callable[[], QueueLog], now_ms: Callable[[], int], most_bytes: int, most_ms: int
    ) -> None:
        self._make_log = make_log
        self._now_ms = now_ms
        self._most_bytes = most_bytes
        self._most_ms = most_ms
        self._log: QueueLog | None = None

    @property
    def logs(self) -> list[QueueLog]:
        return [] if self._log is None else [self._log]

    def open(self, found: QueueLog | None) -> None:
        self._log = found
        if found is not None:
            found.caches_recent = False  # nobody reads it soon: the memory is for queues

    def append(self, record: Record) -> Ticket | None:
        """None: it could not be kept, which is no reason to keep the message that it tells of."""
        if not self._most_bytes:
            return None
        kept = _StoredRecord(record.key, list(record.headers), record.body, record.timestamp_ms)
        content = Content(b"", b"", b"", msgspec.msgpack.encode(kept), self._now_ms())
        return self._append(lambda log: log.append(encode_content(content)))

    def append_batch(self, contents: Sequence[Content]) -> Ticket | None:
        """As `append`, of messages in the form of a row, at least one."""
        if not self._most_bytes:
            return None
        return self._append(lambda log: log.append_all(contents, NEVER, 0))

    def _append(self, write: Callable[[QueueLog], Ticket]) -> Ticket | None:
        try:
            if self._log is None:
                self.open(self._make_log())
            assert self._log is not None
            ticket = write(self._log)
            if self._log.segments[-1].segment.size > self._most_bytes // _PARTS:
                self._log.roll()
        except WriteFailed as error:
            log.warning("a failure is not in the ledger: %s", error)
            return None
        self.trim()
        return ticket

    def read(self, from_offset: int) -> Iterator[Record]:
        """The records that are durable, from an offset on."""
        held = self._log
        offset = None if held is None else held.next_live(max(from_offset, held.segments[0].base))
        while held is not None and offset is not None:
            try:
                yield _read(held.peek(offset).content, offset)
            except (DamagedSegment, msgspec.MsgspecError) as error:
                raise InvalidRecords(f"the failure ledger is damaged at {offset}: {error}") from error
            offset = held.next_live(offset + 1)

    def append_entry(self, entry: LedgerEntry) -> Ticket:
        """As `append`, of an entry. Pass 0 if it is not kept."""
        ticket = self.append(to_record(entry))
        return Ticket(0) if ticket is None else Ticket(ticket.number)

    def pending_ticket(self) -> Ticket | None:
        """Of what was noted and cannot be read yet."""
        if self._log is None or self._log.readable_end == self._log.end:
            return None
        return self._log.latest_ticket()

    def covers_since(self, time_ms: int) -> bool:
        """Whether all is still kept that was noted from this time on."""
        if self._log is None or self._log.segments[0].base == 0:
            return self._most_bytes > 0
        oldest = next(self.read(0), None)
        return oldest is not None and oldest.timestamp_ms < time_ms

    def since(self, time_ms: int) -> Iterator[Record]:
        """The records that are durable, with all that were noted from this time on; some are older."""
        segments = [] if self._log is None else self._log.segments
        newer = (segment.base for segment in segments[:-1] if segment.newest_ms >= time_ms)
        return self.read(next(newer, segments[-1].base if segments else 0))

    def trim(self) -> None:
        """Whole segments go: those that are too old, and the oldest while there are too many bytes."""
        if self._log is None:
            return
        segments = self._log.segments
        excess = sum(segment.segment.size for segment in segments) - self._most_bytes
        oldest_ms = self._now_ms() - self._most_ms
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
