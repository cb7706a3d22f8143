"""Pipeline `audit`: finds messages that were lost, duplicated or reordered on the way into topics, by the sequence
numbers of producers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from pyspark_trimq.pipelines.lakes.aborted_records import AbortedRecords
from pyspark_trimq.pipelines.lakes.lake import open_for_reading, read
from pyspark_trimq.pipelines.messages.sequences import COLUMNS, RUNS, runs_in
from pyspark_trimq.pipelines.reports.outcome import Figure, Outcome, Plot, Table, batch_plots
from pyspark_trimq.pipelines.runner.checkpoint import Checkpoint, open_checkpoint, write_atomically
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.runner import read_stream, run_query, subscription
from pyspark_trimq.pipelines.runner.topics import compacted_topics
from trimq.errors import StartupError
from trimq.formats.sequences import Fault, FaultKind, ProducerStream, SeenSequences, SequenceLedger, SequenceRun

FAULT_KINDS: tuple[FaultKind, ...] = ("gap", "duplicate", "reordered")


@plain_errors()
def audit(
    topics: Sequence[str] = (),
    *,
    pattern: str = "",
    lake: str | Path | None = None,
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Checks the sequence numbers in topics, or in the archive `lake`. `found` is the number of faults. The checkpoint
    stores the numbers seen; the next run continues from there.

    Reads aborted records too, because their sequence numbers count. Retention and compaction delete records on purpose.
    If the start of a topic was deleted, only gaps between the remaining records are reported. In a compacted topic gaps
    are not reported, since they may be records that compaction deleted. An archive does not know which topics were
    compacted."""
    if lake is not None:
        return _audit_lake(Path(lake), topics, context)
    subscribed = subscription(topics, pattern)
    settings = {"bootstrap": context.bootstrap, **subscribed}
    with open_checkpoint(context.folder(Path("trimq-checkpoints/audit")), "audit", settings) as checkpoint:
        keeper = _AuditCheckpoint(checkpoint)
        frame = read_stream(context, subscribed, COLUMNS, isolation="read_uncommitted", startingOffsets="earliest")
        batches = run_query(context, "audit", frame.writeStream.foreachBatch(keeper.note), checkpoint)
        books = keeper.latest()
        compacted = compacted_topics(context, sorted({track.topic for track in books.by_stream}))
        outcome = _outcome(settings, books, keeper.from_start, compacted)
        outcome.batches = batches
        outcome.plots += batch_plots(batches)
        return outcome


def _audit_lake(folder: Path, topics: Sequence[str], context: PipelineContext) -> Outcome:
    if not context.once or context.checkpoint is not None:
        raise StartupError("an audit of a lake reads all of it and ends: leave out --continuous and --checkpoint")
    lake = open_for_reading(folder)
    books = SequenceLedger()
    from_start: set[tuple[str, int]] = set()
    by_topic: dict[str, list[Any]] = {}
    for file in lake.files():
        if not topics or file.topic in topics:
            by_topic.setdefault(file.topic, []).append(file)
    for topic, files in sorted(by_topic.items()):
        frame = read(context.session(), files)
        aborted = AbortedRecords(lake.folder).runs([topic])
        add_frame(books, frame, aborted)
        from_start |= _from_start(frame)
        from_start |= {(topic, run.track.partition) for run in aborted if run.first_offset == 0}
    return _outcome({"lake": str(folder), "topics": sorted(by_topic)}, books, from_start)


def add_frame(books: SequenceLedger, frame: DataFrame, more: Sequence[SequenceRun] = ()) -> None:
    """Adds the records of a frame and the runs `more`. Their offsets must be after all offsets added before."""
    columns = [field.split()[0] for field in COLUMNS.split(", ")]
    rows = frame.select(*columns).mapInArrow(runs_in, RUNS).collect()
    for row in rows:
        if row.producer < 0:
            books.unstamped[row.topic, row.partition] += row.records
    books.note([*(SequenceRun(ProducerStream(*row[:4]), *row[4:]) for row in rows if row.producer >= 0), *more])


def _from_start(frame: DataFrame) -> set[tuple[str, int]]:
    """Returns the partitions whose record at offset 0 is in the frame."""
    rows = frame.where("offset = 0").select("topic", "partition").distinct().collect()
    return {(row.topic, row.partition) for row in rows}


class _AuditCheckpoint:
    """Stores the sequence ledger after each batch in the checkpoint. A repeated batch starts from the ledger before
    it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._folder = checkpoint.folder / "books"
        self._folder.mkdir(exist_ok=True)
        self.from_start: set[tuple[str, int]] = set()
        self.latest()

    def note(self, frame: DataFrame, batch: int) -> None:
        books = self._read([number for number in self._numbers() if number < batch])
        frame = frame.persist()
        add_frame(books, frame)
        self.from_start |= _from_start(frame)
        frame.unpersist()
        kept = {**books.as_json(), "from_start": sorted(self.from_start)}
        write_atomically(self._folder / f"{batch:012}.json", json.dumps(kept))
        for number in self._numbers():
            if number < batch - 1:
                (self._folder / f"{number:012}.json").unlink()

    def latest(self) -> SequenceLedger:
        return self._read(self._numbers())

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.json") if path.stem.isdigit())

    def _read(self, numbers: Sequence[int]) -> SequenceLedger:
        if not numbers:
            return SequenceLedger()
        kept = json.loads((self._folder / f"{numbers[-1]:012}.json").read_text())
        self.from_start = {(topic, partition) for topic, partition in kept["from_start"]}
        return SequenceLedger.from_json(kept)


def _outcome(
    settings: Mapping[str, Any],
    books: SequenceLedger,
    from_start: set[tuple[str, int]],
    compacted: Collection[str] = (),
) -> Outcome:
    faults = [fault for fault in books.faults(from_start) if fault.kind != "gap" or fault.track.topic not in compacted]
    stamped = sum(book.records for book in books.by_stream.values())
    records = Counter[str]()
    for fault in faults:
        records[fault.kind] += fault.records
    figures = {
        "records checked": stamped,
        "producers": len({track.producer for track in books.by_stream}),
        "faults": len(faults),
        "records missing": records["gap"],
        "records repeated": records["duplicate"],
        "records reordered": records["reordered"],
        "records without a sequence": books.unstamped.total(),
    }
    outcome = Outcome("audit", dict(settings), {**figures}, found=len(faults))
    not_judged = _not_judged(books, from_start, compacted)
    if not faults and stamped:
        outcome.notes.append(
            "No fault was found in what was checked; the report lists under Not judged what was not."
            if not_judged
            else "Every sequence is complete: nothing is missing, duplicated or out of order."
        )
    if books.unstamped:
        outcome.notes.append(
            "Records without a sequence come from producers that are not idempotent: the audit cannot check them."
        )
    outcome.tables += [_by_partition(books, faults), _fault_table(faults), *not_judged]
    outcome.plots += _plots(faults)
    return outcome


def _by_partition(books: SequenceLedger, faults: Sequence[Fault]) -> Table:
    counts = Counter((fault.track.topic, fault.track.partition, fault.kind) for fault in faults)
    seen: dict[tuple[str, int], list[SeenSequences]] = {}
    for track, book in books.by_stream.items():
        seen.setdefault((track.topic, track.partition), []).append(book)
    rows: list[tuple[Figure, ...]] = []
    for (topic, partition), held in sorted(seen.items()):
        found = [counts[topic, partition, kind] for kind in FAULT_KINDS]
        rows.append((topic, partition, len(held), sum(book.records for book in held), *found))
    columns = ("topic", "partition", "producer epochs", "records", "gaps", "duplicates", "reordered")
    return Table("Partitions", columns, rows)


def _not_judged(books: SequenceLedger, from_start: set[tuple[str, int]], compacted: Collection[str]) -> list[Table]:
    """Returns a table of the partitions that the audit could not check, or not as a whole; none if there is nothing to
    list."""
    rows: list[tuple[Figure, ...]] = [
        (topic or "-", partition if partition >= 0 else None, records, "no sequence: the producer is not idempotent")
        for (topic, partition), records in sorted(books.unstamped.items())
    ]
    judged = sorted({(track.topic, track.partition) for track in books.by_stream})
    why = "the start was deleted or not read: losses before the first record are not seen"
    rows += [(*place, None, why) for place in judged if place not in from_start and place[0] not in compacted]
    why = "compacted: missing records may have been deleted, so gaps are not reported"
    rows += [(*place, None, why) for place in judged if place[0] in compacted]
    return [Table("Not judged", ("topic", "partition", "records", "reason"), rows)] if rows else []


def _fault_table(faults: Sequence[Fault]) -> Table:
    columns = ("kind", "topic", "partition", "producer", "epoch", "sequence", "records", "offset")
    rows = [(fault.kind, *fault.track, fault.sequence, fault.records, fault.offset) for fault in faults]
    return Table("Faults", columns, rows, "The offset of a gap is that of the record after it.")


def _plots(faults: Sequence[Fault]) -> list[Plot]:
    if not faults:
        return []
    places = Counter((fault.kind, f"{fault.track.topic} {fault.track.partition}") for fault in faults)
    series = {
        kind: [(place, float(count)) for (of, place), count in sorted(places.items()) if of == kind]
        for kind in FAULT_KINDS
    }
    return [Plot("Faults by partition", "bar", "partition", "faults", {name: at for name, at in series.items() if at})]
