"""Sends letters again, each once. The checkpoint stores which letters were sent, not an offset, so that the next run
checks skipped letters again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.mistakes import TopicMistake
from pyspark_trimq.pipelines.redrive.letter_columns import headers_with_replay, letters
from pyspark_trimq.pipelines.reports.outcome import BatchFigures
from pyspark_trimq.pipelines.runner.batch_limits import messages_per_batch
from pyspark_trimq.pipelines.runner.checkpoint import Checkpoint, sync_folder, write_atomically
from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.progress_bar import ProgressBar
from pyspark_trimq.pipelines.runner.runner import read_current
from pyspark_trimq.pipelines.runner.topics import source_ends
from pyspark_trimq.sink.writers import delete_write_tokens
from trimq.clock import monotonic_seconds, system_clock
from trimq.errors import StartupError

SENT, PLANNED = "sent.jsonl", "planned.json"
RANGE_SCHEMA = "sent_topic STRING, sent_partition INT, first BIGINT, after BIGINT"


class LetterPosition(NamedTuple):
    topic: str
    partition: int
    offset: int


class LetterRange(NamedTuple):
    """Contiguous letters of one partition; `id` is the topic id."""

    topic: str
    id: str
    partition: int
    first: int
    after: int


def letter_ranges(places: Sequence[LetterPosition], ids: Mapping[str, str]) -> list[LetterRange]:
    found: list[LetterRange] = []
    for topic, partition, offset in sorted(places):
        last = found[-1] if found else None
        if last is not None and (last.topic, last.partition, last.after) == (topic, partition, offset):
            found[-1] = last._replace(after=offset + 1)
        else:
            found.append(LetterRange(topic, ids[topic], partition, offset, offset + 1))
    return found


class SentLetters:
    """Two files: the letters that were sent again, and the batch that is being sent, until it is done."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        if Path(checkpoint.spark).exists():
            raise StartupError(
                f"the checkpoint {checkpoint.folder} was written by an earlier version and holds offsets, not letters: "
                "name another folder"
            )
        self._id = checkpoint.id
        self._file, self._plan = checkpoint.folder / SENT, checkpoint.folder / PLANNED
        self._batches: list[list[LetterRange]] = []
        if self._file.exists():
            text = self._file.read_text()
            whole = text[: text.rfind("\n") + 1]  # a killed run may have left an incomplete last line
            if whole != text:
                write_atomically(self._file, whole)
            self._batches = [[LetterRange(*span) for span in json.loads(line)] for line in whole.splitlines()]

    def spans(self) -> Iterator[LetterRange]:
        for batch in self._batches:
            yield from batch

    @property
    def write_id(self) -> str:
        """`writeId` of the current batch: with it the sink sends the batch once."""
        return f"{self._id}-{len(self._batches)}"

    def unfinished(self) -> list[LetterRange]:
        """Returns the batch that was being sent when the last run ended; it may be sent already."""
        if not self._plan.exists():
            return []
        plan = json.loads(self._plan.read_text())
        return [LetterRange(*span) for span in plan["spans"]] if plan["number"] == len(self._batches) else []

    def plan(self, spans: Sequence[LetterRange]) -> None:
        write_atomically(self._plan, json.dumps({"number": len(self._batches), "spans": spans}))

    def done(self, spans: Sequence[LetterRange]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(spans) + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._file.parent)
        self._batches.append(list(spans))


class Redriver:
    """`to` is a topic, or empty for the origin of each letter. `rate` is the maximum of letters per second, 0 for no
    limit."""

    def __init__(self, context: PipelineContext, sent: SentLetters, to: str, rate: int) -> None:
        self._context = context
        self._sent = sent
        self._to = to
        self._rate = rate
        self.batches: list[BatchFigures] = []

    def mark_sent(self, found: DataFrame) -> DataFrame:
        """Adds the column `was_sent`: True for letters that were sent again before."""
        ids = self._ids({span.topic for span in self._sent.spans()})
        spans = [span for span in self._sent.spans() if ids.get(span.topic) == span.id]
        return found.join(self._frame(spans), _is_in_range(), "left").withColumn("was_sent", F.col("first").isNotNull())

    def finish(self) -> None:
        """Completes the batch of an earlier run that may not have been sent."""
        spans = self._sent.unfinished()
        ids = self._ids({span.topic for span in spans})
        if there := [span for span in spans if ids.get(span.topic) == span.id]:
            self._send(there)
        elif spans:
            self._sent.done(spans)  # their topics were deleted

    def send(self, places: Sequence[LetterPosition], shown: ProgressBar) -> None:
        """Sends these letters, in the order of each partition, until `context.stop` is set."""
        ids = self._ids({place.topic for place in places})
        ordered = sorted(place for place in places if place.topic in ids)
        at_once = messages_per_batch(self._context, ids)
        at_once = min(at_once, self._rate) if self._rate else at_once
        for start in range(0, len(ordered), at_once):
            began = monotonic_seconds()
            spans = letter_ranges(ordered[start : start + at_once], ids)
            self._sent.plan(spans)
            self._send(spans)
            done = min(start + at_once, len(ordered))
            shown.update(done, len(ordered), done, float(self._rate))
            pause_s = max(began + 1 - monotonic_seconds(), 0) if self._rate and done < len(ordered) else 0
            if self._context.stop.wait(pause_s):
                return

    def _send(self, spans: Sequence[LetterRange]) -> None:
        began, write_id = monotonic_seconds(), self._sent.write_id
        rows = sum(span.after - span.first for span in spans)
        options = {**self._context.sink_options(), "writeId": write_id}
        with plain_errors():
            self._letters(spans).write.format("trimq").mode("append").options(**options).save()
            self._sent.done(spans)
            delete_write_tokens(options)
        ended_ms = system_clock().message.now_ms()
        number = len(self.batches)
        self.batches.append(BatchFigures(number, rows, monotonic_seconds() - began, ended_ms, rows))

    def _letters(self, spans: Sequence[LetterRange]) -> DataFrame:
        """Returns the messages to send, in one task: rows keep their order, and a repeated write has the same tasks."""
        firsts: dict[str, dict[str, int]] = {}
        afters: dict[str, dict[str, int]] = {}
        for span in spans:
            firsts.setdefault(span.topic, {}).setdefault(str(span.partition), span.first)
            afters.setdefault(span.topic, {})[str(span.partition)] = span.after
        assigned = {topic: [int(number) for number in numbers] for topic, numbers in firsts.items()}
        bounds = {"startingOffsets": json.dumps(firsts), "endingOffsets": json.dumps(afters)}
        found = letters(read_current(self._context, {"assign": json.dumps(assigned)}, failOnDataLoss="false", **bounds))
        chosen = found.join(F.broadcast(self._frame(spans)), _is_in_range())
        ordered = chosen.repartition(1).sortWithinPartitions("topic", "partition", "offset")
        return ordered.select(
            "key", "value", headers_with_replay().alias("headers"), target_topic(self._to).alias("topic")
        )

    def _frame(self, spans: Sequence[LetterRange]) -> DataFrame:
        rows: list[Any] = [(span.topic, span.partition, span.first, span.after) for span in spans]
        return self._context.session().createDataFrame(rows, RANGE_SCHEMA)

    def _ids(self, topics: set[str]) -> dict[str, str]:
        """Returns the ids of the topics that exist."""
        found = {}
        for topic in topics:
            try:
                found[topic] = next((ends.id for ends in source_ends(self._context, topic).values()), "")
            except TopicMistake:
                continue
        return found


def target_topic(to: str) -> Column:
    return F.lit(to) if to else F.col("origin")


def _is_in_range() -> Column:
    return F.expr("topic = sent_topic AND partition = sent_partition AND offset >= first AND offset < after")
