"""What stands before every append: is the broker running, is there room, is the batch short enough, is it new."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.core.cluster import Cluster
from trimq.core.producers import find_duplicate
from trimq.core.streams import Appended, Stream
from trimq.errors import MessageTooLong, NotRunning
from trimq.formats.batch import BatchHeader, check_sent
from trimq.formats.sealing import from_records
from trimq.metrics import Counter
from trimq.model import Buffer, Record
from trimq.storage.space import SpaceGuard


class Appending:
    def __init__(self, guard: SpaceGuard, cluster: Cluster, batches: Counter, bytes_in: Counter) -> None:
        self._guard = guard
        self._cluster = cluster
        self._batches = batches
        self._bytes_in = bytes_in
        self.is_running = False

    def require_writable(self) -> None:
        if not self.is_running:
            raise NotRunning
        self._guard.check()

    def append(self, stream: Stream, batch: Buffer, header: BatchHeader) -> Appended:
        size = len(batch)
        if not self.is_running:
            raise NotRunning
        self._guard.check()
        if size > stream.message_bytes:
            raise MessageTooLong(size, stream.message_bytes)
        self._cluster.require_owner(stream.id)
        if header.producer_id >= 0:
            duplicate = find_duplicate(stream, header)
            if duplicate is not None:
                return duplicate
        self._guard.spend(size)
        self._batches.value += 1
        self._bytes_in.value += size
        return stream.append(batch, header, self._cluster.leader_epoch(stream.id))

    def append_records(self, stream: Stream, records: Sequence[Record]) -> Appended:
        batch = from_records(records)
        return self.append(stream, batch, check_sent(batch))
