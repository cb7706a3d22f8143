"""Lag of groups in streams of every layout: the offsets that a group has committed, and the streams that it has yet to
read from their beginning. Each operation checks the caller's rights."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple
from uuid import UUID

from trimq.core.api.groups import GroupApi
from trimq.core.api.records import ReadableTopic, RecordsApi
from trimq.core.groups.group import GroupDescription
from trimq.errors import UnknownStream
from trimq.formats.kafka_subscription import CONSUMER, read_topics
from trimq.model import Caller, StreamId


class StreamLag(NamedTuple):
    """Progress of a group in one stream. `offset` None: nothing was committed, and the lag counts from the first stored
    message. `metadata`: stored with the offset."""

    topic: str
    number: int
    offset: int | None
    end: int
    lag: int
    metadata: str = ""


class GroupLagApi:
    def __init__(self, group_api: GroupApi, records_api: RecordsApi) -> None:
        self._group_api = group_api
        self._records_api = records_api

    def streams(self, caller: Caller, group: GroupDescription) -> Iterator[StreamLag]:
        """Yields all streams of the topics that the group subscribes to, is assigned, or has committed an offset of.
        The broker may work between two of them."""
        cursors, _ = self._group_api.cursors(caller, group.name)
        for topic in self._topics(caller, group, cursors):
            for number in topic.numbers():
                try:
                    _, start, end = topic.ends(number)
                except UnknownStream:
                    continue  # deleted meanwhile
                cursor = cursors.get(StreamId(topic.id, number))
                if cursor is None:
                    yield StreamLag(topic.name, number, None, end, max(end - start, 0))
                else:
                    lag = max(end - cursor.offset, 0)
                    yield StreamLag(topic.name, number, cursor.offset, end, lag, cursor.metadata)

    def _topics(
        self, caller: Caller, group: GroupDescription, committed: Collection[StreamId]
    ) -> Iterator[ReadableTopic]:
        """Yields topics with a committed offset in the order of the commits, then the others in order of their
        names."""
        ids: dict[UUID, None] = dict.fromkeys(stream.topic for stream in committed)
        for id in ids:
            if (found := self._records_api.find_topic(caller, id)) is not None:
                yield found
        assigned = {stream.topic for member in group.members for stream in member.streams}
        others = [self._records_api.find_topic(caller, id) for id in assigned]
        others += [self._records_api.find_partition_topic(caller, name) for name in self._subscribed(group)]
        by_name = {topic.name: topic for topic in others if topic is not None and topic.id not in ids}
        yield from (by_name[name] for name in sorted(by_name))

    def _subscribed(self, group: GroupDescription) -> set[str]:
        """Names of the subscribed topics. Only groups of Kafka have members, and only topics on partition logs."""
        names = set(group.subscribed)
        if group.protocol_type == CONSUMER:
            for metadata in {metadata for member in group.members for metadata in member.offered}:
                names.update(read_topics(metadata) or ())
        return names
