"""Publisher confirms of one channel: which tags wait for which pass, and the fewest frames that tell of them. Knows
neither the connection nor what was published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trimq.errors import Refusal
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.contents import write_command
from trimq.protocols.contract import Parts, Reply


class Outcome(Protocol):
    """What became of a publish: when it may be confirmed, and whether it was refused after all."""

    is_refused: bool
    number: int
    needs_sync: bool

    def refusal(self) -> Refusal | None: ...


class _Run:
    """Tags in a row with one outcome."""

    __slots__ = ("first", "last", "outcome")

    def __init__(self, outcome: Outcome, first: int, last: int) -> None:
        self.outcome = outcome
        self.first = first
        self.last = last


class _Batch:
    """What one pass makes ready."""

    __slots__ = ("needs_sync", "number", "runs")

    def __init__(self, first: _Run) -> None:
        self.number = first.outcome.number
        self.needs_sync = first.outcome.needs_sync
        self.runs = [first]

    def add(self, run: _Run) -> None:
        last = self.runs[-1]
        if last.outcome is run.outcome and last.last == run.first - 1:
            last.last = run.last
        else:
            self.runs.append(run)


class Confirms:
    """Tags count from 1. One frame confirms all that a pass made ready, unless something older still waits."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._tag = 0
        self._waiting: list[_Batch] = []
        self._is_silent = False

    def fall_silent(self) -> None:
        """The channel is closed: nothing more is said on it, and its number may soon be another's."""
        self._is_silent = True

    def add(self, outcome: Outcome, count: int = 1) -> Reply | None:
        """The next publishes, to which the same has happened. None: a reply that was given out before tells of them
        too."""
        first = self._tag + 1
        self._tag = last = self._tag + count
        if outcome.is_refused:
            return Reply.now([self._nack(tag) for tag in range(first, last + 1)], lane=None)
        run = _Run(outcome, first, last)
        newest = self._waiting[-1] if self._waiting else None
        if outcome.number == 0:  # nothing to wait for; but after others, it does not need a frame of its own
            if newest is None:
                return Reply.now([self._ack(last, count > 1)], lane=None)
            newest.add(run)
            return None
        for batch in self._waiting[-2:]:  # of one pass, what must be synced and what need not be may come in turns
            if batch.number == outcome.number and batch.needs_sync == outcome.needs_sync:
                batch.add(run)
                return None
        batch = _Batch(run)
        self._waiting.append(batch)
        when = Reply.when_durable if outcome.needs_sync else Reply.when_written
        return when(outcome.number, lambda: self._tell(batch), lane=None)

    def _tell(self, batch: _Batch) -> Parts:
        if self._is_silent:
            return []
        self._waiting.remove(batch)
        floor = min((waiting.runs[0].first for waiting in self._waiting), default=self._tag + 1)
        return list(self._frames(batch, floor))

    def _frames(self, batch: _Batch, floor: int) -> Iterator[bytes]:
        """Nacks first: what they name is then no longer meant by an ack of all before a tag."""
        accepted: list[_Run] = []
        for run in batch.runs:
            if run.outcome.refusal() is None:
                accepted.append(run)
            else:
                yield from (self._nack(tag) for tag in range(run.first, run.last + 1))
        below = [run for run in accepted if run.last < floor]
        if below:
            yield self._ack(below[-1].last, is_multiple=len(below) > 1 or below[0].first != below[0].last)
        for run in accepted[len(below) :]:
            yield from (self._ack(tag, False) for tag in range(run.first, run.last + 1))

    def _ack(self, tag: int, is_multiple: bool) -> bytes:
        return write_command(self._channel, methods.BasicAck(tag, is_multiple))

    def _nack(self, tag: int) -> bytes:
        return write_command(self._channel, methods.BasicNack(tag, False, False))
