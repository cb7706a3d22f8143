"""Samples the committed offsets of groups at intervals, and appends them to a file if one is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark_trimq.pipelines.runner.broker_admin import BrokerAdmin
from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.failure import PipelineFailure
from pyspark_trimq.pipelines.runner.progress_bar import bars
from pyspark_trimq.sink.sender import SINK_PREFIX
from trimq.clock import monotonic_seconds, system_clock


class Sample(NamedTuple):
    at_ms: int
    group: str
    topic: str
    partition: int
    offset: int
    end: int


class Samples:
    """Samples in memory. With a file, includes those of earlier runs."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.all: list[Sample] = []
        if file is not None and file.exists():
            # A killed run may have left an incomplete last line.
            lines = [line for line in file.read_text().splitlines() if line.endswith("]")]
            self.all = [Sample(*json.loads(line)) for line in lines]

    def take(self, broker: BrokerAdmin, groups: Sequence[str], topics: Sequence[str]) -> None:
        now_ms = system_clock().message.now_ms()
        taken = [
            Sample(now_ms, group, *cursor)
            for group in groups or [name for name in broker.groups() if not name.startswith(SINK_PREFIX)]
            for cursor in broker.cursors(group)
            if not topics or cursor.topic in topics
        ]
        self.all += taken
        if self._file is not None:
            with self._file.open("a") as file:
                file.writelines(json.dumps(sample) + "\n" for sample in taken)


def sample_groups(
    context: PipelineContext,
    samples: Samples,
    groups: Sequence[str],
    topics: Sequence[str],
    seconds: float,
    every_s: float,
) -> None:
    """Samples for `seconds`, or continuously until `context.stop` is set. Raises PipelineFailure if there was nothing
    to sample, or if the broker does not respond."""
    broker = context.administration()
    began = monotonic_seconds()
    last = None if not context.once else began + seconds
    if context.for_seconds is not None:
        last = began + context.for_seconds
    with bars("lag", context.show) as shown:
        samples.take(broker, groups, topics)
        try:
            while (last is None or monotonic_seconds() < last) and not context.stop.wait(every_s):
                samples.take(broker, groups, topics)
                passed = monotonic_seconds() - began
                shown.update(int(passed), None if last is None else int(last - began), len(samples.all), 0.0)
        except KeyboardInterrupt:
            pass  # Ctrl-C is the normal end of a continuous run
    if not samples.all:
        raise PipelineFailure("no group has committed offsets of these topics: there is no lag to report")
