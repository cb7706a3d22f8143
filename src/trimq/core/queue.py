"""One queue: what is published to it, who is given it, and what becomes of what comes back. Decides; where messages lie
is its backlog's matter, where dead ones go is told to it."""

from __future__ import annotations

from uuid import UUID

from trimq.core.alarms import DELIVERY_TIMEOUT, HEAD_EXPIRY
from trimq.core.any_queue import AnyQueue, Around, Owner, Publication, QueueDefinition
from trimq.core.backlog import Backlog, Tries
from trimq.core.consumers import Consumer
from trimq.core.deliveries import Deliveries, Delivery
from trimq.core.failures import Reason
from trimq.core.queue_arguments import CLASSIC, DROP_HEAD, QUORUM, QueueSettings
from trimq.formats.content import NEVER, RETURNED, TRANSIENT, Content, Stored
from trimq.formats.field_tables import BadField, Table
from trimq.formats.property_list import read_headers, replace
from trimq.storage.passes import Ticket
from trimq.storage.queue_log import QueueLog

# What one turn of the loop gives out of one queue: others have their turn too.
_MESSAGES_PER_TURN = 1000
_BYTES_PER_TURN = 1 << 20


class Queue(AnyQueue):
    def __init__(
        self,
        id: UUID,
        definition: QueueDefinition,
        settings: QueueSettings,
        owner: Owner | None,
        around: Around,
        logs: dict[int, QueueLog],
    ) -> None:
        super().__init__(id, definition, settings, owner, around)
        self._backlogs: list[Backlog] = []  # the highest priority first
        self._lowest: Backlog
        self._may_expire = settings.ttl_ms is not None
        self.deliveries = Deliveries(
            settings.consumer_timeout_ms or around.consumer_timeout_ms,
            lambda due_ms: around.alarms.set(id, DELIVERY_TIMEOUT, due_ms),
        )
        for level, log in logs.items():
            self._add_level(level, log)
            self._may_expire = self._may_expire or any(part.earliest_expiry_ms >= 0 for part in log.segments)

    def _add_level(self, level: int, log: QueueLog) -> Backlog:
        backlog = Backlog(log, level)
        if self.settings.max_bytes is not None:
            backlog.count_bytes(0)
        log.grown = self._log_grown
        log.undone = lambda: backlog.recount(self._out_bytes(backlog))
        self._backlogs.append(backlog)
        self._backlogs.sort(key=lambda backlog: -backlog.level)
        self._lowest = self._backlogs[-1]
        return backlog

    def _log_grown(self) -> None:
        self._around.pump.due(self)

    def change_settings(self, settings: QueueSettings) -> None:
        self._may_expire = self._may_expire or settings.ttl_ms is not None
        self.deliveries.timeout_ms = settings.consumer_timeout_ms or self._around.consumer_timeout_ms
        for backlog in self._backlogs:
            if settings.max_bytes is not None and not backlog.counts_bytes:
                backlog.count_bytes(self._out_bytes(backlog))
        super().change_settings(settings)

    def _out_bytes(self, backlog: Backlog) -> int:
        return sum(len(delivery.message.body) for delivery in self.deliveries if delivery.backlog is backlog)

    @property
    def logs(self) -> list[QueueLog]:
        return [backlog.log for backlog in self._backlogs]

    @property
    def ready_count(self) -> int:
        if len(self._backlogs) == 1:
            return self._lowest.ready
        return sum(backlog.ready for backlog in self._backlogs)

    @property
    def ready_bytes(self) -> int:
        return sum(backlog.ready_bytes for backlog in self._backlogs)

    # -- publishing

    @property
    def is_full(self) -> bool:
        settings = self.settings
        if settings.overflow == DROP_HEAD:
            return False
        return (settings.max_length is not None and self.ready_count >= settings.max_length) or (
            settings.max_bytes is not None and self.ready_bytes >= settings.max_bytes
        )

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        sealed, is_transient, expiration_ms, priority, flags = publication
        settings = self.settings
        ttl_ms = settings.ttl_ms
        if expiration_ms is not None:
            ttl_ms = expiration_ms if ttl_ms is None or expiration_ms < ttl_ms else ttl_ms
        expires_ms = NEVER
        if ttl_ms is not None:
            expires_ms = sealed.content.published_ms + ttl_ms
            self._may_expire = True
        if is_transient and settings.kind == CLASSIC:
            flags |= TRANSIENT
        backlog = self._level(priority) if settings.max_priority else self._lowest
        ticket = backlog.append(sealed, expires_ms, flags)
        return ticket, not (flags & TRANSIENT or backlog.log.is_volatile)

    def _level(self, priority: int) -> Backlog:
        wanted = min(priority, self.settings.max_priority)
        for backlog in self._backlogs:
            if backlog.level == wanted:
                return backlog
        return self._add_level(wanted, self._around.make_log(self.id, wanted, self.is_volatile))

    # -- giving out

    def pump(self) -> None:
        """Serve consumers; then let go what nobody took and that may not stay."""
        if self.is_deleted:
            return
        if len(self.consumers):
            self._serve()
        if self.settings.overflow == DROP_HEAD:
            self._drop_excess()
        for backlog in self._backlogs:
            backlog.seen_end = backlog.log.readable_end
        if self._may_expire:
            self._expire_heads()

    def _serve(self) -> None:
        now_ms = self._around.now_ms()
        messages, size = 0, 0
        batches: dict[Consumer, list[Delivery]] = {}
        is_more = True
        while is_more and (turn := self.consumers.next()) is not None:
            consumer, room = turn
            batch = batches.setdefault(consumer, [])
            for _ in range(room):
                if messages >= _MESSAGES_PER_TURN or size >= _BYTES_PER_TURN:
                    self._around.pump.due(self)
                    is_more = False
                    break
                taken = self._take(now_ms)
                if taken is None:
                    is_more = False
                    break
                messages += 1
                size += len(taken[1].content.body)
                batch.append(self._grant(*taken, consumer, consumer.no_ack, now_ms))
            if is_more:
                self.consumers.served(consumer)
        for consumer, batch in batches.items():
            if batch:
                consumer.receiver.deliver(consumer, batch)

    def _take(self, now_ms: int) -> tuple[Backlog, Stored] | None:
        for backlog in self._backlogs:
            while (stored := backlog.take()) is not None:
                expires_ms = stored.expires_ms
                if expires_ms < 0 or expires_ms > now_ms or self._is_for_now(backlog, stored):
                    return backlog, stored
                self._give_up(backlog, stored, Reason.EXPIRED, backlog.tries(stored.offset))
        return None

    def _is_for_now(self, backlog: Backlog, stored: Stored) -> bool:
        """A message that may not wait at all goes to a consumer who is ready when it becomes readable."""
        return stored.expires_ms == stored.content.published_ms and stored.offset >= backlog.seen_end

    def _grant(
        self, backlog: Backlog, stored: Stored, consumer: Consumer | None, no_ack: bool, now_ms: int
    ) -> Delivery:
        kind = self.settings.kind
        tries = backlog.tries(stored.offset) if kind == CLASSIC else backlog.remembered_tries(stored.offset)
        header = stored.content.header
        if kind == QUORUM and tries.taken:
            header = _with_counts(stored.content, tries)
        if stored.flags & RETURNED and not tries.taken:
            tries = Tries(1, 0)
        delivery = Delivery(self, backlog, stored, consumer, header, tries, now_ms)
        if no_ack:
            backlog.settle(stored.offset)
        else:
            self.deliveries.grant(delivery)
            if consumer is not None:
                consumer.in_flight += 1
        return delivery

    def get(self, no_ack: bool) -> Delivery | None:
        """The next message, for one who asks."""
        self.touch()
        now_ms = self._around.now_ms()
        taken = self._take(now_ms)
        return None if taken is None else self._grant(*taken, None, no_ack, now_ms)

    # -- coming back

    def ack(self, delivery: Delivery) -> None:
        if self._settle(delivery) and delivery.backlog is not None:
            delivery.backlog.settle(delivery.stored.offset)

    def requeue(self, delivery: Delivery, counts: bool) -> None:
        """To where it was. `counts`: it failed, and may do so only so often."""
        if not self._settle(delivery) or delivery.backlog is None:
            return
        tries = Tries(delivery.tries.taken + 1, delivery.tries.failed + counts)
        limit = self.settings.delivery_limit
        if limit is not None and counts:
            if tries.failed > limit:
                self._give_up(delivery.backlog, delivery.stored, Reason.DELIVERY_LIMIT, tries)
                return
            delivery.backlog.log.note_attempts(delivery.offset, tries.failed)
        delivery.backlog.give_back(delivery.stored, tries)
        self._around.pump.due(self)

    def reject(self, delivery: Delivery) -> None:
        if self._settle(delivery) and delivery.backlog is not None:
            self._give_up(delivery.backlog, delivery.stored, Reason.REJECTED, delivery.tries)

    def _settle(self, delivery: Delivery) -> bool:
        if not self.deliveries.settle(delivery):
            return False
        consumer = delivery.consumer
        if consumer is not None:
            consumer.in_flight -= 1
            self._around.pump.due(self)
        return not self.is_deleted

    # -- going

    def _give_up(self, backlog: Backlog, stored: Stored, reason: Reason, tries: Tries) -> None:
        """It is out, and comes back only if its next place cannot be written."""
        ticket = self._around.give_up(self, stored, reason, tries.taken)
        if ticket is None:
            backlog.settle(stored.offset)
            return
        backlog.leaving.add(stored.offset)

        def settled(done: Ticket) -> None:
            backlog.leaving.discard(stored.offset)
            if self.is_deleted:
                return
            if done.refusal is None:
                backlog.settle(stored.offset)
            else:
                backlog.give_back(stored, tries)
                self._around.pump.due(self)

        self._around.passes.afterwards(ticket, settled)

    def _drop_excess(self) -> None:
        settings = self.settings
        while (settings.max_length is not None and self.ready_count > settings.max_length) or (
            settings.max_bytes is not None and self.ready_bytes > settings.max_bytes
        ):
            backlog = next((backlog for backlog in reversed(self._backlogs) if backlog.peek() is not None), None)
            stored = None if backlog is None else backlog.take()
            if backlog is None or stored is None:
                return
            self._give_up(backlog, stored, Reason.OVERFLOW, backlog.tries(stored.offset))

    def _expire_heads(self) -> None:
        now_ms = self._around.now_ms()
        due_ms: int | None = None
        for backlog in self._backlogs:
            for _ in range(_MESSAGES_PER_TURN):
                expires_ms = backlog.head_expiry_ms()
                if not 0 <= expires_ms <= now_ms:
                    break
                stored = backlog.take()
                if stored is not None:
                    self._give_up(backlog, stored, Reason.EXPIRED, backlog.tries(stored.offset))
            if expires_ms >= 0:
                due_ms = expires_ms if due_ms is None else min(due_ms, expires_ms)
        self._around.alarms.set(self.id, HEAD_EXPIRY, due_ms)

    def purge(self) -> int:
        """Everything that is ready and readable goes, and is nobody's dead letter."""
        purged = 0
        for backlog in self._backlogs:
            out = {delivery.offset for delivery in self.deliveries if delivery.backlog is backlog}
            purged += backlog.purge(out | backlog.leaving)
            if backlog.counts_bytes:
                backlog.count_bytes(self._out_bytes(backlog))
        return purged

    def time_out(self) -> None:
        for delivery in self.deliveries.overdue(self._around.now_ms()):
            consumer = delivery.consumer
            self.requeue(delivery, counts=True)
            if consumer is not None and consumer in self.consumers:
                self.unsubscribe(consumer)
                consumer.receiver.timed_out(consumer, delivery)

    def end(self) -> None:
        super().end()
        self.deliveries.clear()


def _with_counts(content: Content, tries: Tries) -> bytes:
    counts: Table = {"x-acquired-count": tries.taken}
    if tries.failed:
        counts["x-delivery-count"] = tries.failed
    try:
        return replace(content.header, headers={**read_headers(content.header), **counts})
    except BadField:
        return content.header
