"""What queues that give messages away and streams that keep them have in common: a definition, consumers, an end. Knows
no message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from trimq.core.failures.ledger import Reason
from trimq.core.queues.arguments import CLASSIC, CONSUMER_ARGUMENTS, MAX_MILLISECONDS, QUORUM, QueueSettings
from trimq.core.queues.at_least_once import DeadLetterSendResult
from trimq.core.queues.consumers import Consumer, Consumers, Subscription
from trimq.core.queues.dispatcher import Dispatcher
from trimq.core.queues.queue_timers import QUEUE_EXPIRY, QueueTimers
from trimq.errors import ColdRead
from trimq.errors.queues import ArgumentNotForKind, ExclusiveUse, InvalidArgument
from trimq.formats.amqp_content.content import Content, EncodedContent, StoredContent
from trimq.formats.amqp_content.field_tables import FieldTable, read_table
from trimq.offload import Offload
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.queue_log.log import QueueLog

Owner = Hashable

# Where memory is so short that what was read is gone again before it is used, the loop reads for itself.
_MAX_WARM_ATTEMPTS = 3


class QueueDefinition(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    is_durable: bool
    is_auto_delete: bool
    arguments: bytes
    created_ms: int


NO_PRIORITY = -1


class Publication(NamedTuple):
    """A content, and what queues want to know of it. `priority` NO_PRIORITY: it has none."""

    sealed: EncodedContent
    is_transient: bool
    expiration_ms: int | None
    priority: int
    flags: int = 0


class PendingPass(NamedTuple):
    """A pass that has to be durable, or written only where `needs_sync` is False."""

    number: int
    needs_sync: bool


class GiveUpMessages(Protocol):
    def __call__(self, queue: Queue, batch: Sequence[StoredContent], reason: Reason, attempts: int) -> Ticket | None:
        """The messages are given up. They may be settled when the ticket's pass is durable; None: at once."""


class SendDeadLettersOfQueue(Protocol):
    def __call__(
        self,
        queue: Queue,
        batch: Sequence[StoredContent],
        reason: Reason,
        attempts: int,
        died_ms: int,
        taken: Collection[str],
    ) -> DeadLetterSendResult | None:
        """The messages, which are alike but for their bodies, are given up, and go to those that have not `taken` their
        dead letters yet, as far as they have room. None: it has to be done one by one."""


class QueueServices(NamedTuple):
    """What every queue is given."""

    passes: Passes
    dispatch: Dispatcher
    queue_timers: QueueTimers
    now_ms: Callable[[], int]
    give_up: GiveUpMessages
    send_dead_letters: SendDeadLettersOfQueue
    make_log: Callable[[UUID, int, bool], QueueLog]
    delete_unused: Callable[[Queue], object]
    """It has lost its last consumer, or was unused for too long, and is to go."""
    consumer_timeout_ms: int
    offload: Offload


class Queue:
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
        self.owner = owner
        self.is_deleted = False
        self.has_had_consumers = False
        self.consumers = Consumers(settings.is_single_active, takes_over=settings.kind == QUORUM)
        self._services = services
        self._is_warming = False
        self._warm_attempts = 0

    @property
    def kind(self) -> str:
        return self.settings.kind

    @property
    def is_volatile(self) -> bool:
        """Gone after a restart."""
        return not self.definition.is_durable or self.owner is not None

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    # -- consumers

    def subscribe(self, subscription: Subscription) -> Consumer:
        for argument in subscription.arguments:
            if CONSUMER_ARGUMENTS.get(argument, self.kind) != self.kind:
                raise ArgumentNotForKind(argument, self.name, self.namespace, self.kind)
        if self.consumers.has_exclusive or (subscription.is_exclusive and self._excludes_exclusive()):
            raise ExclusiveUse(self.name, self.namespace)
        consumer = Consumer(self, subscription)
        consumer.timeout_ms = self._timeout_of(subscription)
        self.consumers.add(consumer)
        self.has_had_consumers = True
        self.touch()
        self._services.dispatch.due(self)
        return consumer

    def _timeout_of(self, subscription: Subscription) -> int | None:
        requested = subscription.arguments.get("x-consumer-timeout")
        if requested is None:
            return None
        if isinstance(requested, bool) or not isinstance(requested, int) or not 0 <= requested <= MAX_MILLISECONDS:
            raise InvalidArgument("x-consumer-timeout", "queue", self.name, self.namespace, "no number", requested)
        return int(requested)

    def _excludes_exclusive(self) -> bool:
        return len(self.consumers) > 0 or self.settings.is_single_active

    def unsubscribe(self, consumer: Consumer) -> None:
        if not self.consumers.remove(consumer):
            return
        if len(self.consumers):
            self._services.dispatch.due(self)  # the next may be active now
        elif self.definition.is_auto_delete:
            self._services.delete_unused(self)
        else:
            self.touch()

    def wake(self, consumer: Consumer) -> None:
        """A consumer of this queue may have room again."""
        self.consumers.resume(consumer)
        self._services.dispatch.due(self)

    def _release_prefetch(self, consumer: Consumer, count: int = 1) -> None:
        """It is done with so many messages: it, or others who share its limit, may be given more."""
        consumer.in_flight -= count
        self.wake(consumer)
        if consumer.shared_prefetch is not None:
            for other in consumer.shared_prefetch.settle(count):
                other.queue.wake(other)

    @property
    def consumer_timeout_ms(self) -> int:
        """How long one that has not asked for another time may keep a message; 0: any time."""
        return self.settings.consumer_timeout_ms or self._services.consumer_timeout_ms

    # -- being used

    def touch(self) -> None:
        """It is used: an unused queue may have to go after a while."""
        limit_ms = self.settings.expires_ms
        if limit_ms is not None:
            due_ms = None if len(self.consumers) else self._services.now_ms() + limit_ms
            self._services.queue_timers.set(self.id, QUEUE_EXPIRY, due_ms)

    def expire(self) -> None:
        if not len(self.consumers) and not self.is_deleted:
            self._services.delete_unused(self)

    # -- what each does in its own way

    @property
    def logs(self) -> list[QueueLog]:
        raise NotImplementedError

    def numbered_logs(self) -> dict[int, QueueLog]:
        """By priority, where it keeps one log for each."""
        return dict(enumerate(self.logs))

    @property
    def ready_count(self) -> int:
        """What was published is counted even if it is not readable yet."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """It takes nothing more; one that makes room by itself is never full."""
        return False

    def will_persist(self, is_transient: bool) -> bool:
        """Whether a restart finds a message again."""
        return not self.is_volatile and not (is_transient and self.kind == CLASSIC)

    def publish(self, publication: Publication) -> tuple[Ticket, bool]:
        """The ticket, and whether its pass must be synced."""
        raise NotImplementedError

    @property
    def accepts_batches(self) -> bool:
        """Whether `publish_all` does what `publish` of each would."""
        return False

    def publish_all(
        self, contents: Sequence[Content], is_transient: bool, expiration_ms: int | None, priority: int
    ) -> tuple[Ticket, bool]:
        """As `publish`, for contents that came together and ask for the same."""
        raise NotImplementedError

    def cold_head(self) -> ColdRead | None:
        """Why the next message that is given out would have to be waited for: it is on disk only."""
        return None

    def pending_pass(self) -> PendingPass | None:
        """What was published and cannot be read yet."""
        logs = [log for log in self.logs if log.readable_end < log.end]
        if not logs:
            return None
        return PendingPass(max(log.latest_ticket().number for log in logs), not self.is_volatile)

    def dispatch(self) -> None:
        """Serve consumers. What is on disk only is read into memory off the event loop first."""
        if self.is_deleted or self._is_warming:
            return
        try:
            self._dispatch(may_wait=self._warm_attempts >= _MAX_WARM_ATTEMPTS)
        except ColdRead as cold:
            self._is_warming = True
            self._warm_attempts += 1
            self._services.offload(cold.warm, self._warmed)
        else:
            self._warm_attempts = 0

    def _warmed(self, nothing: object, error: BaseException | None) -> None:
        """If the disk failed, that is heard of when it is read."""
        self._is_warming = False
        self._services.dispatch.due(self)

    def _dispatch(self, may_wait: bool) -> None:
        """ColdRead: there is more to do, after a wait."""
        raise NotImplementedError

    def change_settings(self, settings: QueueSettings) -> None:
        """A policy has changed; what is fixed when a queue is declared stays."""
        self.settings = settings
        self.touch()
        self._services.dispatch.due(self)

    def requeue_overdue(self) -> None:
        """Deliveries that were out for too long come back, and their consumers go."""

    def requeue_delayed(self) -> None:
        """What came back and had to wait is ready again."""

    def end(self) -> None:
        """It is deleted."""
        self.is_deleted = True
        self._services.queue_timers.forget(self.id)
