"""Rules for the topics and queues to which producers may send, for every send over remoting or gRPC, alone or in a
batch. Builds no responses: each protocol has its own texts."""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from trimq.core.commit_log.topics import WRITABLE, CommitLogTopic, CommitLogTopicDefinition
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


def find_obstacle(name: str, definition: CommitLogTopicDefinition) -> Obstacle | None:
    if name in BROKER_ONLY_TOPICS:
        return Obstacle.BROKER_ONLY
    if not definition.permissions & WRITABLE:
        return Obstacle.NOT_WRITABLE
    return None if definition.write_streams else Obstacle.NO_QUEUE


def queue_count(definition: CommitLogTopicDefinition) -> int:
    """Returns the number of queues that producers may name, including queues that are being added or removed."""
    return max(definition.read_streams, definition.write_streams)


def resolve_plain(sender: Context, name: str) -> CommitLogTopic | None:
    """Returns the topic of plain messages, which are stored without another check of it until
    `CommitLogTopicApi.revision` changes. Returns None if something must be created, awaited, filled in or refused
    first."""
    services, commit_log = sender.services, sender.commit_log
    if not len(sender.host) == len(services.identity.store_host) == _V4_BYTES or services.sending.sent_ids.is_on:
        return None
    if name.startswith(RETRY_PREFIX) or not commit_log.messages.may_write_to(sender.caller, name):
        return None
    topic = commit_log.topics.find(sender.caller, name)
    if topic is None or topic.creation is not None or find_obstacle(name, topic.definition) is not None:
        return None
    if has_default_ttl(topic.definition) or not commit_log.messages.may_write(sender.caller, topic):
        return None
    return topic


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
