"""Refusals about records: their content, producer, leader epoch and offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimq.errors.kinds import Refusal


@dataclass(eq=False)
class InvalidRecords(Refusal):
    """The checksum and lengths are valid, but the records violate a rule of their format."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class CorruptRecords(Refusal):
    """The bytes do not match their checksum or lengths: they were damaged in transit."""

    reason: str
    retriable = True

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class RecordFault:
    """Reason why one record of a batch is refused."""

    index: int
    reason: str


@dataclass(eq=False)
class MissingKey(Refusal):
    """Records sent to a compacted topic have no key. `faults` is not empty and in order of the records."""

    faults: Sequence[RecordFault]

    def __str__(self) -> str:
        return _describe_faults(self.faults)


@dataclass(eq=False)
class UntimelyRecord(Refusal):
    """The timestamps of records are outside the range that their topic accepts. `faults` may also contain records
    without a key."""

    faults: Sequence[RecordFault]

    def __str__(self) -> str:
        return _describe_faults(self.faults)


def _describe_faults(faults: Sequence[RecordFault]) -> str:
    others = f" ({len(faults) - 1} other records are refused as well)" if len(faults) > 1 else ""
    return f"record {faults[0].index}: {faults[0].reason}{others}"


@dataclass(eq=False)
class StaleEpoch(Refusal):
    """The leader epoch in the request is older than the current one."""

    asked: int
    current: int
    retriable = True

    def __str__(self) -> str:
        return f"leader epoch {self.asked} is outdated, {self.current} is the current one"


@dataclass(eq=False)
class UnknownEpoch(Refusal):
    """The leader epoch in the request is newer than the one that this node knows."""

    asked: int
    current: int
    retriable = True

    def __str__(self) -> str:
        return f"leader epoch {self.asked} is unknown, {self.current} is the current one"


@dataclass(eq=False)
class OutOfOrderSequence(Refusal):
    """An idempotent producer skipped a sequence number, or sent again a batch that the broker no longer remembers."""

    producer_id: int
    expected: int
    found: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} sent sequence {self.found} where {self.expected} was expected"


@dataclass(eq=False)
class StaleProducer(Refusal):
    """A producer with a newer epoch has taken over the producer id."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} has been replaced by a producer with epoch {self.epoch}"


@dataclass(eq=False)
class DamagedSegment(Refusal):
    """The requested records are damaged on disk and are not served."""

    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.position}"


@dataclass(eq=False)
class OffsetOutOfRange(Refusal):
    offset: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"offset {self.offset} is outside the range {self.start} to {self.end}"
