"""Routes of the broker in this process, as the name server returns them: its topics, without the write permission if an
operator wiped it here. A later change of a topic ends that override for the topic."""

from __future__ import annotations

from collections.abc import Iterator

from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.api.foreign_topics import ForeignTopicApi
from trimq.core.commit_log.topics import WRITABLE, CommitLogTopic, CommitLogTopicDefinition
from trimq.model import Caller
from trimq.protocols.rocketmq.name_server.broker_registry import MASTER, BrokerData
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.wire.registrations import QueueData


class OwnRoutes:
    def __init__(self, topic_api: CommitLogTopicApi, foreign_topics: ForeignTopicApi, identity: Identity) -> None:
        self._foreign_topics = foreign_topics
        self._topic_api = topic_api
        self._identity = identity
        self._overruled: dict[str, tuple[int, int]] = {}
        """By topic name: topic version and permissions of the override."""

    @property
    def broker(self) -> BrokerData | None:
        """None: the broker does not listen."""
        identity = self._identity
        if not identity.address:
            return None
        return BrokerData(identity.cluster_name, identity.broker_name, addresses={MASTER: identity.address})

    def topics(self, caller: Caller) -> Iterator[tuple[str, QueueData] | None]:
        """Yields None for each topic that is left out: the broker may work meanwhile."""
        if self._identity.address:
            for topic in self._topic_api.all(caller):
                yield topic.name.name, self._queues(topic)
            for foreign in self._foreign_topics.units(caller, self._identity.store_host):
                yield None if foreign is None else (foreign.name.name, _queue_data(foreign.definition))

    def topic(self, caller: Caller, name: str) -> QueueData | None:
        if not self._identity.address:
            return None
        found = self._topic_api.find(caller, name)
        if found is not None:
            return self._queues(found)
        foreign = self._foreign_topics.find_units(caller, name, self._identity.store_host)
        return None if foreign is None else _queue_data(foreign.definition)

    def _queues(self, topic: CommitLogTopic) -> QueueData:
        definition = topic.definition
        version, permissions = self._overruled.get(definition.name, (-1, 0))
        if version != topic.version:
            permissions = definition.permissions
        return QueueData(definition.read_streams, definition.write_streams, permissions, definition.flags)

    def set_writable(self, caller: Caller, is_writable: bool) -> int:
        """Sets or wipes the write permission of all topics. Returns the number of topics."""
        topics = self._topic_api.all(caller)
        self._overruled = {}
        for topic in topics:
            known = topic.definition.permissions
            bits = known | WRITABLE if is_writable else known & ~WRITABLE
            if bits != known:
                self._overruled[topic.definition.name] = (topic.version, bits)
        return len(topics)


def _queue_data(definition: CommitLogTopicDefinition) -> QueueData:
    return QueueData(definition.read_streams, definition.write_streams, definition.permissions, definition.flags)
