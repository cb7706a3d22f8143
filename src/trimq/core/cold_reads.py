"""Cold data: bytes that are on disk only. Their reader gets a ColdRead, loads them into memory off the event loop, and
reads again, a limited number of times."""

from __future__ import annotations

from collections.abc import Callable

from trimq.errors import ColdRead, DamagedSegment
from trimq.offload import Offload

MAX_LOADS = 3

Warm = Callable[[ColdRead, Callable[[BaseException | None], None]], None]
"""Loads cold data off the event loop, then calls back with the disk's error, if there was one."""


def warm_with(offload: Offload) -> Warm:
    def warm(cold: ColdRead, done: Callable[[BaseException | None], None]) -> None:
        offload(cold.warm, lambda _, error: done(error))

    return warm


class ColdReadRetry:
    """Counts the loads of one reader. Where memory is so short that loaded bytes are evicted before they are read,
    `may_wait` becomes true after `MAX_LOADS` of them: the reader then waits for the disk on the event loop."""

    __slots__ = ("_loads", "_warm", "is_loading")

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self._loads = 0
        self.is_loading = False

    @property
    def may_wait(self) -> bool:
        return self._loads >= MAX_LOADS

    def load(self, cold: ColdRead, done: Callable[[DamagedSegment | None], None]) -> None:
        """Load cold data, then call `done` on the event loop. With a DamagedSegment: the disk failed, and to read these
        bytes from the mapped file would end the process."""
        self._loads += 1
        self.is_loading = True

        def loaded(error: BaseException | None) -> None:
            self.is_loading = False
            done(None if error is None else DamagedSegment(cold.file, cold.position))

        self._warm(cold, loaded)

    def reset(self) -> None:
        """The reader made progress: count from the beginning."""
        self._loads = 0
