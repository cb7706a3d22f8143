"""Opens a queue log after a stop or a crash: reads footers and acks, scans the tail, and truncates torn records. Raises
Damage for a state that a crash cannot cause."""

from __future__ import annotations

import logging
from contextlib import suppress

from trimq.errors import Damage
from trimq.formats.amqp_content.content import (
    FOOTER,
    FOOTER_BYTES,
    TRANSIENT,
    iterate_heads,
    read_footer,
    read_references,
    references_bytes,
)
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.segment import Segment, base_of, is_zero_filled, segment_name
from trimq.storage.io.atomic_file import TEMPORARY, replace_file
from trimq.storage.io.files import Files
from trimq.storage.queue_log.acks import encode_attempts, encode_bitmap, replay
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.reader import first_damage, scan
from trimq.storage.queue_log.segment import ACKS, CONTENTS, QueueSegment

log = logging.getLogger(__name__)


def open_queue_log(files: Files, opened: QueueLog, checkpoints: Checkpoints, names: list[str]) -> None:
    """Recovers the log. `names` are the names of the files in its folder."""
    opened.journal.load(names)
    _require_marked(opened, checkpoints)
    if not opened.journal.segments:
        opened.begin()
        return
    found = _find_segments(opened, checkpoints)
    for segment in found:
        _read_acks(files, opened, segment, names)
    _remove_stray_acks(files, opened, names)
    undurable = next((segment for segment in found if not segment.is_seal_durable), found[-1])
    opened.resume(found, undurable)
    opened.acks.recover_references()
    if found[-1].is_sealed:  # the footer was written, but a crash lost the next segment's file
        opened.begin_segment()
    for segment in found:
        if segment.is_seal_durable:
            opened.acks.remove_if_all_acked(segment)
        elif segment.is_sealed:
            opened.mark_sealed_when_synced(segment)


def _require_marked(opened: QueueLog, checkpoints: Checkpoints) -> None:
    """Raises Damage if a segment with a checkpoint is missing."""
    there = {segment.base for segment in opened.journal.segments}
    for base in checkpoints.marked(opened.folder):
        if base not in there:
            raise Damage(
                f"{opened.folder}/{segment_name(base, CONTENTS)} is missing: restore it from a copy, or remove the"
                " folder to continue without the messages of this queue"
            )


def _find_segments(opened: QueueLog, checkpoints: Checkpoints) -> list[QueueSegment]:
    found: list[QueueSegment] = []
    for segment in list(opened.journal.segments):
        mark = checkpoints.sealed(opened.folder, segment.base)
        if found and segment.base < found[-1].end:
            _remove_undone(opened, found[-1], segment, mark is not None)
            continue
        entry = QueueSegment(segment)
        found.append(entry)
        if mark is not None and mark.size != segment.size:
            raise Damage(f"{segment.file.name} has {segment.size} bytes instead of {mark.size}: {_REMEDY}")
        # Without a checkpoint, the footer may be on disk while records before it are not.
        if (mark is not None or first_damage(entry) is None) and _take_footer(segment, entry):
            entry.is_seal_durable = mark is not None
        elif mark is not None or any(base > segment.base for base in checkpoints.marked(opened.folder)):
            raise Damage(f"{segment.file.name} is damaged at byte {segment.size - FOOTER_BYTES}: {_REMEDY}")
        else:
            _scan_tail(opened, entry)
            break  # no publish after this point was confirmed
    return found


def _remove_undone(opened: QueueLog, before: QueueSegment, segment: Segment, is_marked: bool) -> None:
    """Removes a segment that begins before the end of the one before it. A pass that failed had begun it; its removal
    and the offsets that the next pass used again are synced together, so neither was confirmed."""
    if is_marked or before.is_seal_durable:
        raise Damage(
            f"{segment.file.name} begins before the end of {before.segment.file.name}, offset {before.end}: {_REMEDY}"
        )
    log.warning("%s: removed (left by a write that failed before a crash)", segment.file.name)
    opened.journal.remove(segment, (ACKS,))


_REMEDY = "restore it from a copy, or remove the folder to continue without the messages of this queue"


def _take_footer(segment: Segment, entry: QueueSegment) -> bool:
    """Reads the footer. Returns False if the segment is not sealed. Scans a sealed segment only if it has transient
    messages, which a restart removes, or was compacted."""
    if segment.size < FOOTER_BYTES:
        return False
    footer = read_footer(segment.read(segment.size - FOOTER_BYTES, FOOTER_BYTES))
    if footer is None:
        return False
    entry.take_footer(footer)
    if footer.shared:
        length = references_bytes(footer.shared)
        references = read_references(segment.read(segment.size - FOOTER_BYTES - length, length))
        if references is None:
            raise Damage(f"{segment.file.name} is damaged at byte {segment.size - FOOTER_BYTES - length}: {_REMEDY}")
        for message, blob in references:
            entry.add_reference(entry.base + message, blob)
    if footer.transient or footer.records != footer.last + 1 - footer.first:
        flags = bytearray(b"\1" * (footer.last + 1 - segment.base))
        for _, head in scan(entry):
            flags[head.offset - segment.base] = head.flags & TRANSIENT
        entry.take_flags(flags)
    return True


def _scan_tail(opened: QueueLog, entry: QueueSegment) -> None:
    segment = entry.segment
    size = 0
    for position, head in iterate_heads(segment.view(0, segment.size)):
        if head.flags & FOOTER or head.offset < entry.end:
            break
        entry.note_found(head, position)
        if head.flags & TRANSIENT:
            entry.transient += 1
            entry.mark_removed(head.offset, head.offset + 1)
            entry.live -= 1
        size = head.end
    is_last = segment is opened.journal.segments[-1]
    if size < segment.size or not is_last:
        if not is_last or not is_zero_filled(segment.view(size, segment.size - size)):
            log.warning(
                "%s: truncated the last %d bytes (incomplete write before a crash)",
                segment.file.name,
                segment.size - size,
            )
        opened.journal.truncate(segment, size, (ACKS,))


def _read_acks(files: Files, opened: QueueLog, segment: QueueSegment, names: list[str]) -> None:
    short = segment_name(segment.base, ACKS)
    if short not in names:
        return
    file = files.open(f"{opened.folder}/{short}")
    size = file.size()
    found = replay(file.read(0, size), segment.end - segment.base)
    if found.size < size:
        file.resize(found.size)  # else records behind the torn one would count again once it is overwritten
    file.close()
    segment.acks_file = file  # a clean stop syncs it: after a kill it may be in the page cache only
    segment.acks_bytes = found.size
    segment.attempts = found.attempts
    segment.take_flags(bytearray(found.flags))
    if found.has_unknown_messages:
        # Messages that a crash lost had been acknowledged. New messages with their offsets must not count as
        # acknowledged.
        record = encode_bitmap(found.flags) + (encode_attempts(found.attempts) if found.attempts else b"")
        segment.close_acks()
        replace_file(files, f"{opened.folder}/{short}", record)
        segment.acks_bytes = len(record)


def _remove_stray_acks(files: Files, opened: QueueLog, names: list[str]) -> None:
    """Removes acks files without a contents file, left by a crash while a segment was removed, and temporary files."""
    there = {segment.base for segment in opened.journal.segments}
    for name in names:
        base = base_of(name, ACKS)
        if (base is not None and base not in there) or name.endswith(TEMPORARY):
            with suppress(FileNotFoundError):  # it was removed together with its contents file
                files.remove(f"{opened.folder}/{name}")
