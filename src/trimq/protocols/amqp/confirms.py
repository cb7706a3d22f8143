"""Publisher confirms of one channel: records which tags wait for which pass and confirms them with as few frames as
possible. Knows neither the connection nor the messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trimq.errors import Refusal
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.contract import Parts, Reply


class PublishOutcome(Protocol):
    """Outcome of a publish: the pass after which it may be confirmed, and its refusal, if any."""

    is_refused: bool
    number: int
    needs_sync: bool

    def refusal(self) -> Refusal | None: ...


class _TagRange:
    """Consecutive tags with the same outcome."""

    __slots__ = ("first", "last", "outcome")

    def __init__(self, outcome: PublishOutcome, first: int, last: int) -> None:
        self.outcome = outcome
        self.first = first
        self.last = last


class _Batch:
    """Tag ranges that the same pass makes confirmable."""

    __slots__ = ("needs_sync", "number", "ranges")

    def __init__(self, first: _TagRange) -> None:
        self.number = first.outcome.number
        self.needs_sync = first.outcome.needs_sync
        self.ranges = [first]

    def add(self, tag_range: _TagRange) -> None:
        last = self.ranges[-1]
        if last.outcome is tag_range.outcome and last.last == tag_range.first - 1:
            last.last = tag_range.last
        else:
            self.ranges.append(tag_range)


class Confirms:
    """Confirms publishes; tags count from 1. One frame confirms all publishes of a pass, unless an older publish still
    waits."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._tag = 0
        self._waiting: list[_Batch] = []
        self._is_silent = False

    def stop_confirming(self) -> None:
        """Sends no more confirms: the channel is closed, and its number may be reused."""
        self._is_silent = True

    def add(self, outcome: PublishOutcome, count: int = 1) -> Reply | None:
        """Adds the next `count` publishes, all with this outcome. Returns the reply that confirms them, or None if an
        earlier reply will."""
        first = self._tag + 1
        self._tag = last = self._tag + count
        if outcome.is_refused:
            return Reply.now([self._nack(tag) for tag in range(first, last + 1)], lane=None)
        tag_range = _TagRange(outcome, first, last)
        newest = self._waiting[-1] if self._waiting else None
        if outcome.number == 0:  # nothing to wait for; a waiting batch can confirm it without a frame of its own
            if newest is None:
                return Reply.now([self._ack(last, count > 1)], lane=None)
            newest.add(tag_range)
            return None
        for batch in self._waiting[-2:]:  # publishes of one pass with and without sync may alternate
            if batch.number == outcome.number and batch.needs_sync == outcome.needs_sync:
                batch.add(tag_range)
                return None
        batch = _Batch(tag_range)
        self._waiting.append(batch)
        return Reply(None, None, lambda: self._write(batch), outcome.number, outcome.needs_sync)

    def _write(self, batch: _Batch) -> Parts:
        if self._is_silent:
            return []
        self._waiting.remove(batch)
        floor = min((waiting.ranges[0].first for waiting in self._waiting), default=self._tag + 1)
        return list(self._frames(batch, floor))

    def _frames(self, batch: _Batch, floor: int) -> Iterator[bytes]:
        """Writes nacks first, so that a following ack with `multiple` does not cover the nacked tags."""
        accepted: list[_TagRange] = []
        for tag_range in batch.ranges:
            if tag_range.outcome.refusal() is None:
                accepted.append(tag_range)
            else:
                yield from (self._nack(tag) for tag in range(tag_range.first, tag_range.last + 1))
        below = [tag_range for tag_range in accepted if tag_range.last < floor]
        if below:
            yield self._ack(below[-1].last, is_multiple=len(below) > 1 or below[0].first != below[0].last)
        for tag_range in accepted[len(below) :]:
            yield from (self._ack(tag, False) for tag in range(tag_range.first, tag_range.last + 1))

    def _ack(self, tag: int, is_multiple: bool) -> bytes:
        return write_command(self._channel, methods.BasicAck(tag, is_multiple))

    def _nack(self, tag: int) -> bytes:
        return write_command(self._channel, methods.BasicNack(tag, False, False))
