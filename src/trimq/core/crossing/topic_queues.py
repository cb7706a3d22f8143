"""Topics as queues of AMQP, made on demand: one for each topic that has consumers."""

from __future__ import annotations

from uuid import UUID

from trimq.core.crossing.topic_queue import TopicQueue
from trimq.core.crossing.topics import ForeignTopic, ForeignTopics
from trimq.core.queues.arguments import STREAM
from trimq.core.queues.queue import Queue
from trimq.core.queues.registry import Declaration, DeclareResult, QueueRegistry
from trimq.core.security.access import Action
from trimq.errors import OtherHome
from trimq.errors.queues import UnknownQueue
from trimq.model import SYSTEM, Caller, Layout


class TopicQueues:
    def __init__(self, topics: ForeignTopics, queues: QueueRegistry) -> None:
        self._topics = topics
        self._queues = queues
        self._consumed: dict[UUID, TopicQueue] = {}

    def get(self, caller: Caller, name: str, action: Action) -> Queue:
        """Returns the topic as a queue. Raises UnknownQueue if there is none, AccessDenied unless the caller may
        perform `action` on it."""
        found = self._topics.find(caller, name, Layout.QUEUE_LOG, action)
        if found is None:
            raise UnknownQueue(name, caller.namespace)
        return self._consumed.get(found.id) or self._make(found)

    def declare(self, caller: Caller, declaration: Declaration) -> DeclareResult:
        """Answers the declaration of a queue whose name belongs to a topic: nearly every program declares the queue
        that it is about to use. Raises OtherHome for one that a topic does not meet."""
        asked = [pair for pair in declaration.arguments.items() if pair != ("x-queue-type", STREAM)]
        is_passing = declaration.is_exclusive or declaration.is_auto_delete or not declaration.is_durable
        found = None
        if not asked and not is_passing:
            found = self._topics.find(caller, declaration.name, Layout.QUEUE_LOG)
        if found is None:
            layout = self._topics.layout_of(caller.namespace, declaration.name)
            raise OtherHome(declaration.name, layout.value)
        return DeclareResult(self._consumed.get(found.id) or self._make(found), None)

    def _make(self, topic: ForeignTopic) -> TopicQueue:
        def is_known() -> bool:
            return self._topics.by_id(SYSTEM, topic.id, Layout.QUEUE_LOG) is not None

        return TopicQueue(topic, self._queues.services, self._forget, self._remember, is_known)

    def _remember(self, queue: TopicQueue) -> None:
        self._consumed[queue.id] = queue

    def _forget(self, queue: TopicQueue) -> None:
        if self._consumed.get(queue.id) is queue:
            del self._consumed[queue.id]
