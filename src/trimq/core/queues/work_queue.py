"""Classic and quorum queues: delivery to consumers, ack, requeue and reject, overflow and expiry. `QueueContents`
stores the messages; the broker's `DeadLetterDestination` routes dead letters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from trimq.core.failures.ledger import Reason
from trimq.core.queues.arguments import CLASSIC, DROP_HEAD, QUORUM, QueueSettings
from trimq.core.queues.at_least_once import AtLeastOnceDeadLetters, DeadLetterSendResult
from trimq.core.queues.backlog import NEVER_DELIVERED, Backlog, DeliveryCounts
from trimq.core.queues.consumers import Consumer
from trimq.core.queues.contents import QueueContents
from trimq.core.queues.delayed_requeue import DelayedRequeue, requeue_delay_ms
from trimq.core.queues.handoff import DeadLetterHandoff
from trimq.core.queues.queue import Owner, PendingPass, Queue, QueueDefinition, QueueServices
from trimq.core.queues.queue_timers import (
    DEAD_LETTER_RETRY,
    DELAYED_REQUEUE,
    DELIVERY_TIMEOUT,
    HANDOFF_RETRY,
    HEAD_EXPIRY,
)
from trimq.core.queues.unacked import Delivery, UnackedDeliveries, with_delivery_counts
from trimq.errors import ColdRead
from trimq.formats.amqp_content.content import PRIVATE_HEADERS, REDELIVERED, Content, StoredContent
from trimq.formats.amqp_content.private_headers import without_private_headers
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog

# The most that one turn of the event loop takes from one queue, so that other queues are served too.
_MESSAGES_PER_TURN = 1000
_BYTES_PER_TURN = 1 << 20
_NO_LIMIT = 1 << 60
_BEFORE_ALL = -1  # a time at which nothing has expired

_IS_SPECIAL = REDELIVERED | PRIVATE_HEADERS

_consumer_and_backlog = attrgetter("consumer", "backlog")  # of a delivery


class _TurnBudget:
    """Messages and bytes that may still be delivered in this turn."""

    __slots__ = ("bytes", "messages")

    def __init__(self, messages: int, bytes: int) -> None:
        self.messages = messages
        self.bytes = bytes


class WorkQueue(Queue):
    def __init__(
        self,
        id: UUID,
        definition: QueueDefinition,
        settings: QueueSettings,
        owner: Owner | None,
        services: QueueServices,
        logs: dict[int, QueueLog],
    ) -> None:
        super().__init__(id, definition, settings, owner, services)
        timers, now_ms = services.queue_timers, services.now_ms
        self.deliveries = UnackedDeliveries(
            self.consumer_timeout_ms, lambda due_ms: timers.set(id, DELIVERY_TIMEOUT, due_ms)
        )
        self._dead_letters = AtLeastOnceDeadLetters(self, services.passes, now_ms)
        self.contents = QueueContents(
            settings,
            logs,
            lambda level: services.make_log(id, level, self.is_volatile),
            self.deliveries,
            self._dead_letters,
            partial(services.dispatch.due, self),
        )
        self.publish = self.contents.publish
        self._has_requeued = False
        self._handoff = DeadLetterHandoff(self, self.contents, self._dead_letters, services.passes, now_ms)
        self._delayed_requeue = DelayedRequeue(
            self.contents, now_ms, lambda due_ms: timers.set(id, DELAYED_REQUEUE, due_ms)
        )

    def change_settings(self, settings: QueueSettings) -> None:
        self.contents.change_settings(settings)
        super().change_settings(settings)
        self.deliveries.timeout_ms = self.consumer_timeout_ms

    # -- contents

    @property
    def logs(self) -> list[QueueLog]:
        return [backlog.log for backlog in self.contents.backlogs]

    def numbered_logs(self) -> dict[int, QueueLog]:
        return {backlog.level: backlog.log for backlog in self.contents.backlogs}

    @property
    def ready_count(self) -> int:
        return self.contents.ready_count

    @property
    def is_full(self) -> bool:
        return self.contents.is_full

    @property
    def accepts_batches(self) -> bool:
        return self.contents.accepts_batches

    def publish_all(
        self,
        contents: Sequence[Content],
        is_transient: bool,
        expiration_ms: int | None,
        priority: int,
        flags: int = 0,
    ) -> tuple[Ticket, bool]:
        return self.contents.publish_all(contents, is_transient, expiration_ms, priority, flags)

    def cold_head(self) -> ColdRead | None:
        return self.contents.cold_head()

    def purge(self) -> int:
        """Deletes all messages that are ready and readable, without dead letters. Returns their number."""
        return self.contents.purge()

    # -- dead letters, for `DeadLetterHandoff` and `AtLeastOnceDeadLetters`

    @property
    def pending_dead_letter_count(self) -> int:
        """Messages that stay in this queue until their dead letters are stored elsewhere."""
        return len(self._dead_letters)

    @property
    def is_dead_letter_at_least_once(self) -> bool:
        return self.settings.is_dead_letter_at_least_once

    def give_up(self, batch: Sequence[StoredContent], reason: Reason, delivery_counts: DeliveryCounts) -> Ticket | None:
        return self._services.dead_letters.give_up(self, batch, reason, delivery_counts)

    def retry_handoff_at(self, due_ms: int) -> None:
        self._services.queue_timers.set(self.id, HANDOFF_RETRY, due_ms)

    def send_dead_letters(
        self,
        batch: Sequence[StoredContent],
        reason: Reason,
        delivery_counts: DeliveryCounts,
        died_ms: int,
        confirmed: Collection[str],
    ) -> DeadLetterSendResult | None:
        return self._services.dead_letters.send_dead_letters(self, batch, reason, delivery_counts, died_ms, confirmed)

    def send_dead_letters_at(self, due_ms: int) -> None:
        if due_ms > self._services.now_ms():
            self._services.queue_timers.set(self.id, DEAD_LETTER_RETRY, due_ms)
        else:
            self._services.dispatch.due(self)

    # -- delivery

    def pending_turn(self) -> PendingPass | None:
        contents = self.contents
        is_dropping = self.settings.overflow == DROP_HEAD and contents.is_over_limit()
        return self.pending_pass() if is_dropping or contents.may_expire or len(self.consumers) else None

    def _dispatch(self, may_wait: bool) -> None:
        """Serves consumers; then drops messages over the limits of the queue and dead-letters expired ones."""
        if self._handoff.held:
            self._handoff.resume()
        contents = self.contents
        if self._has_requeued:  # as in RabbitMQ: what was requeued counts for the limits before it is delivered again
            self._has_requeued = False
            if self.settings.overflow == DROP_HEAD and contents.is_over_limit():
                self._drop_excess(may_wait)
        if len(self.consumers):
            self._serve(may_wait)
        if self.settings.overflow == DROP_HEAD and contents.is_over_limit():
            self._drop_excess(may_wait)
        for backlog in contents.backlogs:
            backlog.last_dispatched_end = backlog.log.readable_end
        if contents.may_expire:
            self._expire_heads(may_wait)
        if self._dead_letters.waiting:
            self._dead_letters.resume(may_wait)

    def _serve(self, may_wait: bool) -> None:
        batches: list[tuple[Consumer, list[Delivery]]] = []
        try:
            self._fill(batches, may_wait)
        finally:
            for consumer, batch in batches:
                self._cold_reads.reset()
                consumer.receiver.deliver(consumer, batch)

    def _fill(self, batches: list[tuple[Consumer, list[Delivery]]], may_wait: bool) -> None:
        """Takes messages for this turn, and adds them to the batches of the consumers: one batch for each. If consumers
        share a channel, there is a batch for each message, since the channel gets them in the order of the queue."""
        now_ms = self._services.now_ms()
        budget = _TurnBudget(_MESSAGES_PER_TURN, _BYTES_PER_TURN)
        in_order = self.consumers.is_channel_shared
        is_batch = not in_order
        own_batches: dict[Consumer, list[Delivery]] = {}
        while (most := min(budget.messages, self.contents.readable)) > 0 < budget.bytes:
            # If messages are taken one by one, ask for one consumer each time: there may be thousands of them.
            consumers, room = self.consumers.next(most if is_batch else 1)
            if not consumers:
                break
            given = self._take_batch(1 if in_order else min(most, len(consumers) * room), budget, now_ms)
            is_batch = bool(given) and not in_order
            if not given:
                taken = self._take(now_ms, may_wait, budget)
                if taken is None:
                    break
                given = [self._make_delivery(*taken, now_ms, True)]
            for index, consumer in enumerate(consumers[: len(given)]):
                own = given[index :: len(consumers)]
                self._grant(own, consumer, consumer.no_ack)
                batch = None if in_order else own_batches.get(consumer)
                if batch is None:
                    batch = own_batches[consumer] = []
                    batches.append((consumer, batch))
                batch.extend(own)
            self.consumers.served(consumers, len(given))
        if min(budget.messages, budget.bytes) <= 0:  # the budget is used up: continue in the next turn
            self._services.dispatch.due(self)

    def _take_batch(self, most: int, budget: _TurnBudget, now_ms: int) -> list[Delivery]:
        """Fast path of `_take` for messages that were never delivered; falls back (empty) with several priorities,
        deduplication, or a full hand-off."""
        backlog = self.contents.batch_backlog
        if backlog is None or (self._handoff.held and self._handoff.is_full):
            return []
        batch = backlog.take_batch(most, budget.bytes, now_ms)
        budget.messages -= len(batch)
        budget.bytes -= sum([len(stored[3].body) for stored in batch])
        return [
            self._make_delivery(backlog, stored, now_ms, True)
            if stored[1] & _IS_SPECIAL
            else Delivery(self, backlog, stored, None, stored[3].header, NEVER_DELIVERED, now_ms)
            for stored in batch
        ]

    def _take(self, now_ms: int, may_wait: bool, budget: _TurnBudget) -> tuple[Backlog, StoredContent] | None:
        """Takes the next message that has not expired, and dead-letters expired ones before it, which use the budget
        too."""
        for backlog in [] if self._handoff.is_full else self.contents.in_order():
            while (stored := self.contents.take(backlog, may_wait)) is not None:
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

    def _is_deliverable_on_arrival(self, backlog: Backlog, stored: StoredContent) -> bool:
        """True if a message with TTL 0 just became readable: it is delivered if a consumer is ready."""
        return stored.expires_ms == stored.content.published_ms and stored.offset >= backlog.last_dispatched_end

    def _make_delivery(self, backlog: Backlog, stored: StoredContent, now_ms: int, to_consumer: bool) -> Delivery:
        """Returns a delivery with the counts of earlier deliveries of the message."""
        delivery_counts = backlog.recovered_delivery_counts(stored.offset)
        header = stored.content.header
        if stored.flags & PRIVATE_HEADERS:
            header = without_private_headers(header)
        failed_elsewhere = stored.failed_elsewhere
        if self.kind == QUORUM and (delivery_counts.acquired or failed_elsewhere):
            failed = delivery_counts.failed + failed_elsewhere
            header = with_delivery_counts(header, DeliveryCounts(delivery_counts.acquired, failed))
        delivery = Delivery(self, backlog, stored, None, header, delivery_counts, now_ms)
        if failed_elsewhere:
            # As in RabbitMQ: a classic queue sets the flag of a dead letter only if the message had to wait.
            is_arriving = to_consumer and self.kind == CLASSIC and stored.offset >= backlog.last_dispatched_end
            delivery.redelivered = delivery.redelivered or not is_arriving
        return delivery

    def _grant(self, deliveries: list[Delivery], consumer: Consumer | None, no_ack: bool) -> None:
        """Puts one or more deliveries of one backlog in flight."""
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
        """Takes the next message for basic.get. Reads cold data at once."""
        self.touch()
        now_ms = self._services.now_ms()
        taken = self._take(now_ms, True, _TurnBudget(_NO_LIMIT, _NO_LIMIT))
        if taken is None:
            return None
        delivery = self._make_delivery(*taken, now_ms, False)
        delivery.get_number = self.consumers.next_number()
        self._grant([delivery], None, no_ack)
        if self.contents.may_expire:  # the new head may have expired behind this message
            if self.kind == CLASSIC or no_ack:
                self._expire_heads(True)
            else:
                self._services.dispatch.due(self)  # as in RabbitMQ, the answer still counts it
        return delivery

    # -- ack, requeue, reject

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        settled = self.deliveries.settle_all(deliveries)
        for (consumer, backlog), own in groupby(settled, _consumer_and_backlog):
            offsets = [delivery.stored.offset for delivery in own]
            if consumer is not None:
                self._release_prefetch(consumer, len(offsets))
            if backlog is not None and not self.is_deleted:
                backlog.settle(offsets)

    def requeue(self, delivery: Delivery, counts: bool) -> None:
        if not self._settle(delivery) or delivery.backlog is None:
            return
        delivery_counts = DeliveryCounts(
            delivery.delivery_counts.acquired + 1, delivery.delivery_counts.failed + counts
        )
        failed = delivery_counts.failed + delivery.stored.failed_elsewhere
        limit = self.settings.delivery_limit
        if limit is not None and counts:
            if failed > limit:
                self._handoff.give_up(delivery.backlog, delivery.with_body(), Reason.DELIVERY_LIMIT, delivery_counts)
                return
            delivery.backlog.log.acks.note_attempts(delivery.offset, delivery_counts.failed)
        wait_ms = requeue_delay_ms(self.settings, failed, counts)
        stored = delivery.with_body() if delivery.backlog.counts_bytes else delivery.stored
        self._has_requeued = self.kind == CLASSIC
        if wait_ms:
            self._delayed_requeue.schedule(wait_ms, delivery.backlog, stored, delivery_counts)
        else:
            self.contents.requeue(delivery.backlog, stored, delivery_counts)

    def reject(self, delivery: Delivery, counts: bool) -> None:
        if self._settle(delivery) and delivery.backlog is not None:
            acquired, failed = delivery.delivery_counts
            self._handoff.give_up(
                delivery.backlog,
                delivery.with_body(),
                Reason.REJECTED,
                DeliveryCounts(acquired, failed + counts),
                DeliveryCounts(acquired + 1, failed),
            )

    def _settle(self, delivery: Delivery) -> bool:
        if not self.deliveries.settle(delivery):
            return False
        if delivery.consumer is not None:
            self._release_prefetch(delivery.consumer)
        return not self.is_deleted

    # -- overflow, expiry, timeouts

    def _drop_excess(self, may_wait: bool) -> None:
        """Drops messages from the head. Each turn drops at most a fixed number more than arrived since the last: the
        queue catches up, and other queues are served too."""
        contents = self.contents
        arrived = sum(backlog.log.readable_end - backlog.last_dispatched_end for backlog in contents.backlogs)
        left = arrived + _MESSAGES_PER_TURN
        while left > 0:
            if not contents.is_over_limit() or self._handoff.is_backing_off:
                return
            for backlog in contents.in_order():
                if dropped := self._drop_from(backlog, min(left, _MESSAGES_PER_TURN), may_wait):
                    left -= dropped
                    break
            else:
                return
        self._services.dispatch.due(self)

    def _drop_from(self, backlog: Backlog, most: int, may_wait: bool) -> int:
        """Drops as few messages as needed from the head of this backlog. Returns their number."""
        settings, contents = self.settings, self.contents
        excess = 0 if settings.max_length is None else contents.ready_count - settings.max_length
        excess_bytes = 0 if settings.max_bytes is None else contents.ready_bytes - settings.max_bytes
        if contents.queued_ids is None:
            limits = (min(excess, most), _BYTES_PER_TURN) if excess > 0 else (most, min(excess_bytes, _BYTES_PER_TURN))
            if self.kind == QUORUM and excess <= 0:
                limits = (1, _BYTES_PER_TURN)  # a batch is measured by its bodies alone
            batch = backlog.take_batch(*limits, _BEFORE_ALL)
            if batch:
                self._handoff.give_up_batch(backlog, batch, Reason.OVERFLOW)
                return len(batch)
        stored = contents.take(backlog, may_wait)
        if stored is None:
            return 0
        self._handoff.give_up(backlog, stored, Reason.OVERFLOW, backlog.delivery_counts(stored.offset))
        return 1

    def _expire_heads(self, may_wait: bool) -> None:
        """Dead-letters expired messages at the heads of the backlogs, and sets the timer for the next. As in RabbitMQ,
        only the head of a classic queue expires: a message of a higher priority keeps those behind it."""
        now_ms = self._services.now_ms()
        due_ms: int | None = None
        for backlog in self.contents.backlogs:
            left = _MESSAGES_PER_TURN
            while True:
                expires_ms = backlog.head_expiry_ms(may_wait)
                if not 0 <= expires_ms <= now_ms or self._handoff.is_backing_off or left <= 0:
                    break
                left -= self._expire_from(backlog, left, now_ms, may_wait)
            if expires_ms >= 0:
                due_ms = expires_ms if due_ms is None else min(due_ms, expires_ms)
            if self.kind == CLASSIC and backlog.has_next:
                break
        if due_ms is not None:
            due_ms = max(due_ms, self._handoff.backoff_until_ms)
        self._services.queue_timers.set(self.id, HEAD_EXPIRY, due_ms)

    def _expire_from(self, backlog: Backlog, most: int, now_ms: int, may_wait: bool) -> int:
        """Dead-letters expired messages at the head of this backlog. Returns their number."""
        if self.contents.queued_ids is None and (batch := backlog.take_expired(most, _BYTES_PER_TURN, now_ms)):
            self._handoff.give_up_batch(backlog, batch, Reason.EXPIRED)
            return len(batch)
        stored = self.contents.take(backlog, may_wait)
        if stored is not None:
            self._handoff.give_up(backlog, stored, Reason.EXPIRED, backlog.delivery_counts(stored.offset))
        return 1

    def on_timer(self, kind: int) -> None:
        if kind == DELIVERY_TIMEOUT:
            self._requeue_overdue()
        elif kind == DELAYED_REQUEUE:
            self._delayed_requeue.resume()
        else:
            super().on_timer(kind)

    def _requeue_overdue(self) -> None:
        """Requeues deliveries that exceeded the delivery timeout, and cancels their consumers."""
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
        for delivery in self.deliveries:  # clients cannot settle them any more: free the prefetch of their consumers
            self._settle(delivery)
