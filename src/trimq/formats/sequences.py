"""Tracks the sequence numbers of producers and finds gaps, duplicates and late arrivals, exactly.

A *run* is a series of records of one producer, epoch and stream with consecutive sequence numbers. The ledger merges
runs, in the order of offsets, into intervals of seen numbers. Sequence numbers are those of Kafka: 31 bits, the last is
followed by 0.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

SEQUENCES = 1 << 31


class ProducerStream(NamedTuple):
    """Producer, epoch and stream, within which sequence numbers are consecutive."""

    topic: str
    partition: int
    producer: int
    epoch: int


class SequenceRun(NamedTuple):
    track: ProducerStream
    first_offset: int
    first_sequence: int
    records: int


FaultKind = Literal["gap", "duplicate", "reordered"]


class Fault(NamedTuple):
    """`sequence` is the first of `records` numbers that are missing, duplicated or late. `offset` is the offset of the
    first such record; for a gap, that of the record after it."""

    kind: FaultKind
    track: ProducerStream
    sequence: int
    records: int
    offset: int


@dataclasses.dataclass
class SeenSequences:
    """Seen sequence numbers of one producer stream, extended beyond 31 bits. `intervals` are [first, last, offset of
    the first] in order, with a gap between any two."""

    last: int
    intervals: list[list[int]]
    records: int = 0

    def note(self, run: SequenceRun) -> Iterator[Fault]:
        """Adds a run. Yields the faults that are certain at once: duplicates and late arrivals."""
        first = self.last + _distance(self.last % SEQUENCES, run.first_sequence)
        last = first + run.records - 1
        self.last = last
        self.records += run.records
        highest = self.intervals[-1][1] if self.intervals else -1
        offset = run.first_offset
        for known, start, end in self._split(first, last):
            at = offset + start - first
            if known:
                yield Fault("duplicate", run.track, start % SEQUENCES, end - start + 1, at)
            else:
                if start < highest:
                    yield Fault("reordered", run.track, start % SEQUENCES, end - start + 1, at)
                self._add(start, end, at)

    def gaps(self, track: ProducerStream, from_start: bool) -> Iterator[Fault]:
        """Yields the missing numbers. `from_start`: the stream is complete from offset 0, so the first number must be
        0."""
        expected = 0 if from_start else self.intervals[0][0]
        for first, last, offset in self.intervals:
            if first > expected:
                yield Fault("gap", track, expected % SEQUENCES, first - expected, offset)
            expected = last + 1

    def _split(self, first: int, last: int) -> list[tuple[bool, int, int]]:
        """Divides the numbers from first to last into (was seen before, start, end)."""
        pieces = []
        at = first
        place = max(bisect.bisect_right(self.intervals, first, key=lambda interval: interval[0]) - 1, 0)
        for start, end, _ in self.intervals[place:]:
            if start > last:
                break
            if end < at:
                continue
            if start > at:
                pieces.append((False, at, start - 1))
            pieces.append((True, max(start, at), min(end, last)))
            at = end + 1
        if at <= last:
            pieces.append((False, at, last))
        return pieces

    def _add(self, first: int, last: int, offset: int) -> None:
        place = bisect.bisect_right(self.intervals, first, key=lambda interval: interval[0])
        self.intervals.insert(place, [first, last, offset])
        # Merge with the neighbours, so that a producer stream without faults is one interval.
        if place + 1 < len(self.intervals) and self.intervals[place + 1][0] == last + 1:
            self.intervals[place][1] = self.intervals.pop(place + 1)[1]
        if place and self.intervals[place - 1][1] == first - 1:
            self.intervals[place - 1][1] = self.intervals.pop(place)[1]


class SequenceLedger:
    """Seen sequence numbers of all producer streams, and the faults found so far. Can be stored as JSON."""

    def __init__(self) -> None:
        self.by_stream: dict[ProducerStream, SeenSequences] = {}
        self.found: list[Fault] = []
        self.unstamped = Counter[tuple[str, int]]()  # records without a sequence number, by topic and partition

    def note(self, runs: Iterable[SequenceRun]) -> None:
        """Adds runs, whose offsets must be after all offsets added before."""
        for run in sorted(runs, key=lambda run: (run.track, run.first_offset)):
            book = self.by_stream.get(run.track)
            if book is None:
                book = self.by_stream[run.track] = SeenSequences(run.first_sequence - 1, [])
            self.found += book.note(run)

    def faults(self, from_start: Iterable[tuple[str, int]] = ()) -> list[Fault]:
        """Returns all faults so far. `from_start`: topics and partitions that are complete from offset 0."""
        whole = set(from_start)
        gaps = [
            fault
            for track, book in self.by_stream.items()
            for fault in book.gaps(track, (track.topic, track.partition) in whole)
        ]
        return sorted([*self.found, *gaps], key=lambda fault: (fault.track, fault.offset, fault.kind))

    def as_json(self) -> dict[str, Any]:
        return {
            "unstamped": [[*place, records] for place, records in sorted(self.unstamped.items())],
            "tracks": [[*track, book.last, book.records, book.intervals] for track, book in self.by_stream.items()],
            "found": [[fault.kind, *fault.track, *fault[2:]] for fault in self.found],
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> SequenceLedger:
        books = cls()
        if isinstance(kept["unstamped"], int):  # a checkpoint of an earlier version, which did not note the place
            books.unstamped["", -1] = kept["unstamped"]
        else:
            books.unstamped.update({(topic, partition): records for topic, partition, records in kept["unstamped"]})
        for *track, last, records, intervals in kept["tracks"]:
            books.by_stream[ProducerStream(*track)] = SeenSequences(last, intervals, records)
        for kind, topic, partition, producer, epoch, *rest in kept["found"]:
            books.found.append(Fault(kind, ProducerStream(topic, partition, producer, epoch), *rest))
        return books


def _distance(before: int, after: int) -> int:
    """Returns the shorter signed distance between two numbers modulo 2^31."""
    return (after - before + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
