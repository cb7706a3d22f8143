"""Strategies that divide queues among the members of a group. Pure functions of the member, all members and all queues,
both sorted: each member computes its own share, and the shares do not overlap."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from trimq.client.messages import MessageQueue

Queues = Sequence[MessageQueue]


class Allocation(Protocol):
    name: str

    def allocate(self, me: str, members: Sequence[str], queues: Queues) -> list[MessageQueue]:
        """Returns the share of `me`, which is one of the members."""
        ...


class Average:
    """Consecutive queues for each member, the first ones get one more: Apache RocketMQ's AVG."""

    name = "AVG"

    def allocate(self, me: str, members: Sequence[str], queues: Queues) -> list[MessageQueue]:
        place, (least, more) = members.index(me), divmod(len(queues), len(members))
        begin = place * least + min(place, more)
        return list(queues[begin : begin + least + (place < more)])


class Circular:
    """One queue after the other to one member after the other: Apache RocketMQ's AVG_BY_CIRCLE."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, me: str, members: Sequence[str], queues: Queues) -> list[MessageQueue]:
        return list(queues[members.index(me) :: len(members)])


class ConsistentHash:
    """Each queue to the next member on a ring of hashes, `points` for each member: few queues move when members join or
    leave. Apache RocketMQ's CONSISTENT_HASH."""

    name = "CONSISTENT_HASH"

    def __init__(self, points: int = 10) -> None:
        if points < 1:
            raise ValueError(f"points must be at least 1, not {points}")
        self._points = points

    def allocate(self, me: str, members: Sequence[str], queues: Queues) -> list[MessageQueue]:
        ring = {_hash(f"{member}-{point}"): member for member in members for point in range(self._points)}
        places = sorted(ring)
        return [queue for queue in queues if ring[_next(places, _hash(_java_text(queue)))] == me]


def _next(places: list[int], place: int) -> int:
    """Returns the first place at or after `place`; after the last one the ring begins again."""
    return places[bisect_left(places, place) % len(places)]


def _hash(text: str) -> int:
    """First four bytes of the MD5, most significant first."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.id}]"


class SameRoom:
    """Queues of a room to members in the same room, divided by `inner`; queues of rooms without members to all.
    `room_of` names the room of a broker name and of a client id."""

    name = "MACHINE_ROOM_NEARBY-AVG"

    def __init__(self, room_of: Callable[[str], str], inner: Allocation | None = None) -> None:
        self._room_of = room_of
        self._inner = inner or Average()

    def allocate(self, me: str, members: Sequence[str], queues: Queues) -> list[MessageQueue]:
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(self._room_of(queue.broker), []).append(queue)
        inhabited: dict[str, list[str]] = {}
        for member in members:
            inhabited.setdefault(self._room_of(member), []).append(member)
        mine = self._room_of(me)
        found = self._inner.allocate(me, inhabited[mine], rooms[mine]) if mine in rooms else []
        for room, theirs in sorted(rooms.items()):
            if room not in inhabited:
                found += self._inner.allocate(me, members, theirs)
        return found
