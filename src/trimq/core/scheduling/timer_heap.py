"""Heap of timer keys, each a due time followed by a timer id. Knows no timer."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

ID_BITS = 80
"""Bits of the timer id in a key. Due time and id form one integer, so that a million keys take a third of the memory of
tuples."""

_STALE_KEYS_ALLOWED = 4096
_SWEPT_AT_ONCE = 4


class TimerHeap:
    """Heap with lazy deletion: a stale key is dropped when it reaches the top. When stale keys outnumber the current
    ones, they are swept out a few at a time: sweeping a million at once would block every connection."""

    def __init__(self, is_current: Callable[[int], bool]) -> None:
        self._is_current = is_current
        self._keys: list[int] = []
        self._unswept: list[int] = []  # also a heap: removing the last element of a heap leaves a heap

    def push(self, key: int) -> None:
        heapq.heappush(self._keys, key)

    def sweep(self, live: int, changes: int = 1) -> None:
        """Must be called after each change, or once after several. `live` is the number of current keys."""
        if not self._unswept:
            if len(self._keys) <= 2 * live + _STALE_KEYS_ALLOWED:
                return
            self._unswept, self._keys = self._keys, []
        for _ in range(min(_SWEPT_AT_ONCE * changes, len(self._unswept))):
            key = self._unswept.pop()
            if self._is_current(key):
                heapq.heappush(self._keys, key)

    def earliest(self) -> int | None:
        """Returns the lowest current key, or None."""
        has_keys = self._drop_stale(self._keys)
        if not self._unswept:  # nearly always
            return self._keys[0] if has_keys else None
        heads = [heap[0] for heap in (self._keys, self._unswept) if self._drop_stale(heap)]
        return min(heads) if heads else None

    def _drop_stale(self, heap: list[int]) -> bool:
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        return bool(heap)

    def pop_earliest(self) -> None:
        """Removes the key that `earliest` returned."""
        is_unswept = not self._keys or (bool(self._unswept) and self._unswept[0] < self._keys[0])
        heapq.heappop(self._unswept if is_unswept else self._keys)

    def take_due(self, now_ms: int, count: int) -> list[int]:
        """Removes and returns at most `count` current keys that are due, in order, without duplicates."""
        found: list[int] = []
        beyond = now_ms + 1 << ID_BITS
        previous = -1  # a timer rescheduled to another time and back has the same key twice
        while len(found) < count:
            heap = self._keys
            if self._unswept and (not heap or self._unswept[0] < heap[0]):
                heap = self._unswept
            if not heap or heap[0] >= beyond:
                break
            key = heapq.heappop(heap)
            if key != previous and self._is_current(key):
                found.append(key)
            previous = key
        return found

    def in_order(self) -> Iterator[int]:
        """Yields the current keys in order. Walks down from the top, so that the first few are cheap in a heap of any
        size."""
        heaps = [heap for heap in (self._keys, self._unswept) if heap]
        frontier = [(heap[0], number, 0) for number, heap in enumerate(heaps)]
        heapq.heapify(frontier)
        previous = None
        while frontier:
            key, number, place = heapq.heappop(frontier)
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heaps[number]):
                    heapq.heappush(frontier, (heaps[number][child], number, child))
            # A timer rescheduled to another time and back has the same key twice.
            if key != previous and self._is_current(key):
                yield key
            previous = key
