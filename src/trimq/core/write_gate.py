"""Write gate that every append of every layout passes. Owns the reasons to refuse all writes (broker stopping, disk
full, memory full, slow disk), how long producers wait before it comes to that, and the counters of appended messages
and bytes."""

from __future__ import annotations

import math

from trimq.errors import NotRunning, Refusal
from trimq.metrics import Counter
from trimq.storage.guards.disk_space import DiskSpaceGuard
from trimq.storage.guards.memory import MemoryGuard
from trimq.storage.guards.slow_disk import SlowDiskGuard
from trimq.storage.io.files import Space

# Longest time that a producer has to wait after a request: one window of Kafka's quotas.
MAX_THROTTLE_MS = 1000


class WriteGate:
    def __init__(
        self,
        guard: DiskSpaceGuard,
        memory: MemoryGuard,
        stalls: SlowDiskGuard,
        batches: Counter,
        bytes_in: Counter,
        throttled: Counter,
    ) -> None:
        self._guard = guard
        self._memory = memory
        self._stalls = stalls
        self._batches = batches
        self._bytes_in = bytes_in
        self._throttled = throttled
        self.is_running = False

    def require_writable(self) -> None:
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        self._memory.check()
        self._stalls.check()

    def throttle_ms(self) -> int:
        """Returns how long a producer has to wait after the write that was just checked: 0, or more the shorter memory
        or disk space is. Counts producers that have to wait."""
        shortage = max(self._memory.shortage, self._guard.shortage)
        if not shortage:
            return 0
        self._throttled.value += 1
        return math.ceil(shortage * MAX_THROTTLE_MS)

    def write_refusal_reason(self) -> str:
        """Returns the reason why writes are refused now, or an empty string if they are accepted."""
        try:
            self.require_writable()
        except Refusal as refusal:
            return str(refusal)
        return ""

    def change_memory_limit(self, percent: int) -> None:
        self._memory.change_limit(percent)

    def change_low_water(self, low_water_bytes: int) -> None:
        self._guard.change_low_water(low_water_bytes)

    def stop(self) -> None:
        """Refuses all further writes."""
        self.is_running = False
        self._stalls.stop()
        self._memory.stop()

    def check_memory(self) -> None:
        """Raises MemoryFull. For messages that are forwarded without being stored."""
        self._memory.check()

    def admit(self, size: int) -> None:
        """Checks that `size` bytes of a message may be appended to queues, and counts them."""
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        self._memory.check()
        self._stalls.check()
        self._guard.spend(size)
        self._bytes_in.value += size

    def space(self) -> Space:
        return self._guard.space()

    def pressure(self) -> int:
        """Returns how many bytes must be deleted to bring the disk below its limit."""
        return self._guard.pressure()

    def count(self, size: int) -> None:
        """Counts one message of `size` bytes, which is about to be appended to a partition log or the commit log."""
        self._guard.spend(size)
        self._batches.value += 1
        self._bytes_in.value += size

    def count_all(self, messages: int, size: int) -> None:
        """Same as `count`, for several messages."""
        self._guard.spend(size)
        self._batches.value += messages
        self._bytes_in.value += size
