"""What is in one queue: its messages, in a backlog for each priority, and what is published to it. Knows how much there
is and what is out; who is given it, and what becomes of what comes back, is decided above."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from uuid import UUID

from trimq.core.queues.arguments import CLASSIC, DROP_HEAD, QUORUM, QueueSettings, level_of_priority, priority_of_level
from trimq.core.queues.backlog import Backlog
from trimq.core.queues.deduplication import QueuedMessageIds
from trimq.core.queues.queue import Owner, Publication, Queue, QueueDefinition, QueueServices
from trimq.core.queues.queue_timers import DELIVERY_TIMEOUT
from trimq.core.queues.unacked import UnackedDeliveries
from trimq.formats.amqp_content.content import NEVER, TRANSIENT, Content
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog


class QueueContents(Queue):
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
        self._backlogs: list[Backlog] = []  # the highest priority first
        self._lowest: Backlog
        self._plain: Backlog  # for messages without a priority
        self._may_expire = settings.ttl_ms is not None
        self.deliveries = UnackedDeliveries(
            self.consumer_timeout_ms,
            lambda due_ms: services.queue_timers.set(id, DELIVERY_TIMEOUT, due_ms),
        )
        self._queued_ids: QueuedMessageIds | None = None
        self._requeue_numbers = count()
        for level, log in logs.items():
            self._add_level(level, log)
            self._may_expire = self._may_expire or any(part.earliest_expiry_ms >= 0 for part in log.segments)
        self._track_message_ids(settings.is_deduplicating)

    def _add_level(self, level: int, log: QueueLog) -> Backlog:
        backlog = Backlog(log, level, self._requeue_numbers if self.settings.kind == QUORUM else None)
        if self.settings.max_bytes is not None:
            backlog.count_bytes(0)
        log.on_readable = lambda: self._services.dispatch.due(self)
        log.undone = lambda: self._undone(backlog)
        self._backlogs.append(backlog)
        self._backlogs.sort(key=lambda backlog: -priority_of_level(backlog.level, self.settings))
        self._lowest = self._backlogs[-1]
        if not level:
            self._plain = backlog
        return backlog

    def _undone(self, backlog: Backlog) -> None:
        """What a pass has appended is not there after all."""
        backlog.recount(self._in_flight_bytes(backlog))
        if self._queued_ids is not None:
            self._queued_ids.retain(lambda place: place.backlog is not backlog or place.offset < backlog.log.end)

    def _track_message_ids(self, is_wanted: bool) -> None:
        if is_wanted and self._queued_ids is None:
            self._queued_ids = QueuedMessageIds()
            for backlog in self._backlogs:
                self._queued_ids.add_backlog(backlog, self._unready_offsets(backlog))
        elif not is_wanted:
            self._queued_ids = None

    def _unready_offsets(self, backlog: Backlog) -> set[int]:
        """What is not ready: out for delivery, or on its way to where dead letters go."""
        return {delivery.offset for delivery in self.deliveries if delivery.backlog is backlog} | backlog.withheld

    def change_settings(self, settings: QueueSettings) -> None:
        self._may_expire = self._may_expire or settings.ttl_ms is not None
        for backlog in self._backlogs:
            if settings.max_bytes is not None and not backlog.counts_bytes:
                backlog.count_bytes(self._in_flight_bytes(backlog))
        self._track_message_ids(settings.is_deduplicating)
        super().change_settings(settings)
        self.deliveries.timeout_ms = self.consumer_timeout_ms

    def _in_flight_bytes(self, backlog: Backlog) -> int:
        out = sum(delivery.body_bytes for delivery in self.deliveries if delivery.backlog is backlog)
        return out + self.pending_dead_letter_bytes_in(backlog)

    @property
    def logs(self) -> list[QueueLog]:
        return [backlog.log for backlog in self._backlogs]

    def numbered_logs(self) -> dict[int, QueueLog]:
        return {backlog.level: backlog.log for backlog in self._backlogs}

    @property
    def ready_count(self) -> int:
        if len(self._backlogs) == 1:
            return self._lowest.ready
        return sum(backlog.ready for backlog in self._backlogs)

    @property
    def ready_bytes(self) -> int:
        return sum(backlog.ready_bytes for backlog in self._backlogs)

    @property
    def pending_dead_letter_count(self) -> int:
        """Dead letters that are here until they are taken elsewhere."""
        return 0

    @property
    def pending_dead_letter_bytes(self) -> int:
        """Of their bodies."""
        return 0

    def pending_dead_letter_bytes_in(self, backlog: Backlog) -> int:
        return 0

    # -- publishing

    @property
    def is_full(self) -> bool:
        return self.settings.overflow != DROP_HEAD and self._is_over_limit(1)

    def _is_over_limit(self, with_more: int = 0) -> bool:
        """Whether it is, or would be with so many more messages or bytes. Dead letters that wait here count too."""
        settings = self.settings
        if (
            settings.max_length is not None
            and self.ready_count + self.pending_dead_letter_count + with_more > settings.max_length
        ):
            return True
        return (
            settings.max_bytes is not None
            and self.ready_bytes + self.pending_dead_letter_bytes + with_more > settings.max_bytes
        )

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        sealed, is_transient, expiration_ms, priority, flags = publication
        backlog, expires_ms, own = self._place_message(
            is_transient, expiration_ms, priority, sealed.content.published_ms
        )
        flags |= own
        if self._queued_ids is not None:
            known = self._queued_ids.find(sealed.content)
            if known is not None:  # stored already, or as soon as that one is
                return known.backlog.log.latest_ticket(), not self.is_volatile
        ticket = backlog.append(sealed, expires_ms, flags)
        if self._queued_ids is not None:
            self._queued_ids.add(sealed.content, backlog, backlog.log.end - 1)
        return ticket, not (flags & TRANSIENT or backlog.log.is_volatile)

    @property
    def accepts_batches(self) -> bool:
        """One that may have to refuse some of them does not."""
        has_limit = self.settings.max_length is not None or self.settings.max_bytes is not None
        return self._queued_ids is None and (self.settings.overflow == DROP_HEAD or not has_limit)

    def publish_all(
        self, contents: Sequence[Content], is_transient: bool, expiration_ms: int | None, priority: int
    ) -> tuple[Ticket, bool]:
        published_ms = contents[0].published_ms
        backlog, expires_ms, flags = self._place_message(is_transient, expiration_ms, priority, published_ms)
        return backlog.append_all(contents, expires_ms, flags), not (flags or backlog.log.is_volatile)

    def _place_message(
        self, is_transient: bool, expiration_ms: int | None, priority: int, published_ms: int
    ) -> tuple[Backlog, int, int]:
        """Where a message goes, when it expires, and its flags."""
        settings = self.settings
        ttl_ms = settings.ttl_ms
        if expiration_ms is not None and (ttl_ms is None or expiration_ms < ttl_ms):
            ttl_ms = expiration_ms
        self._may_expire = self._may_expire or ttl_ms is not None
        backlog = self._level(priority) if priority >= 0 and settings.max_priority else self._plain
        flags = TRANSIENT if is_transient and settings.kind == CLASSIC else 0
        return backlog, NEVER if ttl_ms is None else published_ms + ttl_ms, flags

    def _level(self, priority: int) -> Backlog:
        wanted = level_of_priority(priority, self.settings)
        for backlog in self._backlogs:
            if backlog.level == wanted:
                return backlog
        return self._add_level(wanted, self._services.make_log(self.id, wanted, self.is_volatile))
