"""Computes checksums of whole sealed segments, which cover bytes that no batch checksum does. Works piece by piece off
the event loop; nothing waits for it."""

from __future__ import annotations

import logging
from typing import NamedTuple

from trimq.formats.checksum import crc32c
from trimq.offload import Offload
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.segment import PartitionSegment

log = logging.getLogger(__name__)

_PIECE_BYTES = 1024 * 1024


class _ChecksumProgress(NamedTuple):
    """Progress of the checksum of one segment."""

    folder: str
    segment: PartitionSegment
    position: int
    crc: int


class SegmentChecksums:
    def __init__(self, checkpoints: Checkpoints, offload: Offload) -> None:
        self._checkpoints = checkpoints
        self._offload = offload
        self._waiting: dict[PartitionSegment, str] = {}
        self._under_way: PartitionSegment | None = None

    def consider(self, opened: PartitionLog) -> None:
        """Queues the segments of this log that were sealed since the last call."""
        for segment in opened.segments:
            if segment.is_stored and segment is not self._under_way:
                mark = self._checkpoints.sealed(opened.folder, segment.segment.base)
                if mark is not None and mark.crc is None:
                    self._waiting[segment] = opened.folder
        if self._under_way is None:
            self._begin_next()

    def stop(self) -> None:
        self._waiting.clear()

    def _begin_next(self) -> None:
        self._under_way = None
        while self._waiting:
            segment = next(iter(self._waiting))
            folder = self._waiting.pop(segment)
            if not segment.is_gone:
                self._under_way = segment
                self._sum_next_piece(_ChecksumProgress(folder, segment, 0, 0))
                return

    def _sum_next_piece(self, sum: _ChecksumProgress) -> None:
        segment, position = sum.segment.segment, sum.position
        length = min(_PIECE_BYTES, segment.size - position)
        try:
            warm = segment.file.begin_warm(position, length) if length else None
            view = segment.view(position, length) if length else memoryview(b"")
        except OSError as error:
            self._give_up(sum, error)
            return

        def work() -> int:
            if warm is not None:
                warm()
            return crc32c(view, sum.crc)

        self._offload(work, lambda crc, error: self._summed(sum._replace(position=position + length), crc, error))

    def _summed(self, sum: _ChecksumProgress, crc: object, error: BaseException | None) -> None:
        if error is not None:
            self._give_up(sum, error)
            return
        assert isinstance(crc, int)
        if sum.position < sum.segment.segment.size and not sum.segment.is_gone:
            self._sum_next_piece(sum._replace(crc=crc))
            return
        base = sum.segment.segment.base
        mark = self._checkpoints.sealed(sum.folder, base)
        if mark is not None and not sum.segment.is_gone:
            self._checkpoints.seal(sum.folder, base, mark._replace(crc=crc))
        self._begin_next()

    def _give_up(self, sum: _ChecksumProgress, error: BaseException) -> None:
        log.warning("%s: cannot compute the checksum, will retry: %s", sum.segment.segment.file.name, error)
        self._begin_next()
