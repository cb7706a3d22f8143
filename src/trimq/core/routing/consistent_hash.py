"""Consistent hashing: distributes keys over destinations by weight. Most keys keep their destination when another one
is added or removed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Hashable
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_POINTS_PER_WEIGHT = 40


def hash_of(text: str) -> int:
    """Returns a 64-bit hash that is the same after a restart."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest())


class HashRing(Generic[T]):
    def __init__(self) -> None:
        self._points: list[tuple[int, str]] = []
        self._owners: dict[str, T] = {}

    def add(self, name: str, weight: int, value: T) -> None:
        """`name` must be unique to this binding: it determines the positions on the ring."""
        self._owners[name] = value
        points = range(weight * _POINTS_PER_WEIGHT)
        self._points = sorted(self._points + [(hash_of(f"{number}/{name}"), name) for number in points])

    def remove(self, name: str) -> None:
        if self._owners.pop(name, None) is not None:
            self._points = [point for point in self._points if point[1] != name]

    def find(self, key: str) -> T | None:
        """Returns the destination of a key, or None if the ring is empty."""
        if not self._points:
            return None
        at = bisect(self._points, (hash_of(key), "")) % len(self._points)
        return self._owners[self._points[at][1]]
