"""Which timer is due next: a heap of keys, each a due time and the id of a timer behind it. Knows no timer."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

ID_BITS = 80
"""A key is the due time, then the id, which has so many bits: one integer, so that a million of them take a third of
what tuples would."""

_STALE_KEYS_ALLOWED = 4096
_SWEPT_AT_ONCE = 4


class TimerHeap:
    """A heap of keys, some of them stale. Stale ones are left in it, to be dropped at the top or, when they are more
    than the others, swept out a few at a time: to sweep a million at once would stop every connection for long."""

    def __init__(self, is_current: Callable[[int], bool]) -> None:
        self._is_current = is_current
        self._keys: list[int] = []
        self._unswept: list[int] = []  # a heap too: to take the last of a heap leaves one

    def push(self, key: int) -> None:
        heapq.heappush(self._keys, key)

    def sweep(self, live: int, changes: int = 1) -> None:
        """To be called at each change, or once for several: `live` keys are current."""
        if not self._unswept:
            if len(self._keys) <= 2 * live + _STALE_KEYS_ALLOWED:
                return
            self._unswept, self._keys = self._keys, []
        for _ in range(min(_SWEPT_AT_ONCE * changes, len(self._unswept))):
            key = self._unswept.pop()
            if self._is_current(key):
                heapq.heappush(self._keys, key)

    def earliest(self) -> int | None:
        """The least current key."""
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
        """Take out what `earliest` gave."""
        is_unswept = not self._keys or (bool(self._unswept) and self._unswept[0] < self._keys[0])
        heapq.heappop(self._unswept if is_unswept else self._keys)

    def take_due(self, now_ms: int, count: int) -> list[int]:
        """Take out the least current keys that are due by now, in order, each once."""
        found: list[int] = []
        beyond = now_ms + 1 << ID_BITS
        previous = -1  # a timer that went to another time and back has the same key twice
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
        """The current keys; walks down from the top, so that the first few cost little however many there are."""
        heaps = [heap for heap in (self._keys, self._unswept) if heap]
        frontier = [(heap[0], number, 0) for number, heap in enumerate(heaps)]
        heapq.heapify(frontier)
        previous = None
        while frontier:
            key, number, place = heapq.heappop(frontier)
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heaps[number]):
                    heapq.heappush(frontier, (heaps[number][child], number, child))
            # A timer that went to another time and back has the same key twice.
            if key != previous and self._is_current(key):
                yield key
            previous = key
