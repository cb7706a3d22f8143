"""Verbs on topics of other layouts, reached as `broker.foreign_topics`. Each checks the caller's rights on the topic
itself, then delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from trimq.core.crossing.partitions import BatchedTopic
from trimq.core.crossing.producers import ForeignProducers, sequence_text
from trimq.core.crossing.streams import ForeignStream
from trimq.core.crossing.targets import ForeignTargets, Placed
from trimq.core.crossing.topics import ForeignTopic, ForeignTopics
from trimq.core.crossing.units import UnitTopic
from trimq.core.security.access import Action
from trimq.errors import LimitReached, UnknownStream
from trimq.formats.crossing import kafka
from trimq.formats.crossing.neutral import Neutral
from trimq.formats.kafka_batch.header import BatchHeader
from trimq.formats.kafka_batch.records import to_records
from trimq.model import Buffer, Caller, Layout


class ForeignTopicApi:
    def __init__(
        self, topics: ForeignTopics, targets: ForeignTargets, producers: ForeignProducers, batch_records: int
    ) -> None:
        self._topics = topics
        self._targets = targets
        self._producers = producers
        self._batch_records = batch_records

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

    def batched(self, caller: Caller) -> Iterator[BatchedTopic | None]:
        """Yields the topics of other layouts that a reader of batches may see in a list, and None for each that is left
        out: the broker may work meanwhile."""
        for topic in self._topics.visible(caller, Layout.PARTITION_LOG):
            yield None if topic is None else BatchedTopic(topic)

    def find_units(
        self, caller: Caller, name: str, store_host: bytes, action: Action = Action.DESCRIBE
    ) -> UnitTopic | None:
        """As `find_batched`, for a reader of message units."""
        found = self._topics.find(caller, name, Layout.COMMIT_LOG, action)
        return None if found is None else UnitTopic(found, store_host)

    def units(self, caller: Caller, store_host: bytes) -> Iterator[UnitTopic | None]:
        """As `batched`, for a reader of message units."""
        for topic in self._topics.visible(caller, Layout.COMMIT_LOG):
            yield None if topic is None else UnitTopic(topic, store_host)

    def start(self, store_host: Callable[[], bytes]) -> None:
        """Sets the address of the broker that messages of the commit log carry."""
        self._targets.store_host = store_host

    def append(self, caller: Caller, topic: ForeignTopic, number: int, messages: Sequence[Neutral]) -> Placed:
        """Appends messages to one stream in one pass: all of them or none."""
        self._check_count(len(messages))
        return self._targets.append(caller, topic, number, messages)

    def append_batch(
        self, caller: Caller, topic: BatchedTopic, number: int, batch: Buffer, header: BatchHeader
    ) -> Placed:
        """Appends the records of one batch, whose checksum was checked. A batch that an idempotent producer repeats is
        not stored again."""
        self._topics.require_write(caller, topic.foreign)
        self._check_count(header.record_count)
        stream = topic.foreign.stream(number)
        is_idempotent = header.producer_id >= 0
        if is_idempotent and (known := self._producers.find_duplicate(stream, header)) is not None:
            return known
        messages = [
            kafka.to_neutral(record, is_stored=False)
            for record in to_records(batch, 0, self._topics.max_expanded_bytes)
        ]
        if is_idempotent:
            messages = [
                message._replace(sequence=sequence_text(header, index)) for index, message in enumerate(messages)
            ]
        placed = self._targets.append(caller, topic.foreign, number, messages)
        return self._producers.note(stream.id, header, placed) if is_idempotent else placed

    def _check_count(self, count: int) -> None:
        if count > self._batch_records:
            raise LimitReached(
                "messages of a batch for a topic of another protocol", self._batch_records, "cross.batch_records"
            )

    def readable_stream(self, caller: Caller, id: UUID, number: int) -> ForeignStream:
        """Returns a stream of any layout, whose messages are read as neutral ones. Raises AccessDenied unless the
        caller may read the topic, UnknownStream if there is none."""
        found = self._topics.find_any(id)
        if found is None:
            raise UnknownStream("", number)
        self._topics.require_read(caller, found)
        return found.stream(number)

    def find(self, caller: Caller, name: str, face: Layout, action: Action = Action.DESCRIBE) -> ForeignTopic | None:
        """Returns the topic that clients of the layout `face` call `name`. None: there is none. Raises AccessDenied
        unless the caller may perform `action`."""
        return self._topics.find(caller, name, face, action)

    def visible(self, caller: Caller, face: Layout) -> Iterator[ForeignTopic | None]:
        """Yields the topics of other layouts that clients of the layout `face` see in a list, and None for each that is
        left out."""
        return self._topics.visible(caller, face)
