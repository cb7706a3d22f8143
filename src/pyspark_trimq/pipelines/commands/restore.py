"""The pipeline `restore`: an archive back into topics, in order, once, however often it is run; once, or as the archive
grows."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.lakes.files import DataFile
from pyspark_trimq.pipelines.lakes.lake import OWN, existing, read
from pyspark_trimq.pipelines.reports.outcome import Outcome, Plot, Table
from pyspark_trimq.pipelines.restoration import pieces
from pyspark_trimq.pipelines.restoration.origins import Restored, headers_with_origin, map_offsets
from pyspark_trimq.pipelines.restoration.too_large import sentence_for
from pyspark_trimq.pipelines.runner.checkpoint import claim
from pyspark_trimq.pipelines.runner.durations import milliseconds
from pyspark_trimq.pipelines.runner.failure import PipelineFailure, sentence_of, told_plainly
from pyspark_trimq.pipelines.runner.progress_bar import bars
from pyspark_trimq.pipelines.runner.runner import DEFAULT, How, ensure_topic, topic_ends
from trimq.clock import monotonic_seconds
from trimq.errors import StartMistake

# Records that are larger than most topics take as they are were compressed by whoever sent them.
LARGE_BYTES = 900_000
TRIES = 3  # to read files, which may be put together meanwhile


@told_plainly()
def restore(
    lake: str | Path,
    *,
    topics: Sequence[str] = (),
    to: str = "{topic}",
    append: bool = False,
    offset_map: str | Path | None = None,
    how: How = DEFAULT,
) -> Outcome:
    """Write what the lake holds of the topics, or of all, into topics named by `to`. Bytes, order, timestamps and
    partitions stay; where a message was is told in headers of it, and in the table `offset_map` (Parquet; in the lake
    unless named). What those headers say is there already is not written again. `append`: also into a topic that
    holds other messages. Not once: on and on, what is added to the lake is restored, too. With a checkpoint, a later
    run need not look through the whole targets."""
    folder = Path(lake).resolve()
    existing(folder)
    map_folder = Path(offset_map).resolve() if offset_map is not None else folder / OWN / "offset_map"
    settings = {"lake": str(folder), "to": to, "bootstrap": how.bootstrap, "offset map": str(map_folder)}
    with contextlib.ExitStack() as stack:
        file = None
        if how.checkpoint is not None:
            signature = {"bootstrap": how.bootstrap, "lake": str(folder), "to": to, "topics": sorted(topics)}
            file = stack.enter_context(claim(Path(how.checkpoint), "restore", signature)).folder / "restored.json"
        run = _Run(how, folder, topics, to, append, Restored(how, file))
        began = monotonic_seconds()
        run.follow()
        for topic, target in sorted(run.targets.items()):
            map_offsets(how, topic, target, map_folder)
    return _outcome(settings, run, monotonic_seconds() - began)


class _Share(NamedTuple):
    """Of one topic: partitions and rows in the lake, written, and those that had been there before."""

    partitions: int
    rows: int
    written: int
    there: int


class _Run:
    def __init__(
        self, how: How, folder: Path, topics: Sequence[str], to: str, append: bool, restored: Restored
    ) -> None:
        self._how = how
        self._folder = folder
        self._topics = topics
        self._to = to
        self._append = append
        self._restored = restored
        self._last: float | None = None
        self._seen: dict[str, set[Path]] = {}
        self._written: Counter[str] = Counter()
        self.targets: dict[str, str] = {}
        self.shares: dict[str, _Share] = {}

    def follow(self) -> None:
        how, began = self._how, monotonic_seconds()
        pause_s = milliseconds(how.every) / 1000
        self._last = None if how.for_seconds is None else began + how.for_seconds
        while True:
            self._look()
            left_s = pause_s if self._last is None else self._last - monotonic_seconds()
            if how.once or left_s <= 0 or how.stop.wait(min(pause_s, left_s)):
                return

    def _is_over(self) -> bool:
        if self._last is not None and monotonic_seconds() >= self._last:
            self._how.stop.set()  # whoever asked is told, if not all is done
        return self._how.stop.is_set()

    def _look(self) -> None:
        """Restore what is in the lake now."""
        by_topic = self._files()
        missing = sorted(set(self._topics) - set(by_topic))
        if missing:
            raise StartMistake(f"the archive {self._folder} holds no topic {missing[0]!r}")
        for topic in sorted(by_topic):
            if self._is_over():
                return
            for left in reversed(range(TRIES)):
                files = by_topic.get(topic, [])
                try:
                    if {file.path for file in files} != self._seen.get(topic):
                        self._restore(topic, files)
                    break
                except (PySparkException, PipelineFailure):
                    if not left or all(file.path.exists() for file in files):
                        raise
                    by_topic = self._files()  # they were put together with others

    def _files(self) -> dict[str, list[DataFile]]:
        by_topic: dict[str, list[DataFile]] = {}
        for file in existing(self._folder).files():
            if not self._topics or file.topic in self._topics:
                by_topic.setdefault(file.topic, []).append(file)
        return by_topic

    def _restore(self, topic: str, files: Sequence[DataFile]) -> None:
        how, target = self._how, _target(self._to, topic)
        frame = read(how.session(), files)
        grouped = frame.groupBy("partition").agg(
            F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows")
        )
        spans = {row["partition"]: (row["first"], row["last"], row["rows"]) for row in grouped.collect()}
        total = sum(rows for _, _, rows in spans.values())
        self._ready(topic, target, max(spans) + 1)
        done = self._restored.done(topic, target, self._append)
        left = {at: (max(first, done.get(at, -1) + 1), last) for at, (first, last, _) in spans.items()}
        left = {at: (first, last) for at, (first, last) in left.items() if first <= last}
        missing = frame.where(pieces.within(left))
        most_bytes = pieces.most_bytes_of(len(left))
        found = pieces.buckets(missing, total, most_bytes) if left else []
        written, done = self._write(missing, found, most_bytes, topic, target, dict(done))
        self._restored.note(topic, target, done)
        self._written[topic] += written
        there = total - sum(bucket.rows for bucket in found) - (self._written[topic] - written)
        self.shares[topic] = _Share(len(spans), total, self._written[topic], there)
        if written == sum(bucket.rows for bucket in found):
            self._seen[topic] = {file.path for file in files}

    def _ready(self, topic: str, target: str, partitions: int) -> None:
        if topic not in self.targets:
            ensure_topic(self._how, target, partitions)
        there = len(topic_ends(self._how, target))
        if there < partitions:
            raise StartMistake(f"{target!r} has {there} partitions, but {topic!r} had {partitions}")
        self.targets[topic] = target

    def _write(
        self,
        frame: DataFrame,
        found: list[pieces.Bucket],
        most_bytes: int,
        topic: str,
        target: str,
        done: dict[int, int],
    ) -> tuple[int, dict[int, int]]:
        """How many rows were written, all unless it is told to stop, and how far each partition is then."""
        how, began, written = self._how, monotonic_seconds(), 0
        total = sum(bucket.rows for bucket in found)
        is_large = any(bucket.widest > LARGE_BYTES for bucket in found)
        options = {**({"compression": "zstd"} if is_large else {}), **how.sink_options()}
        with bars(f"restore {topic}", how.show) as shown:
            for part in pieces.rounds(found, how.rows_per_batch, most_bytes):
                rows = frame.where(pieces.within(part.spans))
                try:
                    _write(rows, part.spans, target, options)
                except PipelineFailure as failure:
                    raise PipelineFailure(sentence_for(how, rows, target, str(failure)) or str(failure)) from failure
                written += part.rows
                done |= {at: last for at, (_, last) in part.spans.items()}
                shown.update(written, total, written, written / max(monotonic_seconds() - began, 0.001))
                if written < total and self._is_over():
                    break
        return written, done


def _target(to: str, topic: str) -> str:
    try:
        return to.format(topic=topic)
    except (KeyError, IndexError, ValueError):
        raise StartMistake(
            f"{to!r} is no name for topics: {{topic}} stands for the old name, nothing else may stand in braces"
        ) from None


def _write(frame: DataFrame, spans: pieces.Spans, target: str, options: dict[str, str]) -> None:
    """In the order of offsets within each partition, each of which has a task of its own."""
    places = F.create_map(*(F.lit(number) for pair in enumerate(sorted(spans)) for number in reversed(pair)))
    apart = frame.repartitionById(len(spans), F.element_at(places, F.col("partition")))
    rows = apart.sortWithinPartitions("offset").select(
        "key", "value", headers_with_origin().alias("headers"), "timestamp", "partition", F.lit(target).alias("topic")
    )
    try:
        rows.write.format("trimq").mode("append").options(**options).save()
    except PySparkException as error:
        raise PipelineFailure(sentence_of(error)) from error


def _outcome(settings: dict[str, str], run: _Run, seconds: float) -> Outcome:
    rows = [
        (topic, run.targets[topic], share.partitions, share.rows, share.written, share.there)
        for topic, share in sorted(run.shares.items())
    ]
    columns = ("topic", "into", "partitions", "rows in the lake", "written", "there already")
    outcome = Outcome("restore", dict(settings), tables=[Table("Topics", columns, rows)])
    written = sum(row[4] for row in rows)
    outcome.figures = {
        "rows in the lake": sum(row[3] for row in rows),
        "rows written": written,
        "rows there already": sum(row[5] for row in rows),
        "seconds": seconds,
        "rows/s": written / max(seconds, 0.001),
    }
    outcome.found = written
    series = {
        "written": [(row[0], float(row[4])) for row in rows],
        "there already": [(row[0], float(row[5])) for row in rows],
    }
    outcome.plots.append(Plot("Rows by topic", "bar", "topic", "rows", series))
    return outcome
