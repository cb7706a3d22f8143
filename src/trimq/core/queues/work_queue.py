"""One queue: who is given its messages, and what becomes of what comes back. Decides; where messages lie is its
backlog's matter, where dead ones go is told to it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from trimq.core.failures.ledger import Reason
from trimq.core.queues.arguments import DROP_HEAD, QUORUM, QueueSettings
from trimq.core.queues.at_least_once import AtLeastOnceDeadLetters
from trimq.core.queues.backlog import NEVER_DELIVERED, Backlog, DeliveryCounts, requeued_first
from trimq.core.queues.consumers import Consumer
from trimq.core.queues.contents import QueueContents
from trimq.core.queues.delayed_requeue import DelayedRequeue, requeue_delay_ms
from trimq.core.queues.handoff import DeadLetterHandoff
from trimq.core.queues.queue import Owner, QueueDefinition, QueueServices
from trimq.core.queues.queue_timers import DEAD_LETTER_RETRY, DELAYED_REQUEUE, HANDOFF_RETRY, HEAD_EXPIRY
from trimq.core.queues.unacked import Delivery, with_delivery_counts
from trimq.errors import ColdRead
from trimq.formats.amqp_content.content import REDELIVERED, StoredContent
from trimq.storage.queue_log.log import QueueLog

# What one turn of the loop gives out of one queue: others have their turn too.
_MESSAGES_PER_TURN = 1000
_BYTES_PER_TURN = 1 << 20
_NO_LIMIT = 1 << 60
_BEFORE_ALL = -1  # a time at which nothing has expired

_RETURNED_ONCE = DeliveryCounts(1, 0)

_consumer_and_backlog = attrgetter("consumer", "backlog")  # of a delivery


class _TurnBudget:
    """What may still be given out."""

    __slots__ = ("bytes", "messages")

    def __init__(self, messages: int, bytes: int) -> None:
        self.messages = messages
        self.bytes = bytes


def _initial_counts(stored: StoredContent) -> DeliveryCounts:
    """Of a message that was never out of this queue: it may have been out of another."""
    return _RETURNED_ONCE if stored[1] & REDELIVERED else NEVER_DELIVERED


class WorkQueue(QueueContents):
    def __init__(
        self,
        id: UUID,
        definition: QueueDefinition,
        settings: QueueSettings,
        owner: Owner | None,
        services: QueueServices,
        logs: dict[int, QueueLog],
    ) -> None:
        super().__init__(id, definition, settings, owner, services, logs)
        self._dead_letters = AtLeastOnceDeadLetters(
            partial(services.send_dead_letters, self),
            services.passes.on_durable,
            services.now_ms,
            self._send_dead_letters_at,
        )
        self._handoff = DeadLetterHandoff(
            partial(services.give_up, self),
            services.passes.on_durable,
            self._requeue_now,
            services.now_ms,
            lambda due_ms: services.queue_timers.set(id, HANDOFF_RETRY, due_ms),
            self._dead_letters,
            lambda: self.settings.is_dead_letter_at_least_once,
        )
        for backlog in self._backlogs:
            self._dead_letters.recover(backlog)
        if len(self._dead_letters) and self._queued_ids is not None:
            self._track_message_ids(False)
            self._track_message_ids(True)
        self._delayed_requeue = DelayedRequeue(
            self._requeue_now, services.now_ms, lambda due_ms: services.queue_timers.set(id, DELAYED_REQUEUE, due_ms)
        )

    def _send_dead_letters_at(self, due_ms: int) -> None:
        """Dead letters are tried then, or at the end of this turn."""
        if due_ms > self._services.now_ms():
            self._services.queue_timers.set(self.id, DEAD_LETTER_RETRY, due_ms)
        else:
            self._services.dispatch.due(self)

    @property
    def pending_dead_letter_count(self) -> int:
        return len(self._dead_letters)

    @property
    def pending_dead_letter_bytes(self) -> int:
        return self._dead_letters.body_bytes

    def pending_dead_letter_bytes_in(self, backlog: Backlog) -> int:
        return self._dead_letters.bytes_in(backlog)

    # -- giving out

    def _dispatch(self, may_wait: bool) -> None:
        """Serve consumers; then let go what nobody took and that may not stay."""
        self._handoff.resume()
        if len(self.consumers):
            self._serve(may_wait)
        if self.settings.overflow == DROP_HEAD and self._is_over_limit():
            self._drop_excess(may_wait)
        for backlog in self._backlogs:
            backlog.last_dispatched_end = backlog.log.readable_end
        if self._may_expire:
            self._expire_heads(may_wait)
        self._dead_letters.resume(may_wait)

    def _serve(self, may_wait: bool) -> None:
        batches: dict[Consumer, list[Delivery]] = {}
        try:
            self._fill(batches, may_wait)
        finally:
            for consumer, batch in batches.items():
                if batch:
                    self._warm_attempts = 0
                    consumer.receiver.deliver(consumer, batch)

    def _fill(self, batches: dict[Consumer, list[Delivery]], may_wait: bool) -> None:
        """What each consumer is given in this turn."""
        now_ms = self._services.now_ms()
        budget = _TurnBudget(_MESSAGES_PER_TURN, _BYTES_PER_TURN)
        is_batch = True
        while (most := min(budget.messages, sum(backlog.readable for backlog in self._backlogs))) > 0 < budget.bytes:
            # Where messages go one by one, so are consumers asked: there may be thousands of them.
            consumers, room = self.consumers.next(most if is_batch else 1)
            if not consumers:
                break
            given = self._take_batch(min(most, len(consumers) * room), budget, now_ms)
            is_batch = bool(given)
            if not is_batch:
                taken = self._take(now_ms, may_wait, budget)
                if taken is None:
                    break
                given = [self._make_delivery(*taken, now_ms)]
            for index, consumer in enumerate(consumers[: len(given)]):
                own = given[index :: len(consumers)]
                self._grant(own, consumer, consumer.no_ack)
                batches.setdefault(consumer, []).extend(own)
            self.consumers.served(consumers, len(given))
        if min(budget.messages, budget.bytes) <= 0:  # this turn is over, not the messages
            self._services.dispatch.due(self)

    def _take_batch(self, most: int, budget: _TurnBudget, now_ms: int) -> list[Delivery]:
        """Up to so many that were never out, if nothing but their order has to be looked at."""
        if len(self._backlogs) > 1 or self._queued_ids is not None or self._handoff.is_full:
            return []
        backlog = self._lowest
        batch = backlog.take_batch(most, budget.bytes, now_ms)
        budget.messages -= len(batch)
        budget.bytes -= sum([len(stored[3].body) for stored in batch])
        return [
            Delivery(self, backlog, stored, None, stored[3].header, _initial_counts(stored), now_ms) for stored in batch
        ]

    def _take(self, now_ms: int, may_wait: bool, budget: _TurnBudget) -> tuple[Backlog, StoredContent] | None:
        """The next that is not expired; each that is counts in this turn."""
        for backlog in [] if self._handoff.is_full else self._in_order():
            while (stored := self._take_from(backlog, may_wait)) is not None:
                budget.messages -= 1
                expires_ms = stored.expires_ms
                if expires_ms < 0 or expires_ms > now_ms or self._is_deliverable_on_arrival(backlog, stored):
                    budget.bytes -= len(stored.content.body)
                    return backlog, stored
                leave = self._handoff.postpone if self._handoff.is_backing_off else self._handoff.give_up
                leave(backlog, stored, Reason.EXPIRED, backlog.delivery_counts(stored.offset))
                if budget.messages <= 0 or self._handoff.is_full:
                    return None
        return None

    def _in_order(self) -> list[Backlog]:
        """The first has the head of the queue, if there is anything in it."""
        if len(self._backlogs) > 1 and self.settings.kind == QUORUM:
            return requeued_first(self._backlogs)
        return self._backlogs

    def _take_from(self, backlog: Backlog, may_wait: bool) -> StoredContent | None:
        stored = backlog.take(may_wait)
        if stored is not None and self._queued_ids is not None:
            self._queued_ids.forget(stored.content, stored.offset)
        return stored

    def _requeue_now(self, backlog: Backlog, stored: StoredContent, delivery_counts: DeliveryCounts) -> None:
        """It waits again, at its old place."""
        backlog.requeue(stored, delivery_counts)
        if self._queued_ids is not None:
            self._queued_ids.add(stored.content, backlog, stored.offset)
        self._services.dispatch.due(self)

    def _is_deliverable_on_arrival(self, backlog: Backlog, stored: StoredContent) -> bool:
        """A message that may not wait at all goes to a consumer who is ready when it becomes readable."""
        return stored.expires_ms == stored.content.published_ms and stored.offset >= backlog.last_dispatched_end

    def _make_delivery(self, backlog: Backlog, stored: StoredContent, now_ms: int) -> Delivery:
        """With how often it was out before."""
        delivery_counts = backlog.recovered_delivery_counts(stored.offset)
        header = stored.content.header
        if delivery_counts.taken and self.settings.kind == QUORUM:
            header = with_delivery_counts(stored.content, delivery_counts)
        return Delivery(
            self,
            backlog,
            stored,
            None,
            header,
            delivery_counts if delivery_counts.taken else _initial_counts(stored),
            now_ms,
        )

    def _grant(self, deliveries: list[Delivery], consumer: Consumer | None, no_ack: bool) -> None:
        """Of one backlog, at least one."""
        backlog = deliveries[0].backlog
        for delivery in deliveries:
            delivery.consumer = consumer
        if no_ack and backlog is not None:
            backlog.settle([delivery.stored.offset for delivery in deliveries])
            return
        self.deliveries.grant(deliveries)
        if consumer is not None:
            consumer.in_flight += len(deliveries)
            if consumer.shared_prefetch is not None:
                consumer.shared_prefetch.in_flight += len(deliveries)

    def get(self, no_ack: bool) -> Delivery | None:
        """The next message, for one who asks; read from the disk now, if need be."""
        self.touch()
        now_ms = self._services.now_ms()
        taken = self._take(now_ms, True, _TurnBudget(_NO_LIMIT, _NO_LIMIT))
        if taken is None:
            return None
        delivery = self._make_delivery(*taken, now_ms)
        self._grant([delivery], None, no_ack)
        return delivery

    def cold_head(self) -> ColdRead | None:
        return next((cold for backlog in self._backlogs if (cold := backlog.cold_head()) is not None), None)

    # -- coming back

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        settled = self.deliveries.settle_all(deliveries)
        for (consumer, backlog), own in groupby(settled, _consumer_and_backlog):
            offsets = [delivery.stored.offset for delivery in own]
            if consumer is not None:
                self._release_prefetch(consumer, len(offsets))
            if backlog is not None and not self.is_deleted:
                backlog.settle(offsets)

    def requeue(self, delivery: Delivery, counts: bool) -> None:
        """To where it was. `counts`: it failed, and may do so only so often."""
        if not self._settle(delivery) or delivery.backlog is None:
            return
        delivery_counts = DeliveryCounts(delivery.delivery_counts.taken + 1, delivery.delivery_counts.failed + counts)
        limit = self.settings.delivery_limit
        if limit is not None and counts:
            if delivery_counts.failed > limit:
                self._handoff.give_up(delivery.backlog, delivery.with_body(), Reason.DELIVERY_LIMIT, delivery_counts)
                return
            delivery.backlog.log.note_attempts(delivery.offset, delivery_counts.failed)
        wait_ms = requeue_delay_ms(self.settings, delivery_counts, counts)
        stored = delivery.with_body() if delivery.backlog.counts_bytes else delivery.stored
        if wait_ms:
            self._delayed_requeue.schedule(wait_ms, delivery.backlog, stored, delivery_counts)
        else:
            self._requeue_now(delivery.backlog, stored, delivery_counts)

    def requeue_delayed(self) -> None:
        self._delayed_requeue.resume()

    def reject(self, delivery: Delivery) -> None:
        if self._settle(delivery) and delivery.backlog is not None:
            delivery_counts = delivery.delivery_counts
            self._handoff.give_up(
                delivery.backlog,
                delivery.with_body(),
                Reason.REJECTED,
                delivery_counts,
                DeliveryCounts(delivery_counts.taken + 1, delivery_counts.failed),
            )

    def _settle(self, delivery: Delivery) -> bool:
        if not self.deliveries.settle(delivery):
            return False
        if delivery.consumer is not None:
            self._release_prefetch(delivery.consumer)
        return not self.is_deleted

    # -- going

    def _drop_excess(self, may_wait: bool) -> None:
        """In one turn more than came since the last, so that it ends, but not many more: others have their turn too."""
        came = sum(backlog.log.readable_end - backlog.last_dispatched_end for backlog in self._backlogs)
        left = came + _MESSAGES_PER_TURN
        while left > 0:
            if not self._is_over_limit() or self._handoff.is_backing_off:
                return
            for backlog in self._in_order():
                if dropped := self._drop_from(backlog, min(left, _MESSAGES_PER_TURN), may_wait):
                    left -= dropped
                    break
            else:
                return
        self._services.dispatch.due(self)

    def _drop_from(self, backlog: Backlog, most: int, may_wait: bool) -> int:
        """How many of those that are too much went from the head of this backlog; as few as possible."""
        settings = self.settings
        excess = 0 if settings.max_length is None else self.ready_count - settings.max_length
        excess_bytes = 0 if settings.max_bytes is None else self.ready_bytes - settings.max_bytes
        if self._queued_ids is None:
            limits = (min(excess, most), _BYTES_PER_TURN) if excess > 0 else (most, min(excess_bytes, _BYTES_PER_TURN))
            batch = backlog.take_batch(*limits, _BEFORE_ALL)
            if batch:
                self._handoff.give_up_batch(backlog, batch, Reason.OVERFLOW)
                return len(batch)
        stored = self._take_from(backlog, may_wait)
        if stored is None:
            return 0
        self._handoff.give_up(backlog, stored, Reason.OVERFLOW, backlog.delivery_counts(stored.offset))
        return 1

    def _expire_heads(self, may_wait: bool) -> None:
        now_ms = self._services.now_ms()
        due_ms: int | None = None
        for backlog in self._backlogs:
            left = _MESSAGES_PER_TURN
            while True:
                expires_ms = backlog.head_expiry_ms(may_wait)
                if not 0 <= expires_ms <= now_ms or self._handoff.is_backing_off or left <= 0:
                    break
                left -= self._expire_from(backlog, left, now_ms, may_wait)
            if expires_ms >= 0:
                due_ms = expires_ms if due_ms is None else min(due_ms, expires_ms)
        if due_ms is not None:
            due_ms = max(due_ms, self._handoff.backoff_until_ms)
        self._services.queue_timers.set(self.id, HEAD_EXPIRY, due_ms)

    def _expire_from(self, backlog: Backlog, most: int, now_ms: int, may_wait: bool) -> int:
        """The head of this backlog has expired: how many went."""
        if self._queued_ids is None and (batch := backlog.take_expired(most, _BYTES_PER_TURN, now_ms)):
            self._handoff.give_up_batch(backlog, batch, Reason.EXPIRED)
            return len(batch)
        stored = self._take_from(backlog, may_wait)
        if stored is not None:
            self._handoff.give_up(backlog, stored, Reason.EXPIRED, backlog.delivery_counts(stored.offset))
        return 1

    def purge(self) -> int:
        """Everything that is ready and readable goes, and is nobody's dead letter."""
        purged = 0
        for backlog in self._backlogs:
            purged += backlog.purge(self._unready_offsets(backlog))
            if backlog.counts_bytes:
                backlog.count_bytes(self._in_flight_bytes(backlog))
        if self._queued_ids is not None:
            self._queued_ids.retain(lambda place: place.offset >= place.backlog.log.readable_end)
        return purged

    def requeue_overdue(self) -> None:
        overdue: dict[Consumer, list[Delivery]] = {}
        for delivery in self.deliveries.overdue(self._services.now_ms()):
            consumer = delivery.consumer
            self.requeue(delivery, counts=True)
            if consumer is not None:
                overdue.setdefault(consumer, []).append(delivery)
        for consumer, deliveries in overdue.items():
            self.unsubscribe(consumer)
            consumer.receiver.timed_out(consumer, deliveries)

    def end(self) -> None:
        super().end()
        self._handoff.end()
        for delivery in self.deliveries:  # nobody can settle them any more, and they must not count for ever
            self._settle(delivery)
