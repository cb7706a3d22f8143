"""Assignors: divide streams among the members of a group. Pure and deterministic: subscriptions and previous
assignments in, new assignments out."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from trimq.model import StreamId

Assignments = dict[str, frozenset[StreamId]]


@dataclass(slots=True, frozen=True)
class AssignorMember:
    """Member as an assignor sees it. `previous` is its previous assignment."""

    name: str
    instance: str | None
    topics: frozenset[UUID]
    previous: frozenset[StreamId] = frozenset()


Assign = Callable[[list[AssignorMember], Mapping[UUID, int]], Assignments]


def assign_range(applicants: list[AssignorMember], topics: Mapping[UUID, int]) -> Assignments:
    """Assigns to every subscriber of a topic a contiguous range of its streams, so that topics of equal size are
    divided alike. Static members come first, since their names stay the same."""
    shares: dict[str, set[StreamId]] = {each.name: set() for each in applicants}
    ordered = sorted(applicants, key=lambda each: (each.instance is None, each.instance or each.name))
    for topic, count in topics.items():
        subscribers = [each for each in ordered if topic in each.topics]
        if not subscribers:
            continue
        least, extra = divmod(count, len(subscribers))
        begin = 0
        for number, taker in enumerate(subscribers):
            end = begin + least + (1 if number < extra else 0)
            shares[taker.name].update(StreamId(topic, index) for index in range(begin, end))
            begin = end
    return {name: frozenset(share) for name, share in shares.items()}


def assign_uniform(applicants: list[AssignorMember], topics: Mapping[UUID, int]) -> Assignments:
    """Makes assignments as equal as the subscriptions allow; members keep their previous streams as far as possible."""
    return _UniformAssignor(applicants, topics).assign()


ASSIGNORS: dict[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"


class _UniformAssignor:
    def __init__(self, applicants: list[AssignorMember], topics: Mapping[UUID, int]) -> None:
        self._subscribers: dict[UUID, list[str]] = defaultdict(list)
        self._shares: dict[str, set[StreamId]] = {}
        ordered = sorted(applicants, key=lambda each: each.name)
        for each in ordered:
            self._shares[each.name] = set()
            for topic in each.topics:
                self._subscribers[topic].append(each.name)
        self._is_alike = len({each.topics for each in ordered}) <= 1
        wanted = {topic: count for topic, count in topics.items() if self._subscribers.get(topic)}
        self._left = {StreamId(topic, index) for topic, count in wanted.items() for index in range(count)}
        self._keep_previous(ordered)

    def _keep_previous(self, ordered: list[AssignorMember]) -> None:
        """Lets each member keep its previous streams, if it still subscribes to them and no other member has them, up
        to an equal share."""
        most = -(-len(self._left) // len(ordered)) if ordered else 0
        fuller = len(self._left) % len(ordered) if ordered else 0
        for each in ordered:
            kept = sorted(stream for stream in each.previous if stream in self._left and stream.topic in each.topics)
            if self._is_alike:
                # Only `fuller` members may have one stream more than the others.
                limit = most if not fuller or self._count_of_size(most) < fuller else most - 1
                kept = kept[:limit]
            self._shares[each.name].update(kept)
            self._left.difference_update(kept)

    def _count_of_size(self, size: int) -> int:
        return sum(len(share) >= size for share in self._shares.values())

    def assign(self) -> Assignments:
        if self._is_alike:
            self._fill()
        else:
            self._give_out()
            self._level()
        return {name: frozenset(share) for name, share in self._shares.items()}

    def _fill(self) -> None:
        """Gives the remaining streams to the members with the fewest, if all have the same subscription."""
        sizes = [(len(share), name) for name, share in self._shares.items()]
        heapq.heapify(sizes)
        for stream in sorted(self._left):
            size, name = sizes[0]
            self._shares[name].add(stream)
            heapq.heapreplace(sizes, (size + 1, name))

    def _give_out(self) -> None:
        # Streams with few subscribers first: those with many fill the gaps.
        for stream in sorted(self._left, key=lambda each: (len(self._subscribers[each.topic]), each)):
            taker = min(self._subscribers[stream.topic], key=lambda name: (len(self._shares[name]), name))
            self._shares[taker].add(stream)

    def _level(self) -> None:
        """Moves streams from larger to smaller assignments until no single move makes them more equal."""
        is_moving = True
        while is_moving:
            is_moving = False
            for name in sorted(self._shares, key=lambda each: (-len(self._shares[each]), each)):
                for stream in sorted(self._shares[name]):
                    taker = min(self._subscribers[stream.topic], key=lambda each: (len(self._shares[each]), each))
                    if len(self._shares[taker]) + 1 < len(self._shares[name]):
                        self._shares[name].remove(stream)
                        self._shares[taker].add(stream)
                        is_moving = True
