"""Base class of work queues and streams: definition, exclusive owner, consumers, policies, expiry and deletion of one
queue. Holds no messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

import msgspec

from trimq.core.cold_reads import ColdReadRetry, warm_with
from trimq.core.failures.ledger import Reason
from trimq.core.queues.arguments import (
    CLASSIC,
    MAX_MILLISECONDS,
    QUORUM,
    QueueSettings,
    check_consumer_arguments,
)
from trimq.core.queues.at_least_once import DeadLetterSendResult
from trimq.core.queues.backlog import DeliveryCounts
from trimq.core.queues.consumers import Consumer, Consumers, Subscription
from trimq.core.queues.dispatcher import Dispatcher
from trimq.core.queues.queue_timers import QUEUE_EXPIRY, QueueTimers
from trimq.core.scheduling.waiters import Waiters, Watch
from trimq.errors import ColdRead, DamagedSegment
from trimq.errors.queues import ExclusiveUse
from trimq.formats.amqp_content.content import Content, EncodedContent, StoredContent
from trimq.formats.amqp_content.field_tables import FieldTable, read_table
from trimq.offload import Offload
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.queue_log.log import QueueLog

if TYPE_CHECKING:
    from trimq.core.queues.unacked import Delivery

Owner = Hashable


class QueueDefinition(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    is_durable: bool
    is_auto_delete: bool
    arguments: bytes
    created_ms: int


NO_PRIORITY = -1


class Publication(NamedTuple):
    """An encoded content with the properties that queues evaluate. `priority` NO_PRIORITY: the message has none."""

    sealed: EncodedContent
    is_transient: bool
    expiration_ms: int | None
    priority: int
    flags: int = 0


class PendingPass(NamedTuple):
    """A pass that must be durable, or only written if `needs_sync` is False."""

    number: int
    needs_sync: bool


class DeadLetterDestination(Protocol):
    """Records failed messages in the ledger and publishes their dead letters."""

    def give_up(
        self, queue: Queue, batch: Sequence[StoredContent], reason: Reason, delivery_counts: DeliveryCounts
    ) -> Ticket | None:
        """Dead-letters messages of `queue`, which all have these delivery counts. They may be acknowledged once the
        ticket's pass is durable; None: at once."""

    def send_dead_letters(
        self,
        queue: Queue,
        batch: Sequence[StoredContent],
        reason: Reason,
        delivery_counts: DeliveryCounts,
        died_ms: int,
        confirmed: Collection[str],
    ) -> DeadLetterSendResult | None:
        """Dead-letters messages that are equal except for their bodies to the target queues that have room and are not
        in `confirmed`. None: the caller must send them one by one."""


class QueueServices(NamedTuple):
    """Services of the broker that all queues share."""

    passes: Passes
    dispatch: Dispatcher
    queue_timers: QueueTimers
    now_ms: Callable[[], int]
    dead_letters: DeadLetterDestination
    make_log: Callable[[UUID, int, bool], QueueLog]
    delete_unused: Callable[[Queue], object]
    """Deletes an auto-delete queue without consumers, or a queue that was unused for `x-expires`."""
    consumer_timeout_ms: int
    offload: Offload


class Queue(ABC):
    is_topic = False
    """True for a topic of another layout, which may refuse a message."""

    publish: Callable[[Publication], tuple[Ticket, bool]]
    """Appends a message. Returns the ticket, and whether its pass must be synced. An attribute, so that a work queue
    can bind the method of its contents: one call less for every message."""

    def __init__(
        self,
        id: UUID,
        definition: QueueDefinition,
        settings: QueueSettings,
        owner: Owner | None,
        services: QueueServices,
    ) -> None:
        self.id = id
        self.definition = definition
        self.name = definition.name
        self.namespace = definition.namespace
        self.arguments: FieldTable = read_table(definition.arguments, 0, len(definition.arguments))[0]
        self.settings = settings
        self.kind = settings.kind  # never changes: no policy sets it
        self.owner = owner
        self.is_deleted = False
        self.has_had_consumers = False
        self.consumers = Consumers(settings.is_single_active, takes_over=settings.kind == QUORUM)
        self._services = services
        self._observers: Waiters | None = None
        self._cold_reads = ColdReadRetry(warm_with(services.offload))

    @property
    def is_volatile(self) -> bool:
        """True if a restart deletes the queue and its messages."""
        return not self.definition.is_durable or self.owner is not None

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    # -- consumers

    def subscribe(self, subscription: Subscription) -> Consumer:
        check_consumer_arguments(self.name, self.namespace, self.kind, subscription.arguments)
        self._check_subscription(subscription)
        consumer = Consumer(self, subscription)
        timeout_ms = subscription.arguments.get("x-consumer-timeout")
        consumer.timeout_ms = min(timeout_ms, MAX_MILLISECONDS) if isinstance(timeout_ms, int) else None
        self.consumers.add(consumer)
        self.has_had_consumers = True
        self.touch()
        self._services.dispatch.due(self)
        return consumer

    def _check_subscription(self, subscription: Subscription) -> None:
        """Raises ExclusiveUse. A quorum queue ignores `exclusive`, as in RabbitMQ: see single active consumers."""
        if self.kind == QUORUM:
            return
        is_shared = len(self.consumers) > 0 or self.settings.is_single_active
        if self.consumers.has_exclusive or (subscription.is_exclusive and is_shared):
            raise ExclusiveUse(self.name, self.namespace)

    def unsubscribe(self, consumer: Consumer) -> None:
        if not self.consumers.remove(consumer):
            return
        if len(self.consumers):
            self._services.dispatch.due(self)  # another single active consumer may have been chosen
        elif self.definition.is_auto_delete:
            self._services.delete_unused(self)
        else:
            self.touch()

    def wake(self, consumer: Consumer) -> None:
        """Serves a consumer of this queue again, which may have room in its prefetch."""
        self.consumers.resume(consumer)
        self._services.dispatch.due(self)

    def _release_prefetch(self, consumer: Consumer, count: int = 1) -> None:
        """Frees prefetch of the consumer, and of those that share its limit, for `count` settled messages."""
        consumer.in_flight -= count
        self.wake(consumer)
        if consumer.shared_prefetch is not None:
            for other in consumer.shared_prefetch.settle(count):
                other.queue.wake(other)

    @property
    def consumer_timeout_ms(self) -> int:
        """Delivery timeout of consumers without `x-consumer-timeout`; 0: none."""
        return self.settings.consumer_timeout_ms or self._services.consumer_timeout_ms

    # -- expiry and deletion

    def touch(self) -> None:
        """Restarts the timer of `x-expires`: the queue was used."""
        limit_ms = self.settings.expires_ms
        if limit_ms is not None:
            due_ms = None if len(self.consumers) else self._services.now_ms() + limit_ms
            self._services.queue_timers.set(self.id, QUEUE_EXPIRY, due_ms)

    def on_timer(self, kind: int) -> None:
        """Called when a timer of this queue fires; `kind` as in `queue_timers`."""
        if kind != QUEUE_EXPIRY:
            self._services.dispatch.due(self)
        elif not len(self.consumers) and not self.is_deleted:
            self._services.delete_unused(self)

    def end(self) -> None:
        """Cancels all timers: the queue is deleted."""
        self.is_deleted = True
        self._services.queue_timers.forget(self.id)
        if self._observers is not None:
            self._observers.wake()

    def change_settings(self, settings: QueueSettings) -> None:
        """Applies settings after a change of policies, which cannot change the kind of the queue."""
        self.settings = settings
        self.touch()
        self._services.dispatch.due(self)

    # -- messages

    @property
    @abstractmethod
    def logs(self) -> list[QueueLog]: ...

    def numbered_logs(self) -> dict[int, QueueLog]:
        """Logs by level, where the queue has one for each priority."""
        return dict(enumerate(self.logs))

    @property
    @abstractmethod
    def ready_count(self) -> int:
        """Messages that are ready, including those that were published and are not readable yet."""

    @property
    def is_full(self) -> bool:
        """True if the queue rejects messages. A queue that drops its head is never full."""
        return False

    def will_persist(self, is_transient: bool) -> bool:
        """True if a message survives a restart."""
        return not self.is_volatile and not (is_transient and self.kind == CLASSIC)

    @property
    def accepts_batches(self) -> bool:
        """True if `publish_all` has the same result as `publish` of each message."""
        return False

    def publish_all(
        self,
        contents: Sequence[Content],
        is_transient: bool,
        expiration_ms: int | None,
        priority: int,
        flags: int = 0,
    ) -> tuple[Ticket, bool]:
        """Fast path of `publish` for messages with equal properties; only if `accepts_batches`."""
        raise NotImplementedError

    @abstractmethod
    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledges deliveries of this queue. Ignores those that are not in flight any more."""

    @abstractmethod
    def requeue(self, delivery: Delivery, counts: bool) -> None:
        """Returns a delivery to its place. `counts`: as a failed attempt, for the delivery limit."""

    @abstractmethod
    def reject(self, delivery: Delivery, counts: bool) -> None:
        """Dead-letters a delivery. `counts`: as a failed attempt, which the dead letter carries on."""

    def cold_head(self) -> ColdRead | None:
        """Returns the cold read that taking the next message would need; None if it is in memory or the queue is
        empty."""
        return None

    def pending_pass(self) -> PendingPass | None:
        """Returns the pass of messages that were published and are not readable yet; None if there are none."""
        logs = [log for log in self.logs if log.readable_end < log.end]
        if not logs:
            return None
        return PendingPass(max(log.latest_ticket().number for log in logs), not self.is_volatile)

    def pending_turn(self) -> PendingPass | None:
        """Returns the pass of `pending_pass` if the turn that follows it may change the counts of the queue: it expires
        or drops messages, or delivers them to consumers."""
        return None

    # -- observers, which take no messages

    def watch(self, callback: Callable[[], None]) -> Watch:
        """Calls back once, when more messages are readable or the queue was deleted."""
        if self._observers is None:
            self._observers = Waiters()
        for log in self.logs:
            log.on_grown = self._observers.wake
        return self._observers.watch(callback)

    # -- dispatch

    def take_turn(self) -> None:
        """Dispatches the queue now if it is due: called before its messages are counted or taken by a client."""
        self._services.dispatch.run_now(self)

    def dispatch(self) -> None:
        """Serves consumers. Cold data is read into memory off the event loop first."""
        if self.is_deleted or self._cold_reads.is_loading:
            return
        try:
            self._dispatch(self._cold_reads.may_wait)
        except ColdRead as cold:
            self._cold_reads.load(cold, self._loaded)
        else:
            self._cold_reads.reset()

    def _loaded(self, damage: DamagedSegment | None) -> None:
        """Dispatches again. After a disk error, the read itself raises it."""
        self._services.dispatch.due(self)

    @abstractmethod
    def _dispatch(self, may_wait: bool) -> None:
        """Serves consumers. ColdRead: the rest needs cold data and `may_wait` is False."""
