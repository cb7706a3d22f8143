"""Messages on their way out of a queue, until their next place has them. Where that cannot be written, a message comes
back; one that goes by itself stays out, so that nobody behind it is held up, and is given up again a little later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trimq.core.failures.ledger import Reason
from trimq.core.queues.at_least_once import KeptLetters
from trimq.core.queues.backlog import NEVER_TRIED, Backlog, Tries
from trimq.errors import Refusal
from trimq.formats.amqp_content.content import Stored
from trimq.storage.group_commit.passes import Ticket

# At once it would fail again, and take with it what others write in the same pass.
_PATIENCE_MS = 1000

# More are not taken out for nothing: each is in memory.
_MOST_HELD = 1000

# For what a queue gives up a message without being asked to.
_BY_ITSELF = (Reason.EXPIRED, Reason.OVERFLOW)

GiveUp = Callable[[Sequence[Stored], Reason, int], Ticket | None]


class _Held(NamedTuple):
    backlog: Backlog
    stored: Stored
    reason: Reason
    tries: Tries


class Leaving:
    """`write(run, reason, attempts)` brings messages to their next place; None: nothing is kept of them. `afterwards`
    calls back when a ticket is durable or refused; `come_back` makes a message ready again. `ring_at(ms)` has the queue
    looked after at that time. `letters` have all that leave while `loses_nothing()`."""

    def __init__(
        self,
        write: GiveUp,
        afterwards: Callable[[Ticket, Callable[[Ticket], object]], None],
        come_back: Callable[[Backlog, Stored, Tries], None],
        now_ms: Callable[[], int],
        ring_at: Callable[[int], None],
        letters: KeptLetters,
        loses_nothing: Callable[[], bool],
    ) -> None:
        self._letters = letters
        self._loses_nothing = loses_nothing
        self._write = write
        self._afterwards = afterwards
        self._come_back = come_back
        self._now_ms = now_ms
        self._ring_at = ring_at
        self._held: list[_Held] = []
        self._is_over = False
        self.patient_until_ms = 0

    def end(self) -> None:
        """The queue is gone, and whatever was in it."""
        self._is_over = True
        self._letters.end()

    @property
    def is_patient(self) -> bool:
        """A write has failed a moment ago."""
        return self._now_ms() < self.patient_until_ms

    @property
    def is_full(self) -> bool:
        """So many wait to be written that those behind them have to wait, too."""
        return len(self._held) >= _MOST_HELD and self.is_patient

    def hold(self, backlog: Backlog, stored: Stored, reason: Reason, tries: Tries) -> None:
        """It is out, and waits with those that could not be written."""
        backlog.leaving.add(stored.offset)
        self._held.append(_Held(backlog, stored, reason, tries))

    def go_on(self) -> None:
        """Give up what was held, if it is time."""
        if self._held and not self.is_patient:
            held, self._held = self._held, []
            for each in held:
                self.give_up(*each)

    def give_up(
        self, backlog: Backlog, stored: Stored, reason: Reason, tries: Tries, back: Tries | None = None
    ) -> None:
        """It is out, and comes back as `back` says."""
        if self._loses_nothing():
            self._letters.keep(backlog, stored, reason, tries)
            return
        backlog.leaving.add(stored.offset)

        def settled(refusal: Refusal | None) -> None:
            if not self._is_over:
                self._settled(_Held(backlog, stored, reason, tries), back or tries, refusal)

        try:
            ticket = self._write((stored,), reason, tries.taken)
        except Refusal as refusal:
            settled(refusal)
            return
        if ticket is None:
            settled(None)
        else:
            self._afterwards(ticket, lambda done: settled(done.refusal))

    def give_up_run(self, backlog: Backlog, run: Sequence[Stored], reason: Reason) -> None:
        """As `give_up` of messages that were never tried and go by themselves."""
        if self._loses_nothing():
            for stored in run:
                self._letters.keep(backlog, stored, reason, NEVER_TRIED)
            return
        offsets = [stored.offset for stored in run]
        backlog.leaving.update(offsets)

        def settled(refusal: Refusal | None) -> None:
            if self._is_over:
                return
            if refusal is None:
                backlog.leaving.difference_update(offsets)
                backlog.settle(offsets)
                return
            for stored in run:
                self._settled(_Held(backlog, stored, reason, NEVER_TRIED), NEVER_TRIED, refusal)

        try:
            ticket = self._write(run, reason, 0)
        except Refusal as refusal:
            settled(refusal)
            return
        if ticket is None:
            settled(None)
        else:
            self._afterwards(ticket, lambda done: settled(done.refusal))

    def _settled(self, message: _Held, back: Tries, refusal: Refusal | None) -> None:
        backlog, stored, reason, _ = message
        if refusal is not None and reason in _BY_ITSELF:
            self._held.append(message)
            self.patient_until_ms = self._now_ms() + _PATIENCE_MS
            self._ring_at(self.patient_until_ms)
            return
        backlog.leaving.discard(stored.offset)
        if refusal is None:
            backlog.settle((stored.offset,))
        else:
            self._come_back(backlog, stored, back)
