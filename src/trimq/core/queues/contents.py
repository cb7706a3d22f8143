"""Messages of one work queue: a backlog for each priority, counts and limits, publishing, deduplication, purge.
Knows no consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from trimq.core.queues.arguments import CLASSIC, DROP_HEAD, QUORUM, QueueSettings, level_of_priority, priority_of_level
from trimq.core.queues.at_least_once import AtLeastOnceDeadLetters
from trimq.core.queues.backlog import Backlog, DeliveryCounts, requeued_first
from trimq.core.queues.deduplication import QueuedMessageIds
from trimq.core.queues.queue import Publication
from trimq.core.queues.unacked import UnackedDeliveries
from trimq.errors import ColdRead
from trimq.formats.amqp_content.content import NEVER, TRANSIENT, Content, StoredContent
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.queue_log.log import QueueLog


class QueueContents:
    """`make_log(level)` creates the log of another priority. `unacked` and `dead_letters` hold messages that are in
    flight. `on_ready` is called when messages become readable or are requeued."""

    def __init__(
        self,
        settings: QueueSettings,
        logs: dict[int, QueueLog],
        make_log: Callable[[int], QueueLog],
        unacked: UnackedDeliveries,
        dead_letters: AtLeastOnceDeadLetters,
        on_ready: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._make_log = make_log
        self._unacked = unacked
        self._dead_letters = dead_letters
        self._on_ready = on_ready
        self.backlogs: list[Backlog] = []
        """The highest priority first."""
        self.batch_backlog: Backlog | None = None
        """The only backlog, if its messages may be delivered in batches: nothing but their order matters."""
        self.may_expire = settings.ttl_ms is not None
        self.queued_ids: QueuedMessageIds | None = None
        self._no_priority: Backlog  # of messages without a priority
        self._requeue_numbers = count()
        for level, log in logs.items():
            self._add_level(level, log)
            self.may_expire = self.may_expire or any(segment.earliest_expiry_ms >= 0 for segment in log.segments)
        for backlog in self.backlogs:
            dead_letters.recover(backlog)
        self._track_message_ids(settings.is_deduplicating)

    def _add_level(self, level: int, log: QueueLog) -> Backlog:
        is_quorum = self._settings.kind == QUORUM
        backlog = Backlog(log, level, self._requeue_numbers if is_quorum else None, counts_properties=is_quorum)
        if self._settings.max_bytes is not None:
            backlog.count_bytes(0)
        log.on_readable = self._on_ready
        log.undone = lambda: self._undone(backlog)
        self.backlogs.append(backlog)
        self.backlogs.sort(key=lambda backlog: -priority_of_level(backlog.level, self._settings))
        if not level:
            self._no_priority = backlog
        self._choose_batch_backlog()
        return backlog

    def _choose_batch_backlog(self) -> None:
        is_plain = len(self.backlogs) == 1 and self.queued_ids is None
        self.batch_backlog = self.backlogs[0] if is_plain else None

    def _undone(self, backlog: Backlog) -> None:
        """Recounts after a pass failed: the messages that it appended are not stored."""
        backlog.recount(self._in_flight_bytes(backlog))
        if self.queued_ids is not None:
            self.queued_ids.retain(lambda place: place.backlog is not backlog or place.offset < backlog.log.end)

    def _track_message_ids(self, is_wanted: bool) -> None:
        if is_wanted and self.queued_ids is None:
            self.queued_ids = QueuedMessageIds()
            for backlog in self.backlogs:
                self.queued_ids.add_backlog(backlog, self._unready_offsets(backlog))
        elif not is_wanted:
            self.queued_ids = None
        self._choose_batch_backlog()

    def change_settings(self, settings: QueueSettings) -> None:
        self._settings = settings
        self.may_expire = self.may_expire or settings.ttl_ms is not None
        for backlog in self.backlogs:
            if settings.max_bytes is not None and not backlog.counts_bytes:
                backlog.count_bytes(self._in_flight_bytes(backlog))
        self._track_message_ids(settings.is_deduplicating)

    # -- counts

    @property
    def ready_count(self) -> int:
        if len(self.backlogs) == 1:
            return self.backlogs[0].ready
        return sum(backlog.ready for backlog in self.backlogs)

    @property
    def ready_bytes(self) -> int:
        return sum(backlog.ready_bytes for backlog in self.backlogs)

    @property
    def readable(self) -> int:
        """The most messages that can be taken now."""
        if len(self.backlogs) == 1:
            return self.backlogs[0].readable
        return sum(backlog.readable for backlog in self.backlogs)

    def _unready_offsets(self, backlog: Backlog) -> set[int]:
        """Offsets of messages that are in flight, being dead-lettered, or waiting for a delayed requeue."""
        return self._unacked.offsets_in(backlog) | backlog.withheld

    def _in_flight_bytes(self, backlog: Backlog) -> int:
        return self._unacked.bytes_in(backlog) + self._dead_letters.bytes_in(backlog)

    @property
    def is_full(self) -> bool:
        return self._settings.overflow != DROP_HEAD and self.is_over_limit(1)

    def is_over_limit(self, with_more: int = 0) -> bool:
        """True if `max-length` or `max-length-bytes` is exceeded, or would be with so many more messages or bytes.
        Dead letters that wait in this queue count too."""
        settings = self._settings
        if (
            settings.max_length is not None
            and self.ready_count + len(self._dead_letters) + with_more > settings.max_length
        ):
            return True
        return (
            settings.max_bytes is not None
            and self.ready_bytes + self._dead_letters.counted_bytes + with_more > settings.max_bytes
        )

    # -- publishing

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        """Appends a message. Returns the ticket, and whether its pass must be synced."""
        encoded, is_transient, expiration_ms, priority, flags = publication
        content = encoded.content
        backlog, expires_ms, own = self._place_message(is_transient, expiration_ms, priority, content.published_ms)
        flags |= own
        if self.queued_ids is not None:
            known = self.queued_ids.find(content)
            if known is not None:  # a duplicate: stored already, or with the pass of the first message
                return known.backlog.log.latest_ticket(), not known.backlog.log.is_volatile
        ticket = backlog.append(encoded, expires_ms, flags)
        if self.queued_ids is not None:
            self.queued_ids.add(content, backlog, backlog.log.end - 1)
        return ticket, not (flags & TRANSIENT or backlog.log.is_volatile)

    @property
    def accepts_batches(self) -> bool:
        """False if some messages of a batch may be rejected or dropped as duplicates."""
        has_limit = self._settings.max_length is not None or self._settings.max_bytes is not None
        return self.queued_ids is None and (self._settings.overflow == DROP_HEAD or not has_limit)

    def publish_all(
        self,
        contents: Sequence[Content],
        is_transient: bool,
        expiration_ms: int | None,
        priority: int,
        flags: int = 0,
    ) -> tuple[Ticket, bool]:
        """Fast path of `publish` for messages with equal properties; only if `accepts_batches`."""
        published_ms = contents[0].published_ms
        backlog, expires_ms, own = self._place_message(is_transient, expiration_ms, priority, published_ms)
        return backlog.append_all(contents, expires_ms, flags | own), not (own or backlog.log.is_volatile)

    def _place_message(
        self, is_transient: bool, expiration_ms: int | None, priority: int, published_ms: int
    ) -> tuple[Backlog, int, int]:
        """Returns the backlog, the time of expiry and the flags of a message."""
        settings = self._settings
        ttl_ms = settings.ttl_ms
        if expiration_ms is not None and (ttl_ms is None or expiration_ms < ttl_ms):
            ttl_ms = expiration_ms
        backlog = self._level(priority) if priority >= 0 and settings.max_priority else self._no_priority
        flags = TRANSIENT if is_transient and settings.kind == CLASSIC else 0
        if ttl_ms is None:
            return backlog, NEVER, flags
        self.may_expire = True
        return backlog, published_ms + ttl_ms, flags

    def _level(self, priority: int) -> Backlog:
        wanted = level_of_priority(priority, self._settings)
        for backlog in self.backlogs:
            if backlog.level == wanted:
                return backlog
        return self._add_level(wanted, self._make_log(wanted))

    # -- taking and requeueing

    def in_order(self) -> list[Backlog]:
        """Backlogs in the order of delivery: the head of the queue is in the first that is not empty."""
        if len(self.backlogs) > 1 and self._settings.kind == QUORUM:
            return requeued_first(self.backlogs)
        return self.backlogs

    def take(self, backlog: Backlog, may_wait: bool) -> StoredContent | None:
        """Takes the head of a backlog and puts it in flight. ColdRead: see `Backlog.take`."""
        stored = backlog.take(may_wait)
        if stored is not None and self.queued_ids is not None:
            self.queued_ids.forget(stored.content, stored.offset)
        return stored

    def requeue(self, backlog: Backlog, stored: StoredContent, delivery_counts: DeliveryCounts) -> None:
        """Makes a message in flight ready again, as `Backlog.requeue` does."""
        backlog.requeue(stored, delivery_counts)
        if self.queued_ids is not None:
            self.queued_ids.add(stored.content, backlog, stored.offset)
        self._on_ready()

    def cold_head(self) -> ColdRead | None:
        return next((cold for backlog in self.backlogs if (cold := backlog.cold_head()) is not None), None)

    def purge(self) -> int:
        """Deletes all messages that are ready and readable, without dead letters. Returns their number."""
        purged = 0
        for backlog in self.backlogs:
            purged += backlog.purge(self._unready_offsets(backlog))
            if backlog.counts_bytes:
                backlog.count_bytes(self._in_flight_bytes(backlog))
        if self.queued_ids is not None:
            self.queued_ids.retain(lambda place: place.offset >= place.backlog.log.readable_end)
        return purged
