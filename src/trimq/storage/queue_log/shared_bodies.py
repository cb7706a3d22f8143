"""Shared bodies (blobs): a body routed to several queues is stored once, in a log of its own, and removed when no
message refers to it any more. Reference counts are in memory; a start counts them again from the queue logs. Knows
neither queues nor messages.

A blob is as durable as the messages that refer to it: both are in one pass, and the blob is written first. If a message
refers to a missing blob, its pass was never confirmed, or every queue had acknowledged the message. Numbers of
durable blobs are never reused: a power cut may lose some, or bring back the bytes of a failed write, and a message must
not get the body of another. So each start, and each failed write, skips to a range far above the highest number, and
uses the range only once that is on disk. Until then, bodies are copied into each queue.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator

from trimq.errors import DamagedSegment, WriteFailed
from trimq.formats.amqp_content.content import NO_BLOB, Content, encode_content
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.queue_log.log import QueueLog

log = logging.getLogger(__name__)

VOLATILE = 1 << 63  # highest bit of a blob's number: a restart deletes the blob
_RANGE_BITS = 32  # low bits of a number, counted within one range

_CHUNK = 256
_CHUNK_BITS = 8


class ReferenceCounts:
    """Number of references to each blob: four bytes each, in chunks that are freed when all their counts are 0."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self._held: dict[int, int] = {}

    def __getitem__(self, blob: int) -> int:
        chunk = self._chunks.get(blob >> _CHUNK_BITS)
        return 0 if chunk is None else chunk[blob % _CHUNK]

    def __len__(self) -> int:
        """Number of blobs with references."""
        return sum(self._held.values())

    def add(self, blob: int) -> None:
        key = blob >> _CHUNK_BITS
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = self._chunks[key] = array("I", bytes(4 * _CHUNK))
            self._held[key] = 0
        if not chunk[blob % _CHUNK]:
            self._held[key] += 1
        chunk[blob % _CHUNK] += 1

    def take(self, blob: int) -> int:
        """Removes one reference. Returns the number of those left."""
        key = blob >> _CHUNK_BITS
        chunk = self._chunks[key]
        chunk[blob % _CHUNK] -= 1
        left = chunk[blob % _CHUNK]
        if not left:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key], self._chunks[key]
        return left


class _BodyLog:
    """Durable or volatile blobs. `log` None: there are none yet."""

    def __init__(self) -> None:
        self.log: QueueLog | None = None
        self.counts = ReferenceCounts()
        self.is_ready = False
        self.is_roll_pending = False

    def sweep(self) -> int:
        """Removes blobs without references. Returns their number."""
        if self.log is None:
            return 0
        unreferenced = [blob for blob in self._blobs() if not self.counts[blob]]
        for blob in unreferenced:
            self.log.acks.ack(blob)
        return len(unreferenced)

    def keep_all(self) -> None:
        for blob in self._blobs():
            self.counts.add(blob)

    def _blobs(self) -> Iterator[int]:
        for segment in () if self.log is None else self.log.segments:
            blob = segment.next_live(segment.base)
            while blob < segment.end:
                yield blob
                blob = segment.next_live(blob + 1)


class SharedBodyStore:
    """`make_log(is_volatile)` creates the log of durable or of volatile blobs when it is first needed."""

    def __init__(self, passes: Passes, make_log: Callable[[bool], QueueLog]) -> None:
        self._passes = passes
        self._make_log = make_log
        self._lasting = _BodyLog()
        self._passing = _BodyLog()
        self.failed_pass = 0
        """The last pass that failed to write its blobs: messages that refer to them must fail, too."""

    @property
    def logs(self) -> list[QueueLog]:
        return [body_log.log for body_log in (self._lasting, self._passing) if body_log.log is not None]

    def __len__(self) -> int:
        """Number of blobs with references."""
        return len(self._lasting.counts) + len(self._passing.counts)

    # -- recovery

    def open(self, found: QueueLog) -> None:
        self._take_log(self._lasting, found)

    def recover(self, blob: int) -> bool:
        """Adds a reference that a queue log has at start. Returns False if the blob is missing: the caller must drop
        the message."""
        body_log = self._lasting
        if blob & VOLATILE or body_log.log is None or not body_log.log.segments.is_live(blob):
            return False
        body_log.counts.add(blob)
        return True

    def sweep(self) -> None:
        """Removes blobs that a crash left without references. Must be called after all queue logs were opened."""
        swept = self._lasting.sweep()
        if swept:
            log.info("shared bodies: removed %d that no queue refers to", swept)

    def keep_all(self) -> None:
        """Keeps all blobs found at start until the next start: logs that are not open may refer to them."""
        self._lasting.keep_all()

    # -- storing

    def put(self, body: bytes, is_volatile: bool, now_ms: int) -> int:
        """Stores a body and returns its blob. The caller must `hold` it in this pass. Returns NO_BLOB if the body
        cannot be shared now."""
        body_log = self._passing if is_volatile else self._lasting
        try:
            if not body_log.is_ready:
                self._prepare(body_log, is_volatile)
            if not body_log.is_ready or body_log.log is None:
                return NO_BLOB
            blob = body_log.log.end
            body_log.log.append(encode_content(Content(b"", b"", b"", body, now_ms)))
        except WriteFailed as error:
            log.warning("shared body could not be written, copying it into each queue: %s", error)
            return NO_BLOB
        return blob | VOLATILE if is_volatile else blob

    def _prepare(self, body_log: _BodyLog, is_volatile: bool) -> None:
        if body_log.is_roll_pending:
            return
        if body_log.log is None:
            self._take_log(body_log, self._make_log(is_volatile))
        if is_volatile:
            body_log.is_ready = True
            return
        assert body_log.log is not None
        body_log.log.roll(((body_log.log.end >> _RANGE_BITS) + 1) << _RANGE_BITS)
        body_log.is_roll_pending = True

        def on_disk(ticket: Ticket) -> None:
            body_log.is_ready = ticket.refusal is None
            body_log.is_roll_pending = False

        self._passes.on_synced(body_log.log.latest_ticket(), on_disk)

    def _take_log(self, body_log: _BodyLog, taken: QueueLog) -> None:
        body_log.log = taken
        taken.undone = lambda: self._undone(body_log)

    def _undone(self, body_log: _BodyLog) -> None:
        self.failed_pass = self._passes.current - 1
        body_log.is_ready = False

    # -- references

    def hold(self, blob: int) -> None:
        self._shelf(blob).counts.add(blob & ~VOLATILE)

    def release(self, blob: int) -> None:
        """Removes one reference, and the blob with the last one."""
        body_log = self._shelf(blob)
        number = blob & ~VOLATILE
        if not body_log.counts.take(number) and body_log.log is not None:
            body_log.log.acks.ack(number)

    def drop_unreferenced(self, blob: int) -> None:
        """Removes a blob that has no references, once it is written: if the write fails, another blob gets its
        number."""
        body_log = self._shelf(blob)
        number = blob & ~VOLATILE
        unheld = body_log.log
        if unheld is None or body_log.counts[number]:
            return

        def written(ticket: Ticket) -> None:
            if ticket.refusal is None:
                unheld.acks.ack(number)

        self._passes.on_durable(unheld.latest_ticket(), written)

    def read(self, blob: int, may_wait: bool = True) -> bytes:
        """Returns a body. DamagedSegment: its stored bytes are corrupt or missing. ColdRead: it is cold data and
        `may_wait` is False."""
        body_log = self._shelf(blob)
        number = blob & ~VOLATILE
        if body_log.log is None or not body_log.log.segments.is_live(number):
            raise DamagedSegment("shared bodies", number)
        return body_log.log.peek(number, may_wait).content.body

    def _shelf(self, blob: int) -> _BodyLog:
        return self._passing if blob & VOLATILE else self._lasting
