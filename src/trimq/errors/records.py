"""Refusals about records: their content, producer, leader epoch and offset."""

from __future__ import annotations

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


@dataclass(eq=False)
class MissingKey(Refusal):
    """A record sent to a compacted topic has no key."""

    index: int

    def __str__(self) -> str:
        return f"record {self.index} has no key, which a compacted topic requires"


@dataclass(eq=False)
class UntimelyRecord(Refusal):
    """The timestamp of a record is outside the range that its topic accepts."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"record {self.index}: {self.reason}"


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
