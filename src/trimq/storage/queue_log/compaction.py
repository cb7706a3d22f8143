"""Compaction of a segment with few live messages: copies them, with their offsets, into a shorter file that replaces
the segment's file. Knows segments and files; the caller chooses the segment and the time."""

from __future__ import annotations

import logging
from contextlib import suppress

from trimq.errors import ColdRead, DamagedSegment, Refusal
from trimq.formats.amqp_content.content import FOOTER, NO_BLOB, check_record, encode_footer, encode_references
from trimq.offload import Offload
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.group_commit.segment import segment_name
from trimq.storage.io.atomic_file import TEMPORARY
from trimq.storage.io.files import File, Files
from trimq.storage.queue_log.body_references import BodyReferences
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.reader import read_window
from trimq.storage.queue_log.segment import CONTENTS, QueueSegment

log = logging.getLogger(__name__)

_LIVE_PERCENT = 25


def is_worth_compacting(segment: QueueSegment) -> bool:
    """True if the segment is durably sealed and few of its messages are live."""
    return segment.is_seal_durable and 0 < segment.live * 100 < segment.records * _LIVE_PERCENT


class SegmentCompaction:
    """Copies one window in each turn of the loop. Before the copy replaces the original, it is synced, and the
    checkpoint with the original's size is removed, so that a restart accepts either file."""

    def __init__(
        self,
        files: Files,
        passes: Passes,
        checkpoints: Checkpoints,
        queue: QueueLog,
        segment: QueueSegment,
        offload: Offload,
    ) -> None:
        self._offload = offload
        self._may_wait = False
        self._files = files
        self._passes = passes
        self._checkpoints = checkpoints
        self._queue = queue
        self._segment = segment
        self._name = f"{queue.folder}/{segment_name(segment.base, CONTENTS)}"
        self._file: File | None = None
        self._read = 0
        self._written = 0
        self._records = 0
        self._transient = 0
        self._body_bytes = 0
        self._references = BodyReferences()
        self.is_finished = False

    def start(self) -> None:
        try:
            self._file = self._files.open(self._name + TEMPORARY, create=True)
            self._file.resize(0)
        except OSError as error:
            self._give_up(str(error))
        else:
            self._passes.call_soon(self._copy)

    def _copy(self) -> None:
        if self._is_gone():
            return
        try:
            is_end = self._copy_window()
        except ColdRead as cold:
            self._may_wait = True  # for the warmed window
            self._offload(cold.warm, lambda _, error: self._copy())
            return
        except (OSError, DamagedSegment) as error:
            self._give_up(str(error))
            return
        self._may_wait = False
        if self.is_finished:
            return
        if is_end:
            self._passes.on_synced(self._passes.join(self), self._copied)
        else:
            self._passes.call_soon(self._copy)

    def _copy_window(self) -> bool:
        """Copies one window. Returns whether it was the last."""
        assert self._file is not None
        data = read_window(self._segment, self._read, self._may_wait)
        parts: list[bytes] = []
        at = 0
        while (head := check_record(data, at)) is not None and not head.flags & FOOTER:
            if self._segment.is_live(head.offset):
                parts.append(data[at : head.end])
                self._records += 1
                self._transient += head.flags & 1
                self._body_bytes += head.body_bytes
                if head.blob != NO_BLOB:
                    self._references.add(head.offset - self._segment.base, head.blob)
            at = head.end
        is_end = head is not None
        if is_end:
            parts.append(self._footer())
        elif not at:
            self._give_up(f"it is damaged at byte {self._read}")
            return False
        if parts:
            self._file.write(self._written, parts)
            self._written += sum(map(len, parts))
        self._read += at
        return is_end

    def _footer(self) -> bytes:
        shared = len(self._references)
        footer = self._segment.footer()._replace(
            records=self._records, transient=self._transient, shared=shared, body_bytes=self._body_bytes
        )
        references = encode_references(self._references, footer.last + 1) if shared else b""
        return references + encode_footer(footer)

    # -- replacing the original by the copy

    def _copied(self, ticket: Ticket) -> None:
        if ticket.refusal is not None or self._is_gone():
            return
        self._segment.is_seal_durable = False
        forgotten = self._checkpoints.forget_marks(self._queue.folder, [self._segment.base])
        self._passes.on_synced(forgotten, self._forgotten)

    def _forgotten(self, ticket: Ticket) -> None:
        if ticket.refusal is not None:
            self._segment.is_seal_durable = True
            self._give_up(str(ticket.refusal))
        elif not self._is_gone():
            self._swap()

    def _swap(self) -> None:
        assert self._file is not None
        self._file.close()
        try:
            self._files.rename(self._name + TEMPORARY, self._name)
        except OSError as error:
            self._give_up(str(error))
        else:
            file = self._files.open(self._name)
            before = self._segment.segment.size
            self._segment.references = self._references
            self._queue.swap_in_copy(self._segment, file, self._written, self._records, self._body_bytes)
            log.info("%s: compacted from %d to %d bytes", self._name, before, self._written)
            self.is_finished = True
        self._queue.mark_sealed_when_synced(self._segment)

    def _is_gone(self) -> bool:
        """True if the compaction must stop: all messages of the segment were acknowledged meanwhile, or its queue was
        deleted."""
        if not self.is_finished and (self._queue.is_removed or self._segment not in self._queue.segments):
            self._remove_copy()
        return self.is_finished

    def _give_up(self, reason: str) -> None:
        log.warning("%s: compaction failed: %s", self._name, reason)
        self._remove_copy()

    def _remove_copy(self) -> None:
        self.is_finished = True
        if self._file is not None:
            self._file.close()
        with suppress(OSError):  # the next start removes it
            self._files.remove(self._name + TEMPORARY)

    # -- the pass that makes the copy durable

    def write_pass(self, dirty: Dirty) -> None:
        if self._file is not None and not self.is_finished:
            dirty.files.add(self._file)

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        """Does nothing: the copy is not part of the pass's appends."""

    def mark_pass_durable(self, number: int) -> None:
        """Does nothing: `_copied` is called with the ticket."""
