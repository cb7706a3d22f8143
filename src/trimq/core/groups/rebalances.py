"""Statistics of rebalances since the start of the broker: how many, how long consumers had to wait, which streams moved
to another member, and how many messages arrived meanwhile. Observes groups; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from trimq.core.groups.assigned_group import KnownTopics
from trimq.core.groups.group import GroupDescription, GroupState
from trimq.formats.kafka_subscription import CONSUMER, BadMetadata, read_assignment
from trimq.model import StreamId

Owners = dict[StreamId, str]
"""From each assigned stream to the member that has it: its instance id or else its member id, since a static member
gets another member id when it restarts."""


@dataclass(slots=True, frozen=True)
class RebalanceSummary:
    """`completed` and the totals: of all rebalances that ended with an assignment. The fields with `last` describe the
    latest of them. `running_ms`: age of the one in progress, or None. `moved`: streams that another member had before.
    `arrived`: messages that were appended meanwhile to the streams that the group had before; its members receive them
    as a burst."""

    completed: int = 0
    total_ms: int = 0
    total_moved: int = 0
    total_arrived: int = 0
    last_ms: int = 0
    last_moved: int = 0
    last_arrived: int = 0
    running_ms: int | None = None


@dataclass(slots=True)
class _Observed:
    """`ends`: ends of the group's streams when the rebalance in progress began."""

    generation: int = 0
    owners: Owners = field(default_factory=dict)
    began_ms: int | None = None
    ends: dict[StreamId, int] = field(default_factory=dict)
    summary: RebalanceSummary = field(default_factory=RebalanceSummary)


class Rebalances:
    """`stream_end` returns the end of a stream, or None if it was deleted."""

    def __init__(self, stream_end: Callable[[StreamId], int | None]) -> None:
        self._stream_end = stream_end
        self._observed: dict[str, _Observed] = {}

    def observe(self, name: str, state: GroupState, generation: int, owners: Callable[[], Owners], now_ms: int) -> None:
        """Called after every change of a group. `owners` is called only when a rebalance has ended."""
        known = self._observed.get(name)
        if known is None:
            known = self._observed[name] = _Observed()
        if state is GroupState.EMPTY:
            known.generation, known.owners, known.began_ms = generation, {}, None
        elif state is not GroupState.STABLE:
            self._begin(known, now_ms)
        elif known.began_ms is not None or known.generation != generation:
            self._begin(known, now_ms)
            self._complete(known, generation, owners(), now_ms)

    def _begin(self, known: _Observed, now_ms: int) -> None:
        if known.began_ms is None:
            known.began_ms = now_ms
            known.ends = self._ends(known.owners)

    def _complete(self, known: _Observed, generation: int, owners: Owners, now_ms: int) -> None:
        assert known.began_ms is not None
        took_ms = now_ms - known.began_ms
        moved = sum(known.owners.get(stream, owner) != owner for stream, owner in owners.items())
        arrived = sum(end - known.ends[stream] for stream, end in self._ends(known.ends).items())
        before = known.summary
        known.summary = RebalanceSummary(
            before.completed + 1,
            before.total_ms + took_ms,
            before.total_moved + moved,
            before.total_arrived + arrived,
            took_ms,
            moved,
            arrived,
        )
        known.generation, known.owners, known.began_ms, known.ends = generation, owners, None, {}

    def _ends(self, streams: Iterable[StreamId]) -> dict[StreamId, int]:
        found = ((stream, self._stream_end(stream)) for stream in streams)
        return {stream: end for stream, end in found if end is not None}

    def restore(self, name: str, generation: int, owners: Owners) -> None:
        """Adds a stored group, whose assignment is not new."""
        self._observed[name] = _Observed(generation, owners)

    def forget(self, name: str) -> None:
        self._observed.pop(name, None)

    def summary(self, name: str, now_ms: int) -> RebalanceSummary:
        known = self._observed.get(name)
        if known is None:
            return RebalanceSummary()
        running_ms = None if known.began_ms is None else now_ms - known.began_ms
        return replace(known.summary, running_ms=running_ms)


def find_owners(group: GroupDescription, known: KnownTopics) -> Owners:
    """Returns the owners of the group's streams. Empty for classic groups whose members are no consumers, since the
    broker cannot read their assignments."""
    owners: Owners = {}
    for member in group.members:
        streams = member.streams
        if member.assignment and group.protocol_type == CONSUMER:
            try:
                streams |= known.streams(read_assignment(member.assignment))
            except BadMetadata:
                continue
        owners |= dict.fromkeys(streams, member.instance or member.id)
    return owners
