"""How much the pipelines that copy messages take at a time, in bytes: what is read passes through Spark as rows,
several times over."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from pyspark.sql import DataFrame

from pyspark_trimq.broker.client import open_broker_client
from pyspark_trimq.mistakes import TopicMistake
from pyspark_trimq.pipelines.runner.how import How
from pyspark_trimq.pipelines.runner.runner import read_stream

LIMIT = "maxBytesPerTrigger"
BATCH_BYTES = 256 << 20


def bounded_stream(how: How, subscribed: dict[str, str]) -> DataFrame:
    """The messages as a stream from their beginning, so many bytes per batch, unless an option says otherwise."""
    return read_stream(how, subscribed, startingOffsets="earliest", **{LIMIT: str(BATCH_BYTES)})


def messages_per_batch(how: How, topics: Collection[str]) -> int:
    """About how many messages of any of these topics are as many bytes; one at least."""
    options = {name.lower(): value for name, value in how.options.items()}
    most_bytes = int(options.get(LIMIT.lower(), BATCH_BYTES))
    found = how.rows_per_batch
    with closing(
        open_broker_client(how.bootstrap, how.options.get("namespace", ""), True, login=how.login())
    ) as client:
        for topic in topics:
            try:
                count = sum(each.last - each.start for each in client.ends(topic).values())
                kept = sum(client.sizes(topic).values())
            except TopicMistake:
                continue  # it has just gone
            found = min(found, most_bytes * count // kept) if kept else found
    return max(found, 1)
