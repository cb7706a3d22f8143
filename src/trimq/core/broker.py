"""The verbs that front-ends may call. Each asks whether the caller may, then delegates; there is no logic here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from trimq.config import Settings
from trimq.core.access import Access, Action, Resource, ResourceKind
from trimq.core.appending import Appending
from trimq.core.cluster import Cluster
from trimq.core.cursors import Cursor, Cursors
from trimq.core.streams import Appended, Stream
from trimq.core.topic_settings import TopicSettings
from trimq.core.topics import Topic, Topics
from trimq.formats.batch import BatchHeader
from trimq.model import Buffer, Caller, Home, Record, StreamId, TopicName
from trimq.storage.passes import Ticket


class Broker:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        cursors: Cursors,
        cluster: Cluster,
        access: Access,
        appending: Appending,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self._topics = topics
        self._cursors = cursors
        self._access = access
        self._appending = appending

    # -- topics

    def topics(self, caller: Caller, home: Home | None = None) -> list[Topic]:
        """Those of the caller's namespace, and of one home if asked, that the caller may see."""
        return [
            topic
            for topic in self._topics
            if topic.name.namespace == caller.namespace
            and (home is None or topic.home is home)
            and self._access.allowed(caller, Action.DESCRIBE, topic.resource)
        ]

    def topic(self, caller: Caller, name: str, home: Home | None = None) -> Topic:
        full = TopicName(caller.namespace, name)
        self._access.require(caller, Action.DESCRIBE, _resource(full))
        return self._topics.get(full, home)

    def topic_by_id(self, caller: Caller, id: UUID) -> Topic:
        topic = self._topics.by_id(id)
        self._access.require(caller, Action.DESCRIBE, topic.resource)
        return topic

    def check_topic(self, caller: Caller, name: str, streams: int, settings: TopicSettings) -> None:
        """Refuse what `create_topic` would refuse."""
        full = TopicName(caller.namespace, name)
        self._access.require(caller, Action.CONFIGURE, _resource(full))
        self._topics.check_new(full, streams, settings)

    def create_topic(
        self, caller: Caller, name: str, home: Home, streams: int, settings: TopicSettings
    ) -> tuple[Topic, Ticket]:
        full = TopicName(caller.namespace, name)
        self._access.require(caller, Action.CONFIGURE, _resource(full))
        self._appending.require_writable()
        return self._topics.create(full, home, streams, settings)

    def grow_topic(self, caller: Caller, topic: Topic, streams: int) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        self._appending.require_writable()
        return self._topics.grow(topic, streams)

    def change_topic(self, caller: Caller, topic: Topic, settings: TopicSettings) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return self._topics.change_settings(topic, settings)

    def delete_topic(self, caller: Caller, topic: Topic) -> Ticket:
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return self._topics.delete(topic)

    # -- messages

    def append(self, caller: Caller, topic: Topic, stream: Stream, batch: Buffer, header: BatchHeader) -> Appended:
        """Append one batch in the home's own bytes, which the caller has checked. Pending until its pass is durable."""
        self._access.require(caller, Action.WRITE, topic.resource)
        return self._appending.append(stream, batch, header)

    def append_records(self, caller: Caller, topic: Topic, stream: Stream, records: Sequence[Record]) -> Appended:
        """Append records that come in no home's bytes."""
        self._access.require(caller, Action.WRITE, topic.resource)
        return self._appending.append_records(stream, records)

    def readable(self, caller: Caller, topic: Topic, index: int) -> Stream:
        """The stream, for a caller who may read it."""
        self._access.require(caller, Action.READ, topic.resource)
        return topic.stream(index)

    def read(self, caller: Caller, topic: Topic, index: int, from_offset: int) -> Iterator[Record]:
        """The records of a stream, whatever its home."""
        stream = self.readable(caller, topic, index)
        return stream.records(from_offset, self.settings.limits.batch_expansion_bytes)

    def cut_head(self, caller: Caller, topic: Topic, index: int, offset: int) -> Ticket:
        """Records before `offset` are gone."""
        self._access.require(caller, Action.CONFIGURE, topic.resource)
        return topic.stream(index).log.cut_head(offset)

    # -- cursors

    def groups(self, caller: Caller) -> list[str]:
        return self._cursors.groups()

    def cursors(self, caller: Caller, group: str) -> Mapping[StreamId, Cursor]:
        return self._cursors.all(group)

    def commit(self, caller: Caller, group: str, topic: Topic, index: int, offset: int, metadata: str = "") -> Ticket:
        """Remember that `group` has read a stream up to `offset`."""
        self._access.require(caller, Action.READ, topic.resource)
        stream = topic.stream(index)
        return self._cursors.commit(group, stream.id, offset, metadata)


def _resource(name: TopicName) -> Resource:
    return Resource(ResourceKind.TOPIC, name.namespace, name.name)
