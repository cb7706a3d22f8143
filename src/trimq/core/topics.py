"""Topics and their streams: create, delete, grow, describe. Definitions live in the catalogue, bytes in the store."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec

from trimq.config import Settings
from trimq.core.access import Resource, ResourceKind
from trimq.core.catalogue import Catalogue
from trimq.core.streams import Stream
from trimq.core.topic_settings import TopicSettings, check_topic_settings, log_settings, message_limit
from trimq.errors import (
    Busy,
    InvalidCount,
    InvalidName,
    NameTooLong,
    OtherHome,
    TopicExists,
    UnknownStream,
    UnknownTopic,
)
from trimq.model import Home, StreamId, TopicName
from trimq.storage.partition_store import PartitionStore
from trimq.storage.passes import Passes, Ticket

log = logging.getLogger(__name__)

_KIND = "topic"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class Definition(msgspec.Struct, frozen=True):
    """A topic as it is kept in the catalogue."""

    namespace: str
    name: str
    home: str
    streams: int
    created_ms: int
    settings: dict[str, str] = {}
    deleted: bool = False


class Topic:
    """One topic and the streams that are open for it."""

    def __init__(self, id: UUID, definition: Definition, version: int) -> None:
        self.id = id
        self.name = TopicName(definition.namespace, definition.name)
        self.resource = Resource(ResourceKind.TOPIC, definition.namespace, definition.name)
        self.home = Home(definition.home)
        self.created_ms = definition.created_ms
        self.settings: TopicSettings = definition.settings
        self.version = version
        self.streams: list[Stream] = []

    def stream(self, index: int) -> Stream:
        if not 0 <= index < len(self.streams):
            raise UnknownStream(str(self.name), index)
        return self.streams[index]

    def definition(self, *, streams: int | None = None, settings: TopicSettings | None = None) -> Definition:
        return Definition(
            namespace=self.name.namespace,
            name=self.name.name,
            home=self.home.value,
            streams=len(self.streams) if streams is None else streams,
            created_ms=self.created_ms,
            settings=dict(self.settings if settings is None else settings),
        )


class Topics:
    def __init__(
        self,
        catalogue: Catalogue,
        store: PartitionStore,
        passes: Passes,
        settings: Settings,
        now_ms: Callable[[], int],
        new_id: Callable[[], UUID],
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._passes = passes
        self._settings = settings
        self._now_ms = now_ms
        self._new_id = new_id
        self._by_name: dict[TopicName, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._leaving: set[TopicName] = set()
        self._deleted_listeners: list[Callable[[UUID], object]] = []

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: TopicName) -> Topic | None:
        return self._by_name.get(name)

    def get(self, name: TopicName, home: Home | None = None) -> Topic:
        """The topic, or a refusal: unknown, or kept in another home than the caller can serve."""
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(str(name))
        if home is not None and topic.home is not home:
            raise OtherHome(str(name), topic.home.value)
        return topic

    def by_id(self, id: UUID) -> Topic:
        topic = self._by_id.get(id)
        if topic is None:
            raise UnknownTopic(str(id))
        return topic

    # -- changes: seen at once, acknowledged when the ticket's pass is durable, taken back when it is refused

    def create(self, name: TopicName, home: Home, streams: int, settings: TopicSettings) -> tuple[Topic, Ticket]:
        self.check_new(name, streams, settings)
        definition = Definition(name.namespace, name.name, home.value, 0, self._now_ms(), dict(settings))
        topic = Topic(self._new_id(), definition, 0)
        self._open_streams(topic, streams, is_new=True)
        ticket = self._catalogue.put(_KIND, str(topic.id), msgspec.to_builtins(topic.definition()), None)
        self._remember(topic)
        self._passes.afterwards(ticket, lambda done: self._drop(topic, 0) if done.refusal else None)
        return topic, ticket

    def check_new(self, name: TopicName, streams: int, settings: TopicSettings) -> None:
        """Refuse what `create` would refuse."""
        self.check_name(name.name)
        if not 1 <= streams <= self._settings.limits.streams_per_topic:
            raise InvalidCount(f"a topic has 1 to {self._settings.limits.streams_per_topic} streams, not {streams}")
        check_topic_settings(settings)
        if name in self._by_name:
            raise TopicExists(str(name))
        if name in self._leaving:
            raise Busy(f"topic {name} is being deleted")

    def check_name(self, name: str) -> None:
        limit = self._settings.limits.topic_name_length
        if len(name) > limit:
            raise NameTooLong(len(name), limit)
        if not _LEGAL.fullmatch(name):
            raise InvalidName(name, "a topic's name has letters, digits, '.', '_' and '-' only")
        if name in (".", ".."):
            raise InvalidName(name, "it means a folder")

    def grow(self, topic: Topic, streams: int) -> Ticket:
        """Add streams. Existing ones keep their records and numbers."""
        before = len(topic.streams)
        if streams <= before:
            raise InvalidCount(f"topic {topic.name} has {before} streams already and cannot have {streams}")
        if streams > self._settings.limits.streams_per_topic:
            raise InvalidCount(f"a topic has at most {self._settings.limits.streams_per_topic} streams")
        self._open_streams(topic, streams, is_new=True)
        ticket = self._save(topic, topic.definition())
        self._passes.afterwards(ticket, lambda done: self._take_back_growth(topic, before, done))
        return ticket

    def _take_back_growth(self, topic: Topic, before: int, ticket: Ticket) -> None:
        if ticket.refusal is not None:
            self._drop(topic, before)
            self._reread_version(topic)

    def _drop(self, topic: Topic, keep: int) -> None:
        """Take back the streams from `keep` on, and with the first one the topic."""
        dropped = topic.streams[keep:]
        del topic.streams[keep:]
        if not keep:
            self._forget(topic)
        self._store.remove(topic.name.name, topic.id, [stream.log for stream in dropped])

    def change_settings(self, topic: Topic, settings: TopicSettings) -> Ticket:
        check_topic_settings(settings)
        before = topic.settings
        self._apply_settings(topic, settings)
        ticket = self._save(topic, topic.definition())
        self._passes.afterwards(ticket, lambda done: self._take_back_settings(topic, before, done))
        return ticket

    def _take_back_settings(self, topic: Topic, before: TopicSettings, ticket: Ticket) -> None:
        if ticket.refusal is not None:
            self._apply_settings(topic, before)
            self._reread_version(topic)

    def _apply_settings(self, topic: Topic, settings: TopicSettings) -> None:
        topic.settings = dict(settings)
        for stream in topic.streams:
            stream.log.change_settings(log_settings(settings, self._settings))
            stream.message_bytes = message_limit(settings, self._settings)

    def delete(self, topic: Topic) -> Ticket:
        """Forget the topic at once; its files go, and its name is free, when that is durable."""
        marked = msgspec.structs.replace(topic.definition(), deleted=True)
        # The mark outlives a crash in the middle of the removal, which is then finished at the next start.
        ticket = self._save(topic, marked)
        self._forget(topic)
        self._leaving.add(topic.name)
        self._passes.afterwards(ticket, lambda done: self._finish_delete(topic, done))
        return ticket

    def _finish_delete(self, topic: Topic, ticket: Ticket) -> None:
        self._leaving.discard(topic.name)
        if ticket.refusal is not None:
            self._remember(topic)
            return
        self._store.remove(topic.name.name, topic.id, [stream.log for stream in topic.streams])
        self._unmark(topic.id)
        for listener in self._deleted_listeners:
            listener(topic.id)

    def _unmark(self, id: UUID) -> None:
        found = self._catalogue.get(_KIND, str(id))
        if found is not None:
            self._catalogue.delete(_KIND, str(id), found.version)

    def _save(self, topic: Topic, definition: Definition) -> Ticket:
        ticket = self._catalogue.put(_KIND, str(topic.id), msgspec.to_builtins(definition), topic.version)
        self._reread_version(topic)
        return ticket

    def _reread_version(self, topic: Topic) -> None:
        found = self._catalogue.get(_KIND, str(topic.id))
        if found is not None:
            topic.version = found.version

    def on_deleted(self, listener: Callable[[UUID], object]) -> None:
        """Call `listener` when a topic is gone for good: what others keep of it may go too."""
        self._deleted_listeners.append(listener)

    # -- opening

    def open(self) -> None:
        """Open every topic of the catalogue, finish removals, and adopt partition folders that were put here."""
        deleted: set[UUID] = set()
        for key, found in list(self._catalogue.all(_KIND)):
            id, definition = UUID(key), msgspec.convert(found.value, Definition)
            if definition.deleted:
                deleted.add(id)
                continue
            topic = Topic(id, definition, found.version)
            self._open_streams(topic, definition.streams)
            self._remember(topic)
        self._store.finish_removals(deleted)
        for id in deleted:
            self._unmark(id)
        self._adopt()

    def _adopt(self) -> None:
        for name, id, streams in self._store.strangers({topic.name.name for topic in self}):
            log.info("adopting the folders of topic %s with %d partitions", name, streams)
            definition = Definition("", name, Home.PARTITION_LOG.value, 0, self._now_ms())
            topic = Topic(id or self._new_id(), definition, 0)
            self._open_streams(topic, streams, is_adopted=True)
            self._remember(topic)
            self._define_adopted(topic)

    def _define_adopted(self, topic: Topic) -> None:
        """Only when the checkpoints of its logs are durable: until then a crash must find strangers again."""

        def define(_: Ticket) -> None:
            self._catalogue.put(_KIND, str(topic.id), msgspec.to_builtins(topic.definition()), None)
            self._reread_version(topic)

        def await_checkpoints(_: Ticket) -> None:
            self._passes.afterwards(Ticket(self._passes.current), define)

        self._passes.afterwards(topic.streams[-1].log.latest_ticket(), await_checkpoints)

    def _open_streams(self, topic: Topic, count: int, *, is_new: bool = False, is_adopted: bool = False) -> None:
        limits = log_settings(topic.settings, self._settings)
        message_bytes = message_limit(topic.settings, self._settings)
        for index in range(len(topic.streams), count):
            opened = self._store.open(topic.name.name, index, topic.id, limits, is_new, is_adopted)
            topic.streams.append(Stream(StreamId(topic.id, index), str(topic.name), opened, message_bytes))

    def _forget(self, topic: Topic) -> None:
        self._by_name.pop(topic.name, None)
        self._by_id.pop(topic.id, None)

    def _remember(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._reread_version(topic)
