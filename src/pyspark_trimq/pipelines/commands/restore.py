"""Pipeline `restore`: writes an archive back into topics, in order, each message once even if it is run repeatedly.
Runs once, or continuously while the archive grows."""

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
from pyspark_trimq.pipelines.lakes.lake import OWN_FOLDER, open_for_reading, read
from pyspark_trimq.pipelines.reports.outcome import Outcome, Plot, Table
from pyspark_trimq.pipelines.restoration import pieces
from pyspark_trimq.pipelines.restoration.origins import RestoreProgress, headers_with_origin, write_offset_map
from pyspark_trimq.pipelines.restoration.too_large import too_large_message
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import PipelineFailure, plain_errors, plain_message
from pyspark_trimq.pipelines.runner.progress_bar import bars
from pyspark_trimq.pipelines.runner.topics import ensure_topic, topic_ends
from trimq.clock import monotonic_seconds
from trimq.errors import StartupError

# Larger records were probably compressed by their producer, as most topics accept at most 1 MB: compress them again.
LARGE_BYTES = 900_000
READ_ATTEMPTS = 3  # compaction may replace files while they are read


@plain_errors()
def restore(
    lake: str | Path,
    *,
    topics: Sequence[str] = (),
    to: str = "{topic}",
    append: bool = False,
    offset_map: str | Path | None = None,
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Writes the topics of the lake, or all, into topics named by `to`. Bytes, order, timestamps and partitions stay
    the same. Headers of each message, and the table `offset_map` (Parquet, in the lake unless given), hold its original
    offset. Messages that the target already has, by these headers, are not written again. `append` allows targets that
    hold other messages. A continuous run also restores messages added to the lake later. With a checkpoint, a later run
    does not scan the whole targets."""
    folder = Path(lake).resolve()
    open_for_reading(folder)
    map_folder = Path(offset_map).resolve() if offset_map is not None else folder / OWN_FOLDER / "offset_map"
    settings = {"lake": str(folder), "to": to, "bootstrap": context.bootstrap, "offset map": str(map_folder)}
    with contextlib.ExitStack() as stack:
        file = None
        if context.checkpoint is not None:
            signature = {"bootstrap": context.bootstrap, "lake": str(folder), "to": to, "topics": sorted(topics)}
            file = (
                stack.enter_context(open_checkpoint(Path(context.checkpoint), "restore", signature)).folder
                / "restored.json"
            )
        run = _RestoreRun(context, folder, topics, to, append, RestoreProgress(context, file))
        began = monotonic_seconds()
        run.follow()
        for topic, target in sorted(run.targets.items()):
            write_offset_map(context, topic, target, map_folder)
    return _outcome(settings, run, monotonic_seconds() - began)


class _TopicProgress(NamedTuple):
    """Figures of one topic: partitions and rows in the lake, rows written, rows that the target had before."""

    partitions: int
    rows: int
    written: int
    there: int


class _RestoreRun:
    def __init__(
        self,
        context: PipelineContext,
        folder: Path,
        topics: Sequence[str],
        to: str,
        append: bool,
        restored: RestoreProgress,
    ) -> None:
        self._context = context
        self._folder = folder
        self._topics = topics
        self._to = to
        self._append = append
        self._restored = restored
        self._last: float | None = None
        self._seen: dict[str, set[Path]] = {}
        self._written: Counter[str] = Counter()
        self.targets: dict[str, str] = {}
        self.progress_by_topic: dict[str, _TopicProgress] = {}

    def follow(self) -> None:
        context, began = self._context, monotonic_seconds()
        pause_s = parse_duration(context.every) / 1000
        self._last = None if context.for_seconds is None else began + context.for_seconds
        while True:
            self._restore_new_files()
            left_s = pause_s if self._last is None else self._last - monotonic_seconds()
            if context.once or left_s <= 0 or context.stop.wait(min(pause_s, left_s)):
                return

    def _is_over(self) -> bool:
        if self._last is not None and monotonic_seconds() >= self._last:
            self._context.stop.set()  # the caller sees `stop` if rows are left
        return self._context.stop.is_set()

    def _restore_new_files(self) -> None:
        """Restores the files that the lake has now."""
        by_topic = self._files()
        missing = sorted(set(self._topics) - set(by_topic))
        if missing:
            raise StartupError(f"the archive {self._folder} has no topic {missing[0]!r}")
        for topic in sorted(by_topic):
            if self._is_over():
                return
            for left in reversed(range(READ_ATTEMPTS)):
                files = by_topic.get(topic, [])
                try:
                    if {file.path for file in files} != self._seen.get(topic):
                        self._restore(topic, files)
                    break
                except (PySparkException, PipelineFailure):
                    if not left or all(file.path.exists() for file in files):
                        raise
                    by_topic = self._files()  # compaction replaced them

    def _files(self) -> dict[str, list[DataFile]]:
        by_topic: dict[str, list[DataFile]] = {}
        for file in open_for_reading(self._folder).files():
            if not self._topics or file.topic in self._topics:
                by_topic.setdefault(file.topic, []).append(file)
        return by_topic

    def _restore(self, topic: str, files: Sequence[DataFile]) -> None:
        context, target = self._context, _target(self._to, topic)
        frame = read(context.session(), files)
        grouped = frame.groupBy("partition").agg(
            F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows")
        )
        spans = {row["partition"]: (row["first"], row["last"], row["rows"]) for row in grouped.collect()}
        total = sum(rows for _, _, rows in spans.values())
        self._ensure_target(topic, target, max(spans) + 1)
        done = self._restored.done(topic, target, self._append)
        left = {at: (max(first, done.get(at, -1) + 1), last) for at, (first, last, _) in spans.items()}
        left = {at: (first, last) for at, (first, last) in left.items() if first <= last}
        missing = frame.where(pieces.offset_condition(left))
        max_bytes = pieces.max_bytes_per_task(len(left))
        found = pieces.buckets(missing, total, max_bytes) if left else []
        written, done = self._write(missing, found, max_bytes, topic, target, dict(done))
        self._restored.note(topic, target, done)
        self._written[topic] += written
        there = total - sum(bucket.rows for bucket in found) - (self._written[topic] - written)
        self.progress_by_topic[topic] = _TopicProgress(len(spans), total, self._written[topic], there)
        if written == sum(bucket.rows for bucket in found):
            self._seen[topic] = {file.path for file in files}

    def _ensure_target(self, topic: str, target: str, partitions: int) -> None:
        if topic not in self.targets:
            ensure_topic(self._context, target, partitions)
        there = len(topic_ends(self._context, target))
        if there < partitions:
            raise StartupError(f"{target!r} has {there} partitions, but {topic!r} had {partitions}")
        self.targets[topic] = target

    def _write(
        self,
        frame: DataFrame,
        found: list[pieces.Bucket],
        max_bytes: int,
        topic: str,
        target: str,
        done: dict[int, int],
    ) -> tuple[int, dict[int, int]]:
        """Writes until done or stopped. Returns the rows written, and the last offset of each partition."""
        context, began, written = self._context, monotonic_seconds(), 0
        total = sum(bucket.rows for bucket in found)
        is_large = any(bucket.largest_bytes > LARGE_BYTES for bucket in found)
        options = {**({"compression": "zstd"} if is_large else {}), **context.sink_options()}
        with bars(f"restore {topic}", context.show) as shown:
            for part in pieces.rounds(found, context.rows_per_batch, max_bytes):
                rows = frame.where(pieces.offset_condition(part.spans))
                try:
                    _write(rows, part.spans, target, options)
                except PipelineFailure as failure:
                    raise PipelineFailure(
                        too_large_message(context, rows, target, str(failure)) or str(failure)
                    ) from failure
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
        raise StartupError(f"{to!r} is not a topic name: only {{topic}}, the old name, may be in braces") from None


def _write(frame: DataFrame, spans: pieces.PartitionRanges, target: str, options: dict[str, str]) -> None:
    """Writes each partition in a task of its own, in the order of offsets."""
    places = F.create_map(*(F.lit(number) for pair in enumerate(sorted(spans)) for number in reversed(pair)))
    apart = frame.repartitionById(len(spans), F.element_at(places, F.col("partition")))
    rows = apart.sortWithinPartitions("offset").select(
        "key", "value", headers_with_origin().alias("headers"), "timestamp", "partition", F.lit(target).alias("topic")
    )
    try:
        rows.write.format("trimq").mode("append").options(**options).save()
    except PySparkException as error:
        raise PipelineFailure(plain_message(error)) from error


def _outcome(settings: dict[str, str], run: _RestoreRun, seconds: float) -> Outcome:
    rows = [
        (topic, run.targets[topic], progress.partitions, progress.rows, progress.written, progress.there)
        for topic, progress in sorted(run.progress_by_topic.items())
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
