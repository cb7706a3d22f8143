"""Opens a partition log after a stop or a crash: trusts the part covered by a checkpoint, scans the rest, cuts a torn
tail and rebuilds indexes and producer state. Reports damage below a checkpoint, never skips it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trimq.errors import Damage, DamagedSegment
from trimq.formats.kafka_batch.header import HEADER_BYTES, BadBatch, BatchHeader, check_stored, read_header, walk_plain
from trimq.storage.checkpoints.file_names import LOG, PRODUCER_SNAPSHOT, SEGMENT_COMPANIONS, CorruptCompanion
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, RecoveryPoint
from trimq.storage.group_commit.segment import Segment, base_of, is_zero_filled, segment_name
from trimq.storage.io.files import Files
from trimq.storage.partition_log.compaction_swap import finish_swaps
from trimq.storage.partition_log.expected_segments import GIVEN_UP, first_kept, remedy, require_expected
from trimq.storage.partition_log.index import MAX_RELATIVE_OFFSET
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.producers import ProducerStates
from trimq.storage.partition_log.segment import PartitionSegment

log = logging.getLogger(__name__)

_LEFTOVERS = (".tmp", ".cleaned", ".swap", ".deleted")
_UNFINISHED = (".swap", GIVEN_UP)
_WITH_ITS_SEGMENT = SEGMENT_COMPANIONS[:-1]  # without the snapshots
_DAMAGED = ".damaged"


def open_log(
    files: Files,
    opened: PartitionLog,
    checkpoints: Checkpoints,
    is_adopted: bool = False,
    names: list[str] | None = None,
) -> None:
    """Loads the segments in the folder of `opened` and makes it ready for reading and appending. An adopted log was
    written by Apache Kafka: compaction may have left gaps between its segments, and it is checkpointed at once.
    `names`: the files in the folder, if the caller has listed them."""
    names = files.names(opened.folder) if names is None else names
    given_up: set[int] = set()
    if any(name.endswith(_UNFINISHED) for name in names):
        finish_swaps(files, opened.folder)
        given_up = _give_up(files, opened)
        names = files.names(opened.folder)
    opened.journal.load(names)
    known = checkpoints.point(opened.folder)
    if is_adopted:
        _refuse_unfinished(opened, names)
    _remove_leftovers(files, opened, names)
    sizes = {segment.base: segment.size for segment in opened.journal.segments}
    require_expected(opened.folder, sizes, checkpoints, given_up)
    if not sizes:
        opened.begin(None)
        return
    try:
        point = _trusted_point(opened, checkpoints, known)
        _forget_given_up(opened, checkpoints, point)
        _Scan(files, opened, checkpoints, point, known is None, is_adopted).run(names)
    except DamagedSegment as found:
        raise Damage(f"{found.file} is damaged at byte {found.position}: {remedy(found.file)}") from None
    if is_adopted:
        opened.needs_checkpoint = True
        opened.checkpoint()


def _give_up(files: Files, opened: PartitionLog) -> set[int]:
    """Replaces segments whose loss the operator has accepted by empty ones; keeps the old files under another name."""
    names = files.names(opened.folder)
    bases = {base for name in names if (base := base_of(name, GIVEN_UP)) is not None}
    for base in bases:
        path = f"{opened.folder}/{segment_name(base, LOG)}"
        log.warning("%s: dropping its records (requested by a file with the ending .lost)", path)
        if segment_name(base, LOG) in names:
            files.rename(path, path + _DAMAGED)
        files.open(path, create=True)
        files.remove(f"{opened.folder}/{segment_name(base, GIVEN_UP)}")
        opened.note_new(None)
        opened.journal.join_pass()
    return bases


def _refuse_unfinished(opened: PartitionLog, names: Sequence[str]) -> None:
    for name in names:
        if name.endswith(".swap"):
            path = f"{opened.folder}/{name}"
            raise Damage(f"{path} was left by a broker that crashed during compaction: start that broker once more")


def _remove_leftovers(files: Files, opened: PartitionLog, names: Sequence[str]) -> None:
    """Removes leftovers of a crash, and companion files without a segment."""
    bases = {segment.base for segment in opened.journal.segments}
    for name in names:
        suffix = name[name.find(".") :]
        base = base_of(name, suffix) if suffix in _WITH_ITS_SEGMENT else None
        if (base is not None and base not in bases) or name.endswith(_LEFTOVERS):
            files.remove(f"{opened.folder}/{name}")


# -- the trusted part


def _trusted_point(opened: PartitionLog, checkpoints: Checkpoints, known: RecoveryPoint | None) -> RecoveryPoint:
    """Returns the recovery point. All expected segments exist."""
    segments = opened.journal.segments
    first = segments[0]
    if known is None:
        opened.start = first.base
        return RecoveryPoint(first.base, first.base, 0, first.base, 0)
    kept_from = first_kept([segment.base for segment in segments], known)
    while segments[0].base < kept_from:
        opened.journal.remove(segments[0], SEGMENT_COMPANIONS[:-1])
    opened.start = known.start
    place = next(place for place, segment in enumerate(segments) if segment.base == known.base)
    if segments[place].size >= known.position:
        return known
    # The operator has accepted the loss of its records.
    offset = known.offset if place + 1 == len(segments) else segments[place + 1].base
    point = known._replace(offset=offset, position=0, producers=-1, sums=None)
    checkpoints.save(opened.folder, point)
    return point


def _forget_given_up(opened: PartitionLog, checkpoints: Checkpoints, point: RecoveryPoint) -> None:
    """Removes the marks of segments before a cut head, or with dropped records."""
    sizes = {segment.base: segment.size for segment in opened.journal.segments}
    for base in checkpoints.marked(opened.folder):
        mark = checkpoints.sealed(opened.folder, base)
        if base < point.base and mark is not None and sizes.get(base) != mark.size:
            checkpoints.forget_sealed(opened.folder, base)


class _Scan:
    """Scans the segments of one log, from the trusted part to the end."""

    def __init__(
        self,
        files: Files,
        opened: PartitionLog,
        checkpoints: Checkpoints,
        point: RecoveryPoint,
        is_all_undurable: bool,
        is_adopted: bool,
    ) -> None:
        self._files = files
        self._log = opened
        self._checkpoints = checkpoints
        self._point = point
        self._is_adopted = is_adopted
        self._is_all_undurable = is_all_undurable
        self._producers_from = self._epochs_from = point.offset
        self._next_offset = point.offset
        self._note_from = 0
        self._undurable: PartitionSegment | None = None

    def run(self, names: Sequence[str]) -> None:
        opened, point = self._log, self._point
        segments = list(opened.journal.segments)
        pointed = self._resume_at_checkpoint(next(segment for segment in segments if segment.base == point.base), names)
        self._load_epochs()
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if segment.base < point.base:
                assert following is not None
                self._load_sealed(segment, following.base)
                continue
            active = pointed if segment.base == point.base else self._begin(segment)
            if not self._scan(active, following) or following is None:
                break
            if following.base != self._next_offset and not self._is_adopted:
                # The name of the next segment was on disk, the bytes before it were not: none of them was acknowledged.
                self._cut(segment, segment.size, BadBatch(f"{self._next_offset} is not followed by {following.base}"))
                break
            active.seal(following.base)
            opened.checkpointing.note_sealed(active)
        self._require_start(opened.segments[-1].segment, opened.segments[-1].segment.size)
        opened.resume(self._next_offset, self._undurable)

    # -- starting point of the scan

    def _resume_at_checkpoint(self, segment: Segment, names: Sequence[str]) -> PartitionSegment:
        """Returns the segment of the point with its indexes, and loads the producers as of that point."""
        point = self._point
        pointed = PartitionSegment(segment, self._created_ms(segment), None)
        self._note_from = pointed.resume(
            self._files, self._log.settings.index_interval_bytes, point.position, point.sums
        )
        pointed.trusted_from = pointed.checkpointed_to = point.position
        if pointed.has_leftovers(self._files, names, point.sums):
            self._log.checkpointing.request()
        if pointed.aborted is None or self._has_unknown_index():
            self._producers_from = 0  # the markers of aborted transactions must be found again
        else:
            self._load_producers(names)
        pointed.forget_markers(self._producers_from)
        return pointed

    def _load_producers(self, names: Sequence[str]) -> None:
        """Loads the producers from a snapshot; the log must be read from there on to bring them up to date."""
        opened, point = self._log, self._point
        offsets = sorted(offset for name in names if (offset := base_of(name, PRODUCER_SNAPSHOT)) is not None)
        if not self._is_adopted:
            for offset in [offset for offset in offsets if offset > point.offset]:
                self._files.remove(self._snapshot(offset))  # of records that a crash removed
        if point.producers == 0:
            return
        for offset in reversed([offset for offset in offsets if offset <= point.offset]):
            file = self._files.open(self._snapshot(offset))
            try:
                opened.producers = ProducerStates.decode(file.read(0, file.size()))
            except CorruptCompanion as reason:
                log.warning("%s: ignoring producer snapshot: %s", file.name, reason)
                continue
            self._producers_from = offset
            if offset == point.offset:
                opened.checkpointing.kept_snapshot = offset
            return
        log.warning("%s: no usable producer snapshot, reading the whole log", opened.folder)
        self._producers_from = 0

    def _snapshot(self, offset: int) -> str:
        return f"{self._log.folder}/{segment_name(offset, PRODUCER_SNAPSHOT)}"

    def _load_epochs(self) -> None:
        saved = self._checkpoints.epochs(self._log.folder)
        if saved is None:
            self._epochs_from = 0
        else:
            self._log.take_epochs([start for start in saved if start.start_offset < self._point.offset])

    def _begin(self, segment: Segment) -> PartitionSegment:
        """Resumes a segment that was created after the checkpoint."""
        begun = PartitionSegment(segment, self._created_ms(segment), None)
        begun.resume(self._files, self._log.settings.index_interval_bytes, 0, None)
        begun.trusted_from = begun.checkpointed_to = self._note_from = 0
        self._undurable = self._undurable or begun
        return begun

    def _created_ms(self, segment: Segment) -> int:
        """Returns the time of the first record, which the roll by age is based on."""
        now_ms = self._log.now_ms()
        if segment.size < HEADER_BYTES:
            return now_ms
        first = read_header(segment.read(0, HEADER_BYTES))
        return min(now_ms, first.max_timestamp_ms) if first.max_timestamp_ms >= 0 else now_ms

    # -- the scan

    def _has_unknown_index(self) -> bool:
        """Returns whether a sealed segment has no mark: the crash was between its last change and the next
        checkpoint."""
        return any(
            self._checkpoints.sealed(self._log.folder, segment.base) is None
            for segment in self._log.journal.segments
            if segment.base < self._point.base
        )

    def _load_sealed(self, segment: Segment, end_offset: int) -> None:
        """Loads a sealed segment, which is trusted; reads its batches only if needed for producers or epochs."""
        mark = self._checkpoints.sealed(self._log.folder, segment.base)
        if mark is None:
            self._index_anew(segment, end_offset)
            return
        sealed = PartitionSegment.stored(segment, end_offset, mark.sums)
        self._log.segments.append(sealed)
        if end_offset > min(self._producers_from, self._epochs_from):
            for position, header in sealed.walk(0, segment.size):
                self._apply_trusted(sealed, position, header)

    def _index_anew(self, segment: Segment, end_offset: int) -> None:
        sealed = PartitionSegment(segment, 0, None)
        sealed.resume(self._files, self._log.settings.index_interval_bytes, 0, None)
        self._log.segments.append(sealed)
        for position, header in sealed.walk(0, segment.size):
            sealed.note(header, header.last_offset, position)
            self._apply_trusted(sealed, position, header)
        sealed.seal(end_offset)
        self._log.checkpointing.note_sealed(sealed)
        self._log.checkpoint()

    def _scan(self, active: PartitionSegment, following: Segment | None) -> bool:
        """Scans one segment. Returns False if its tail was torn; everything after it is cut off."""
        self._log.segments.append(active)
        trusted = active.trusted_from
        is_all_needed = min(self._producers_from, self._epochs_from) < self._point.offset
        at, next_offset = 0, self._next_offset
        for at, header in active.walk(0 if is_all_needed else self._note_from, trusted):
            if at >= self._note_from:
                active.note(header, header.last_offset, at)
            self._apply_trusted(active, at, header)
            next_offset = header.next_offset
        if next_offset != self._next_offset:
            raise DamagedSegment(active.segment.file.name, at)
        if self._is_all_undurable or trusted < active.segment.size:
            self._undurable = self._undurable or active
        return trusted == active.segment.size or self._scan_tail(active, trusted, following)

    def _scan_tail(self, active: PartitionSegment, position: int, following: Segment | None) -> bool:
        segment = active.segment
        limit = segment.base + MAX_RELATIVE_OFFSET + 1 if following is None else following.base
        view = segment.view(position, segment.size - position)
        at = 0
        while (at := self._take_plain(active, view, at, position, limit)) < len(view):
            try:
                header = check_stored(view, at)
                self._require_next(header, limit)
                self._apply(active, position + at, header)
            except BadBatch as reason:
                is_torn = following is not None or not is_zero_filled(view[at:])
                del view
                if self._is_adopted and following is not None:
                    raise DamagedSegment(segment.file.name, position + at) from None
                self._cut(segment, position + at, reason if is_torn else None)
                return False
            active.note(header, header.last_offset, position + at)
            self._next_offset = header.next_offset
            at += header.size
        return True

    def _take_plain(self, active: PartitionSegment, view: memoryview, at: int, position: int, limit: int) -> int:
        """Fast path of `_scan_tail` for plain batches, which most logs consist of; falls back to it at the first other
        batch. Returns the position of that batch."""
        epochs, note = self._log.epochs, active.growing.note
        newest_epoch = epochs[-1].epoch if epochs else -1
        plain = walk_plain(view, at, self._next_offset, limit, newest_epoch)
        last_offset = self._next_offset - 1
        for last_offset, begin, size, max_timestamp_ms in plain:
            note(last_offset, position + begin, max_timestamp_ms)
            at = begin + size
        self._next_offset = last_offset + 1
        return at

    def _require_next(self, header: BatchHeader, limit: int) -> None:
        # Compaction leaves gaps, but never after a checkpoint of this broker.
        is_next = header.base_offset == self._next_offset
        may_follow = self._is_adopted and header.base_offset > self._next_offset
        if not (is_next or may_follow) or header.next_offset > limit:
            raise BadBatch(f"offset {header.base_offset} follows {self._next_offset - 1}")

    def _require_start(self, segment: Segment, position: int) -> None:
        """Raises DamagedSegment if records before the start are missing: a head is cut only at durable records, so this
        is not a torn tail."""
        if self._next_offset < self._log.start:
            raise DamagedSegment(segment.file.name, position)

    def _cut(self, segment: Segment, position: int, reason: Exception | None) -> None:
        self._require_start(segment, position)
        journal = self._log.journal
        lost = segment.size - position + sum(later.size for later in journal.segments if later.base > segment.base)
        if lost and reason is not None:
            log.warning("%s: cutting torn tail of %d bytes at byte %d (%s)", segment.file.name, lost, position, reason)
        journal.truncate(segment, position, SEGMENT_COMPANIONS)
        for base in self._checkpoints.marked(self._log.folder):
            if base >= segment.base:  # it no longer matches its mark
                self._checkpoints.forget_sealed(self._log.folder, base)

    def _apply_trusted(self, active: PartitionSegment, position: int, header: BatchHeader) -> None:
        try:
            self._apply(active, position, header)
        except BadBatch:
            raise DamagedSegment(active.segment.file.name, position) from None

    def _apply(self, active: PartitionSegment, position: int, header: BatchHeader) -> None:
        opened = self._log
        if header.producer_id >= 0 and header.base_offset >= self._producers_from:
            opened.apply_producer(header, active.segment.view(position, header.size))
        newest_epoch = opened.epochs[-1].epoch if opened.epochs else -1
        if header.leader_epoch > newest_epoch and header.last_offset >= self._epochs_from:
            opened.note_epoch(header.leader_epoch, header.base_offset)
