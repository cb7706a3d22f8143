"""E24, Kafka and Spark: page views and clicks are joined into a click rate per page, which is written to a third topic.

Two producers write JSON to two topics, with Kafka's client. Spark reads both as streams, counts by page and minute, and
writes the result back exactly once; another run processes only new messages. Needs TRIMQ_KAFKA and TRIMQ_HTTP, the
broker's addresses, and the extra `spark`."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_trimq.session import make_session

KAFKA, HTTP = os.environ["TRIMQ_KAFKA"], f"http://{os.environ['TRIMQ_HTTP']}"
RUN = uuid.uuid4().hex[:8]
VIEWS, CLICKS, RATES = f"views-{RUN}", f"clicks-{RUN}", f"rates-{RUN}"
MINUTE_MS = 60_000
PATIENCE_S = 60


def send(topic: str, pages: dict[str, int], minute: int) -> None:
    producer = Producer({"bootstrap.servers": KAFKA})
    for page, count in pages.items():
        for number in range(count):
            event = json.dumps({"page": page, "user": number})
            producer.produce(topic, event, page, timestamp=minute * MINUTE_MS + number)
    if unanswered := producer.flush(PATIENCE_S):
        raise TimeoutError(f"{unanswered} events were not answered")


def click_rates(spark: Any, checkpoint: str) -> None:
    """Counts new messages of both topics by page and minute, and writes one row each to the third topic."""
    reader = spark.readStream.format("trimq").option("bootstrap", HTTP).option("startingOffsets", "earliest")
    events = reader.option("subscribe", f"{VIEWS},{CLICKS}").load()
    pages = events.selectExpr("topic", "get_json_object(cast(value as string), '$.page') as page", "timestamp")

    def write(batch: Any, number: int) -> None:
        counted = batch.groupBy("page", "minute").pivot("topic", [VIEWS, CLICKS]).count().na.fill(0)
        rows = counted.selectExpr(
            "page as key",
            f"to_json(struct(page, minute, `{VIEWS}` as views, `{CLICKS}` as clicks)) as value",
        )
        # A repeated batch is written once.
        writer = rows.coalesce(1).write.format("trimq").option("bootstrap", HTTP).option("topic", RATES)
        writer.option("writeId", f"{RUN}-{number}").mode("append").save()

    by_minute = pages.selectExpr("topic", "page", "cast(floor(unix_millis(timestamp) / 60000) as int) as minute")
    writer = by_minute.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def rates() -> list[tuple[str, int, int, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": KAFKA,
            "group.id": f"e24-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([RATES])
    found = []
    try:
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            row = json.loads(message.value() or b"")
            found.append((row["page"], row["minute"], row["views"], row["clicks"]))
    finally:
        consumer.close()
    return sorted(found)


def main() -> None:
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for made in admin.create_topics([NewTopic(VIEWS, 2), NewTopic(CLICKS, 2), NewTopic(RATES, 1)]).values():
        made.result(PATIENCE_S)
    fast = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"}
    spark = make_session("e24", "local[2]", {**fast, "spark.sql.shuffle.partitions": "1"})
    with tempfile.TemporaryDirectory() as checkpoint:
        send(VIEWS, {"/": 40, "/shop": 20}, minute=1)
        send(CLICKS, {"/": 4, "/shop": 10}, minute=1)
        click_rates(spark, checkpoint)
        first = rates()
        send(VIEWS, {"/": 8}, minute=2)
        send(CLICKS, {"/": 1}, minute=2)
        click_rates(spark, checkpoint)
        both = rates()
    spark.stop()
    for page, minute, views, clicks in both:
        print(f"minute {minute} {page:6} {views:3} views {clicks:3} clicks {clicks / views:4.0%}")
    assert first == [("/", 1, 40, 4), ("/shop", 1, 20, 10)], first
    assert both == sorted([*first, ("/", 2, 8, 1)]), both


if __name__ == "__main__":
    main()
