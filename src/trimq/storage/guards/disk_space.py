"""Refuses writes before the disk is full, and accepts them again when there is room. Knows sizes, never what is
written; what goes to make room is decided elsewhere."""

from __future__ import annotations

import logging

from trimq.clock import Timeline, Timer
from trimq.errors import DiskFull
from trimq.storage.io.files import Files, Space

log = logging.getLogger(__name__)

REFRESH_MS = 1000

# Writes are accepted again well above the mark at which they were refused, or the two would alternate.
_RECOVERY_PERCENT = 110


class DiskSpaceGuard:
    """The disk is asked once a second while there are writes; between, what was written is taken off its answer."""

    __slots__ = (
        "_files",
        "_floor_bytes",
        "_free_bytes",
        "_low_water_bytes",
        "_pressure_percent",
        "_timeline",
        "_timer",
    )

    def __init__(self, files: Files, timeline: Timeline, low_water_bytes: int, disk_pressure_percent: int) -> None:
        self._files = files
        self._timeline = timeline
        self._low_water_bytes = low_water_bytes
        self._pressure_percent = disk_pressure_percent
        self._floor_bytes = low_water_bytes
        self._free_bytes = 0
        self._timer: Timer | None = None

    def check(self) -> None:
        """DiskFull: there is less room than the low-water mark, or was and is not yet well above it."""
        if self._timer is None:
            self._refresh()
        if self._free_bytes < self._floor_bytes:
            self._refuse()

    def spend(self, size: int) -> None:
        """`size` bytes are about to be written."""
        self._free_bytes -= size

    def pressure(self) -> int:
        """How many bytes must go until the disk is no fuller than the pressure mark. Asks the disk."""
        space = self._files.space()
        used_bytes = space.total_bytes - space.free_bytes
        return max(used_bytes - space.total_bytes * self._pressure_percent // 100, 0)

    def space(self) -> Space:
        """Asks the disk."""
        return self._files.space()

    def stop(self) -> None:
        """Ask the disk no more by itself; the next check does."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        free_bytes = max(self._free_bytes, 0)
        if self._floor_bytes == self._low_water_bytes:
            log.warning("writes are refused: %s bytes are free", free_bytes)
            self._floor_bytes = self._low_water_bytes * _RECOVERY_PERCENT // 100 + 1
        raise DiskFull(free_bytes, self._floor_bytes)

    def _refresh(self) -> None:
        # Timed anew by whoever writes next: a broker at rest is not woken.
        self._timer = self._timeline.call_at(self._timeline.now_ms() + REFRESH_MS, self._expire)
        try:
            self._free_bytes = self._files.space().free_bytes
        except OSError as error:
            log.warning("the free space of the disk is unknown, the last known is used: %s", error)
            return
        if self._floor_bytes != self._low_water_bytes and self._free_bytes >= self._floor_bytes:
            log.warning("writes are accepted again: %s bytes are free", self._free_bytes)
            self._floor_bytes = self._low_water_bytes

    def _expire(self) -> None:
        self._timer = None
