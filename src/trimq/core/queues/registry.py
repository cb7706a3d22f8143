"""Registry of all queues: declares, deletes and recovers them. Definitions of durable queues are in the catalogue, all
others in memory. Does not know messages: `QueueStore` owns their logs."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

import msgspec

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as StoredDefinition
from trimq.core.metadata.names import NameRegistry
from trimq.core.queues.arguments import (
    CLASSIC,
    QUORUM,
    STREAM,
    QueueSettings,
    check_arguments,
    check_properties,
    kind_of,
    read_settings,
    require_equivalent,
)
from trimq.core.queues.queue import Owner, Queue, QueueDefinition, QueueServices
from trimq.core.queues.stream_queue import StreamQueue
from trimq.core.queues.work_queue import WorkQueue
from trimq.core.routing.exchanges import RESERVED_PREFIX
from trimq.errors import LimitReached, OtherHome
from trimq.errors.queues import (
    ConditionalDeletion,
    Inequivalent,
    Locked,
    QueueInUse,
    QueueNotEmpty,
    ReservedName,
    ServerNamed,
    TooManyQueues,
    UnknownQueue,
)
from trimq.formats.amqp_content.field_tables import FieldTable, read_table, write_table
from trimq.model import Layout, TopicName
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.store import QueueStore

log = logging.getLogger(__name__)

_KIND = "queue"


class DeclareResult(NamedTuple):
    """`ticket` None: the queue existed and is durable, or it is not durable at all."""

    queue: Queue
    ticket: Ticket | None


class Declaration(NamedTuple):
    namespace: str
    name: str
    is_durable: bool
    is_exclusive: bool
    is_auto_delete: bool
    arguments: FieldTable
    is_server_named: bool = False


ApplyPolicy = Callable[[str, str, FieldTable], FieldTable]


class QueueRegistry:
    """`apply_policy(namespace, name, arguments)` returns the arguments of a queue with those of its policy.
    `on_deleted(queue)` removes the bindings of a deleted queue and returns their ticket."""

    def __init__(
        self,
        catalogue: Catalogue,
        names: NameRegistry,
        store: QueueStore,
        passes: Passes,
        random_bytes: Callable[[int], bytes],
        new_id: Callable[[], UUID],
        limit_per_namespace: int,
    ) -> None:
        self._limit = limit_per_namespace
        self._counts: Counter[str] = Counter()  # queues by namespace
        self._catalogue = catalogue
        self._names = names
        self._store = store
        self._passes = passes
        self._random_bytes = random_bytes
        self._new_id = new_id
        self._by_name: dict[tuple[str, str], Queue] = {}
        self._by_id: dict[UUID, Queue] = {}
        self._owned: dict[Owner, dict[Queue, None]] = {}
        self._deleting: dict[UUID, Queue] = {}  # the deletion is not on disk yet
        self.services: QueueServices
        self.own_limit: Callable[[str], int | None] = lambda namespace: None
        """Returns the limit of queues that is set for this namespace."""
        self.apply_policy: ApplyPolicy = lambda namespace, name, arguments: arguments
        self.on_deleted: Callable[[Queue], Ticket | None] = lambda queue: None
        self.find_topic: Callable[[str, str], Queue | None] = lambda namespace, name: None
        """Returns the topic of another layout with this name, as a queue that messages are routed to."""
        self.find_taken: Callable[[UUID], Queue | None] = lambda id: None
        """Returns the topic of another layout whose messages are taken, by the id of its timers."""
        names.add(Layout.QUEUE_LOG, self._by_name.__contains__)
        catalogue.watch(_KIND, self._definition_changed)

    def open(self, others: Collection[str] = ()) -> None:
        """Recovers all durable queues at start. `others`: names of logs in the store that belong to no queue."""
        found = {
            UUID(key): msgspec.convert(stored.value, QueueDefinition) for key, stored in self._catalogue.all(_KIND)
        }
        names = self._store.names()
        levels: dict[str, list[str]] = {id.hex: [] for id in found}
        for name in names:
            levels.get(name.partition("-")[0], []).append(name)
        known = {*others, *(name for folders in levels.values() for name in folders)}
        self._store.open(known, quarantines_unknown=self._catalogue.was_truncated)
        for id, definition in found.items():
            folders = levels[id.hex] or [_folder(id, 0)]
            logs = {int(folder.rpartition("-")[2]): self._store.recover(folder) for folder in folders}
            queue = self._make(id, definition, None, logs)
            self._remember(queue)
            queue.touch()  # the time of the stop does not count as unused

    def make_log(self, id: UUID, level: int, is_volatile: bool) -> QueueLog:
        return self._store.make(_folder(id, level), is_volatile)

    # -- lookup

    def __iter__(self) -> Iterator[Queue]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, namespace: str, name: str) -> Queue | None:
        return self._by_name.get((namespace, name))

    def find_timed(self, id: UUID) -> Queue | None:
        """Returns the queue, or the topic whose messages are taken, to which a timer belongs."""
        return self._by_id.get(id) or self.find_taken(id)

    def find_destination(self, namespace: str, name: str) -> Queue | None:
        """Returns the queue to which messages are routed by this name: a queue, else a topic of another layout."""
        found = self._by_name.get((namespace, name))
        return self.find_topic(namespace, name) if found is None else found

    @property
    def names(self) -> Container[tuple[str, str]]:
        """Namespaces and names of all queues."""
        return self._by_name

    def find_by_id(self, id: UUID) -> Queue | None:
        return self._by_id.get(id)

    def get(self, namespace: str, name: str, owner: Owner | None) -> Queue:
        """Returns the queue. Locked: it is exclusive to another owner."""
        found = self._by_name.get((namespace, name))
        if found is None:
            raise UnknownQueue(name, namespace)
        if found.owner is not None and found.owner != owner:
            raise Locked(name, namespace)
        return found

    def is_durable(self, namespace: str, name: str) -> bool | None:
        found = self.find_destination(namespace, name)
        return None if found is None else not found.is_volatile

    # -- declaration

    def declare(self, declaration: Declaration, owner: Owner) -> DeclareResult:
        namespace, name, is_durable, is_exclusive, is_auto_delete, arguments, is_server_named = declaration
        if not is_server_named:
            self.check_name(name)
        found = self._by_name.get((namespace, name))
        if found is None and (layout := self._names.find(TopicName(namespace, name), Layout.QUEUE_LOG)) is not None:
            raise OtherHome(name, layout.value)
        if found is not None and found.owner is not None and found.owner != owner:
            raise Locked(name, namespace)
        if found is not None:
            _require_same(found, declaration)
            found.touch()
            return DeclareResult(found, self._catalogue.pending(_KIND, str(found.id)))
        own_limit = self.own_limit(namespace)
        if own_limit is not None and self._counts[namespace] >= own_limit:
            raise TooManyQueues(name, namespace, own_limit)
        kind = check_arguments(name, namespace, arguments)
        check_properties(name, namespace, kind, is_durable, is_exclusive, is_auto_delete)
        read_settings(name, namespace, arguments)
        if self._counts[namespace] >= self._limit:
            raise LimitReached("queues of a virtual host", self._limit, "limits.queues_per_vhost")
        definition = QueueDefinition(
            namespace, name, is_durable, is_auto_delete, write_table(arguments), self.services.now_ms()
        )
        return self._create(definition, owner if is_exclusive else None)

    def check_name(self, name: str) -> None:
        """Raises ReservedName for a name that starts with `amq.`."""
        if name.startswith(RESERVED_PREFIX):
            raise ReservedName("queue", name)

    def new_name(self, namespace: str, arguments: FieldTable) -> str:
        """Returns a generated name, for a queue declared without one. ServerNamed: only classic queues may be."""
        kind = kind_of("", namespace, arguments)
        if kind != CLASSIC:
            raise ServerNamed(kind)
        while True:
            name = "amq.gen-" + urlsafe_b64encode(self._random_bytes(16)).decode().rstrip("=")
            if (namespace, name) not in self._by_name:
                return name

    def _create(self, definition: QueueDefinition, owner: Owner | None) -> DeclareResult:
        id = self._new_id()
        is_volatile = not definition.is_durable or owner is not None
        queue = self._make(id, definition, owner, {0: self.make_log(id, 0, is_volatile)})
        self._remember(queue)
        queue.touch()
        if is_volatile:
            return DeclareResult(queue, None)
        ticket = self._catalogue.put(_KIND, str(id), msgspec.to_builtins(definition), None)
        self._passes.on_durable(ticket, lambda done: self._take_back(queue) if done.refusal else None)
        return DeclareResult(queue, ticket)

    def _make(self, id: UUID, definition: QueueDefinition, owner: Owner | None, logs: dict[int, QueueLog]) -> Queue:
        arguments = read_table(definition.arguments, 0, len(definition.arguments))[0]
        settings = self._settings(definition.namespace, definition.name, arguments)
        if settings.kind == STREAM:
            return StreamQueue(id, definition, settings, self.services, logs[0])
        return WorkQueue(id, definition, settings, owner, self.services, logs)

    def _settings(self, namespace: str, name: str, arguments: FieldTable) -> QueueSettings:
        return read_settings(name, namespace, self.apply_policy(namespace, name, arguments))

    def apply_policies(self) -> None:
        """Applies changed policies to all queues."""
        for queue in self:
            settings = self._settings(queue.namespace, queue.name, queue.arguments)
            if settings != queue.settings:
                queue.change_settings(settings)

    # -- deletion

    def delete(self, queue: Queue, if_unused: bool = False, if_empty: bool = False) -> tuple[int, Ticket | None]:
        """Deletes a queue. Returns the number of its ready messages, and the ticket of the deletion. Its files are
        removed when the deletion is synced. As in RabbitMQ, the conditions are for classic queues: a quorum queue
        refuses them, and a stream ignores them."""
        if queue.kind == QUORUM and (if_unused or if_empty):
            raise ConditionalDeletion(queue.name, queue.namespace, "if-unused" if if_unused else "if-empty")
        if queue.kind == CLASSIC and if_unused and queue.consumer_count:
            raise QueueInUse(queue.name, queue.namespace)
        if queue.kind == CLASSIC and if_empty and queue.ready_count:
            raise QueueNotEmpty(queue.name, queue.namespace)
        ready = 0 if queue.kind == STREAM else queue.ready_count  # RabbitMQ does not count those of a stream
        self._forget(queue)
        stored = self._catalogue.get(_KIND, str(queue.id))
        ticket = None if stored is None else self._catalogue.delete(_KIND, str(queue.id), stored.version)
        if ticket is not None:
            self._deleting[queue.id] = queue
        consumers = list(queue.consumers)
        queue.end()
        for consumer in consumers:
            queue.consumers.remove(consumer)
            consumer.receiver.cancelled(consumer)
        unbound = self.on_deleted(queue)
        if ticket is None:
            self._store.remove(queue.logs, UnknownQueue(queue.name, queue.namespace))
        else:
            self._passes.on_synced(ticket, lambda done: self._finish_delete(queue, done))
        return ready, ticket or unbound

    def _finish_delete(self, queue: Queue, ticket: Ticket) -> None:
        if ticket.refusal is None and self._deleting.pop(queue.id, None) is not None:
            self._store.remove(queue.logs)

    def release(self, owner: Owner) -> None:
        """Deletes the exclusive queues of an owner whose connection has ended."""
        for queue in list(self._owned.get(owner, ())):
            self.delete(queue)

    def _take_back(self, queue: Queue) -> None:
        """Removes a new queue whose definition could not be written."""
        if self._by_id.get(queue.id) is queue:
            self._forget(queue)
            queue.end()
            self.on_deleted(queue)
        self._store.remove(queue.logs)

    def _definition_changed(self, key: str, stored: StoredDefinition | None) -> None:
        """Restores a deleted queue with its messages if the deletion could not be written."""
        queue = self._deleting.pop(UUID(key), None)
        if stored is None or queue is None:
            return
        if (queue.namespace, queue.name) in self._by_name:
            log.error(
                "queue %s: deletion failed, and a new queue has this name (a restart decides which remains)",
                queue.name,
            )
            return
        logs = {int(log.folder.rpartition("-")[2]): log for log in queue.logs}
        self._remember(self._make(queue.id, queue.definition, None, logs))

    # -- indexes

    def _remember(self, queue: Queue) -> None:
        if (queue.namespace, queue.name) not in self._by_name:
            self._counts[queue.namespace] += 1
        self._by_name[queue.namespace, queue.name] = queue
        self._by_id[queue.id] = queue
        if queue.owner is not None:
            self._owned.setdefault(queue.owner, {})[queue] = None

    def _forget(self, queue: Queue) -> None:
        if self._by_name.pop((queue.namespace, queue.name), None) is not None:
            self._counts[queue.namespace] -= 1
        self._by_id.pop(queue.id, None)
        if queue.owner is not None:
            owned = self._owned.get(queue.owner, {})
            owned.pop(queue, None)
            if not owned:
                self._owned.pop(queue.owner, None)

    def logs(self) -> Iterable[QueueLog]:
        return (log for queue in self for log in queue.logs)


def _folder(id: UUID, level: int) -> str:
    return f"{id.hex}-{level}"


def _require_same(found: Queue, wanted: Declaration) -> None:
    name, namespace = found.name, found.namespace
    is_exclusive = found.owner is not None
    if is_exclusive != wanted.is_exclusive:
        raise Locked(name, namespace)
    pairs = [
        ("durable", wanted.is_durable or is_exclusive, found.definition.is_durable or is_exclusive),
        ("auto_delete", wanted.is_auto_delete, found.definition.is_auto_delete),
    ]
    for property, received, current in pairs:
        if received != current:
            raise Inequivalent("queue", name, namespace, property, received, current)
    require_equivalent(name, namespace, found.arguments, wanted.arguments)
