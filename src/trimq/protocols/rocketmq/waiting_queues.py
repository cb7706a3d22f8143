"""How far the messages of one queue, in which they wait for their time, are done with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimq.core.shared_streams import Entry, SharedStream
from trimq.core.shared_topics import SharedTopic


class Progress:
    """Those before `next_offset` are all done with."""

    def __init__(self, topic: SharedTopic, stream: SharedStream, next_offset: int) -> None:
        self.topic = topic
        self.stream = stream
        self.next_offset = next_offset
        self.indexed_to = next_offset
        self.found_to = stream.end  # what a run before this one may have delivered already
        self.done: set[int] = set()
        self.under_way: set[int] = set()

    def waiting(self, count: int) -> Iterator[Entry]:
        """So many of those that were not all done with, oldest first."""
        return self.stream.entries(self.next_offset, count)

    def is_dealt_with(self, offset: int) -> bool:
        """Whether it is delivered, or about to be."""
        return offset < self.next_offset or offset in self.done or offset in self.under_way

    def finish(self, offsets: Sequence[int]) -> bool:
        """Whether everything before a later offset is done with now."""
        self.done.update(offsets)
        before = self.next_offset
        while self.next_offset in self.done:
            self.done.remove(self.next_offset)
            self.next_offset += 1
        return self.next_offset > before
