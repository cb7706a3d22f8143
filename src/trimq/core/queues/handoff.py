"""Messages on their way out of a queue, until their next place has them. Where that cannot be written, a message comes
back; one that goes by itself stays out, so that nobody behind it is held up, and is given up again a little later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trimq.core.failures.ledger import Reason
from trimq.core.queues.at_least_once import AtLeastOnceDeadLetters
from trimq.core.queues.backlog import NEVER_DELIVERED, Backlog, DeliveryCounts
from trimq.errors import Refusal
from trimq.formats.amqp_content.content import StoredContent
from trimq.storage.group_commit.passes import Ticket

# At once it would fail again, and take with it what others write in the same pass.
_BACKOFF_MS = 1000

# More are not taken out for nothing: each is in memory.
_MOST_HELD = 1000

# For what a queue gives up a message without being asked to.
_BY_ITSELF = (Reason.EXPIRED, Reason.OVERFLOW)

GiveUp = Callable[[Sequence[StoredContent], Reason, int], Ticket | None]


class _HeldMessage(NamedTuple):
    backlog: Backlog
    stored: StoredContent
    reason: Reason
    delivery_counts: DeliveryCounts


class DeadLetterHandoff:
    """`write(run, reason, attempts)` brings messages to their next place; None: nothing is kept of them. `on_durable`
    calls back when a ticket is durable or refused; `requeue` makes a message ready again. `wake_at(ms)` has the queue
    looked after at that time. `dead_letters` have all that leave while `is_at_least_once()`."""

    def __init__(
        self,
        write: GiveUp,
        on_durable: Callable[[Ticket, Callable[[Ticket], object]], None],
        requeue: Callable[[Backlog, StoredContent, DeliveryCounts], None],
        now_ms: Callable[[], int],
        wake_at: Callable[[int], None],
        dead_letters: AtLeastOnceDeadLetters,
        is_at_least_once: Callable[[], bool],
    ) -> None:
        self._dead_letters = dead_letters
        self._is_at_least_once = is_at_least_once
        self._write = write
        self._on_durable = on_durable
        self._requeue = requeue
        self._now_ms = now_ms
        self._wake_at = wake_at
        self._held: list[_HeldMessage] = []
        self._is_over = False
        self.backoff_until_ms = 0

    def end(self) -> None:
        """The queue is gone, and whatever was in it."""
        self._is_over = True
        self._dead_letters.end()

    @property
    def is_backing_off(self) -> bool:
        """A write has failed a moment ago."""
        return self._now_ms() < self.backoff_until_ms

    @property
    def is_full(self) -> bool:
        """So many wait to be written that those behind them have to wait, too."""
        return len(self._held) >= _MOST_HELD and self.is_backing_off

    def postpone(
        self, backlog: Backlog, stored: StoredContent, reason: Reason, delivery_counts: DeliveryCounts
    ) -> None:
        """It is out, and waits with those that could not be written."""
        backlog.withheld.add(stored.offset)
        self._held.append(_HeldMessage(backlog, stored, reason, delivery_counts))

    def resume(self) -> None:
        """Give up what was held, if it is time."""
        if self._held and not self.is_backing_off:
            held, self._held = self._held, []
            for each in held:
                self.give_up(*each)

    def give_up(
        self,
        backlog: Backlog,
        stored: StoredContent,
        reason: Reason,
        delivery_counts: DeliveryCounts,
        back: DeliveryCounts | None = None,
    ) -> None:
        """It is out, and comes back as `back` says."""
        if self._is_at_least_once():
            self._dead_letters.enqueue(backlog, stored, reason, delivery_counts)
            return
        backlog.withheld.add(stored.offset)

        def settled(refusal: Refusal | None) -> None:
            if not self._is_over:
                self._settled(_HeldMessage(backlog, stored, reason, delivery_counts), back or delivery_counts, refusal)

        try:
            ticket = self._write((stored,), reason, delivery_counts.taken)
        except Refusal as refusal:
            settled(refusal)
            return
        if ticket is None:
            settled(None)
        else:
            self._on_durable(ticket, lambda done: settled(done.refusal))

    def give_up_batch(self, backlog: Backlog, batch: Sequence[StoredContent], reason: Reason) -> None:
        """As `give_up` of messages that were never tried and go by themselves."""
        if self._is_at_least_once():
            for stored in batch:
                self._dead_letters.enqueue(backlog, stored, reason, NEVER_DELIVERED)
            return
        offsets = [stored.offset for stored in batch]
        backlog.withheld.update(offsets)

        def settled(refusal: Refusal | None) -> None:
            if self._is_over:
                return
            if refusal is None:
                backlog.withheld.difference_update(offsets)
                backlog.settle(offsets)
                return
            for stored in batch:
                self._settled(_HeldMessage(backlog, stored, reason, NEVER_DELIVERED), NEVER_DELIVERED, refusal)

        try:
            ticket = self._write(batch, reason, 0)
        except Refusal as refusal:
            settled(refusal)
            return
        if ticket is None:
            settled(None)
        else:
            self._on_durable(ticket, lambda done: settled(done.refusal))

    def _settled(self, message: _HeldMessage, back: DeliveryCounts, refusal: Refusal | None) -> None:
        backlog, stored, reason, _ = message
        if refusal is not None and reason in _BY_ITSELF:
            self._held.append(message)
            self.backoff_until_ms = self._now_ms() + _BACKOFF_MS
            self._wake_at(self.backoff_until_ms)
            return
        backlog.withheld.discard(stored.offset)
        if refusal is None:
            backlog.settle((stored.offset,))
        else:
            self._requeue(backlog, stored, back)
