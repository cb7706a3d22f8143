"""Replaces several old segments by a new one, so that a crash at any moment leaves either all old ones or the new
one. Knows segments and their files, never the reason for the replacement.

File names:       <base>.log.cleaned      written and synced; a restart removes it
                  <base>-<end>.swap       valid: a restart removes the segments from base to end, and renames it
                  <base>.log              done
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import suppress

from trimq.formats.kafka_batch.header import read_header
from trimq.model import Buffer
from trimq.offload import Work
from trimq.storage.checkpoints.file_names import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.group_commit.segment import Segment, base_of, segment_name
from trimq.storage.io.files import Files
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.segment import PartitionSegment

Step = Ticket | Work | None
"""Condition for the next step: a pass that is on disk, work off the event loop, or none."""

_CLEANED = ".log.cleaned"
_SWAP = re.compile(r"(\d{20})-(\d{20})\.swap")
# A producer snapshot does not depend on a segment's bytes: it stays.
_REPLACED = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)


class SegmentSwap:
    """The new segment while it is written, and the swap that replaces the neighbouring segments `old` with it."""

    def __init__(self, log: PartitionLog, old: Sequence[PartitionSegment]) -> None:
        self._log = log
        self._files = log.files
        self._old = list(old)
        self._base = old[0].segment.base
        file = self._files.open(self._path(segment_name(self._base, _CLEANED)), create=True)
        file.resize(0)  # left over from an abandoned swap
        segment = Segment(self._base, file, 0)
        self.new = PartitionSegment.fresh(segment, log.settings.index_interval_bytes, old[0].created_ms)
        self._parts: list[Buffer] = []
        self._written = 0
        self.must_finish = False

    def _path(self, name: str) -> str:
        return f"{self._log.folder}/{name}"

    def add(self, batch: Buffer) -> None:
        segment, header = self.new.segment, read_header(batch)
        self.new.note(header, header.last_offset, segment.size)
        segment.size += header.size
        self._parts.append(batch)

    def write(self) -> None:
        """Writes the added batches. `finish` syncs them."""
        self.new.segment.file.write(self._written, self._parts)
        self._written = self.new.segment.size
        self._parts = []

    def abort(self) -> None:
        """Removes the new segment; the old ones stay."""
        file = self.new.segment.file
        file.close()
        with suppress(OSError):  # the next start removes it
            self._files.remove(file.name)

    def finish(self, checkpoints: Checkpoints) -> Generator[Step, None, bool]:
        """Swaps the new segment in. Returns False if the old ones have changed in the meantime and the swap was
        abandoned."""
        self.write()
        self.new.seal(self._old[-1].end_offset)
        yield self.new.segment.file.begin_sync()
        # The recorded sizes of the old segments become invalid, and a restart must not begin inside them.
        ticket = checkpoints.forget_marks(self._log.folder, [segment.segment.base for segment in self._old])
        yield ticket
        if ticket.refusal is not None:
            raise ticket.refusal
        if not self._may_swap():
            self.abort()
            return False
        self.must_finish = True
        self._move_to(f"{self._base:020d}-{self.new.end_offset:020d}.swap")
        self._log.replace_segments(self._old, self.new)
        yield self._sync_names
        for segment in self._old:
            self._remove_files(segment.segment)
            yield None
        # Before the last rename: if a crash kept only that, the old segments would reappear beside the new one.
        yield self._sync_names
        self._complete()
        self.must_finish = False
        return True

    def _may_swap(self) -> bool:
        if self._log.is_removed or not self._log.settings.is_compacted:
            return False
        segments = self._log.segments
        first = next((at for at, segment in enumerate(segments) if segment is self._old[0]), -1)
        return segments[first : first + len(self._old)] == self._old

    def _move_to(self, name: str) -> None:
        segment = self.new.segment
        segment.file.close()
        self._files.rename(segment.file.name, self._path(name))
        segment.file = self._files.open(self._path(name))

    def _sync_names(self) -> None:
        with suppress(FileNotFoundError):  # the topic was deleted in the meantime
            self._files.sync_folder(self._log.folder)

    def _remove_files(self, segment: Segment) -> None:
        segment.file.close()
        _remove(self._files, [self._path(segment_name(segment.base, suffix)) for suffix in _REPLACED])

    def _complete(self) -> None:
        if self.new in self._log.segments:
            self._move_to(segment_name(self._base, LOG))
            self._log.checkpointing.note_sealed(self.new)
            self._log.journal.join_pass()
        else:  # the head of the log was cut in the meantime
            self.new.segment.file.close()
            self._files.remove(self.new.segment.file.name)


def finish_swaps(files: Files, folder: str) -> None:
    """Completes swaps that a crash interrupted. For a log that is not open yet."""
    names = files.names(folder)
    for name in names:
        match = _SWAP.fullmatch(name)
        if match is None:
            continue
        base, end = int(match[1]), int(match[2])
        files.sync_folder(folder)  # its own name may be in the page cache alone
        _remove(files, [f"{folder}/{other}" for other in names if _is_between(other, base, end)])
        files.sync_folder(folder)
        files.rename(f"{folder}/{name}", f"{folder}/{segment_name(base, LOG)}")
        files.sync_folder(folder)


def _is_between(name: str, base: int, end: int) -> bool:
    bases = [base_of(name, suffix) for suffix in _REPLACED]
    return any(found is not None and base <= found < end for found in bases)


def _remove(files: Files, names: Sequence[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            files.remove(name)
