"""Topics of other layouts, found by the names that clients of one protocol use. Knows rights: nobody sees a topic
through another protocol that they may not see through its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopics
from trimq.core.crossing.names import escape, unescape
from trimq.core.crossing.streams import CommitLogView, ForeignStream, OpenedBatches, PartitionView, QueueView
from trimq.core.partitions.topics import Topic, Topics
from trimq.core.queues.arguments import QUORUM, QUORUM_PRIORITIES, STREAM
from trimq.core.queues.queue import Queue
from trimq.core.queues.registry import QueueRegistry
from trimq.core.routing.exchanges import RESERVED_PREFIX
from trimq.core.security.access import Access, Action, Resource, ResourceKind
from trimq.errors import UnknownStream
from trimq.model import SYSTEM, Caller, Layout, StreamId, TopicName

_Home = Topic | CommitLogTopic | Queue


class ForeignTopic:
    """One topic or queue as a client of another protocol sees it. `name`: in that protocol's spelling. `gives_away`:
    its own consumers settle messages, which are gone then."""

    def __init__(self, name: str, home: _Home, services: ForeignTopics) -> None:
        self.face_name = name
        self.home = home
        self._services = services
        self.id: UUID = home.id
        self.home_name = TopicName(home.namespace, home.name) if isinstance(home, Queue) else home.name
        self.resource = Resource(ResourceKind.TOPIC, *self.home_name)
        self.layout = _layout_of(home)
        self.gives_away = isinstance(home, Queue) and home.kind != STREAM

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself writes to the topic: clients of other protocols must not."""
        return self._services.is_internal(self.home)

    @property
    def written_streams(self) -> int:
        """Number of streams that accept writes, from the first on."""
        home = self.home
        return home.definition.write_streams if isinstance(home, CommitLogTopic) else self.stream_count

    @property
    def stream_count(self) -> int:
        home = self.home
        if isinstance(home, Topic):
            return len(home.streams)
        if isinstance(home, CommitLogTopic):
            return home.stream_count
        if home.kind == QUORUM:
            return QUORUM_PRIORITIES
        return home.settings.max_priority + 1

    def stream(self, number: int) -> ForeignStream:
        """Raises UnknownStream if there is none."""
        if not 0 <= number < self.stream_count:
            raise UnknownStream(self.face_name, number)
        home, services = self.home, self._services
        if isinstance(home, Topic):
            return PartitionView(home.stream(number), services.opened, services.max_expanded_bytes)
        if isinstance(home, CommitLogTopic):
            return CommitLogView(home.stream(number), services.max_expanded_bytes)
        return QueueView(home, number, self.gives_away, services.now_ms)


def _layout_of(home: _Home) -> Layout:
    if isinstance(home, Topic):
        return Layout.PARTITION_LOG
    return Layout.COMMIT_LOG if isinstance(home, CommitLogTopic) else Layout.QUEUE_LOG


class ForeignTopics:
    """`listing`: `all` lists foreign topics, `named` finds them by name only, `off` not at all."""

    def __init__(
        self,
        topics: Topics,
        commit_log_topics: CommitLogTopics | None,
        queues: QueueRegistry,
        access: Access,
        now_ms: Callable[[], int],
        max_expanded_bytes: int,
        listing: str,
    ) -> None:
        self._topics = topics
        self._commit_log_topics = commit_log_topics
        self._queues = queues
        self._access = access
        self._listing = listing
        self.opened = OpenedBatches()
        self.now_ms = now_ms
        self.max_expanded_bytes = max_expanded_bytes
        self.is_system_topic: Callable[[str], bool] = lambda name: False
        """Whether a topic of the commit log belongs to the broker itself."""

    @property
    def is_listed(self) -> bool:
        return self._listing == "all"

    def find(self, caller: Caller, name: str, face: Layout, action: Action = Action.DESCRIBE) -> ForeignTopic | None:
        """Returns the topic of another layout that a client of the layout `face` calls `name`: by its literal name,
        else by the escaped one. None: there is none, or it is hidden. Raises AccessDenied unless the caller may perform
        `action` on it."""
        if self._listing == "off":
            return None
        found = self._find_home(TopicName(caller.namespace, name), face)
        if found is None and (full := unescape(name, face)) is not None:
            found = self._find_home(full, face)
        if found is None or self._is_hidden(found, is_named=True):
            return None
        topic = ForeignTopic(name, found, self)
        self._access.require(caller, action, topic.resource)
        return topic

    def find_destination(self, namespace: str, name: str) -> ForeignTopic | None:
        """Returns the topic to which messages of AMQP clients are routed by this name: one that lists may show."""
        if self._listing == "off":
            return None
        found = self._find_home(TopicName(namespace, name), Layout.QUEUE_LOG)
        return None if found is None or self._is_hidden(found, is_named=False) else ForeignTopic(name, found, self)

    def by_id(self, caller: Caller, id: UUID, face: Layout, action: Action = Action.DESCRIBE) -> ForeignTopic | None:
        """As `find`, by id."""
        if self._listing == "off":
            return None
        found: _Home | None = None if face is Layout.PARTITION_LOG else self._topics.find_id(id)
        if found is None and face is not Layout.COMMIT_LOG and self._commit_log_topics is not None:
            found = self._commit_log_topics.find_id(id)
        if found is None and face is not Layout.QUEUE_LOG:
            found = self._queues.find_by_id(id)
        if found is None or self._is_hidden(found, is_named=True):
            return None
        topic = self._shown(caller, found, face)
        if topic is not None:
            self._access.require(caller, action, topic.resource)
        return topic

    def require_read(self, caller: Caller, topic: ForeignTopic) -> None:
        """Raises AccessDenied unless the caller may read the topic."""
        self._access.require(caller, Action.READ, topic.resource)

    def require_write(self, caller: Caller, topic: ForeignTopic) -> None:
        """Raises AccessDenied unless the caller may write to the topic."""
        self._access.require(caller, Action.WRITE, topic.resource)

    def find_any(self, id: UUID) -> ForeignTopic | None:
        """Returns the topic of any layout with this id, without a name of another protocol."""
        found: _Home | None = self._topics.find_id(id)
        if found is None and self._commit_log_topics is not None:
            found = self._commit_log_topics.find_id(id)
        if found is None:
            found = self._queues.find_by_id(id)
        return None if found is None else ForeignTopic("", found, self)

    def stream_of(self, id: StreamId) -> ForeignStream | None:
        """Returns a stream of any layout by its id, if its topic still exists."""
        found = self.find_any(id.topic)
        try:
            return None if found is None else found.stream(id.number)
        except UnknownStream:
            return None

    def layout_of(self, namespace: str, name: str) -> Layout:
        """Layout of the topic that has a name which queues cannot take."""
        found = self._topics.find(TopicName(namespace, name))
        return Layout.COMMIT_LOG if found is None else Layout.PARTITION_LOG

    def visible(self, caller: Caller, face: Layout) -> Iterator[ForeignTopic | None]:
        """Yields the topics of other layouts for a list, one at a time: the broker may work meanwhile. Yields None for
        each that is left out."""
        if self._listing != "all":
            return
        for topic in self._iterate(caller, face):
            is_seen = topic is not None and self._access.allowed(caller, Action.DESCRIBE, topic.resource)
            yield topic if is_seen else None

    def shapes(self, face: Layout) -> Iterator[tuple[str, UUID, int]]:
        """Yields name, id and number of streams of each topic that groups of clients of this layout can be assigned.
        The members' rights are checked elsewhere."""
        if self._listing != "off":
            for topic in filter(None, self._iterate(SYSTEM, face)):
                yield topic.face_name, topic.id, topic.stream_count

    def count(self, face: Layout) -> int:
        """Number of topics of other layouts, hidden ones included: it changes when one is created or deleted."""
        shared = 0 if self._commit_log_topics is None else len(self._commit_log_topics)
        counts = {
            Layout.PARTITION_LOG: len(self._topics),
            Layout.COMMIT_LOG: shared,
            Layout.QUEUE_LOG: len(self._queues),
        }
        return sum(count for layout, count in counts.items() if layout is not face)

    def _iterate(self, caller: Caller, face: Layout) -> Iterator[ForeignTopic | None]:
        for home in self._homes(face):
            yield None if self._is_hidden(home, is_named=False) else self._shown(caller, home, face)

    def _shown(self, caller: Caller, home: _Home, face: Layout) -> ForeignTopic | None:
        """The topic under the name that `find` finds it by. None: the name is too long, taken, or in a namespace that
        clients of this layout do not reach."""
        full = TopicName(home.namespace, home.name) if isinstance(home, Queue) else home.name
        if face is Layout.QUEUE_LOG and full.namespace != caller.namespace:
            return None
        name = escape(full, face)
        if name is None:
            return None
        literal = TopicName(caller.namespace, name)
        if literal != full and (self._find_own(literal, face) or self._find_home(literal, face) is not None):
            return None
        return ForeignTopic(name, home, self)

    def _find_own(self, name: TopicName, face: Layout) -> bool:
        if face is Layout.PARTITION_LOG:
            return self._topics.find(name) is not None
        if face is Layout.COMMIT_LOG:
            return self._commit_log_topics is not None and self._commit_log_topics.find(name) is not None
        return self._queues.find(name.namespace, name.name) is not None

    def _find_home(self, name: TopicName, face: Layout) -> _Home | None:
        if face is not Layout.PARTITION_LOG and (found := self._topics.find(name)) is not None:
            return found
        if face is not Layout.COMMIT_LOG and self._commit_log_topics is not None:
            shared = self._commit_log_topics.find(name)
            if shared is not None:
                return shared
        return None if face is Layout.QUEUE_LOG else self._queues.find(name.namespace, name.name)

    def _homes(self, face: Layout) -> Iterator[_Home]:
        if face is not Layout.PARTITION_LOG:
            yield from list(self._topics)
        if face is not Layout.COMMIT_LOG and self._commit_log_topics is not None:
            yield from list(self._commit_log_topics)
        if face is not Layout.QUEUE_LOG:
            yield from self._queues

    def _is_hidden(self, home: _Home, is_named: bool) -> bool:
        """Whether other protocols do not see it: queues of one connection or made for the moment, and what the broker
        keeps for itself, which whoever may read it finds by name."""
        if isinstance(home, Queue):
            is_passing = home.owner is not None or home.definition.is_auto_delete or home.is_deleted
            return is_passing or home.name.startswith(RESERVED_PREFIX)
        if isinstance(home, CommitLogTopic):
            return not is_named and self.is_internal(home)
        return self.is_internal(home)

    def is_internal(self, home: _Home) -> bool:
        """Whether the topic belongs to the broker itself, as retry and dead-letter topics."""
        if isinstance(home, CommitLogTopic):
            return home.name.name.startswith("%") or self.is_system_topic(home.name.name)
        return isinstance(home, Topic) and home.name.name.startswith("__")
