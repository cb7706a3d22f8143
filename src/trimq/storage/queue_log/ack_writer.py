"""Writes acknowledgements of all queue logs, once in each turn of the event loop and without a sync: a lost ack only
causes a redelivery, so a failed write is retried. Knows segments and their acks files, not queues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from trimq.errors import Refusal
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes
from trimq.storage.group_commit.segment import segment_name
from trimq.storage.io.atomic_file import TEMPORARY
from trimq.storage.io.files import Files
from trimq.storage.queue_log.acks import encode_attempts, encode_bitmap, encode_ranges
from trimq.storage.queue_log.segment import ACKS, QueueSegment

log = logging.getLogger(__name__)

# An acks file that is longer than this, and than two bits for each message, is replaced by a bitmap.
_BITMAP_ABOVE_BYTES = 4096


class AckedLog(Protocol):
    folder: str
    is_removed: bool

    @property
    def segments(self) -> Sequence[QueueSegment]: ...

    def remove_if_all_acked(self, segment: QueueSegment) -> None: ...


class AckWriter:
    def __init__(self, files: Files, passes: Passes) -> None:
        self._files = files
        self._passes = passes
        self._touched: dict[AckedLog, None] = {}
        self._closing: list[AckedLog] = []

    def schedule_write(self, queue: AckedLog) -> None:
        """Writes the acknowledgements of this log at the end of this turn."""
        if not self._touched:
            self._passes.call_soon(self.write)
        self._touched[queue] = None

    def write(self) -> None:
        touched, self._touched = self._touched, {}
        for queue in touched:
            if not queue.is_removed:
                self._write_log(queue)

    def _write_log(self, queue: AckedLog) -> None:
        for segment in tuple(queue.segments):
            if segment.is_sealed and not segment.live and segment.is_seal_durable:
                queue.remove_if_all_acked(segment)  # the file is removed: no need to write it
            elif segment.unwritten or segment.unwritten_attempts:
                self._write_segment(queue.folder, segment)

    def _write_segment(self, folder: str, segment: QueueSegment) -> None:
        name = f"{folder}/{segment_name(segment.base, ACKS)}"
        record = encode_ranges(segment.unwritten) if segment.unwritten else b""
        if segment.unwritten_attempts:
            record += encode_attempts(segment.unwritten_attempts)
        try:
            if segment.acks_file is None:
                segment.acks_file = self._files.open(name, create=True)
            segment.acks_file.write(segment.acks_bytes, [record])
        except OSError as error:
            log.warning("%s: writing acknowledgements failed, will retry: %s", name, error)
            self._cut_back(segment)
            return
        segment.acks_bytes += len(record)
        segment.unwritten = []
        segment.unwritten_attempts = {}
        if segment.acks_bytes > max(_BITMAP_ABOVE_BYTES, segment.records // 4):
            self._replace(name, segment)

    def _cut_back(self, segment: QueueSegment) -> None:
        if segment.acks_file is not None:
            with suppress(OSError):  # replay ignores a torn record, and the next write overwrites it
                segment.acks_file.resize(segment.acks_bytes)

    def _replace(self, name: str, segment: QueueSegment) -> None:
        """Replaces the acks file by an equivalent, shorter bitmap. If a power cut loses it, messages are
        redelivered."""
        record = encode_bitmap(segment.flags or b"")
        if segment.attempts:
            record += encode_attempts(segment.attempts)
        if len(record) * 2 > segment.acks_bytes:
            return
        try:
            file = self._files.open(name + TEMPORARY, create=True)
            file.resize(0)
            file.write(0, [record])
            file.close()
            self._files.rename(name + TEMPORARY, name)
        except OSError as error:
            log.warning("%s: replacing the acks file by a shorter one failed: %s", name, error)
        else:
            segment.close_acks()
            segment.acks_bytes = len(record)

    # -- clean shutdown: all acknowledgements are synced

    def close(self, queue: AckedLog) -> None:
        if not self._closing:
            self._passes.join(self)
        self._closing.append(queue)

    def write_pass(self, dirty: Dirty) -> None:
        closing, self._closing = self._closing, []
        for queue in closing:
            for segment in () if queue.is_removed else queue.segments:
                if segment.unwritten or segment.unwritten_attempts:
                    self._write_segment(queue.folder, segment)
                if segment.acks_file is not None:
                    dirty.files.add(segment.acks_file)
            dirty.folders.add(queue.folder)

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        """Does nothing: acknowledgements that are not written cause redeliveries."""

    def mark_pass_durable(self, number: int) -> None:
        """Does nothing: nothing waits for this pass."""
