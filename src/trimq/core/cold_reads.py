"""Retries of reads of cold data (bytes that are only on disk). The reader gets a ColdRead, loads the data into memory
off the event loop, and reads again, a limited number of times."""

from __future__ import annotations

from collections.abc import Callable

from trimq.errors import ColdRead, DamagedSegment
from trimq.offload import Offload

MAX_LOADS = 3

Warm = Callable[[ColdRead, Callable[[BaseException | None], None]], None]
"""Loads cold data off the event loop, then calls back with the disk error or None."""


def warm_with(offload: Offload) -> Warm:
    def warm(cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        offload(cold.warm, lambda _, error: done(error))

    return warm


class ColdReadRetry:
    """Counts the loads of one reader. If memory is so short that loaded bytes are evicted before they are read,
    `may_wait` becomes true after `MAX_LOADS` loads: the reader then waits for the disk on the event loop."""

    __slots__ = ("_loads", "_warm", "is_loading")

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self._loads = 0
        self.is_loading = False

    @property
    def may_wait(self) -> bool:
        return self._loads >= MAX_LOADS

    def load(self, cold: ColdRead, done: Callable[[DamagedSegment | None], None]) -> None:
        """Loads cold data, then calls `done` on the event loop. Passes a DamagedSegment if the disk failed: reading
        these bytes from the mapped file would end the process."""
        self._loads += 1
        self.is_loading = True

        def loaded(error: BaseException | None) -> None:
            self.is_loading = False
            done(None if error is None else DamagedSegment(cold.file, cold.position))

        self._warm(cold, loaded)

    def reset(self) -> None:
        """Restarts the count, because the reader made progress."""
        self._loads = 0
