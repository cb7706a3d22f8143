"""What is in one queue: its messages, in a backlog for each priority, and what is published to it. Knows how much there
is and what is out; who is given it, and what becomes of what comes back, is decided above."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from uuid import UUID

from trimq.core.queues.arguments import CLASSIC, DROP_HEAD, QUORUM, QueueSettings, level_of, rank_of
from trimq.core.queues.backlog import Backlog
from trimq.core.queues.deduplication import WaitingIds
from trimq.core.queues.queue import AnyQueue, Around, Owner, Publication, QueueDefinition
from trimq.core.queues.queue_timers import DELIVERY_TIMEOUT
from trimq.core.queues.unacked import Deliveries
from trimq.formats.amqp_content.content import NEVER, TRANSIENT, Content
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog


class FilledQueue(AnyQueue):
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
        self._plain: Backlog  # for messages without a priority
        self._may_expire = settings.ttl_ms is not None
        self.deliveries = Deliveries(
            self.consumer_timeout_ms,
            lambda due_ms: around.alarms.set(id, DELIVERY_TIMEOUT, due_ms),
        )
        self._waiting_ids: WaitingIds | None = None
        self._returns = count()
        for level, log in logs.items():
            self._add_level(level, log)
            self._may_expire = self._may_expire or any(part.earliest_expiry_ms >= 0 for part in log.segments)
        self._know_ids(settings.takes_ids_once)

    def _add_level(self, level: int, log: QueueLog) -> Backlog:
        backlog = Backlog(log, level, self._returns if self.settings.kind == QUORUM else None)
        if self.settings.max_bytes is not None:
            backlog.count_bytes(0)
        log.grown = lambda: self._around.pump.due(self)
        log.undone = lambda: self._undone(backlog)
        self._backlogs.append(backlog)
        self._backlogs.sort(key=lambda backlog: -rank_of(backlog.level, self.settings))
        self._lowest = self._backlogs[-1]
        if not level:
            self._plain = backlog
        return backlog

    def _undone(self, backlog: Backlog) -> None:
        """What a pass has appended is not there after all."""
        backlog.recount(self._out_bytes(backlog))
        if self._waiting_ids is not None:
            self._waiting_ids.keep(lambda place: place.backlog is not backlog or place.offset < backlog.log.end)

    def _know_ids(self, is_wanted: bool) -> None:
        if is_wanted and self._waiting_ids is None:
            self._waiting_ids = WaitingIds()
            for backlog in self._backlogs:
                self._waiting_ids.learn(backlog, self._out_of(backlog))
        elif not is_wanted:
            self._waiting_ids = None

    def _out_of(self, backlog: Backlog) -> set[int]:
        """What is not ready: out for delivery, or on its way to where dead letters go."""
        return {delivery.offset for delivery in self.deliveries if delivery.backlog is backlog} | backlog.leaving

    def change_settings(self, settings: QueueSettings) -> None:
        self._may_expire = self._may_expire or settings.ttl_ms is not None
        for backlog in self._backlogs:
            if settings.max_bytes is not None and not backlog.counts_bytes:
                backlog.count_bytes(self._out_bytes(backlog))
        self._know_ids(settings.takes_ids_once)
        super().change_settings(settings)
        self.deliveries.timeout_ms = self.consumer_timeout_ms

    def _out_bytes(self, backlog: Backlog) -> int:
        out = sum(delivery.body_bytes for delivery in self.deliveries if delivery.backlog is backlog)
        return out + self.kept_bytes_in(backlog)

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
    def kept_count(self) -> int:
        """Dead letters that are here until they are taken elsewhere."""
        return 0

    @property
    def kept_bytes(self) -> int:
        """Of their bodies."""
        return 0

    def kept_bytes_in(self, backlog: Backlog) -> int:
        return 0

    # -- publishing

    @property
    def is_full(self) -> bool:
        return self.settings.overflow != DROP_HEAD and self._is_too_long(1)

    def _is_too_long(self, with_more: int = 0) -> bool:
        """Whether it is, or would be with so many more messages or bytes. Dead letters that wait here count too."""
        settings = self.settings
        if settings.max_length is not None and self.ready_count + self.kept_count + with_more > settings.max_length:
            return True
        return settings.max_bytes is not None and self.ready_bytes + self.kept_bytes + with_more > settings.max_bytes

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        sealed, is_transient, expiration_ms, priority, flags = publication
        backlog, expires_ms, own = self._terms(is_transient, expiration_ms, priority, sealed.content.published_ms)
        flags |= own
        if self._waiting_ids is not None:
            known = self._waiting_ids.find(sealed.content)
            if known is not None:  # stored already, or as soon as that one is
                return known.backlog.log.latest_ticket(), not self.is_volatile
        ticket = backlog.append(sealed, expires_ms, flags)
        if self._waiting_ids is not None:
            self._waiting_ids.add(sealed.content, backlog, backlog.log.end - 1)
        return ticket, not (flags & TRANSIENT or backlog.log.is_volatile)

    @property
    def takes_runs(self) -> bool:
        """One that may have to refuse some of them does not."""
        has_limit = self.settings.max_length is not None or self.settings.max_bytes is not None
        return self._waiting_ids is None and (self.settings.overflow == DROP_HEAD or not has_limit)

    def publish_all(
        self, contents: Sequence[Content], is_transient: bool, expiration_ms: int | None, priority: int
    ) -> tuple[Ticket, bool]:
        published_ms = contents[0].published_ms
        backlog, expires_ms, flags = self._terms(is_transient, expiration_ms, priority, published_ms)
        return backlog.append_all(contents, expires_ms, flags), not (flags or backlog.log.is_volatile)

    def _terms(
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
        wanted = level_of(priority, self.settings)
        for backlog in self._backlogs:
            if backlog.level == wanted:
                return backlog
        return self._add_level(wanted, self._around.make_log(self.id, wanted, self.is_volatile))
