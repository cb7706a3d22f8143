"""Refusals about records: what is in them, who produced them, where they are."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.errors.kinds import Refusal


@dataclass(eq=False)
class InvalidRecords(Refusal):
    """The bytes are whole but break a rule of their format."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class CorruptRecords(Refusal):
    """The bytes do not match their checksum or lengths: damaged on the way."""

    reason: str
    retriable = True

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class MissingKey(Refusal):
    """A record of a topic that is compacted by key has none."""

    index: int

    def __str__(self) -> str:
        return f"record {self.index} has no key, which a compacted topic needs"


@dataclass(eq=False)
class UntimelyRecord(Refusal):
    """A record's time is not one that its topic takes."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"record {self.index}: {self.reason}"


@dataclass(eq=False)
class StaleEpoch(Refusal):
    """The asker knows an earlier leader of the stream than the present one."""

    asked: int
    current: int
    retriable = True

    def __str__(self) -> str:
        return f"leader epoch {self.asked} is over, {self.current} is the present one"


@dataclass(eq=False)
class UnknownEpoch(Refusal):
    """The asker knows a later leader of the stream than this node does."""

    asked: int
    current: int
    retriable = True

    def __str__(self) -> str:
        return f"leader epoch {self.asked} is not known here, {self.current} is the present one"


@dataclass(eq=False)
class OutOfOrderSequence(Refusal):
    """An idempotent producer left a gap, or sent again what is no longer remembered."""

    producer_id: int
    expected: int
    found: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} sent sequence {self.found} where {self.expected} follows"


@dataclass(eq=False)
class StaleProducer(Refusal):
    """A newer producer has taken over this one's identity."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} has been replaced by one of epoch {self.epoch}"


@dataclass(eq=False)
class DamagedSegment(Refusal):
    """What a reader asked for is damaged on disk and is not served."""

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
        return f"offset {self.offset} is outside {self.start} to {self.end}"
