"""Cache of the topics that a group can be assigned, with their numbers of streams. Rebuilt only after a change, since
every heartbeat of every member reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from trimq.core.groups.assigned_group import AssignableTopic, KnownTopics
from trimq.core.partitions.topics import Topics
from trimq.model import DEFAULT_NAMESPACE, Layout

Shape = tuple[str, UUID, int]
"""Name, id and number of streams of a topic."""


class AssignableTopics:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._foreign: Callable[[], Iterable[Shape]] = tuple
        self._count_foreign: Callable[[], int] = int
        self._has_changed = True
        self._known = KnownTopics(0, {})

    def changed(self) -> None:
        """Invalidates the cache after a topic was created, deleted or grown."""
        self._has_changed = True

    def add_foreign(self, shapes: Callable[[], Iterable[Shape]], count: Callable[[], int]) -> None:
        """Adds the topics of other layouts. Their number shows creations and deletions without a notification."""
        self._foreign, self._count_foreign = shapes, count
        self._has_changed = True

    def known(self) -> KnownTopics:
        # The rollback of a deletion changes the number of topics without a notification.
        total = len(self._topics) + self._count_foreign()
        if self._has_changed or total != self._known.total:
            self._has_changed = False
            shapes = {name: AssignableTopic(id, count) for name, id, count in self._foreign()} | {
                topic.name.name: AssignableTopic(topic.id, len(topic.streams))
                for topic in self._topics
                if topic.layout is Layout.PARTITION_LOG and topic.name.namespace == DEFAULT_NAMESPACE
            }
            self._known = KnownTopics(self._known.revision + 1, shapes, total)
        return self._known
