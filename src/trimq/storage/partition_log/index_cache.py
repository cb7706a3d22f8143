"""Cache of the indexes of sealed segments in memory, limited for all logs together. Knows nothing of indexes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

_MAX_LOADED = 256


class Releasable(Protocol):
    def release(self) -> None:
        """Drops data that can be read from the files again."""


class IndexCache:
    def __init__(self, most: int = _MAX_LOADED) -> None:
        self._most = most
        self._used: OrderedDict[Releasable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, segment: Releasable) -> None:
        """Marks the index of `segment` as used; releases the least recently used one if there are too many."""
        self._used[segment] = None
        self._used.move_to_end(segment)
        if len(self._used) > self._most:
            self._used.popitem(last=False)[0].release()

    def forget(self, segment: Releasable) -> None:
        self._used.pop(segment, None)
