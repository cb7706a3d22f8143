"""Topics as queues of AMQP, made on demand: one for each topic that is read by offset or published to, and one for each
topic and group that takes its messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID, uuid5

from trimq.core.crossing.groups import Takers
from trimq.core.crossing.taken_topic import GroupCursors, TakenTopic
from trimq.core.crossing.targets import ForeignTargets
from trimq.core.crossing.topic_queue import OFFSET_HEADER, TopicQueue
from trimq.core.crossing.topics import ForeignTopic, ForeignTopics
from trimq.core.metadata.cursors import Cursors
from trimq.core.queues.arguments import STREAM
from trimq.core.queues.queue import Queue
from trimq.core.queues.registry import Declaration, DeclareResult, QueueRegistry
from trimq.core.security.access import Access, Action
from trimq.errors import OtherHome
from trimq.errors.queues import Inequivalent, InvalidArgument, UnknownQueue
from trimq.formats.amqp_content.field_tables import Value
from trimq.model import SYSTEM, Caller, Layout, StreamId

GROUP_ARGUMENT = "x-group"
DEFAULT_GROUP = "amqp"

_KEPT = 10_000  # queues of topics without consumers


class TopicQueues:
    """`takers`: groups that take messages at present."""

    def __init__(
        self,
        topics: ForeignTopics,
        targets: ForeignTargets,
        queues: QueueRegistry,
        cursors: Cursors,
        access: Access,
        takers: Takers,
    ) -> None:
        self._topics = topics
        self._targets = targets
        self._queues = queues
        self._cursors = cursors
        self._access = access
        self._takers = takers
        self._observed: dict[UUID, TopicQueue] = {}
        self._taken: dict[UUID, TakenTopic] = {}
        queues.find_topic = self.find_destination
        queues.find_taken = self._taken.get

    # -- lookup

    def find_destination(self, namespace: str, name: str) -> Queue | None:
        """Returns the topic as a queue to which messages are routed. None: there is none."""
        found = self._topics.find_destination(namespace, name)
        return None if found is None else self._observer(found)

    def get(self, caller: Caller, name: str, action: Action, arguments: Mapping[str, Value] | None = None) -> Queue:
        """Returns the topic as a queue: one that a consumer with these arguments reads by offset, or from which its
        group takes messages. Raises UnknownQueue if there is none, AccessDenied unless the caller may perform `action`
        on topic and group."""
        found = self._topics.find(caller, name, Layout.QUEUE_LOG, action)
        if found is None:
            raise UnknownQueue(name, caller.namespace)
        if arguments is not None and OFFSET_HEADER in arguments:
            return self._observer(found)
        group = _group_of(found, arguments or {})
        if action is Action.READ and group != DEFAULT_GROUP:
            self._access.require_group(caller, Action.READ, group)
        return self.taken(found, group)

    def declare(self, caller: Caller, declaration: Declaration) -> DeclareResult:
        """Answers the declaration of a queue whose name belongs to a topic: nearly every program declares the queue
        that it is about to use. Raises Inequivalent or InvalidArgument for one that a topic does not meet."""
        name, namespace = declaration.name, declaration.namespace
        found = self._topics.find(caller, name, Layout.QUEUE_LOG)
        if found is None:  # topics of other layouts are unknown to clients: see `cross.list`
            raise OtherHome(name, self._topics.layout_of(namespace, name).value)
        for property, received, current in (
            ("durable", declaration.is_durable, True),
            ("exclusive", declaration.is_exclusive, False),
            ("auto_delete", declaration.is_auto_delete, False),
        ):
            if received != current:
                raise Inequivalent("queue", name, namespace, property, received, current)
        for argument, value in declaration.arguments.items():
            if (argument, value) != ("x-queue-type", STREAM):
                raise InvalidArgument(argument, "queue", name, namespace, "not for a topic of another protocol", value)
        return DeclareResult(self.taken(found, DEFAULT_GROUP), None)

    def require_none(self, caller: Caller, name: str) -> None:
        """Raises OtherHome if a topic has this name."""
        found = self._topics.find_destination(caller.namespace, name)
        if found is not None:
            raise OtherHome(name, found.layout.value)

    # -- topics that are read by offset, and published to

    def _observer(self, topic: ForeignTopic) -> TopicQueue:
        found = self._observed.get(topic.id)
        if found is None or found.topic.home is not topic.home:
            if len(self._observed) >= _KEPT:
                self._observed = {id: each for id, each in self._observed.items() if each.consumer_count}
            append = partial(self._targets.append_routed, topic)
            found = TopicQueue(topic, self._queues.services, append, partial(self._is_known, topic.id))
            self._observed[topic.id] = found
        return found

    def _is_known(self, id: UUID) -> bool:
        return self._topics.by_id(SYSTEM, id, Layout.QUEUE_LOG) is not None

    # -- topics whose messages are taken

    def taken(self, topic: ForeignTopic, group: str) -> TakenTopic:
        """Returns the topic as the queue of this group."""
        id = uuid5(topic.id, group)
        found = self._taken.get(id)
        if found is not None:
            return found
        cursors = GroupCursors(partial(self._takers.cursor, group), partial(self._commit, group))
        return TakenTopic(
            id, topic, group, self._queues.services, cursors, self._begin, self._end, partial(self._is_known, topic.id)
        )

    def _commit(self, group: str, stream: StreamId, offset: int, row: str) -> None:
        self._cursors.commit(group, stream, offset, readership=row)

    def _begin(self, queue: TakenTopic) -> None:
        if queue.id not in self._taken:
            self._takers.begin(queue.group)
            self._taken[queue.id] = queue

    def _end(self, queue: TakenTopic) -> None:
        if self._taken.get(queue.id) is queue:
            del self._taken[queue.id]
            self._takers.end(queue.group)


def _group_of(topic: ForeignTopic, arguments: Mapping[str, Value]) -> str:
    group = arguments.get(GROUP_ARGUMENT, DEFAULT_GROUP)
    if not isinstance(group, str) or not group:
        raise InvalidArgument(GROUP_ARGUMENT, "consumer", topic.face_name, topic.home_name.namespace, "no name", group)
    return group
