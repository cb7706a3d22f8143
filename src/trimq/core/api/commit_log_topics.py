"""Verbs on commit-log topics, reached as `commit_log.topics`. Each checks the caller's rights, then delegates."""

from __future__ import annotations

from collections.abc import Callable

from trimq.core.commit_log.retry_topics import find_retry_topics
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition, CommitLogTopics, Gone
from trimq.core.metadata.cursors import Cursors
from trimq.core.security.access import Access, Action, Resource, ResourceKind
from trimq.core.write_gate import WriteGate
from trimq.model import Caller, TopicName
from trimq.storage.group_commit.passes import Ticket


class CommitLogTopicApi:
    def __init__(self, topics: CommitLogTopics, cursors: Cursors, access: Access, gate: WriteGate) -> None:
        self._topics = topics
        self._cursors = cursors
        self._access = access
        self._gate = gate
        self._delete_listeners: list[Callable[[CommitLogTopic], None]] = []

    @property
    def revision(self) -> int:
        """Changes whenever a topic or a right changes."""
        return self._topics.revision + self._access.revision

    def all(self, caller: Caller) -> list[CommitLogTopic]:
        """Topics of the caller's namespace that the caller may see."""
        return [
            topic
            for topic in self._topics
            if topic.name.namespace == caller.namespace
            and self._access.allowed(caller, Action.DESCRIBE, topic.resource)
        ]

    def get(self, caller: Caller, name: str) -> CommitLogTopic:
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, Action.DESCRIBE, full)
        return self._topics.get(full)

    def find(self, caller: Caller, name: str) -> CommitLogTopic | None:
        """Returns the topic, or None if there is none or another layout has it."""
        full = TopicName(caller.namespace, name)
        self._access.require_topic(caller, Action.DESCRIBE, full)
        return self._topics.find(full)

    def check_name(self, name: str) -> None:
        """Raises if no topic can have this name."""
        self._topics.check_name(name)

    def create(self, caller: Caller, definition: CommitLogTopicDefinition) -> tuple[CommitLogTopic, Ticket]:
        resource = Resource(ResourceKind.TOPIC, definition.namespace, definition.name)
        self._access.require(caller, Action.CREATE, resource)
        self._gate.require_writable()
        created = self._topics.create(definition)
        self._access.audit.changed(caller, "create", "topic", definition.name, definition.namespace)
        return created

    def prepare(self, definition: CommitLogTopicDefinition) -> None:
        """Creates a topic that the broker itself needs, before any client is served."""
        self._topics.prepare(definition)

    def change(self, caller: Caller, topic: CommitLogTopic, definition: CommitLogTopicDefinition) -> Ticket:
        self._access.require(caller, Action.ALTER, topic.resource)
        ticket = self._topics.change(topic, definition)
        self._access.audit.changed(caller, "alter", "topic", topic.name.name, topic.name.namespace)
        return ticket

    def enable_ttl(self, topic: CommitLogTopic) -> None:
        """Switches the TTL check of readers on; call before appending a message with a TTL."""
        self._topics.enable_ttl(topic)

    def delete(self, caller: Caller, topic: CommitLogTopic, gone: Gone = lambda refusal: None) -> Ticket:
        """Deletes the topic and its retry topics: their messages must not be delivered to readers of a later topic of
        the same name. `gone` is called when a topic of this name can be created again."""
        self._access.require(caller, Action.DELETE, topic.resource)
        for own in find_retry_topics(self._topics, self._cursors, topic):
            self._topics.delete(own)
        ticket = self._topics.delete(topic, gone)
        self._access.audit.changed(caller, "delete", "topic", topic.name.name, topic.name.namespace)
        for listener in self._delete_listeners:
            listener(topic)
        return ticket

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of any topic."""
        self._topics.on_change(listener)

    def on_delete(self, listener: Callable[[CommitLogTopic], None]) -> None:
        """Calls `listener` for each topic that `delete` is called for, without its retry topics."""
        self._delete_listeners.append(listener)
