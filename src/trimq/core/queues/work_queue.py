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
from trimq.core.queues.at_least_once import KeptLetters
from trimq.core.queues.backlog import NEVER_TRIED, Backlog, Tries, returned_first
from trimq.core.queues.consumers import Consumer
from trimq.core.queues.contents import FilledQueue
from trimq.core.queues.delayed_requeue import Retries, delay_ms
from trimq.core.queues.handoff import Leaving
from trimq.core.queues.queue import Around, Owner, QueueDefinition
from trimq.core.queues.queue_timers import HEAD_EXPIRY, HELD, LETTERS, RETRY
from trimq.core.queues.unacked import Delivery, with_counts
from trimq.errors import ColdRead
from trimq.formats.amqp_content.content import RETURNED, Stored
from trimq.storage.queue_log.log import QueueLog

# What one turn of the loop gives out of one queue: others have their turn too.
_MESSAGES_PER_TURN = 1000
_BYTES_PER_TURN = 1 << 20
_NO_LIMIT = 1 << 60
_BEFORE_ALL = -1  # a time at which nothing has expired

_RETURNED_ONCE = Tries(1, 0)

_place_of = attrgetter("consumer", "backlog")  # of a delivery


class _Turn:
    """What may still be given out."""

    __slots__ = ("bytes", "messages")

    def __init__(self, messages: int, bytes: int) -> None:
        self.messages = messages
        self.bytes = bytes


def _first_try(stored: Stored) -> Tries:
    """Of a message that was never out of this queue: it may have been out of another."""
    return _RETURNED_ONCE if stored[1] & RETURNED else NEVER_TRIED


class Queue(FilledQueue):
    def __init__(
        self,
        id: UUID,
        definition: QueueDefinition,
        settings: QueueSettings,
        owner: Owner | None,
        around: Around,
        logs: dict[int, QueueLog],
    ) -> None:
        super().__init__(id, definition, settings, owner, around, logs)
        self._letters = KeptLetters(
            partial(around.send_letters, self),
            around.passes.afterwards,
            around.now_ms,
            self._send_at,
        )
        self._leaving = Leaving(
            partial(around.give_up, self),
            around.passes.afterwards,
            self._give_back,
            around.now_ms,
            lambda due_ms: around.alarms.set(id, HELD, due_ms),
            self._letters,
            lambda: self.settings.loses_no_dead_letter,
        )
        for backlog in self._backlogs:
            self._letters.find_again(backlog)
        if len(self._letters) and self._waiting_ids is not None:
            self._know_ids(False)
            self._know_ids(True)
        self._retries = Retries(self._give_back, around.now_ms, lambda due_ms: around.alarms.set(id, RETRY, due_ms))

    def _send_at(self, due_ms: int) -> None:
        """Dead letters are tried then, or at the end of this turn."""
        if due_ms > self._around.now_ms():
            self._around.alarms.set(self.id, LETTERS, due_ms)
        else:
            self._around.pump.due(self)

    @property
    def kept_count(self) -> int:
        return len(self._letters)

    @property
    def kept_bytes(self) -> int:
        return self._letters.body_bytes

    def kept_bytes_in(self, backlog: Backlog) -> int:
        return self._letters.bytes_in(backlog)

    # -- giving out

    def _pump(self, may_wait: bool) -> None:
        """Serve consumers; then let go what nobody took and that may not stay."""
        self._leaving.go_on()
        if len(self.consumers):
            self._serve(may_wait)
        if self.settings.overflow == DROP_HEAD and self._is_too_long():
            self._drop_excess(may_wait)
        for backlog in self._backlogs:
            backlog.seen_end = backlog.log.readable_end
        if self._may_expire:
            self._expire_heads(may_wait)
        self._letters.go_on(may_wait)

    def _serve(self, may_wait: bool) -> None:
        batches: dict[Consumer, list[Delivery]] = {}
        try:
            self._fill(batches, may_wait)
        finally:
            for consumer, batch in batches.items():
                if batch:
                    self._warmings = 0
                    consumer.receiver.deliver(consumer, batch)

    def _fill(self, batches: dict[Consumer, list[Delivery]], may_wait: bool) -> None:
        """What each consumer is given in this turn."""
        now_ms = self._around.now_ms()
        turn = _Turn(_MESSAGES_PER_TURN, _BYTES_PER_TURN)
        is_run = True
        while (most := min(turn.messages, sum(backlog.readable for backlog in self._backlogs))) > 0 < turn.bytes:
            # Where messages go one by one, so are consumers asked: there may be thousands of them.
            consumers, room = self.consumers.next(most if is_run else 1)
            if not consumers:
                break
            given = self._take_run(min(most, len(consumers) * room), turn, now_ms)
            is_run = bool(given)
            if not is_run:
                taken = self._take(now_ms, may_wait, turn)
                if taken is None:
                    break
                given = [self._remembered(*taken, now_ms)]
            for index, consumer in enumerate(consumers[: len(given)]):
                own = given[index :: len(consumers)]
                self._grant(own, consumer, consumer.no_ack)
                batches.setdefault(consumer, []).extend(own)
            self.consumers.served(consumers, len(given))
        if min(turn.messages, turn.bytes) <= 0:  # this turn is over, not the messages
            self._around.pump.due(self)

    def _take_run(self, most: int, turn: _Turn, now_ms: int) -> list[Delivery]:
        """Up to so many that were never out, if nothing but their order has to be looked at."""
        if len(self._backlogs) > 1 or self._waiting_ids is not None or self._leaving.is_full:
            return []
        backlog = self._lowest
        run = backlog.take_run(most, turn.bytes, now_ms)
        turn.messages -= len(run)
        turn.bytes -= sum([len(stored[3].body) for stored in run])
        return [Delivery(self, backlog, stored, None, stored[3].header, _first_try(stored), now_ms) for stored in run]

    def _take(self, now_ms: int, may_wait: bool, turn: _Turn) -> tuple[Backlog, Stored] | None:
        """The next that is not expired; each that is counts in this turn."""
        for backlog in [] if self._leaving.is_full else self._in_order():
            while (stored := self._take_from(backlog, may_wait)) is not None:
                turn.messages -= 1
                expires_ms = stored.expires_ms
                if expires_ms < 0 or expires_ms > now_ms or self._is_for_now(backlog, stored):
                    turn.bytes -= len(stored.content.body)
                    return backlog, stored
                leave = self._leaving.hold if self._leaving.is_patient else self._leaving.give_up
                leave(backlog, stored, Reason.EXPIRED, backlog.tries(stored.offset))
                if turn.messages <= 0 or self._leaving.is_full:
                    return None
        return None

    def _in_order(self) -> list[Backlog]:
        """The first has the head of the queue, if there is anything in it."""
        if len(self._backlogs) > 1 and self.settings.kind == QUORUM:
            return returned_first(self._backlogs)
        return self._backlogs

    def _take_from(self, backlog: Backlog, may_wait: bool) -> Stored | None:
        stored = backlog.take(may_wait)
        if stored is not None and self._waiting_ids is not None:
            self._waiting_ids.forget(stored.content, stored.offset)
        return stored

    def _give_back(self, backlog: Backlog, stored: Stored, tries: Tries) -> None:
        """It waits again, at its old place."""
        backlog.give_back(stored, tries)
        if self._waiting_ids is not None:
            self._waiting_ids.add(stored.content, backlog, stored.offset)
        self._around.pump.due(self)

    def _is_for_now(self, backlog: Backlog, stored: Stored) -> bool:
        """A message that may not wait at all goes to a consumer who is ready when it becomes readable."""
        return stored.expires_ms == stored.content.published_ms and stored.offset >= backlog.seen_end

    def _remembered(self, backlog: Backlog, stored: Stored, now_ms: int) -> Delivery:
        """With how often it was out before."""
        tries = backlog.remembered_tries(stored.offset)
        header = stored.content.header
        if tries.taken and self.settings.kind == QUORUM:
            header = with_counts(stored.content, tries)
        return Delivery(self, backlog, stored, None, header, tries if tries.taken else _first_try(stored), now_ms)

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
            if consumer.allowance is not None:
                consumer.allowance.in_flight += len(deliveries)

    def get(self, no_ack: bool) -> Delivery | None:
        """The next message, for one who asks; read from the disk now, if need be."""
        self.touch()
        now_ms = self._around.now_ms()
        taken = self._take(now_ms, True, _Turn(_NO_LIMIT, _NO_LIMIT))
        if taken is None:
            return None
        delivery = self._remembered(*taken, now_ms)
        self._grant([delivery], None, no_ack)
        return delivery

    def cold_head(self) -> ColdRead | None:
        return next((cold for backlog in self._backlogs if (cold := backlog.cold_head()) is not None), None)

    # -- coming back

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        settled = self.deliveries.settle_all(deliveries)
        for (consumer, backlog), own in groupby(settled, _place_of):
            offsets = [delivery.stored.offset for delivery in own]
            if consumer is not None:
                self._took(consumer, len(offsets))
            if backlog is not None and not self.is_deleted:
                backlog.settle(offsets)

    def requeue(self, delivery: Delivery, counts: bool) -> None:
        """To where it was. `counts`: it failed, and may do so only so often."""
        if not self._settle(delivery) or delivery.backlog is None:
            return
        tries = Tries(delivery.tries.taken + 1, delivery.tries.failed + counts)
        limit = self.settings.delivery_limit
        if limit is not None and counts:
            if tries.failed > limit:
                self._leaving.give_up(delivery.backlog, delivery.whole(), Reason.DELIVERY_LIMIT, tries)
                return
            delivery.backlog.log.note_attempts(delivery.offset, tries.failed)
        wait_ms = delay_ms(self.settings, tries, counts)
        stored = delivery.whole() if delivery.backlog.counts_bytes else delivery.stored
        if wait_ms:
            self._retries.wait(wait_ms, delivery.backlog, stored, tries)
        else:
            self._give_back(delivery.backlog, stored, tries)

    def retry(self) -> None:
        self._retries.go_on()

    def reject(self, delivery: Delivery) -> None:
        if self._settle(delivery) and delivery.backlog is not None:
            tries = delivery.tries
            self._leaving.give_up(
                delivery.backlog, delivery.whole(), Reason.REJECTED, tries, Tries(tries.taken + 1, tries.failed)
            )

    def _settle(self, delivery: Delivery) -> bool:
        if not self.deliveries.settle(delivery):
            return False
        if delivery.consumer is not None:
            self._took(delivery.consumer)
        return not self.is_deleted

    # -- going

    def _drop_excess(self, may_wait: bool) -> None:
        """In one turn more than came since the last, so that it ends, but not many more: others have their turn too."""
        came = sum(backlog.log.readable_end - backlog.seen_end for backlog in self._backlogs)
        left = came + _MESSAGES_PER_TURN
        while left > 0:
            if not self._is_too_long() or self._leaving.is_patient:
                return
            for backlog in self._in_order():
                if dropped := self._drop_from(backlog, min(left, _MESSAGES_PER_TURN), may_wait):
                    left -= dropped
                    break
            else:
                return
        self._around.pump.due(self)

    def _drop_from(self, backlog: Backlog, most: int, may_wait: bool) -> int:
        """How many of those that are too much went from the head of this backlog; as few as possible."""
        settings = self.settings
        excess = 0 if settings.max_length is None else self.ready_count - settings.max_length
        excess_bytes = 0 if settings.max_bytes is None else self.ready_bytes - settings.max_bytes
        if self._waiting_ids is None:
            limits = (min(excess, most), _BYTES_PER_TURN) if excess > 0 else (most, min(excess_bytes, _BYTES_PER_TURN))
            run = backlog.take_run(*limits, _BEFORE_ALL)
            if run:
                self._leaving.give_up_run(backlog, run, Reason.OVERFLOW)
                return len(run)
        stored = self._take_from(backlog, may_wait)
        if stored is None:
            return 0
        self._leaving.give_up(backlog, stored, Reason.OVERFLOW, backlog.tries(stored.offset))
        return 1

    def _expire_heads(self, may_wait: bool) -> None:
        now_ms = self._around.now_ms()
        due_ms: int | None = None
        for backlog in self._backlogs:
            left = _MESSAGES_PER_TURN
            while True:
                expires_ms = backlog.head_expiry_ms(may_wait)
                if not 0 <= expires_ms <= now_ms or self._leaving.is_patient or left <= 0:
                    break
                left -= self._expire_from(backlog, left, now_ms, may_wait)
            if expires_ms >= 0:
                due_ms = expires_ms if due_ms is None else min(due_ms, expires_ms)
        if due_ms is not None:
            due_ms = max(due_ms, self._leaving.patient_until_ms)
        self._around.alarms.set(self.id, HEAD_EXPIRY, due_ms)

    def _expire_from(self, backlog: Backlog, most: int, now_ms: int, may_wait: bool) -> int:
        """The head of this backlog has expired: how many went."""
        if self._waiting_ids is None and (run := backlog.take_expired(most, _BYTES_PER_TURN, now_ms)):
            self._leaving.give_up_run(backlog, run, Reason.EXPIRED)
            return len(run)
        stored = self._take_from(backlog, may_wait)
        if stored is not None:
            self._leaving.give_up(backlog, stored, Reason.EXPIRED, backlog.tries(stored.offset))
        return 1

    def purge(self) -> int:
        """Everything that is ready and readable goes, and is nobody's dead letter."""
        purged = 0
        for backlog in self._backlogs:
            purged += backlog.purge(self._out_of(backlog))
            if backlog.counts_bytes:
                backlog.count_bytes(self._out_bytes(backlog))
        if self._waiting_ids is not None:
            self._waiting_ids.keep(lambda place: place.offset >= place.backlog.log.readable_end)
        return purged

    def time_out(self) -> None:
        overdue: dict[Consumer, list[Delivery]] = {}
        for delivery in self.deliveries.overdue(self._around.now_ms()):
            consumer = delivery.consumer
            self.requeue(delivery, counts=True)
            if consumer is not None:
                overdue.setdefault(consumer, []).append(delivery)
        for consumer, deliveries in overdue.items():
            self.unsubscribe(consumer)
            consumer.receiver.timed_out(consumer, deliveries)

    def end(self) -> None:
        super().end()
        self._leaving.end()
        for delivery in self.deliveries:  # nobody can settle them any more, and they must not count for ever
            self._settle(delivery)
