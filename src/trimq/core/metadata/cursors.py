"""Committed offsets (cursors) of each group on each stream. Stores the offsets it is given: a cursor may move back, and
does not move when the head of its stream is trimmed. Knows no protocol and no stream's ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from uuid import UUID

import msgspec

from trimq.clock import Timeline
from trimq.core.metadata.durable_map import DurableMap
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Ticket

NO_LEADER_EPOCH = -1


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """`offset` is the next offset to read. `committed_ms` shows how long a group has been unused. `readership`: what a
    group that takes messages one by one has settled behind `offset`."""

    offset: int
    committed_ms: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    readership: str = ""


_NONE: Mapping[StreamId, Cursor] = MappingProxyType({})


class Cursors:
    """A commit is visible at once and durable once its ticket's pass is durable. If the pass is refused, the commit is
    rolled back."""

    def __init__(self, table: DurableMap[Cursor], timeline: Timeline) -> None:
        self._table = table
        self._timeline = timeline
        self._groups: dict[str, dict[StreamId, Cursor]] = {}
        self._held: dict[str, Collection[tuple[str, StreamId]]] = {}
        self._holders: dict[tuple[str, StreamId], int] = {}
        self.latest: Ticket | None = None
        """Ticket of the last change. Once its pass is durable and not refused, all cursors visible at that time are
        durable."""
        self._load()
        table.on_undone(self._rolled_back)

    def commit(
        self,
        group: str,
        stream: StreamId,
        offset: int,
        metadata: str = "",
        leader_epoch: int = NO_LEADER_EPOCH,
        committed_ms: int | None = None,
        readership: str = "",
    ) -> Ticket:
        """Sets the group's next offset to read. `committed_ms` is for transactions: the time at which the offset was
        sent, if the transaction commits later."""
        at_ms = self._timeline.now_ms() if committed_ms is None else committed_ms
        cursor = Cursor(offset, at_ms, leader_epoch, metadata, readership)
        self.latest = ticket = self._table.put(_key(group, stream), cursor)
        self._groups.setdefault(group, {})[stream] = cursor
        return ticket

    def fetch(self, group: str, stream: StreamId) -> Cursor | None:
        cursors = self._groups.get(group)
        return None if cursors is None else cursors.get(stream)

    # -- transactions

    def hold(self, transaction: str, places: Collection[tuple[str, StreamId]]) -> None:
        """Registers the cursors, by group and stream, that an open transaction moves if it commits. Replaces those
        registered for this transaction before."""
        for place in self._held.pop(transaction, ()):
            self._holders[place] -= 1
            if not self._holders[place]:
                del self._holders[place]
        if places:
            self._held[transaction] = places
            for place in places:
                self._holders[place] = self._holders.get(place, 0) + 1

    def is_unstable(self, group: str, stream: StreamId) -> bool:
        """Returns whether an open transaction moves this cursor if it commits."""
        return (group, stream) in self._holders

    def unstable(self, group: str) -> list[StreamId]:
        """Streams on which an open transaction may move the group's cursor; some may have no cursor yet."""
        return [stream for holder, stream in self._holders if holder == group]

    def unstable_groups(self) -> set[str]:
        """Groups with a cursor that an open transaction may move."""
        return {group for group, _ in self._holders}

    def holders(self, group: str) -> list[str]:
        """Open transactions that may move cursors of the group."""
        return [name for name, places in self._held.items() if any(group == holder for holder, _ in places)]

    # -- listing and deletion

    def all(self, group: str) -> Mapping[StreamId, Cursor]:
        """Returns all cursors of the group as a view, which changes with the next commit."""
        return self._groups.get(group, _NONE)

    def groups(self) -> list[str]:
        """Groups that have a cursor."""
        return list(self._groups)

    def delete(self, group: str, topic: UUID | None = None) -> Ticket | None:
        """Deletes the group's cursors, or those of one topic. Returns None if there were none."""
        streams = [stream for stream in self.all(group) if topic is None or stream.topic == topic]
        return self._remove(group, streams)

    def delete_stream(self, group: str, stream: StreamId) -> Ticket | None:
        """Deletes one cursor. Returns None if there was none."""
        return self._remove(group, [stream] if stream in self.all(group) else [])

    def delete_topic(self, topic: UUID) -> Ticket | None:
        """Deletes all groups' cursors of a deleted topic. Returns None if there were none."""
        last = None
        for group in self.groups():
            last = self.delete(group, topic) or last
        return last

    def delete_strays(self, topics: Collection[UUID]) -> None:
        """Deletes the cursors of all topics but these. A crash or a refused write may have left cursors of a deleted
        topic."""
        strays = dict.fromkeys(stream.topic for cursors in self._groups.values() for stream in cursors)
        for topic in strays:
            if topic not in topics:
                self.delete_topic(topic)

    def _remove(self, group: str, streams: Collection[StreamId]) -> Ticket | None:
        ticket = None
        for stream in streams:
            self.latest = ticket = self._table.delete(_key(group, stream))
            self._set(group, stream, None)
        return ticket

    def _set(self, group: str, stream: StreamId, cursor: Cursor | None) -> None:
        if cursor is not None:
            self._groups.setdefault(group, {})[stream] = cursor
            return
        cursors = self._groups.get(group, {})
        cursors.pop(stream, None)
        if not cursors:
            self._groups.pop(group, None)

    def _rolled_back(self, keys: Collection[str]) -> None:
        if self.latest is not None:
            # The cursors visible now are from earlier passes: they are durable once the passes up to that one are.
            self.latest = Ticket(self.latest.number)
        for key in keys:
            topic, index, group = key.split("/", 2)
            self._set(group, StreamId(UUID(topic), int(index)), self._table.get(key))

    def _load(self) -> None:
        # Groups share streams: one object for each saves memory.
        streams: dict[tuple[str, str], StreamId] = {}
        topics: dict[str, UUID] = {}
        for key, cursor in self._table.items():
            topic, index, group = key.split("/", 2)
            stream = streams.get((topic, index))
            if stream is None:
                if topic not in topics:
                    topics[topic] = UUID(topic)
                stream = streams[topic, index] = StreamId(topics[topic], int(index))
            self._groups.setdefault(group, {})[stream] = cursor


def _key(group: str, stream: StreamId) -> str:
    """The group's name comes last because it may contain any character."""
    return f"{stream.topic.hex}/{stream.number}/{group}"
