"""Rules for where producers may store messages: asked by every send, over remoting or gRPC, alone or in a batch. Makes
no answers: each protocol has its own words for an obstacle."""

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
    """Reasons for which a topic takes no message of a producer, in the order in which they are looked for."""

    BROKER_ONLY = "only the broker itself sends to it"
    NOT_WRITABLE = "its permissions forbid it"
    NO_QUEUE = "it has no queue to write to"


class SendTarget:
    """A topic as its producers see it. `queue_count` is the number of queues that they may name."""

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
        """None: there is no such topic. Refusal: the sender may not know of it."""
        topic = sender.commit_log_api.find(sender.caller, name)
        return None if topic is None else cls(name, topic)

    @classmethod
    def resolve_plain(cls, sender: Context, name: str) -> SendTarget | None:
        """The target of plain messages, which are stored without another look at their topic: until
        `CommitLogApi.revision` changes. None: something has to be created, awaited, filled in or refused first."""
        services = sender.services
        if not len(sender.host) == len(services.identity.store_host) == _V4_BYTES or services.sending.sent_ids.is_on:
            return None
        target = None if name.startswith(RETRY_PREFIX) else cls.resolve(sender, name)
        if target is None or target.obstacle is not None:
            return None
        topic = target.topic
        if topic.creation is not None or has_default_ttl(topic.definition):
            return None
        return target if sender.commit_log_api.may_write(sender.caller, topic) else None

    def queue(self, number: int) -> MessageQueue | None:
        """None: producers may not name it."""
        return self.topic.stream(number) if 0 <= number < self.queue_count else None


class TargetCache(dict[K, V], Generic[K, V]):
    """Plain targets of one connection, until a topic or a right changes. Holds about `limit` of them."""

    __slots__ = ("_limit", "_revision")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._revision = -1

    def refresh(self, revision: int) -> None:
        """Forget what may have changed. Call before each batch."""
        if self._revision != revision or len(self) > self._limit:
            self._revision = revision
            self.clear()
