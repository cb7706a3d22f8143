"""Rules for the topics and queues to which producers may send, for every send over remoting or gRPC, alone or in a
batch. Builds no responses: each protocol has its own texts."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import WRITABLE, CommitLogTopic
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.message_ttl import has_default_ttl
from trimq.protocols.rocketmq.state.system_topics import BROKER_ONLY_TOPICS, RETRY_PREFIX

K = TypeVar("K")
V = TypeVar("V")

_V4_BYTES = 8


class Obstacle(Enum):
    """Reasons why a topic accepts no messages from producers, in the order in which they are checked."""

    BROKER_ONLY = "only the broker may send to this topic"
    NOT_WRITABLE = "the topic is not writable"
    NO_QUEUE = "the topic has no write queue"


class SendTarget:
    """Topic as seen by its producers. `queue_count` is the number of queues that they may name."""

    __slots__ = ("name", "obstacle", "queue_count", "topic")

    def __init__(self, name: str, topic: CommitLogTopic) -> None:
        definition = topic.definition
        self.name = name
        self.topic = topic
        self.queue_count = max(definition.read_streams, definition.write_streams)
        self.obstacle: Obstacle | None = None
        if name in BROKER_ONLY_TOPICS:
            self.obstacle = Obstacle.BROKER_ONLY
        elif not definition.permissions & WRITABLE:
            self.obstacle = Obstacle.NOT_WRITABLE
        elif not definition.write_streams:
            self.obstacle = Obstacle.NO_QUEUE

    @classmethod
    def resolve(cls, sender: Context, name: str) -> SendTarget | None:
        """Returns None if there is no such topic. Raises a Refusal if the sender may not see it."""
        topic = sender.commit_log_api.find(sender.caller, name)
        return None if topic is None else cls(name, topic)

    @classmethod
    def resolve_plain(cls, sender: Context, name: str) -> SendTarget | None:
        """Returns the target of plain messages, which are stored without another check of their topic until
        `CommitLogApi.revision` changes. Returns None if something must be created, awaited, filled in or refused
        first."""
        services = sender.services
        if not len(sender.host) == len(services.identity.store_host) == _V4_BYTES or services.repeats.is_on:
            return None
        target = None if name.startswith(RETRY_PREFIX) else cls.resolve(sender, name)
        if target is None or target.obstacle is not None:
            return None
        topic = target.topic
        if topic.creation is not None or has_default_ttl(topic.definition):
            return None
        return target if sender.commit_log_api.may_write(sender.caller, topic) else None

    def queue(self, number: int) -> MessageQueue | None:
        """Returns the queue, or None if producers may not name it."""
        return self.topic.stream(number) if 0 <= number < self.queue_count else None


class TargetCache(dict[K, V], Generic[K, V]):
    """Plain targets of one connection, valid until a topic or a permission changes. Holds about `limit` entries."""

    __slots__ = ("_limit", "_revision")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._revision = -1

    def refresh(self, revision: int) -> None:
        """Clears outdated entries. Call before each batch."""
        if self._revision != revision or len(self) > self._limit:
            self._revision = revision
            self.clear()
