"""What every append and every pass needs of a partition log, in one place of memory: of a thousand streams none is in
the processor's caches when its turn comes, so each object that is left alone counts."""

from __future__ import annotations

from collections import deque

from trimq.model import Buffer
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.group_commit.segment import Segment
from trimq.storage.partition_log.index import MAX_POSITION, MAX_RELATIVE_OFFSET, IndexRollbackPoint, SegmentIndex
from trimq.storage.partition_log.segment import PartitionSegment
from trimq.storage.partition_log.settings import LogSettings

# Plain tuples, since one of each is made for every pass of every stream.
RollbackPoint = tuple[int, int]
"""Where a pass began, to go back to when it cannot be written: end and epoch."""
WrittenPass = tuple[int, PartitionSegment, int, int | None]
"""What a pass left behind, which counts when it is durable: its end, where that is, and where the oldest open
transaction begins."""

NO_ROOM = -1
NO_PARTS: list[Buffer] = []  # which nobody adds to


class LogTail:
    """Where the next batch of a log goes, and how to get back to where its pass began."""

    __slots__ = (
        "_active",
        "_awaited",
        "_checkpoint_at",
        "_has_producers",
        "_index_mark",
        "_later",
        "_mark",
        "_newest_epoch",
        "_parts",
        "_roll_at_ms",
        "_roll_bytes",
        "_roll_offset",
        "_rolls",
        "_room_to",
        "_tail",
        "_tail_index",
        "_ticket",
        "end",
        "is_removed",
        "settings",
    )

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.end = 0
        self.is_removed = False
        self._active: PartitionSegment
        self._tail: Segment
        self._tail_index: SegmentIndex
        self._ticket: Ticket
        self._room_to = NO_ROOM  # where the active segment must end for an append to need nothing but a place in it
        self._newest_epoch = -1
        self._has_producers = False
        self._mark: RollbackPoint | None = None
        self._index_mark: IndexRollbackPoint | None = (
            None  # of the segment that was active then, once its index has changed
        )
        self._rolls = 0  # in this pass
        self._parts = NO_PARTS
        self._awaited: WrittenPass | None = None  # the next to become durable
        self._later: deque[WrittenPass] | None = None  # those after it, of which there are none mostly

    def _set_active(self, active: PartitionSegment) -> None:
        """Have at hand what every append needs of the active segment."""
        self._active = active
        self._tail = active.segment
        self._tail_index = active.growing
        self._room_to = NO_ROOM
        self._roll_offset = active.segment.base + MAX_RELATIVE_OFFSET
        self._roll_bytes = min(self.settings.segment_bytes, MAX_POSITION)
        self._roll_at_ms = active.created_ms + self.settings.segment_ms
        self._set_checkpoint_limit()

    def _set_checkpoint_limit(self) -> None:
        self._checkpoint_at = self._active.checkpointed_to + self.settings.checkpoint_bytes

    def _await(self, written: WrittenPass) -> None:
        """Behind what is awaited already."""
        if self._later is None:
            self._later = deque()
        self._later.append(written)
