"""Original positions of restored messages: the headers that hold them, the offset map made from these headers, and the
progress of a restore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.messages.headers import header_text
from pyspark_trimq.pipelines.runner.checkpoint import write_atomically
from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.runner import read_current
from pyspark_trimq.pipelines.runner.topics import topic_ends
from trimq.errors import StartupError

TOPIC, PARTITION, OFFSET = "trimq-origin-topic", "trimq-origin-partition", "trimq-origin-offset"
PROPERTY = "trimq-origin-property-"

LastOffsets = dict[int, int]
"""Last original offset of each partition that the target has."""


def headers_with_origin() -> Column:
    origin = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
            for name, column in ((TOPIC, "topic"), (PARTITION, "partition"), (OFFSET, "offset"))
        )
    )
    # Kafka records have no field for properties, so they become headers.
    entries = F.map_entries(F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>")))
    properties = F.transform(
        entries,
        lambda entry: F.struct(
            F.concat(F.lit(PROPERTY), entry["key"]).alias("key"), entry["value"].cast("binary").alias("value")
        ),
    )
    own = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return F.concat(own, origin, properties)


def restored_offsets(context: PipelineContext, target: str, **bounds: str) -> DataFrame:
    """Returns the original and new offsets of the messages of a topic: topic, partition, origin_offset, target,
    new_offset. `topic` and `origin_offset` are null for messages that were not restored."""
    columns = "partition INT, offset BIGINT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = read_current(context, {"subscribe": target}, columns, **bounds)
    return frame.select(
        header_text(TOPIC).alias("topic"),  # the last such header: messages restored repeatedly have several
        "partition",
        header_text(OFFSET).cast("bigint").alias("origin_offset"),
        F.lit(target).alias("target"),
        F.col("offset").alias("new_offset"),
    )


def write_offset_map(context: PipelineContext, topic: str, target: str, folder: Path) -> None:
    """Writes the offset map. A committed offset maps to the row with the smallest `origin_offset` that is not less."""
    found = restored_offsets(context, target).where(F.col("topic") == topic).drop("topic", "target")
    path = folder / f"topic={quote(topic, safe='')}" / f"target={quote(target, safe='')}"
    found.coalesce(1).sortWithinPartitions("partition", "new_offset").write.mode("overwrite").parquet(str(path))


class RestoreProgress:
    """Progress of each topic, read from the headers of the target. A restore writes in order, and each task all or
    nothing, so everything before the last original offset is in the target too. If there is a `file`, the progress is
    stored in it, and a later run scans only messages after it."""

    def __init__(self, context: PipelineContext, file: Path | None) -> None:
        self._context = context
        self._file = file
        self._done: dict[str, LastOffsets] = {}
        self._noted: dict[str, Any] = {}
        if file is not None and file.exists():
            try:
                self._noted = dict(json.loads(file.read_text()))
            except ValueError:
                raise StartupError(f"{file} is damaged: name another checkpoint") from None

    def done(self, topic: str, target: str, append: bool) -> LastOffsets:
        """Returns the restored offsets. Raises StartupError if the target has other messages and `append` is not
        set."""
        if topic not in self._done:
            self._done[topic] = self._scan_target(topic, target, append)
        return self._done[topic]

    def note(self, topic: str, target: str, done: LastOffsets) -> None:
        self._done[topic] = done
        if self._file is None:
            return
        ends = {str(number): each.end for number, each in topic_ends(self._context, target).items()}
        self._noted[topic] = {"target": target, "done": {str(at): last for at, last in done.items()}, "ends": ends}
        write_atomically(self._file, json.dumps(self._noted, indent=1))

    def _scan_target(self, topic: str, target: str, append: bool) -> LastOffsets:
        now = topic_ends(self._context, target)
        if all(ends.start == ends.end for ends in now.values()):
            return {}
        known, bounds = self._known(topic, target, {number: (ends.start, ends.end) for number, ends in now.items()})
        found = restored_offsets(self._context, target, **bounds)
        others = found.where(F.col("topic").isNull() | (F.col("topic") != topic)).limit(1).count()
        if others and not append:
            raise StartupError(
                f"{target!r} holds messages that were not restored from {topic!r}: name another topic, or use --append"
            )
        own = found.where(F.col("topic") == topic).groupBy("partition").agg(F.max("origin_offset").alias("last"))
        return known | {row["partition"]: row["last"] for row in own.collect()}

    def _known(self, topic: str, target: str, now: dict[int, tuple[int, int]]) -> tuple[LastOffsets, dict[str, str]]:
        """Returns the stored progress, and the source options that skip the messages it covers."""
        noted = self._noted.get(topic, {})
        ends = {int(number): int(end) for number, end in noted.get("ends", {}).items()}
        is_other = noted.get("target") != target or set(ends) != set(now)
        if is_other or any(end > now[number][1] for number, end in ends.items()):
            return {}, {}  # no stored progress, or the target was recreated since
        starts = {str(number): max(end, now[number][0]) for number, end in ends.items()}
        done = {int(number): int(last) for number, last in noted["done"].items()}
        return done, {"startingOffsets": json.dumps({target: starts})}
