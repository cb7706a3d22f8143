"""Sticky division of queues among the members of a group: a change of the members moves as few queues as possible. Soft
state; after a restart the queues are divided anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from trimq.core.groups.assignors import AssignorMember, assign_uniform
from trimq.model import StreamId

MOST_REMEMBERED = 10_000
"""Pairs of group and topic whose division is remembered."""


class _Division(NamedTuple):
    members: tuple[str, ...]
    size: int
    queues: dict[str, frozenset[StreamId]]


class StickyAssignments:
    def __init__(self, limit: int = MOST_REMEMBERED) -> None:
        self._limit = limit
        self._divisions: OrderedDict[tuple[str, UUID], _Division] = OrderedDict()

    def queues_of(self, group: str, topic: UUID, members: Sequence[str], count: int, member: str) -> list[int]:
        """Returns the queues of one member, in order; the same division for every caller until members or queues
        change."""
        key = group, topic
        if not members:
            self._divisions.pop(key, None)
            return []
        known = self._divisions.get(key)
        present = tuple(sorted(members))
        if known is None or known.members != present or known.size != count:
            before = {} if known is None else known.queues
            asking = [
                AssignorMember(each, None, frozenset((topic,)), before.get(each, frozenset())) for each in present
            ]
            known = self._divisions[key] = _Division(present, count, assign_uniform(asking, {topic: count}))
        self._divisions.move_to_end(key)
        while len(self._divisions) > self._limit:
            self._divisions.popitem(last=False)
        return sorted(stream.number for stream in known.queues.get(member, ()))
