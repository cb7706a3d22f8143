"""What stands before every append: is the broker running, is there room, is the batch short enough, does the stream
take it, is it new."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.core.admission import Admission
from trimq.core.cluster import Cluster
from trimq.core.producers import find_duplicate
from trimq.core.streams import Appended, Stream
from trimq.errors import MessageTooLong, NotRunning, ReadOnly, Refusal
from trimq.formats.batch import BatchHeader, check_sent
from trimq.formats.sealing import from_records
from trimq.metrics import Counter
from trimq.model import Buffer, Record
from trimq.storage.files import Space
from trimq.storage.memory_guard import MemoryGuard
from trimq.storage.space import SpaceGuard
from trimq.storage.stalls import StallGuard


class Appending:
    def __init__(
        self,
        guard: SpaceGuard,
        memory: MemoryGuard,
        stalls: StallGuard,
        cluster: Cluster,
        admission: Admission,
        batches: Counter,
        bytes_in: Counter,
    ) -> None:
        self._guard = guard
        self._memory = memory
        self._stalls = stalls
        self._cluster = cluster
        self._admission = admission
        self._batches = batches
        self._bytes_in = bytes_in
        self.is_running = False

    def require_writable(self) -> None:
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        self._memory.check()
        self._stalls.check()

    def why_refused(self) -> str:
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

    def append(self, stream: Stream, batch: Buffer, header: BatchHeader) -> Appended:
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        self._memory.check()
        self._stalls.check()
        self._cluster.require_owner(stream.id)
        if not stream.rules.takes_writes:
            raise ReadOnly(f"topic {stream.topic}")
        size = len(batch)
        if size > stream.message_bytes:
            raise MessageTooLong(size, stream.message_bytes)
        batch, header, append_time_ms = self._admission.admit(stream.rules, batch, header)
        if len(batch) != size:  # it is under another codec now, and may have grown
            size = len(batch)
            if size > stream.message_bytes:
                raise MessageTooLong(size, stream.message_bytes)
        if header.producer_id >= 0:
            duplicate = find_duplicate(stream, header)
            if duplicate is not None:
                return duplicate
        self._guard.spend(size)
        self._batches.value += 1
        self._bytes_in.value += size
        appended = stream.append(batch, header, self._cluster.leader_epoch(stream.id))
        return appended if append_time_ms < 0 else appended._replace(append_time_ms=append_time_ms)

    def append_records(self, stream: Stream, records: Sequence[Record]) -> Appended:
        batch = from_records(records)
        return self.append(stream, batch, check_sent(batch))
