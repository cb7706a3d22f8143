"""Refuses writes before the disk is full, and accepts them again when there is space. Says before that how short space
is. Knows sizes, never the data; retention decides elsewhere which data to delete."""

from __future__ import annotations

import logging

from trimq.clock import Timeline, Timer
from trimq.errors import DiskFull
from trimq.storage.io.files import Files, Space

log = logging.getLogger(__name__)

REFRESH_MS = 1000

# Writes are accepted again only well above the limit at which they were refused, so that the two states do not
# alternate.
_RECOVERY_PERCENT = 110


class DiskSpaceGuard:
    """Queries the disk once a second while there are writes. In between it subtracts the bytes written from the last
    result."""

    __slots__ = (
        "_files",
        "_floor_bytes",
        "_free_bytes",
        "_low_water_bytes",
        "_pressure_percent",
        "_throttle_percent",
        "_throttled_below_bytes",
        "_timeline",
        "_timer",
    )

    def __init__(
        self, files: Files, timeline: Timeline, low_water_bytes: int, disk_pressure_percent: int, throttle_percent: int
    ) -> None:
        self._files = files
        self._timeline = timeline
        self._low_water_bytes = low_water_bytes
        self._pressure_percent = disk_pressure_percent
        self._throttle_percent = throttle_percent
        self._floor_bytes = low_water_bytes
        self._throttled_below_bytes = low_water_bytes * 100 // throttle_percent
        self._free_bytes = 0
        self._timer: Timer | None = None

    def check(self) -> None:
        """Raises DiskFull if free space is below the low-water mark, or was below it and has not yet risen well above
        it."""
        if self._timer is None:
            self._refresh()
        if self._free_bytes < self._floor_bytes:
            self._refuse()

    def spend(self, size: int) -> None:
        """Subtracts `size` bytes that are about to be written."""
        self._free_bytes -= size

    @property
    def shortage(self) -> float:
        """Returns 0 with more free space than the low-water mark divided by `throttle_percent`, rising to 1 at the
        low-water mark; 1 while writes are refused. To be asked after `check`."""
        free_bytes, throttled_below_bytes = self._free_bytes, self._throttled_below_bytes
        if self._timer is None:  # not queried since the last change
            return 0.0
        if free_bytes < self._floor_bytes:
            return 1.0
        if free_bytes >= throttled_below_bytes:
            return 0.0
        return (throttled_below_bytes - free_bytes) / (throttled_below_bytes - self._low_water_bytes)

    def pressure(self) -> int:
        """Returns the number of bytes to delete until disk use is at the pressure mark. Queries the disk."""
        space = self._files.space()
        used_bytes = space.total_bytes - space.free_bytes
        return max(used_bytes - space.total_bytes * self._pressure_percent // 100, 0)

    def space(self) -> Space:
        """Queries the disk."""
        return self._files.space()

    def change_low_water(self, low_water_bytes: int) -> None:
        """Sets another low-water mark. The next check queries the disk."""
        self._low_water_bytes = self._floor_bytes = low_water_bytes
        self._throttled_below_bytes = low_water_bytes * 100 // self._throttle_percent
        self.stop()

    def stop(self) -> None:
        """Stops the timer. The next check queries the disk."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        free_bytes = max(self._free_bytes, 0)
        if self._floor_bytes == self._low_water_bytes:
            log.warning("disk: refusing writes (%s bytes free)", free_bytes)
            self._floor_bytes = self._low_water_bytes * _RECOVERY_PERCENT // 100 + 1
        raise DiskFull(free_bytes, self._floor_bytes)

    def _refresh(self) -> None:
        # The next write sets the timer again: an idle broker is not woken.
        self._timer = self._timeline.call_at(self._timeline.now_ms() + REFRESH_MS, self._expire)
        try:
            self._free_bytes = self._files.space().free_bytes
        except OSError as error:
            log.warning("disk: cannot query free space, using the last known value: %s", error)
            return
        if self._floor_bytes != self._low_water_bytes and self._free_bytes >= self._floor_bytes:
            log.warning("disk: accepting writes again (%s bytes free)", self._free_bytes)
            self._floor_bytes = self._low_water_bytes

    def _expire(self) -> None:
        self._timer = None
