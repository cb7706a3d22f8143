"""One segment of a queue log: its live messages, and a sparse index of their positions. Knows its contents file and its
acks file; the log decides when to seal, read or remove it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from trimq.formats.amqp_content.content import NEVER, NO_BLOB, Footer, RecordHead
from trimq.storage.group_commit.segment import Segment
from trimq.storage.io.files import File
from trimq.storage.queue_log.body_references import BodyReferences

CONTENTS = ".contents"
ACKS = ".acks"

# Minimum distance between two entries of the sparse index.
_INDEX_EVERY_BYTES = 32 * 1024

SegmentRollbackPoint = tuple[int, int, int, int, int, int, int, int, int, int]


class QueueSegment:
    """Messages with offsets from `base` up to `end`, without those that compaction removed."""

    __slots__ = (
        "_entry_offsets",
        "_entry_positions",
        "acks_bytes",
        "acks_file",
        "attempts",
        "body_bytes",
        "earliest_expiry_ms",
        "end",
        "flags",
        "indexed_to",
        "is_seal_durable",
        "is_sealed",
        "live",
        "newest_ms",
        "oldest_ms",
        "records",
        "references",
        "segment",
        "transient",
        "unwritten",
        "unwritten_attempts",
    )

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.end = segment.base
        self.records = 0
        self.live = 0
        self.transient = 0
        self.body_bytes = 0
        self.earliest_expiry_ms = self.oldest_ms = self.newest_ms = NEVER
        self.flags: bytearray | None = None  # a byte for each message up to the last acknowledged, 1: acknowledged
        self.unwritten: list[int] = []  # acknowledged, and not in the acks file yet
        self.attempts: dict[int, int] = {}
        self.unwritten_attempts: dict[int, int] = {}
        self.acks_bytes = 0
        self.acks_file: File | None = None
        self.is_sealed = False
        self.is_seal_durable = False  # a checkpoint for it is on disk
        self.references: BodyReferences | None = None  # None for most: no shared bodies
        self.indexed_to = 0
        self._entry_offsets = array("q")
        self._entry_positions = array("q")

    @property
    def base(self) -> int:
        return self.segment.base

    # -- appending

    def note(
        self, offset: int, position: int, body_bytes: int, expires_ms: int, published_ms: int, count: int = 1
    ) -> None:
        """Adds a message whose record begins at `position`, or `count` messages with equal times."""
        self.end = offset + count
        self.records += count
        self.live += count
        self.body_bytes += body_bytes
        if expires_ms >= 0 and (self.earliest_expiry_ms < 0 or expires_ms < self.earliest_expiry_ms):
            self.earliest_expiry_ms = expires_ms
        if self.oldest_ms < 0:
            self.oldest_ms = published_ms
        if published_ms > self.newest_ms:
            self.newest_ms = published_ms
        if position >= self.indexed_to:
            self.index(offset, position)

    def index(self, offset: int, position: int) -> None:
        self._entry_offsets.append(offset)
        self._entry_positions.append(position)
        self.indexed_to = position + _INDEX_EVERY_BYTES

    def note_found(self, head: RecordHead, position: int) -> None:
        """Adds a message that recovery found."""
        gap_from = self.end
        self.note(head.offset, position, head.body_bytes, head.expires_ms, head.published_ms)
        if head.blob != NO_BLOB:
            self.add_reference(head.offset, head.blob)
        if head.offset > gap_from:
            self.mark_removed(gap_from, head.offset)

    def mark_removed(self, first: int, end: int) -> None:
        """Marks the offsets from `first` up to `end` as removed by compaction, or as transient and lost."""
        flags = self._flags_up_to(end - self.base)
        flags[first - self.base : end - self.base] = b"\1" * (end - first)

    def mark(self) -> SegmentRollbackPoint:
        """Returns the state for `roll_back_to`, in case the pass is undone."""
        return (
            self.end,
            self.records,
            self.live,
            self.transient,
            self.body_bytes,
            self.earliest_expiry_ms,
            self.oldest_ms,
            self.newest_ms,
            len(self._entry_offsets),
            0 if self.references is None else len(self.references),
        )

    def roll_back_to(self, mark: SegmentRollbackPoint) -> None:
        """Removes the messages of a pass that is undone. They were never readable, so none of them is acknowledged."""
        acked = self.records - self.live
        self.end, self.records, _, self.transient, self.body_bytes = mark[:5]
        self.earliest_expiry_ms, self.oldest_ms, self.newest_ms, entries, references = mark[5:]
        if self.references is not None:
            self.references.cut(references)
        self.live = self.records - acked
        del self._entry_offsets[entries:], self._entry_positions[entries:]
        self.indexed_to = self._entry_positions[-1] + _INDEX_EVERY_BYTES if entries else 0
        self.is_sealed = False

    def footer(self) -> Footer:
        return Footer(
            self.records,
            self.transient,
            self.shared,
            self.base,
            self.end - 1,
            self.body_bytes,
            self.earliest_expiry_ms,
            self.oldest_ms,
            self.newest_ms,
        )

    def take_footer(self, footer: Footer) -> None:
        self.records = self.live = footer.records
        self.transient = footer.transient
        self.end = footer.last + 1
        self.body_bytes = footer.body_bytes
        self.earliest_expiry_ms = footer.earliest_expiry_ms
        self.oldest_ms, self.newest_ms = footer.oldest_ms, footer.newest_ms
        self.is_sealed = True

    @property
    def shared(self) -> int:
        """Number of messages with shared bodies."""
        return 0 if self.references is None else len(self.references)

    def add_reference(self, offset: int, blob: int) -> None:
        """Records that the body of a message is in a blob."""
        if self.references is None:
            self.references = BodyReferences()
        self.references.add(offset - self.base, blob)

    def live_blobs(self) -> list[tuple[int, int]]:
        """Returns offsets and blobs of live messages with shared bodies."""
        found = self.references or ()
        return [(self.base + message, blob) for message, blob in found if self.is_live(self.base + message)]

    # -- acknowledging

    def ack(self, offset: int) -> bool:
        """Acknowledges a message. Returns False if it was acknowledged before."""
        message = offset - self.base
        flags = self.flags
        if flags is None or message >= len(flags):
            flags = self._flags_up_to(message + 1)
        elif flags[message]:
            return False
        flags[message] = 1
        self.live -= 1
        self.unwritten.append(message)
        if self.attempts:
            self.attempts.pop(message, None)
        return True

    def ack_each(self, offsets: Sequence[int], last: int) -> int:
        """Fast path of `ack` for several messages; `last` is the highest offset. Returns the number of messages that
        were not acknowledged before."""
        base, unwritten = self.segment.base, self.unwritten
        flags = self._flags_up_to(last - base + 1)
        before = len(unwritten)
        for offset in offsets:
            message = offset - base
            if not flags[message]:
                flags[message] = 1
                unwritten.append(message)
        for message in unwritten[before:] if self.attempts else ():
            self.attempts.pop(message, None)
        acked = len(unwritten) - before
        self.live -= acked
        return acked

    def ack_range(self, first: int, end: int, but: AbstractSet[int]) -> int:
        """Acknowledges all messages from `first` up to `end`, except those in `but`. Returns the number of messages
        that were not acknowledged before."""
        low, high = first - self.base, end - self.base
        flags = self._flags_up_to(high)
        kept = [offset - self.base for offset in but if first <= offset < end and not flags[offset - self.base]]
        acked = flags.count(0, low, high) - len(kept)
        flags[low:high] = b"\1" * (high - low)
        for message in kept:
            flags[message] = 0
        self.live -= acked
        if self.live or not self.is_seal_durable:  # else the whole segment is removed
            self.unwritten += [message for message in range(low, high) if flags[message]] if kept else range(low, high)
        return acked

    def close_acks(self) -> None:
        if self.acks_file is not None:
            self.acks_file.close()
            self.acks_file = None

    def take_flags(self, flags: bytearray) -> None:
        """Takes over the flags that recovery found, of messages that are acknowledged or removed."""
        if self.flags is not None:
            for message, flag in enumerate(self.flags):
                flags[message] |= flag
        if any(flags):
            self.flags = flags
            self.live = self.end - self.base - sum(flags)

    def _flags_up_to(self, messages: int) -> bytearray:
        if self.flags is None:
            self.flags = bytearray(messages)
        elif messages > len(self.flags):
            self.flags.extend(bytes(messages - len(self.flags)))
        return self.flags

    def is_live(self, offset: int) -> bool:
        message = offset - self.base
        flags = self.flags
        return flags is None or message >= len(flags) or not flags[message]

    def next_live(self, offset: int) -> int:
        """Returns the first live message from `offset` on; `end` or more if there is none."""
        flags, base = self.flags, self.segment.base
        if flags is None or offset - base >= len(flags):
            return offset
        found = flags.find(0, offset - base)
        return base + (len(flags) if found < 0 else found)

    def next_acked(self, offset: int) -> int:
        """Returns the first acknowledged message from `offset` on; `end` if there is none."""
        flags, base = self.flags, self.segment.base
        found = -1 if flags is None else flags.find(1, offset - base)
        return self.end if found < 0 else base + found

    def compacted(self, records: int, body_bytes: int) -> None:
        """Takes over the counts of the compacted file, and clears the index."""
        self.records = records
        self.body_bytes = body_bytes
        self.indexed_to = 0
        del self._entry_offsets[:], self._entry_positions[:]

    # -- lookup

    def position_before(self, offset: int) -> tuple[int, int]:
        """Returns the last indexed offset that is not greater than this one, and its position."""
        entry = bisect_right(self._entry_offsets, offset) - 1
        if entry < 0:
            return self.base, 0
        return self._entry_offsets[entry], self._entry_positions[entry]
