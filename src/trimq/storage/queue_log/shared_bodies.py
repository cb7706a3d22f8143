"""Bodies that several queues hold: each is kept once, in a log of its own, and goes when the last holder has let go of
it. Counts live in memory and are taken from the queues again after a start; knows no queue and no message.

A blob is as durable as what refers to it: both are of one pass, and the blob is written first. A reference to a blob
that is not there is one of a pass that was never acknowledged, or of a message that every queue had settled. Numbers
are never given out twice, not even after a crash that lost some: each start goes on far behind the last number that it
finds, and that it did is on disk before the first is used. Until then bodies are copied.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable

from trimq.errors import DamagedSegment, WriteFailed
from trimq.formats.amqp_content.content import NO_BLOB, Content, encode_content
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.queue_log.log import QueueLog

log = logging.getLogger(__name__)

VOLATILE = 1 << 63  # the highest bit of the number of a blob that a restart does not find
_LIFE_BITS = 32  # of a number: those that one life of the broker counts with

_CHUNK = 256
_CHUNK_BITS = 8


class ReferenceCounts:
    """How many hold each blob: four bytes for each, in chunks that go when nothing in them is held."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self._held: dict[int, int] = {}

    def __getitem__(self, blob: int) -> int:
        chunk = self._chunks.get(blob >> _CHUNK_BITS)
        return 0 if chunk is None else chunk[blob % _CHUNK]

    def __len__(self) -> int:
        """How many are held."""
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
        """How many still hold it."""
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
    """Blobs of one durability. `log` None: there are none yet."""

    def __init__(self) -> None:
        self.log: QueueLog | None = None
        self.counts = ReferenceCounts()
        self.is_ready = False
        self.is_roll_pending = False

    def take_log(self, taken: QueueLog, undone: Callable[[], None]) -> None:
        self.log = taken
        taken.undone = undone

    def sweep(self) -> int:
        """What nobody holds goes. How much that was."""
        swept = 0
        for segment in () if self.log is None else tuple(self.log.segments):
            blob = segment.next_live(segment.base)
            while blob < segment.end:
                if not self.counts[blob] and self.log is not None:
                    self.log.acks.ack(blob)
                    swept += 1
                blob = segment.next_live(blob + 1)
        return swept


class SharedBodyStore:
    """`make_log(is_volatile)` gives the log of either kind, which is made when it is first needed."""

    def __init__(self, passes: Passes, make_log: Callable[[bool], QueueLog]) -> None:
        self._passes = passes
        self._make_log = make_log
        self._lasting = _BodyLog()
        self._passing = _BodyLog()
        self.failed_pass = 0
        """The last pass whose blobs could not be written: what refers to them must not be kept either."""

    @property
    def logs(self) -> list[QueueLog]:
        return [body_log.log for body_log in (self._lasting, self._passing) if body_log.log is not None]

    def __len__(self) -> int:
        """How many are held."""
        return len(self._lasting.counts) + len(self._passing.counts)

    # -- after a start

    def open(self, found: QueueLog) -> None:
        self._lasting.take_log(found, self._undone)

    def recover(self, blob: int) -> bool:
        """A queue was found to refer to it. False: it is not there, and the message is not to be either."""
        body_log = self._lasting
        if blob & VOLATILE or body_log.log is None or not body_log.log.segments.is_live(blob):
            return False
        body_log.counts.add(blob)
        return True

    def sweep(self) -> None:
        """All queues were opened: what none of them refers to is what a crash left behind."""
        swept = self._lasting.sweep()
        if swept:
            log.info("%d shared bodies that no queue has any more were removed", swept)

    # -- coming

    def put(self, body: bytes, is_volatile: bool, now_ms: int) -> int:
        """Keep a body, which somebody must `hold` in this pass. NO_BLOB: it cannot be shared now."""
        body_log = self._passing if is_volatile else self._lasting
        try:
            if not body_log.is_ready:
                self._prepare(body_log, is_volatile)
            if not body_log.is_ready or body_log.log is None:
                return NO_BLOB
            blob = body_log.log.end
            body_log.log.append(encode_content(Content(b"", b"", b"", body, now_ms)))
        except WriteFailed as error:
            log.warning("a body is copied into every queue instead of shared: %s", error)
            return NO_BLOB
        return blob | VOLATILE if is_volatile else blob

    def _prepare(self, body_log: _BodyLog, is_volatile: bool) -> None:
        if body_log.is_roll_pending:
            return
        if body_log.log is None:
            body_log.take_log(self._make_log(is_volatile), self._undone)
        if is_volatile:
            body_log.is_ready = True
            return
        assert body_log.log is not None
        body_log.log.roll(((body_log.log.end >> _LIFE_BITS) + 1) << _LIFE_BITS)
        body_log.is_roll_pending = True

        def on_disk(ticket: Ticket) -> None:
            body_log.is_ready = ticket.refusal is None
            body_log.is_roll_pending = body_log.is_ready

        self._passes.on_synced(body_log.log.latest_ticket(), on_disk)

    def _undone(self) -> None:
        self.failed_pass = self._passes.current - 1

    # -- holding

    def hold(self, blob: int) -> None:
        self._shelf(blob).counts.add(blob & ~VOLATILE)

    def release(self, blob: int) -> None:
        """One who held it does not any more."""
        body_log = self._shelf(blob)
        number = blob & ~VOLATILE
        if not body_log.counts.take(number) and body_log.log is not None:
            body_log.log.acks.ack(number)

    def drop_unreferenced(self, blob: int) -> None:
        """If nobody held it after all, it goes: once it is written, since another may get its number if it is not."""
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
        """DamagedSegment: its bytes are not what was written. ColdRead: they are on disk only."""
        body_log = self._shelf(blob)
        number = blob & ~VOLATILE
        if body_log.log is None or not body_log.log.segments.is_live(number):
            raise DamagedSegment("shared bodies", number)
        return body_log.log.peek(number, may_wait).content.body

    def _shelf(self, blob: int) -> _BodyLog:
        return self._passing if blob & VOLATILE else self._lasting
