"""Verbs on topics of other layouts, reached as `broker.foreign_topics`. Each checks the caller's rights on the topic
itself, then delegates."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from trimq.core.crossing.partitions import BatchedTopic
from trimq.core.crossing.topics import ForeignTopic, ForeignTopics
from trimq.core.crossing.units import UnitTopic
from trimq.core.security.access import Action
from trimq.model import Caller, Layout


class ForeignTopicApi:
    def __init__(self, topics: ForeignTopics) -> None:
        self._topics = topics

    def find_batched(
        self, caller: Caller, name: str, id: UUID | None, action: Action = Action.DESCRIBE
    ) -> BatchedTopic | None:
        """Returns the topic of another layout with this name, or else this id, for a reader of batches. None: there is
        none. Raises AccessDenied unless the caller may perform `action`."""
        face = Layout.PARTITION_LOG
        if name or id is None:
            found = self._topics.find(caller, name, face, action)
        else:
            found = self._topics.by_id(caller, id, face, action)
        return None if found is None else BatchedTopic(found)

    def batched(self, caller: Caller) -> Iterator[BatchedTopic]:
        """Yields the topics of other layouts that a reader of batches may see in a list."""
        return map(BatchedTopic, self._topics.visible(caller, Layout.PARTITION_LOG))

    def find_units(
        self, caller: Caller, name: str, store_host: bytes, action: Action = Action.DESCRIBE
    ) -> UnitTopic | None:
        """As `find_batched`, for a reader of message units."""
        found = self._topics.find(caller, name, Layout.COMMIT_LOG, action)
        return None if found is None else UnitTopic(found, store_host)

    def units(self, caller: Caller, store_host: bytes) -> Iterator[UnitTopic]:
        """Yields the topics of other layouts that a reader of message units may see in a list."""
        for topic in self._topics.visible(caller, Layout.COMMIT_LOG):
            yield UnitTopic(topic, store_host)

    def find(self, caller: Caller, name: str, face: Layout, action: Action = Action.DESCRIBE) -> ForeignTopic | None:
        """Returns the topic that clients of the layout `face` call `name`. None: there is none. Raises AccessDenied
        unless the caller may perform `action`."""
        return self._topics.find(caller, name, face, action)

    def visible(self, caller: Caller, face: Layout) -> Iterator[ForeignTopic]:
        """Yields the topics of other layouts that clients of the layout `face` see in a list."""
        return self._topics.visible(caller, face)
