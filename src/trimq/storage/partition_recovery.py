"""Opens a partition log after a stop or a crash: trusts what a checkpoint covers, scans the rest, cuts a torn tail and
builds indexes and producer state anew. Damage below a checkpoint is reported, never skipped."""

from __future__ import annotations

import logging

from trimq.errors import Damage
from trimq.formats.batch import HEADER_BYTES, BadBatch, BatchHeader, check_stored, read_header
from trimq.storage.checkpoints import Checkpoints, RecoveryPoint
from trimq.storage.compaction_swap import finish_swaps
from trimq.storage.companions import LEADER_EPOCHS, LOG, OF_A_SEGMENT, PRODUCER_SNAPSHOT, Unusable
from trimq.storage.epoch_checkpoint import parse_epochs
from trimq.storage.files import Files
from trimq.storage.partition_log import PartitionLog
from trimq.storage.partition_segment import PartitionSegment
from trimq.storage.producer_snapshot import ProducerStates
from trimq.storage.segment import Segment, base_of

log = logging.getLogger(__name__)

_LEFTOVERS = (".tmp", ".cleaned", ".swap", ".deleted")
_REMEDY = "restore it from a copy, or, to give up its records, move the segment and its companions out of the folder"


def open_log(files: Files, opened: PartitionLog, checkpoints: Checkpoints, is_adopted: bool = False) -> None:
    """Load the segments of the folder of `opened` and make it ready for reading and appending. An adopted one was
    written elsewhere: compaction may have left gaps between its segments, and it is checkpointed at once."""
    finish_swaps(files, opened.folder)
    names = opened.journal.load()
    point = checkpoints.point(opened.folder)
    _remove_leftovers(files, opened, names)
    if not opened.journal.segments:
        _begin_again(opened, point)
        return
    point = _trusted_point(opened, point)
    opened.start = max(point.start, opened.journal.segments[0].base)
    _check_sealed(opened, checkpoints, point)
    opened.producers, producers_from = _load_producers(files, opened, names, point)
    epochs_are_whole = _load_epochs(files, opened)
    _Scan(files, opened, point, producers_from, epochs_are_whole, is_adopted).run()
    if is_adopted:
        opened.checkpoint()


def _begin_again(opened: PartitionLog, point: RecoveryPoint | None) -> None:
    """A folder without segments: its creation was cut short by a crash, before anything was acknowledged."""
    if point is not None and point.offset > point.start:
        raise Damage(f"{opened.folder} has no segments, but held records up to offset {point.offset - 1}: {_REMEDY}")
    opened.start = 0 if point is None else point.start
    opened.end = opened.durable_end = opened.start
    opened.begin(None)


def _trusted_point(opened: PartitionLog, point: RecoveryPoint | None) -> RecoveryPoint:
    first = opened.journal.segments[0]
    if point is None:
        return RecoveryPoint(first.base, first.base, 0, first.base, 0)
    segment = next((segment for segment in opened.journal.segments if segment.base == point.base), None)
    if segment is None:
        raise Damage(f"{opened.folder}: the segment {point.base:020d}{LOG} is missing: {_REMEDY}")
    if segment.size < point.position:
        raise Damage(
            f"{segment.file.name} ends at byte {segment.size}, but {point.position} bytes were durable: {_REMEDY}"
        )
    return point


def _check_sealed(opened: PartitionLog, checkpoints: Checkpoints, point: RecoveryPoint) -> None:
    for segment in opened.journal.segments:
        mark = checkpoints.sealed(opened.folder, segment.base)
        if segment.base < point.base and mark is not None and mark.size != segment.size:
            raise Damage(f"{segment.file.name} has {segment.size} bytes, but was sealed with {mark.size}: {_REMEDY}")


def _remove_leftovers(files: Files, opened: PartitionLog, names: list[str]) -> None:
    """What a crash left half done, and companions whose segment is gone."""
    bases = {segment.base for segment in opened.journal.segments}
    for name in names:
        suffix = next((suffix for suffix in OF_A_SEGMENT if name.endswith(suffix)), None)
        is_orphan = suffix not in (None, PRODUCER_SNAPSHOT) and base_of(name, suffix or "") not in bases
        if is_orphan or name.endswith(_LEFTOVERS):
            files.remove(f"{opened.folder}/{name}")


def _load_producers(
    files: Files, opened: PartitionLog, names: list[str], point: RecoveryPoint
) -> tuple[ProducerStates, int]:
    """The producers as of a snapshot, and the offset from which the log must be read to bring them up to date."""
    offsets = [base_of(name, PRODUCER_SNAPSHOT) for name in names if name.endswith(PRODUCER_SNAPSHOT)]
    for offset in sorted((offset for offset in offsets if offset is not None), reverse=True):
        if offset > point.offset:
            continue
        file = files.open(f"{opened.folder}/{offset:020d}{PRODUCER_SNAPSHOT}")
        try:
            return ProducerStates.decode(file.read(0, file.size())), offset
        except Unusable as reason:
            log.warning("%s: %s", file.name, reason)
    if point.producers == 0:
        return ProducerStates(), point.offset
    log.warning("%s: no snapshot of the producers is usable, the whole log is read for them", opened.folder)
    return ProducerStates(), 0


def _load_epochs(files: Files, opened: PartitionLog) -> bool:
    """Whether the file could be used; else the epochs are taken from the batches."""
    try:
        file = files.open(f"{opened.folder}/{LEADER_EPOCHS}")
        opened.take_epochs(parse_epochs(file.read(0, file.size())))
    except FileNotFoundError:
        return False
    except Unusable as reason:
        log.warning("%s: %s", opened.folder, reason)
        return False
    return bool(opened.epochs)


class _Scan:
    """Goes through the segments of one log, from what is trusted to the end."""

    def __init__(
        self,
        files: Files,
        opened: PartitionLog,
        point: RecoveryPoint,
        producers_from: int,
        epochs_are_whole: bool,
        is_adopted: bool,
    ) -> None:
        self._files = files
        self._log = opened
        self._point = point
        self._producers_from = producers_from
        self._epochs_from = point.offset if epochs_are_whole else 0
        self._next_offset = point.offset
        self._is_adopted = is_adopted
        self._undurable: PartitionSegment | None = None

    def run(self) -> None:
        opened, point = self._log, self._point
        segments = list(opened.journal.segments)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            self._log.segments.append(PartitionSegment(segment, self._created_ms(segment), None))
            active = self._log.segments[-1]
            if segment.base < point.base:
                assert following is not None
                active.end_offset = following.base
                self._read_headers(active, segment.size)
                continue
            is_whole = self._scan(active, point.position if segment.base == point.base else 0)
            if following is None or not is_whole:
                break
            if following.base != self._next_offset and not self._is_adopted:
                # The name of the next segment reached the disk, what came before it did not: nothing was acknowledged.
                self._cut(segment, segment.size, BadBatch(f"{self._next_offset} does not lead to {following.base}"))
                break
            active.seal(following.base)
            opened.note_sealed(active)
        opened.resume(self._next_offset, self._undurable)

    def _created_ms(self, segment: Segment) -> int:
        """When the first record came, which decides about the roll by age."""
        now_ms = self._log.now_ms()
        if segment.size < HEADER_BYTES:
            return now_ms
        first = read_header(segment.read(0, HEADER_BYTES))
        return min(now_ms, first.max_timestamp_ms) if first.max_timestamp_ms >= 0 else now_ms

    def _read_headers(self, sealed: PartitionSegment, end: int) -> None:
        """Of a segment that is trusted, only if its batches are needed for producers or epochs."""
        if sealed.end_offset <= min(self._producers_from, self._epochs_from):
            return
        for position, header in sealed.walk(0, end):
            self._apply(sealed, position, header)

    def _scan(self, active: PartitionSegment, trusted: int) -> bool:
        """Take up one segment; False: its tail was torn, and what followed is cut off with it."""
        segment = active.segment
        interval_bytes = self._log.settings.index_interval_bytes
        position = active.resume(self._files, interval_bytes, trusted, self._producers_from)
        for at, header in active.walk(position, trusted):
            active.note(header, header.last_offset, at, header.size)
            self._apply(active, at, header)
        active.trusted_from = trusted
        if trusted == segment.size:
            return True
        self._undurable = self._undurable or active
        return self._scan_tail(active, trusted)

    def _scan_tail(self, active: PartitionSegment, position: int) -> bool:
        segment = active.segment
        view = segment.view(position, segment.size - position)
        at = 0
        while at < len(view):
            try:
                header = check_stored(view, at)
                if header.base_offset < self._next_offset:
                    raise BadBatch(f"offset {header.base_offset} follows {self._next_offset - 1}")
            except BadBatch as reason:
                del view
                self._cut(segment, position + at, reason)
                return False
            active.note(header, header.last_offset, position + at, header.size)
            self._apply(active, position + at, header)
            self._next_offset = header.next_offset
            at += header.size
        return True

    def _cut(self, segment: Segment, position: int, reason: Exception) -> None:
        journal = self._log.journal
        lost = segment.size - position + sum(later.size for later in journal.segments if later.base > segment.base)
        log.warning("%s: a torn tail of %d bytes is cut at byte %d: %s", segment.file.name, lost, position, reason)
        journal.truncate(segment, position, OF_A_SEGMENT)

    def _apply(self, active: PartitionSegment, position: int, header: BatchHeader) -> None:
        opened = self._log
        newest_epoch = opened.epochs[-1].epoch if opened.epochs else -1
        if header.leader_epoch > newest_epoch and header.last_offset >= self._epochs_from:
            opened.note_epoch(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_offset >= self._producers_from:
            opened.apply_producer(header, active.segment.view(position, header.size))
