"""Groups that move between Kafka and RocketMQ: of the two committed offsets of a stream the newer one counts, and a
group has members of one protocol at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.errors.groups import GroupOfOtherProtocol
from trimq.model import StreamId
from trimq.storage.group_commit.passes import Ticket

HasMembers = Callable[[str], bool]

_TAKING = "AMQP"


class Takers:
    """Groups that take messages of topics one by one, at present AMQP clients of topics of other layouts. `fetch`
    returns the committed offset of a group, whatever its protocol. `protocol_of` returns the protocol of the members
    that a group has elsewhere, if any."""

    def __init__(
        self,
        fetch: Callable[[str, StreamId], Cursor | None],
        protocol_of: Callable[[str], str | None],
    ) -> None:
        self.fetch = fetch
        self._protocol_of = protocol_of
        self.groups: Counter[str] = Counter()
        """Groups that take messages now, with the number of their topics: a look-up in it costs no call."""

    def cursor(self, group: str, stream: StreamId) -> Cursor | None:
        return self.fetch(group, stream)

    def begin(self, group: str) -> None:
        """Notes that the group takes messages of one more topic. Raises GroupOfOtherProtocol if it has members of
        another protocol."""
        protocol = self._protocol_of(group)
        if protocol is not None:
            raise GroupOfOtherProtocol(group, protocol)
        self.groups[group] += 1

    def end(self, group: str) -> None:
        self.groups[group] -= 1
        if not self.groups[group]:
            del self.groups[group]

    def require_alone(self, group: str) -> None:
        """Raises GroupOfOtherProtocol while the group takes messages: its committed offset is theirs."""
        if group in self.groups:
            raise GroupOfOtherProtocol(group, _TAKING)


class SharedGroups:
    """One side's view of the groups of the other. `protocol`: name of the other protocol for error texts."""

    def __init__(self, others: Cursors, has_other_members: HasMembers, protocol: str) -> None:
        self._others = others
        self._has_other_members = has_other_members
        self._protocol = protocol

    def require_alone(self, group: str) -> None:
        """Raises GroupOfOtherProtocol while the group has members of the other protocol."""
        if self._has_other_members(group):
            raise GroupOfOtherProtocol(group, self._protocol)

    def newest(self, group: str, stream: StreamId, own: Cursor | None) -> Cursor | None:
        """Returns the committed offset that counts; `own` is the one of this side."""
        other = self._others.fetch(group, stream)
        return other if own is None or (other is not None and _is_newer(other, own)) else own

    def merged(self, group: str, own: Mapping[StreamId, Cursor]) -> dict[StreamId, Cursor]:
        """Returns all committed offsets of the group that count."""
        found = dict(own)
        for stream, other in self._others.all(group).items():
            known = found.get(stream)
            if known is None or _is_newer(other, known):
                found[stream] = other
        return found

    def latest(self, own: Ticket | None) -> Ticket | None:
        """Returns the ticket from which on the offsets of both sides are durable."""
        other = self._others.latest
        return other if own is None or (other is not None and other.number > own.number) else own


def _is_newer(other: Cursor, own: Cursor) -> bool:
    return (other.committed_ms, other.offset) > (own.committed_ms, own.offset)
