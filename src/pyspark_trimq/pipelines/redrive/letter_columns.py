"""Columns of dead letters: reason, origin, exception, message, and number of replays, read from the headers of each
protocol and library."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.messages.headers import first_of, header_text, property_text

REPLAYS = "trimq-replays"

# Headers of AMQP dead-letter exchanges, Spring for Kafka, Kafka Connect, Kafka Streams, SmallRye and RocketMQ.
REASONS = ("x-first-death-reason", "x-last-death-reason", "dead-letter-reason", "__connect.errors.stage")
EXCEPTIONS = (
    "kafka_dlt-exception-cause-fqcn",
    "kafka_dlt-exception-fqcn",
    "__connect.errors.exception.class.name",
    "__streams.errors.exception",
    "dead-letter-exception-class-name",
)
MESSAGES = (
    "kafka_dlt-exception-message",
    "__connect.errors.exception.message",
    "__streams.errors.message",
    "dead-letter-reason",
)
ORIGINS = (
    "x-first-death-queue",
    "kafka_dlt-original-topic",
    "__connect.errors.topic",
    "__streams.errors.topic",
    "dead-letter-topic",
)
ORIGIN_PROPERTIES = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
ROCKETMQ_DEAD = "%DLQ%"


def letters(frame: DataFrame) -> DataFrame:
    """Adds the columns reason, origin, exception, message and replays."""
    exception = first_of(*map(header_text, EXCEPTIONS))
    is_rocketmq = F.col("topic").startswith(ROCKETMQ_DEAD)
    retried = F.when(is_rocketmq, F.lit("retries exhausted"))
    failed = F.when(exception.isNotNull(), F.lit("exception"))
    reason = first_of(*map(header_text, REASONS), failed, retried, F.lit("unknown"))
    origin = first_of(*map(header_text, ORIGINS), *map(property_text, ORIGIN_PROPERTIES))
    return frame.withColumns(
        {
            "reason": reason,
            "origin": origin,
            "exception": exception,
            "message": F.substring(first_of(*map(header_text, MESSAGES)), 1, 200),
            "replays": replays(),
        }
    )


def replays() -> Column:
    """Returns how often this pipeline sent the message again."""
    return F.coalesce(
        F.expr(f"try_cast(cast(get(filter(headers, h -> h.key = '{REPLAYS}'), 0).value AS STRING) AS INT)"), F.lit(0)
    )


def headers_with_replay() -> Column:
    """Returns the headers with the number of replays increased by one."""
    others = F.filter(F.col("headers"), lambda each: each["key"] != F.lit(REPLAYS))
    more = F.struct(F.lit(REPLAYS).alias("key"), (F.col("replays") + 1).cast("string").cast("binary").alias("value"))
    return F.concat(others, F.array(more))
