"""Letters from the broker's ledger of failed messages: AMQP messages that failed, and that no
dead-letter exchange accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.runner.context import PipelineContext
from pyspark_trimq.pipelines.runner.progress_bar import bars

LETTER_SCHEMA = (
    "topic STRING, offset BIGINT, reason STRING, origin STRING, exception STRING, message STRING, replays INT, "
    "at_ms BIGINT"
)


def unsent_failures(context: PipelineContext) -> DataFrame:
    """Returns the failed messages that were not sent again yet, as letters; `offset` is the number in the ledger. The
    number of replays is that of earlier entries with the same queue and body that were sent again."""
    entries = list(context.administration().failures())
    again = Counter((entry["vhost"], entry["queue"], entry["body"]) for entry in entries if entry["redriven"])
    rows = [
        (
            "ledger",
            entry["id"],
            entry["reason"],
            entry["queue"],
            None,
            None,
            again[entry["vhost"], entry["queue"], entry["body"]],
            entry["time_ms"],
        )
        for entry in entries
        if not entry["redriven"]
    ]
    frame = context.session().createDataFrame(rows, LETTER_SCHEMA)
    return frame.withColumn("timestamp", F.timestamp_millis("at_ms"))


def redrive_failures(context: PipelineContext, failures: Sequence[int], rate: int) -> int:
    """Sends failed messages again one by one, at most `rate` per second, until `context.stop` is set. Returns
    how many."""
    broker = context.administration()
    sent = 0
    with bars("dead-letters", context.show) as shown:
        for number in failures:
            broker.redrive(number)
            sent += 1
            shown.update(sent, len(failures), sent, float(rate))
            if context.stop.wait(1 / rate if rate else 0):
                break
    return sent
