"""The pipeline `restore`: an archive back into topics, in order, once, however often it is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.failure import PipelineFailure, sentence_of, told_plainly
from pyspark_trimq.pipelines.headers import header_text
from pyspark_trimq.pipelines.lakes.files import DataFile
from pyspark_trimq.pipelines.lakes.lake import OWN, existing, read
from pyspark_trimq.pipelines.outcome import Outcome, Plot, Table
from pyspark_trimq.pipelines.progress import bars
from pyspark_trimq.pipelines.running import DEFAULT, How, ensure_topic, snapshot_of, topic_ends
from trimq.clock import monotonic_seconds
from trimq.errors import StartMistake

TOPIC, PARTITION, OFFSET = "trimq-origin-topic", "trimq-origin-partition", "trimq-origin-offset"
PROPERTY = "trimq-origin-property-"

Spans = dict[int, tuple[int, int]]
"""The first and the last offset, by partition."""


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
    holds other messages."""
    folder = Path(lake)
    kept = existing(folder)
    by_topic: dict[str, list[DataFile]] = {}
    for file in kept.files():
        if not topics or file.topic in topics:
            by_topic.setdefault(file.topic, []).append(file)
    missing = sorted(set(topics) - set(by_topic))
    if missing:
        raise StartMistake(f"the archive {folder} holds no topic {missing[0]!r}")
    map_folder = Path(offset_map) if offset_map is not None else folder / OWN / "offset_map"
    settings = {"lake": str(folder), "to": to, "bootstrap": how.bootstrap, "offset map": str(map_folder)}
    outcome = Outcome("restore", settings)
    began = monotonic_seconds()
    rows = [
        _restore_topic(how, files, topic, _target(to, topic), append, map_folder)
        for topic, files in sorted(by_topic.items())
    ]
    columns = ("topic", "into", "partitions", "rows in the lake", "written", "there already")
    outcome.tables.append(Table("Topics", columns, rows))
    written, seconds = sum(row[4] for row in rows), monotonic_seconds() - began
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


def _target(to: str, topic: str) -> str:
    try:
        return to.format(topic=topic)
    except (KeyError, IndexError, ValueError):
        raise StartMistake(
            f"{to!r} is no name for topics: {{topic}} stands for the old name, nothing else may stand in braces"
        ) from None


def _restore_topic(
    how: How, files: Sequence[DataFile], topic: str, target: str, append: bool, map_folder: Path
) -> tuple[str, str, int, int, int, int]:
    frame = read(how.session(), files)
    spans = {
        row["partition"]: (row["first"], row["last"], row["rows"])
        for row in frame.groupBy("partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows"))
        .collect()
    }
    total = sum(rows for _, _, rows in spans.values())
    ensure_topic(how, target, max(spans) + 1)
    partitions = len(topic_ends(how, target))
    if partitions <= max(spans):
        raise StartMistake(f"{target!r} has {partitions} partitions, but {topic!r} had {max(spans) + 1}")
    done = _restored(how, topic, target, append)
    left = {partition: (max(first, done.get(partition, -1) + 1), last) for partition, (first, last, _) in spans.items()}
    missing = frame.where(_within(left)).count() if done else total
    written = _write_rounds(how, frame, left, target, missing, f"restore {topic}")
    _map_offsets(how, topic, target, map_folder)
    return topic, target, len(spans), total, written, total - missing


def _write_rounds(how: How, frame: DataFrame, left: Spans, target: str, missing: int, title: str) -> int:
    """How many rows were written: all that are missing, unless it is told to stop."""
    began = monotonic_seconds()
    with bars(title, how.show) as shown:
        for number, (rounds, part) in enumerate(_rounds(left, how.rows_per_batch)):
            _write(how, frame.where(_within(part)), target)
            written = missing * (number + 1) // rounds  # about: partitions may differ in length
            shown.update(number + 1, rounds, written, written / max(monotonic_seconds() - began, 0.001))
            if how.stop.is_set() and number + 1 < rounds:
                after = {place: (last + 1, left[place][1]) for place, (_, last) in part.items()}
                return missing - frame.where(_within(after)).count()
    return missing


def _within(spans: Spans) -> str:
    """A condition: the offset is within the span of its partition."""
    parts = [f"(partition = {number} AND offset BETWEEN {first} AND {last})" for number, (first, last) in spans.items()]
    return " OR ".join(parts) or "false"


def _rounds(left: Spans, rows: int) -> Iterator[tuple[int, Spans]]:
    """The spans piece by piece, all partitions at once: each piece is one transaction of each task."""
    each = max(rows // max(len(left), 1), 1)
    longest = max((last - first + 1 for first, last in left.values()), default=0)
    count = -(-max(longest, 0) // each)
    for number in range(count):
        piece = {
            p: (first + number * each, min(first + (number + 1) * each - 1, last)) for p, (first, last) in left.items()
        }
        yield count, {p: (first, last) for p, (first, last) in piece.items() if first <= last}


def _write(how: How, frame: DataFrame, target: str) -> None:
    """In the order of offsets within each partition."""
    origin = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
            for name, column in ((TOPIC, "topic"), (PARTITION, "partition"), (OFFSET, "offset"))
        )
    )
    # What Kafka's records have no field for travels in headers.
    entries = F.map_entries(F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>")))
    properties = F.transform(
        entries,
        lambda entry: F.struct(
            F.concat(F.lit(PROPERTY), entry["key"]).alias("key"), entry["value"].cast("binary").alias("value")
        ),
    )
    headers = F.concat(
        F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>")), origin, properties
    )
    partitions = frame.select("partition").distinct().count()
    ordered = frame.repartition(max(partitions, 1), "partition").sortWithinPartitions("partition", "offset")
    rows = ordered.select(
        "key", "value", headers.alias("headers"), "timestamp", "partition", F.lit(target).alias("topic")
    )
    try:
        rows.write.format("trimq").mode("append").options(**how.address()).save()
    except PySparkException as error:
        raise PipelineFailure(sentence_of(error)) from error


def origins(how: How, target: str) -> DataFrame:
    """Where the restored messages of a topic were and are: topic, partition, origin_offset, target, new_offset. Null
    where a message was not restored."""
    frame = snapshot_of(
        how, {"subscribe": target}, "partition INT, offset BIGINT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )

    return frame.select(
        header_text(TOPIC).alias("topic"),  # the last one: what is restored from restored messages has several
        "partition",
        header_text(OFFSET).cast("bigint").alias("origin_offset"),
        F.lit(target).alias("target"),
        F.col("offset").alias("new_offset"),
    )


def _restored(how: How, topic: str, target: str, append: bool) -> dict[int, int]:
    """The last offset of each partition that is in the target already. Restoring writes in order, all or nothing of
    each task, so that everything before it is there too."""
    if all(ends.start == ends.end for ends in topic_ends(how, target).values()):
        return {}
    found = origins(how, target)
    others = found.where(F.col("topic").isNull() | (F.col("topic") != topic)).limit(1).count()
    if others and not append:
        raise StartMistake(
            f"{target!r} holds messages that were not restored from {topic!r}: name another topic, or say --append"
        )
    rows = found.where(F.col("topic") == topic).groupBy("partition").agg(F.max("origin_offset").alias("last")).collect()
    return {row["partition"]: row["last"] for row in rows}


def _map_offsets(how: How, topic: str, target: str, folder: Path) -> None:
    """Offsets that groups had committed are found again in it: the smallest `origin_offset` that is not less."""
    found = origins(how, target).where(F.col("topic") == topic).drop("topic", "target")
    path = folder / f"topic={quote(topic, safe='')}" / f"target={quote(target, safe='')}"
    found.coalesce(1).sortWithinPartitions("partition", "new_offset").write.mode("overwrite").parquet(str(path))
