"""Commit-log topics: create, change, delete, find. Definitions are kept in the catalogue, messages in the commit store;
topic names are unique across all layouts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec

from trimq.core.commit_log.message_ttl import MessageTtl
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as Stored
from trimq.core.metadata.names import NameRegistry
from trimq.core.security.access import Resource, ResourceKind
from trimq.errors import (
    Busy,
    InvalidCount,
    InvalidName,
    LimitReached,
    NameTooLong,
    OtherHome,
    Refusal,
    TopicExists,
    UnknownStream,
    UnknownTopic,
)
from trimq.formats.rocketmq_unit.dead_letters import is_dead_letter_topic
from trimq.model import DEFAULT_NAMESPACE, Layout, StreamId, TopicName
from trimq.storage.commit_log.store import CommitStore
from trimq.storage.group_commit.passes import Passes, Ticket

log = logging.getLogger(__name__)

KIND = "shared-topic"

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")

READABLE, WRITABLE, INHERITABLE = 4, 2, 1

Gone = Callable[[Refusal | None], None]
"""Called when a topic is deleted and its name is free, or with the refusal of the deletion."""


class CommitLogTopicDefinition(msgspec.Struct, frozen=True):
    """Topic definition as stored in the catalogue. Producers choose among `write_streams` queues, consumers among
    `read_streams`; the two differ while a topic grows or shrinks."""

    namespace: str
    name: str
    read_streams: int
    write_streams: int
    permissions: int = READABLE | WRITABLE
    is_ordered: bool = False
    flags: int = 0
    attributes: dict[str, str] = {}
    created_ms: int = 0
    may_expire: bool = False
    """Whether the topic has ever received a message with a TTL."""


class CommitLogTopic:
    """One topic and its message queues; a queue is opened on first use."""

    def __init__(
        self, id: UUID, definition: CommitLogTopicDefinition, version: int, store: CommitStore, ttl: MessageTtl
    ) -> None:
        self.id = id
        self.name = TopicName(definition.namespace, definition.name)
        self.resource = Resource(ResourceKind.TOPIC, definition.namespace, definition.name)
        self.definition = definition
        self.version = version
        self.raw_name = definition.name.encode()
        self.creation: Ticket | None = None
        """Ticket of the topic's creation, until it is durable. Messages stored before would have no topic if the
        creation is refused."""
        self._store = store
        self._ttl = ttl
        self._ttl.is_on = definition.may_expire
        self._streams: dict[int, MessageQueue] = {}

    def change(self, definition: CommitLogTopicDefinition, version: int) -> None:
        self.definition, self.version = definition, version
        self._ttl.is_on = definition.may_expire

    def stream(self, number: int) -> MessageQueue:
        found = self._streams.get(number)
        if found is not None:
            return found
        if not 0 <= number < self.stream_count:
            raise UnknownStream(str(self.name), number)
        return self.stream_or_retired(number)

    def stream_or_retired(self, number: int) -> MessageQueue:
        """Returns the queue even if the topic has shrunk: messages sent to it earlier are still stored there."""
        found = self._streams.get(number)
        if found is None:
            if not 0 <= number < 1 << 31:
                raise UnknownStream(str(self.name), number)
            found = self._streams[number] = self._make_stream(number)
        return found

    def _make_stream(self, number: int) -> MessageQueue:
        return MessageQueue(StreamId(self.id, number), self._store, self.name.name, self._ttl)

    def mark_deleted(self) -> None:
        """Marks every queue as deleted."""
        for stream in list(self._streams.values()):
            stream.mark_deleted()

    def streams(self) -> list[MessageQueue]:
        return [self.stream(number) for number in range(self.stream_count)]

    @property
    def stream_count(self) -> int:
        return max(self.definition.read_streams, self.definition.write_streams)


class CommitLogTopics:
    def __init__(
        self,
        catalogue: Catalogue,
        names: NameRegistry,
        store: CommitStore,
        passes: Passes,
        now_ms: Callable[[], int],
        new_id: Callable[[], UUID],
        name_length: int,
        stream_limit: int,
        on_expired: Callable[[], None],
        topic_limit: int,
    ) -> None:
        self._topic_limit = topic_limit
        self._on_expired = on_expired
        self._catalogue = catalogue
        self._names = names
        self._store = store
        self._passes = passes
        self._now_ms = now_ms
        self._new_id = new_id
        self._name_length = name_length
        self._stream_limit = stream_limit
        self._by_name: dict[TopicName, CommitLogTopic] = {}
        self._by_id: dict[UUID, CommitLogTopic] = {}
        self._deleting: set[TopicName] = set()
        self._deleted_listeners: list[Callable[[UUID], object]] = []
        self._change_listeners: list[Callable[[], None]] = []
        self.revision = 0
        """Grows with every change of any topic."""
        names.add(Layout.COMMIT_LOG, self._has)
        catalogue.watch(KIND, self._changed)

    def open(self) -> None:
        """Loads all definitions from the catalogue."""
        for key, found in self._catalogue.all(KIND):
            self._changed(key, found)

    def strays(self) -> dict[str, int]:
        """Topics that have messages in the log but no definition, each with its number of used queues."""
        known = {name.name for name in self._by_name}
        counts: dict[str, int] = {}
        for name, number in self._store.queues():
            if name not in known:
                counts[name] = max(counts.get(name, 0), number + 1)
        return counts

    def drop_strays(self) -> None:
        """Drops the remaining messages of deleted topics."""
        for name in self.strays():
            self._store.drop(name)

    def drop_or_redefine_strays(self) -> None:
        """Drops the remaining messages of deleted topics at start. If the catalogue lost its last definitions in a
        crash, deleted and lost topics cannot be distinguished; then all of them are defined again."""
        if not self._catalogue.was_truncated:
            self.drop_strays()
            return
        for name, count in self.strays().items():
            try:
                self.create(CommitLogTopicDefinition(DEFAULT_NAMESPACE, name, count, count))
            except Refusal as refusal:
                log.warning(
                    "topic %s: definition lost in a crash and not restored (%s); keeping its messages", name, refusal
                )
            else:
                log.warning("topic %s: definition lost in a crash, defined again with %d queues", name, count)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[CommitLogTopic]:
        return iter(self._by_name.values())

    def _has(self, name: TopicName) -> bool:
        """Whether the name is in use, also by a topic that is being deleted."""
        return name in self._by_name or name in self._deleting

    def get(self, name: TopicName) -> CommitLogTopic:
        """Returns the topic. Raises UnknownTopic, or OtherHome if another layout has a topic of this name."""
        topic = self._by_name.get(name)
        if topic is None:
            layout = self._names.find(name, other_than=Layout.COMMIT_LOG)
            if layout is not None:
                raise OtherHome(str(name), layout.value)
            raise UnknownTopic(str(name))
        return topic

    def find_id(self, id: UUID) -> CommitLogTopic | None:
        return self._by_id.get(id)

    def find(self, name: TopicName) -> CommitLogTopic | None:
        return self._by_name.get(name)

    def prepare(self, definition: CommitLogTopicDefinition) -> None:
        """Creates a topic that the broker itself needs, or adds queues to it, before any client is served."""
        name = TopicName(definition.namespace, definition.name)
        known = self._by_name.get(name)
        if known is None:
            self.create(definition)
        elif known.definition.read_streams < definition.read_streams:
            count = definition.read_streams
            self.change(known, msgspec.structs.replace(known.definition, read_streams=count, write_streams=count))

    # -- changes: visible at once, acknowledged when the ticket's pass is durable, undone when the pass is refused

    def create(self, definition: CommitLogTopicDefinition) -> tuple[CommitLogTopic, Ticket]:
        name = TopicName(definition.namespace, definition.name)
        self.check(definition)
        if name in self._by_name:
            raise TopicExists(str(name))
        if name in self._deleting:
            raise Busy(f"topic {name} is being deleted")
        if (layout := self._names.find(name, other_than=Layout.COMMIT_LOG)) is not None:
            raise OtherHome(str(name), layout.value)
        if len(self._by_name) >= self._topic_limit:
            raise LimitReached("topics", self._topic_limit, "limits.topics")
        definition = msgspec.structs.replace(definition, created_ms=self._now_ms())
        ticket = self._catalogue.put(KIND, str(self._new_id()), msgspec.to_builtins(definition), None)
        topic = self._by_name[name]
        topic.creation = ticket
        self._passes.on_durable(ticket, lambda _: _created(topic))
        return topic, ticket

    def change(self, topic: CommitLogTopic, definition: CommitLogTopicDefinition) -> Ticket:
        """Changes the definition. Queues that are no longer written or read keep their messages."""
        self.check(definition)
        return self._catalogue.put(KIND, str(topic.id), msgspec.to_builtins(definition), topic.version)

    def enable_ttl(self, topic: CommitLogTopic) -> None:
        """Switches the TTL check on for readers of this topic. Durable together with the next append. Dead-letter
        topics are excluded: their messages do not expire."""
        if not topic.definition.may_expire and not is_dead_letter_topic(topic.name.name):
            self.change(topic, msgspec.structs.replace(topic.definition, may_expire=True))

    def check(self, definition: CommitLogTopicDefinition) -> None:
        """Raises if the name or a queue count is invalid."""
        self.check_name(definition.name)
        for count in (definition.read_streams, definition.write_streams):
            if not 0 <= count <= self._stream_limit:
                raise InvalidCount(f"a topic has 0 to {self._stream_limit} streams, not {count}")

    def check_name(self, name: str) -> None:
        if len(name) > self._name_length:
            raise NameTooLong(len(name), self._name_length)
        if not _LEGAL.fullmatch(name):
            raise InvalidName(name[:200], "a topic name may contain only letters, digits, '%', '|', '_' and '-'")

    def delete(self, topic: CommitLogTopic, gone: Gone = lambda refusal: None) -> Ticket:
        """Deletes the topic: hides it at once. Its queues are dropped, and its name is free again, when that is on
        disk: with flush = async later than durable. Then, or if the deletion is refused, `gone` is called."""
        ticket = self._catalogue.delete(KIND, str(topic.id), topic.version)
        self._deleting.add(topic.name)
        self._passes.on_synced(ticket, lambda done: self._finish_delete(topic, done, gone))
        return ticket

    def _finish_delete(self, topic: CommitLogTopic, ticket: Ticket, gone: Gone) -> None:
        self._deleting.discard(topic.name)
        if ticket.refusal is None:
            self._store.drop(topic.name.name)
            for listener in self._deleted_listeners:
                listener(topic.id)
        gone(ticket.refusal)

    def on_deleted(self, listener: Callable[[UUID], object]) -> None:
        """Calls `listener` with the id of each topic whose deletion is durable, so that other data of it can be deleted
        too."""
        self._deleted_listeners.append(listener)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of any topic, also when it is undone."""
        self._change_listeners.append(listener)

    def _changed(self, key: str, found: Stored | None) -> None:
        """Follows the catalogue, also when a refused pass undoes a change."""
        self._apply(key, found)
        for listener in self._change_listeners:
            listener()

    def _apply(self, key: str, found: Stored | None) -> None:
        self.revision += 1
        id = UUID(key)
        known = self._by_id.get(id)
        if found is None:
            if known is not None:
                del self._by_id[id]
                self._by_name.pop(known.name, None)
                known.mark_deleted()
            return
        definition = msgspec.convert(found.value, CommitLogTopicDefinition)
        if known is None:
            ttl = MessageTtl(self._now_ms, self._on_expired)
            known = self._by_id[id] = CommitLogTopic(id, definition, found.version, self._store, ttl)
            self._by_name[known.name] = known
        known.change(definition, found.version)


def _created(topic: CommitLogTopic) -> None:
    topic.creation = None
