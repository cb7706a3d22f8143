"""Limits the bytes per batch of pipelines that copy messages: Spark holds the messages of a batch as rows, several
times over."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from pyspark.sql import DataFrame

from pyspark_trimq.broker.client import open_broker_client
from pyspark_trimq.mistakes import TopicMistake
from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.runner import read_stream

LIMIT = "maxBytesPerTrigger"
BATCH_BYTES = 256 << 20


def bounded_stream(context: PipelineContext, subscribed: dict[str, str]) -> DataFrame:
    """Returns the messages as a stream from the earliest on, with at most BATCH_BYTES per batch unless an option
    changes it."""
    return read_stream(context, subscribed, startingOffsets="earliest", **{LIMIT: str(BATCH_BYTES)})


def messages_per_batch(context: PipelineContext, topics: Collection[str]) -> int:
    """Returns how many messages of these topics fit into that limit, by their average size; at least one."""
    options = {name.lower(): value for name, value in context.options.items()}
    max_bytes = int(options.get(LIMIT.lower(), BATCH_BYTES))
    found = context.rows_per_batch
    with closing(
        open_broker_client(context.bootstrap, context.options.get("namespace", ""), True, login=context.login())
    ) as client:
        for topic in topics:
            try:
                count = sum(each.last - each.start for each in client.ends(topic).values())
                kept = sum(client.sizes(topic).values())
            except TopicMistake:
                continue  # deleted meanwhile
            found = min(found, max_bytes * count // kept) if kept else found
    return max(found, 1)
