"""Hand-off of dead-lettered messages: each stays in flight until its dead letter is durable. If the write fails, a
rejected message is requeued; an expired or overflowing one is retried later, so that it does not block those behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from trimq.core.failures.ledger import Reason
from trimq.core.queues.at_least_once import AtLeastOnceDeadLetters
from trimq.core.queues.backlog import NEVER_DELIVERED, Backlog, DeliveryCounts
from trimq.core.queues.contents import QueueContents
from trimq.errors import Refusal
from trimq.formats.amqp_content.content import StoredContent
from trimq.storage.group_commit.passes import Passes, Ticket

# An immediate retry would fail again, and with it all other writes of its pass.
_BACKOFF_MS = 1000

# Messages that wait for a retry are in memory; beyond this number the queue takes no more out of its log.
_MAX_HELD = 1000

# Reasons for which the queue dead-letters a message without a request of a client.
_BY_ITSELF = (Reason.EXPIRED, Reason.OVERFLOW)


class _HeldMessage(NamedTuple):
    backlog: Backlog
    stored: StoredContent
    reason: Reason
    delivery_counts: DeliveryCounts


class HandoffQueue(Protocol):
    """The queue whose messages are dead-lettered."""

    @property
    def is_dead_letter_at_least_once(self) -> bool: ...

    def give_up(self, batch: Sequence[StoredContent], reason: Reason, delivery_counts: DeliveryCounts) -> Ticket | None:
        """Writes the dead letters of messages. They may be acknowledged once the ticket's pass is durable; None: at
        once."""

    def retry_handoff_at(self, due_ms: int) -> None:
        """Dispatches the queue at that time, which calls `DeadLetterHandoff.resume`."""


class DeadLetterHandoff:
    """`at_least_once` takes over all messages while the queue has that strategy."""

    def __init__(
        self,
        queue: HandoffQueue,
        contents: QueueContents,
        at_least_once: AtLeastOnceDeadLetters,
        passes: Passes,
        now_ms: Callable[[], int],
    ) -> None:
        self._queue = queue
        self._contents = contents
        self._at_least_once = at_least_once
        self._passes = passes
        self._now_ms = now_ms
        self.held: list[_HeldMessage] = []
        self._is_over = False
        self.backoff_until_ms = 0

    def end(self) -> None:
        """Forgets all messages: the queue is deleted."""
        self._is_over = True
        self._at_least_once.end()

    @property
    def is_backing_off(self) -> bool:
        """True if a write failed less than the back-off time ago."""
        return self._now_ms() < self.backoff_until_ms

    @property
    def is_full(self) -> bool:
        """True if so many messages wait for a retry that the messages behind them must wait too."""
        return len(self.held) >= _MAX_HELD and self.is_backing_off

    def postpone(
        self, backlog: Backlog, stored: StoredContent, reason: Reason, delivery_counts: DeliveryCounts
    ) -> None:
        """Adds a message in flight to those that wait for a retry."""
        backlog.withheld.add(stored.offset)
        self.held.append(_HeldMessage(backlog, stored, reason, delivery_counts))

    def resume(self) -> None:
        """Retries messages that wait, once the back-off time is over."""
        if self.held and not self.is_backing_off:
            held, self.held = self.held, []
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
        """Dead-letters a message in flight. If that fails it is requeued, with the counts `back`."""
        if self._queue.is_dead_letter_at_least_once:
            self._at_least_once.enqueue(backlog, stored, reason, delivery_counts)
            return
        backlog.withheld.add(stored.offset)

        def settled(refusal: Refusal | None) -> None:
            if not self._is_over:
                self._settled(_HeldMessage(backlog, stored, reason, delivery_counts), back or delivery_counts, refusal)

        try:
            ticket = self._queue.give_up((stored,), reason, delivery_counts)
        except Refusal as refusal:
            settled(refusal)
            return
        if ticket is None:
            settled(None)
        else:
            self._passes.on_durable(ticket, lambda done: settled(done.refusal))

    def give_up_batch(self, backlog: Backlog, batch: Sequence[StoredContent], reason: Reason) -> None:
        """Fast path of `give_up` for expired or overflowing messages that were never delivered."""
        if self._queue.is_dead_letter_at_least_once:
            for stored in batch:
                self._at_least_once.enqueue(backlog, stored, reason, NEVER_DELIVERED)
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
            ticket = self._queue.give_up(batch, reason, NEVER_DELIVERED)
        except Refusal as refusal:
            settled(refusal)
            return
        if ticket is None:
            settled(None)
        else:
            self._passes.on_durable(ticket, lambda done: settled(done.refusal))

    def _settled(self, message: _HeldMessage, back: DeliveryCounts, refusal: Refusal | None) -> None:
        backlog, stored, reason, _ = message
        if refusal is not None and reason in _BY_ITSELF:
            self.held.append(message)
            self.backoff_until_ms = self._now_ms() + _BACKOFF_MS
            self._queue.retry_handoff_at(self.backoff_until_ms)
            return
        backlog.withheld.discard(stored.offset)
        if refusal is None:
            backlog.settle((stored.offset,))
        else:
            self._contents.requeue(backlog, stored, back)
