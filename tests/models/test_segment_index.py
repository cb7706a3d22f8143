"""The indexes of a segment against the plain list of its batches."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trimq.storage.partition_log.index import IndexRollbackPoint, SegmentIndex, StoredIndex, TimestampOffset


class Batch(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class SegmentIndexMachine(RuleBasedStateMachine):
    @initialize(base=st.integers(0, 1 << 60), interval_bytes=st.integers(0, 300))
    def begin(self, base: int, interval_bytes: int) -> None:
        self.base = base
        self.interval_bytes = interval_bytes
        self.index = SegmentIndex(base, interval_bytes)
        self.batches: list[Batch] = []
        self.marked: tuple[IndexRollbackPoint, int] = (self.index.mark(), 0)

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base

    @property
    def log_bytes(self) -> int:
        return self.batches[-1].position + self.batches[-1].size if self.batches else 0

    def note(self, batch: Batch) -> None:
        self.index.note(batch.last_offset, batch.position, batch.max_timestamp_ms)

    @rule(size=st.integers(61, 300), records=st.integers(1, 5), gap=st.integers(0, 3), timestamp_ms=st.integers(-1, 50))
    def append(self, size: int, records: int, gap: int, timestamp_ms: int) -> None:
        first = self.end + gap  # compaction leaves gaps
        self.batches.append(Batch(self.log_bytes, size, first, first + records - 1, timestamp_ms))
        self.note(self.batches[-1])

    @rule()
    def begin_pass(self) -> None:
        self.marked = (self.index.mark(), len(self.batches))

    @rule()
    def undo_pass(self) -> None:
        mark, count = self.marked
        self.index.roll_back_to(mark)
        del self.batches[count:]

    @rule(share=st.floats(0, 1), tail=st.sampled_from([b"", bytes(24), b"\xff" * 24, b"x"]))
    def restart(self, share: float, tail: bytes) -> None:
        trusted_bytes = self.batches[int(share * (len(self.batches) - 1))].position if self.batches else 0
        before = (self.index.encode_offsets(), self.index.encode_times(), self.index.largest)
        files = (before[0] + tail, before[1] + tail)
        self.index, position = SegmentIndex.resume(self.base, self.interval_bytes, *files, trusted_bytes)
        for batch in self.batches:
            if batch.position >= position:
                self.note(batch)
        assert (self.index.encode_offsets(), self.index.encode_times(), self.index.largest) == before
        self.marked = (self.index.mark(), len(self.batches))

    @rule(choice=st.data())
    def look_up(self, choice: st.DataObject) -> None:
        if not self.batches:
            return
        sealed = SegmentIndex(self.base, self.interval_bytes)
        for batch in self.batches:
            sealed.note(batch.last_offset, batch.position, batch.max_timestamp_ms)
        sealed.seal()
        zeros = choice.draw(st.sampled_from([0, 2, 5]))
        files = (sealed.encode_offsets() + bytes(8 * zeros), sealed.encode_times() + bytes(12 * zeros))
        stored = StoredIndex(self.base, *files, self.log_bytes, self.end)
        for index in (self.index, sealed, stored):
            self.check_offset(index, choice.draw(st.integers(self.base, self.end)))
            self.check_position(index, choice.draw(st.integers(0, self.log_bytes)))
            self.check_timestamp(index, choice.draw(st.integers(-1, 51)))

    def check_offset(self, index: SegmentIndex | StoredIndex, offset: int) -> None:
        found = index.lookup(offset)
        assert self.begins_a_batch(found.offset, found.position)
        assert all(batch.last_offset < offset for batch in self.batches if batch.position < found.position)
        wanted = [batch.position for batch in self.batches if batch.last_offset <= offset]
        # The interval, and the one batch that crosses its end.
        assert max(wanted, default=0) - found.position <= self.interval_bytes + 300

    def check_position(self, index: SegmentIndex | StoredIndex, position: int) -> None:
        found = index.boundary_before(position)
        assert self.begins_a_batch(found.offset, found.position)
        assert position - self.interval_bytes - 600 <= found.position <= position

    def check_timestamp(self, index: SegmentIndex | StoredIndex, timestamp_ms: int) -> None:
        found = index.lookup_timestamp(timestamp_ms)
        if found.timestamp_ms < 0:
            assert found == TimestampOffset(-1, self.base)
            return
        assert found.timestamp_ms <= timestamp_ms
        named = [batch for batch in self.batches if batch.last_offset == found.offset]
        assert [batch.max_timestamp_ms for batch in named] == [found.timestamp_ms]
        missed = [batch for batch in self.batches if batch.last_offset < found.offset]
        assert all(batch.max_timestamp_ms < timestamp_ms for batch in missed)

    def begins_a_batch(self, last_offset: int, position: int) -> bool:
        if position == 0:
            return last_offset == self.base
        return any((batch.last_offset, batch.position) == (last_offset, position) for batch in self.batches)

    @invariant()
    def the_largest_timestamp_is_known(self) -> None:
        if not hasattr(self, "index"):
            return
        largest = max((batch.max_timestamp_ms for batch in self.batches), default=-1)
        assert self.index.largest.timestamp_ms == largest
        if largest >= 0:
            first = next(batch for batch in self.batches if batch.max_timestamp_ms == largest)
            assert self.index.largest.offset == first.last_offset


TestSegmentIndex = SegmentIndexMachine.TestCase
