"""Verbs on topics of partition logs, reached as `broker.topics`. Each checks the caller's rights, then delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from trimq.core.partitions.topic_settings import TopicSettings
from trimq.core.partitions.topics import Topic, Topics
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind
from trimq.core.write_gate import WriteGate
from trimq.model import Caller, Layout, TopicName
from trimq.storage.group_commit.passes import Ticket


class PartitionTopicApi:
    def __init__(self, topics: Topics, access: Access, gate: WriteGate) -> None:
        self._topics = topics
        self._access = access
        self._gate = gate

    def all(self, caller: Caller, layout: Layout | None = None) -> list[Topic]:
        """Topics of the caller's namespace (of one layout, if given) that the caller may see."""
        return [
            topic
            for topic in self._topics
            if topic.name.namespace == caller.namespace
            and (layout is None or topic.layout is layout)
            and self._access.allowed(caller, Action.DESCRIBE, topic.resource)
        ]

    def iterate(self, caller: Caller) -> Iterator[Topic | None]:
        """As `all`, one at a time: the broker may work meanwhile. Yields None for each topic that is left out."""
        for topic in list(self._topics):
            is_seen = topic.name.namespace == caller.namespace and self._topics.find(topic.name) is topic
            yield topic if is_seen and self._access.allowed(caller, Action.DESCRIBE, topic.resource) else None

    def get(self, caller: Caller, name: str, layout: Layout | None = None, action: Action = Action.DESCRIBE) -> Topic:
        """Returns the topic if the caller may perform `action` on it."""
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, action, full)
        return self._topics.get(full, layout)

    def by_id(self, caller: Caller, id: UUID, action: Action = Action.DESCRIBE) -> Topic:
        """Same as `get`."""
        topic = self._topics.by_id(id)
        self._access.require(caller, action, topic.resource)
        return topic

    def check_name(self, name: str) -> None:
        """Raises if no topic can have this name."""
        self._topics.check_name(name)

    def check_layout(self, caller: Caller, name: str) -> None:
        """Raises OtherHome if a topic or queue of another layout has this name."""
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, Action.DESCRIBE, full)
        self._topics.check_layout(full)

    def require_create(self, caller: Caller, name: str) -> None:
        """Raises if the caller may not create a topic of this name."""
        self._access.require_any(caller, Action.CREATE, (BROKER, _resource(TopicName(caller.namespace, name))))

    def check_new(self, caller: Caller, name: str, streams: int, settings: TopicSettings) -> UUID:
        """Raises as `create` would. Returns an id that the topic could have had."""
        full = TopicName(caller.namespace, name)
        self._access.require_any(caller, Action.CREATE, (BROKER, _resource(full)))
        return self._topics.check_new(full, streams, settings)

    def create(
        self, caller: Caller, name: str, layout: Layout, streams: int, settings: TopicSettings
    ) -> tuple[Topic, Ticket]:
        full = TopicName(caller.namespace, name)
        self._access.require_any(caller, Action.CREATE, (BROKER, _resource(full)))
        self._gate.require_writable()
        created = self._topics.create(full, layout, streams, settings)
        self._access.audit.changed(caller, "create", "topic", name, full.namespace, partitions=streams)
        return created

    def prepare(
        self, caller: Caller, wanted: Iterable[tuple[str, int, TopicSettings]], done: Callable[[], None]
    ) -> None:
        """Opens the files that these topics need, a few in each turn of the loop, then calls `done`, which must create
        the topics. Topics that would be refused are skipped."""
        named = [(TopicName(caller.namespace, name), streams, settings) for name, streams, settings in wanted]
        allowed = [each for each in named if self._may_create(caller, each[0])]
        self._topics.prepare(allowed if self._gate.is_running else (), done)

    def prepare_growth(self, caller: Caller, wanted: Iterable[tuple[Topic, int]], done: Callable[[], None]) -> None:
        """As `prepare`, for `grow`. The caller must leave out topics that would be refused."""
        allowed = [each for each in wanted if self._access.allowed(caller, Action.ALTER, each[0].resource)]
        self._topics.prepare_growth(allowed if self._gate.is_running else (), done)

    def check_growth(self, caller: Caller, topic: Topic, streams: int) -> None:
        """Raises as `grow` would."""
        self._access.require(caller, Action.ALTER, topic.resource)
        self._topics.check_growth(topic, streams)

    def grow(self, caller: Caller, topic: Topic, streams: int) -> Ticket:
        self._access.require(caller, Action.ALTER, topic.resource)
        self._gate.require_writable()
        ticket = self._topics.grow(topic, streams)
        self._access.audit.changed(caller, "alter", "topic", topic.name.name, topic.name.namespace, partitions=streams)
        return ticket

    def check_change(self, caller: Caller, topic: Topic, settings: TopicSettings) -> None:
        """Raises as `change` would."""
        self._access.require(caller, Action.ALTER_CONFIGS, topic.resource)
        self._topics.check_settings(settings)

    def check_settings(self, settings: TopicSettings) -> None:
        """Raises if no topic can have these settings."""
        self._topics.check_settings(settings)

    def change(self, caller: Caller, topic: Topic, settings: TopicSettings) -> Ticket:
        self._access.require(caller, Action.ALTER_CONFIGS, topic.resource)
        ticket = self._topics.change_settings(topic, settings)
        self._access.audit.changed(caller, "alter-configs", "topic", topic.name.name, topic.name.namespace)
        return ticket

    def delete(self, caller: Caller, topic: Topic) -> Ticket:
        self._access.require_any(caller, Action.DELETE, (BROKER, topic.resource))
        ticket = self._topics.delete(topic)
        self._access.audit.changed(caller, "delete", "topic", topic.name.name, topic.name.namespace)
        return ticket

    def _may_create(self, caller: Caller, name: TopicName) -> bool:
        return any(self._access.allowed(caller, Action.CREATE, each) for each in (BROKER, _resource(name)))


def _resource(name: TopicName) -> Resource:
    return Resource(ResourceKind.TOPIC, name.namespace, name.name)
