"""Write gate that every append of every layout passes. Owns the reasons to refuse all writes (broker stopping, disk
full, memory full, slow disk) and the counters of appended messages and bytes."""

from __future__ import annotations

from trimq.errors import NotRunning, Refusal
from trimq.metrics import Counter
from trimq.storage.guards.disk_space import DiskSpaceGuard
from trimq.storage.guards.memory import MemoryGuard
from trimq.storage.guards.slow_disk import SlowDiskGuard
from trimq.storage.io.files import Space


class WriteGate:
    def __init__(
        self, guard: DiskSpaceGuard, memory: MemoryGuard, stalls: SlowDiskGuard, batches: Counter, bytes_in: Counter
    ) -> None:
        self._guard = guard
        self._memory = memory
        self._stalls = stalls
        self._batches = batches
        self._bytes_in = bytes_in
        self.is_running = False

    def require_writable(self) -> None:
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        self._memory.check()
        self._stalls.check()

    def write_refusal_reason(self) -> str:
        """Why nothing can be written now. Empty: it can."""
        try:
            self.require_writable()
        except Refusal as refusal:
            return str(refusal)
        return ""

    def stop(self) -> None:
        """Refuse what is new."""
        self.is_running = False
        self._stalls.stop()
        self._memory.stop()

    def check_memory(self) -> None:
        """MemoryFull: for what is passed on without being stored."""
        self._memory.check()

    def admit(self, size: int) -> None:
        """So many bytes of a message are about to be appended to queues."""
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        self._memory.check()
        self._guard.spend(size)
        self._bytes_in.value += size

    def space(self) -> Space:
        return self._guard.space()

    def pressure(self) -> int:
        """How many bytes must go until the disk is no fuller than it may be."""
        return self._guard.pressure()

    def count(self, size: int) -> None:
        """`size` bytes of one message are about to be appended elsewhere."""
        self._guard.spend(size)
        self._batches.value += 1
        self._bytes_in.value += size

    def count_all(self, messages: int, size: int) -> None:
        """As `count`, for several messages."""
        self._guard.spend(size)
        self._batches.value += messages
        self._bytes_in.value += size
