"""Inspects the queue logs in a stopped broker's folder without changing them: every message, every shared body, every
record of acks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trimq.formats.amqp_content.content import (
    FOOTER,
    FOOTER_BYTES,
    NO_BLOB,
    SHARED,
    TRANSIENT,
    Footer,
    RecordHead,
    StoredContent,
    blob_of,
    check_record,
    read_footer,
    read_references,
    read_stored,
)
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.segment import base_of, is_zero_filled, segment_name
from trimq.storage.guards.quarantine import is_quarantined
from trimq.storage.inspection.partitions import Finding, ReportProgress, find_checkpoints
from trimq.storage.io.files import File, Files
from trimq.storage.queue_log.acks import replay
from trimq.storage.queue_log.segment import ACKS, CONTENTS
from trimq.storage.queue_log.shared_bodies import VOLATILE
from trimq.storage.queue_log.store import BLOBS, ROOT

_REMEDY = "Restore it from a copy, or remove the folder to continue without the messages of this queue."
_BODY_REMEDY = "Restore it from a copy: the messages that refer to these bodies cannot be delivered without it."
_TAIL_REMEDY = "Start the broker: it cuts bytes that were never acknowledged."
_UNDONE_REMEDY = "Start the broker: it removes the file, which a failed write left. No message in it was confirmed."
_ACKS_REMEDY = "Start the broker: it cuts the rest and delivers the messages acknowledged there again."
_REFERENCE_REMEDY = "Start the broker: it drops the message, which was never confirmed or is fully acknowledged."


@dataclass(slots=True)
class InspectedQueueSegment:
    """Segment of a queue's folder. `is_last`: no segment follows it. `acked` has a byte for each message mentioned in
    the ack file, 1 if it is acknowledged. `acks_bytes` is the end of the whole records in the ack file."""

    folder: str
    base: int
    file: File
    is_last: bool
    messages: int = 0
    end: int = 0
    acked: bytearray = field(default_factory=bytearray)
    acks_bytes: int = 0

    def is_acked(self, offset: int) -> bool:
        message = offset - self.base
        return message < len(self.acked) and self.acked[message] == 1


def names(files: Files) -> list[str]:
    """Returns the folders of the queue logs, without the folder of the shared bodies."""
    return [name for name in files.names(ROOT) if name != BLOBS and not is_quarantined(name)]


def segments(files: Files, folder: str) -> list[InspectedQueueSegment]:
    """Returns the segments with their acks."""
    bases = [base for name in files.names(folder) if (base := base_of(name, CONTENTS)) is not None]
    found = []
    for base in bases:
        file = files.open(f"{folder}/{segment_name(base, CONTENTS)}")
        segment = InspectedQueueSegment(folder, base, file, base == bases[-1])
        for head in message_heads(segment):
            segment.messages += 1
            segment.end = head.offset + 1
        segment.end = max(segment.end, base)
        _read_acks(files, segment)
        found.append(segment)
    return found


def _read_acks(files: Files, segment: InspectedQueueSegment) -> None:
    short = segment_name(segment.base, ACKS)
    if short in files.names(segment.folder):
        file = files.open(f"{segment.folder}/{short}")
        found = replay(file.read(0, file.size()), segment.end - segment.base)
        file.close()
        segment.acked, segment.acks_bytes = found.flags, found.size


def heads(segment: InspectedQueueSegment) -> Iterator[tuple[int, RecordHead]]:
    """Yields position and head of each whole record, footers included, up to the first damaged or torn one."""
    size = segment.file.size()
    view = segment.file.view(0, size)
    position = 0
    while position < size and (head := check_record(view, position)) is not None:
        yield position, head
        position = head.end


def message_heads(segment: InspectedQueueSegment) -> Iterator[RecordHead]:
    return (head for _, head in heads(segment) if not head.flags & FOOTER)


class InspectedBodies:
    """Locations of the bodies that several queues share."""

    def __init__(self, files: Files) -> None:
        self._places: dict[int, tuple[InspectedQueueSegment, int]] = {}
        self._unreadable: list[range] = []
        found = segments(files, f"{ROOT}/{BLOBS}")
        for segment, following in zip(found, [*(each.base for each in found[1:]), VOLATILE], strict=False):
            end = 0
            for position, head in heads(segment):
                end = head.end
                if not head.flags & FOOTER:
                    self._places[head.offset] = (segment, position)
            rest = segment.file.view(end, segment.file.size() - end)
            if rest and not (segment.is_last and is_zero_filled(rest)):
                self._unreadable.append(range(segment.end, following))

    def is_missing(self, blob: int) -> bool:
        """Returns whether the body is missing. A body that may be stored after damage, which is reported separately,
        does not count."""
        return blob not in self._places and not any(blob in each for each in self._unreadable)

    def read(self, blob: int) -> bytes | None:
        """Returns None if the body is missing or damaged."""
        if blob not in self._places:
            return None
        segment, position = self._places[blob]
        found = read_stored(segment.file.view(0, segment.file.size()), position)
        return None if found is None else found[0].content.body


def messages(files: Files, name: str) -> Iterator[tuple[StoredContent, bytes | None, bool]]:
    """Yields each message of a queue's log with its body, wherever stored, and whether it is acknowledged; in each
    segment up to the first damaged one."""
    bodies = InspectedBodies(files)
    for segment in segments(files, f"{ROOT}/{name}"):
        view = segment.file.view(0, segment.file.size())
        for position, head in heads(segment):
            found = None if head.flags & FOOTER else read_stored(view, position)
            if found is not None:
                stored = found[0]
                body = bodies.read(blob_of(stored)) if stored.flags & SHARED else stored.content.body
                yield stored, body, segment.is_acked(stored.offset)


def verify(files: Files, progress: ReportProgress, expected: Iterable[str] = ()) -> Iterator[Finding]:
    """Yields every inconsistency. `expected`: the folders that must exist if the checkpoints know anything of them."""
    checkpoints = find_checkpoints(files)
    folders = sorted({*expected, *(f"{ROOT}/{name}" for name in files.names(ROOT) if not is_quarantined(name))})
    bodies = InspectedBodies(files)
    for done, folder in enumerate(folders):
        found = segments(files, folder)
        yield from _verify_marks(folder, found, checkpoints)
        before: InspectedQueueSegment | None = None
        for segment in found:
            if before is not None and segment.base < before.end:
                yield _overlap(before, segment, checkpoints)
            else:
                yield from _verify_segment(segment, checkpoints)
                yield from _verify_acks(files, segment)
                if folder != f"{ROOT}/{BLOBS}":
                    yield from _verify_references(segment, bodies)
                before = segment
            segment.file.close()
        progress(done + 1, len(folders))


def _remedy(folder: str) -> str:
    return _BODY_REMEDY if folder == f"{ROOT}/{BLOBS}" else _REMEDY


def _verify_marks(folder: str, found: list[InspectedQueueSegment], checkpoints: Checkpoints) -> Iterator[Finding]:
    there = {segment.base for segment in found}
    for base in checkpoints.marked(folder):
        if base not in there:
            yield Finding(f"{folder}/{segment_name(base, CONTENTS)}", 0, "the file is missing", _remedy(folder))


def _overlap(before: InspectedQueueSegment, segment: InspectedQueueSegment, checkpoints: Checkpoints) -> Finding:
    is_durable = any(checkpoints.sealed(each.folder, each.base) is not None for each in (before, segment))
    return Finding(
        segment.file.name,
        0,
        f"begins before the end of {before.file.name}, offset {before.end}",
        _remedy(segment.folder) if is_durable else _UNDONE_REMEDY,
    )


def _verify_segment(segment: InspectedQueueSegment, checkpoints: Checkpoints) -> Iterator[Finding]:
    """Yields the first damage only, since the bytes after it cannot be trusted."""
    name, size = segment.file.name, segment.file.size()
    mark = checkpoints.sealed(segment.folder, segment.base)
    if mark is not None and mark.size != size:
        yield Finding(name, size, f"has {size} bytes, but was sealed with {mark.size}", _remedy(segment.folder))
        return
    position, expected = 0, segment.base
    for at, head in heads(segment):
        if not head.flags & FOOTER:
            if head.offset < expected:
                yield Finding(name, at, f"offset {head.offset} is out of order", _remedy(segment.folder))
                return
            expected = head.offset + 1
        position = head.end
    is_sealed = mark is not None or any(base > segment.base for base in checkpoints.marked(segment.folder))
    if position < size:
        if not is_sealed and segment.is_last and is_zero_filled(segment.file.view(position, size - position)):
            return  # space that a broker preallocated
        advice = _remedy(segment.folder) if is_sealed else _TAIL_REMEDY
        yield Finding(name, position, "no complete message at this position, or its checksum does not match", advice)
    elif mark is not None and (problem := _footer_problem(segment)) is not None:
        yield Finding(name, size - FOOTER_BYTES, problem, _remedy(segment.folder))


def _footer_problem(segment: InspectedQueueSegment) -> str | None:
    size = segment.file.size()
    footer: Footer | None = read_footer(segment.file.read(max(size - FOOTER_BYTES, 0), FOOTER_BYTES))
    if footer is None:
        return "the segment was sealed, but has no footer"
    if footer.records != segment.messages:
        return f"the segment holds {segment.messages} messages, but its footer says {footer.records}"
    shared = [(head.offset - segment.base, head.blob) for _, head in heads(segment) if head.blob != NO_BLOB]
    listed: list[tuple[int, int]] | None = []
    for at, head in heads(segment):
        if head.flags == FOOTER | SHARED:
            listed = read_references(segment.file.read(at, head.end - at))
    return None if listed == shared else "the list of shared bodies does not match the messages"


def _verify_acks(files: Files, segment: InspectedQueueSegment) -> Iterator[Finding]:
    short = segment_name(segment.base, ACKS)
    if short in files.names(segment.folder):
        file = files.open(f"{segment.folder}/{short}")
        if segment.acks_bytes < file.size():
            yield Finding(file.name, segment.acks_bytes, "no complete ack record at this position", _ACKS_REMEDY)
        file.close()


def _verify_references(segment: InspectedQueueSegment, bodies: InspectedBodies) -> Iterator[Finding]:
    for at, head in heads(segment):
        is_passing = head.flags & TRANSIENT or head.blob & VOLATILE
        if head.blob == NO_BLOB or is_passing or segment.is_acked(head.offset) or not bodies.is_missing(head.blob):
            continue
        problem = f"the shared body {head.blob} of message {head.offset} is not in {ROOT}/{BLOBS}"
        yield Finding(segment.file.name, at, problem, _REFERENCE_REMEDY)
