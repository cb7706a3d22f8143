"""Deduplication, dead letters, snapshots, windows, joins and lag, with a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from pyspark_trimq.pipelines import (
    Choice,
    Load,
    PipelineContext,
    aggregate,
    dead_letters,
    dedupe,
    join,
    lag,
    snapshot,
    write_json,
    write_report,
)
from trimq.errors import StartupError
from trimq.testing import Broker

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000 - 1_700_000_000_000 % MINUTE_MS


def context(spark: Any, broker: Broker, **more: Any) -> PipelineContext:
    return PipelineContext(bootstrap=broker.http, spark=spark, show=False, **more)


def bodies(broker: Broker, topic: str, partitions: int = 1) -> list[Any]:
    return [json.loads(record.body or b"null") for n in range(partitions) for record in broker.records(topic, n)]


def test_repetitions_within_the_window_are_left_out(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    sent = [("a", 0), ("b", 1), ("a", 30), ("a", 61), ("b", 59), ("", 5), ("", 6), ("a", 100)]
    for number, (id, seconds) in enumerate(sent):
        headers = {"message-id": id.encode()} if id else {}
        broker.send("orders", str(number), "key", headers, timestamp_ms=START_MS + seconds * 1000)
    options = context(spark, broker, checkpoint=tmp_path / "checkpoint", rows_per_batch=4)
    outcome = dedupe(["orders"], to="orders-once", within="1 minute", context=options)
    assert sorted(bodies(broker, "orders-once")) == [0, 1, 3, 5, 6]
    assert (outcome.figures["written"], outcome.figures["repetitions"]) == (5, 3)
    kept = broker.records("orders-once")[0]
    assert (kept.key, kept.headers, kept.timestamp_ms) == (b"key", (("message-id", b"a"),), START_MS)
    broker.send("orders", "7", headers={"message-id": b"a"}, timestamp_ms=START_MS + 62_000)
    assert dedupe(["orders"], to="orders-once", within="1 minute", context=options).figures["written"] == 0
    with pytest.raises(StartupError, match="its within is"):
        dedupe(["orders"], to="orders-once", within="2 minutes", context=options)


def test_dead_letters_are_grouped_and_the_chosen_ones_sent_again(spark: Any, broker: Broker, tmp_path: Path) -> None:
    for topic in ("orders", "orders.DLT"):
        broker.create_topic(topic)
    spring = {"kafka_dlt-original-topic": b"orders", "kafka_dlt-exception-fqcn": b"java.lang.IllegalState"}
    connect = {"__connect.errors.topic": b"orders", "__connect.errors.exception.class.name": b"DataException"}
    looping = {**spring, "trimq-replays": b"3"}
    amqp = {"x-first-death-reason": b"rejected", "x-first-death-queue": b"work"}
    for number, headers in enumerate([spring, spring, connect, looping, amqp, {}]):
        broker.send("orders.DLT", f"{number}", "key", headers)
    dry = dead_letters(["orders.DLT"], context=context(spark, broker))
    assert (dry.figures["letters"], dry.figures["chosen"], dry.figures["replayed too often"]) == (6, 4, 1)
    groups = {
        (row["reason"], row["origin"], row["exception"], row["fate"]): row["letters"] for row in dry.table("Groups")
    }
    assert groups == {
        ("exception", "orders", "java.lang.IllegalState", "chosen"): 2,
        ("exception", "orders", "DataException", "chosen"): 1,
        ("exception", "orders", "java.lang.IllegalState", "replayed too often"): 1,
        ("rejected", "work", None, "chosen"): 1,
        ("unknown", None, None, "no origin known"): 1,
    }
    assert broker.records("orders") == []
    choice = Choice(exception="java.lang.IllegalState", newer_than="1 hour")
    options = context(spark, broker, checkpoint=tmp_path / "checkpoint")
    for _ in range(2):
        dead_letters(["orders.DLT"], redrive=True, choice=choice, rate=4, context=options)
    assert bodies(broker, "orders") == [0, 1]
    assert dict(broker.records("orders")[0].headers) == {**spring, "trimq-replays": b"1"}


def test_letters_of_amqp_queues_and_of_the_ledger_are_found_and_redriven(spark: Any, broker: Broker) -> None:
    import pika

    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("work", durable=True, arguments=arguments)
        channel.queue_declare("plain", durable=True)
        for queue in ("work", "plain", "plain"):
            channel.basic_publish("", queue, b"body", pika.BasicProperties(delivery_mode=2))
        for queue in ("work", "plain", "plain"):
            method, _, _ = channel.basic_get(queue)
            channel.basic_reject(method.delivery_tag, requeue=False)
        outcome = dead_letters(["dead"], context=context(spark, broker))
        groups = [(row["reason"], row["origin"], row["letters"]) for row in outcome.table("Groups")]
        assert groups == [("rejected", "work", 1)]
        dry = dead_letters(ledger=True, choice=Choice(origin="plain"), context=context(spark, broker))
        assert (dry.figures["chosen"], "sent again" in dry.figures) == (2, False)
        choice = Choice(origin="plain")
        sent = dead_letters(ledger=True, redrive=True, choice=choice, max_replays=1, context=context(spark, broker))
        assert sent.figures["sent again"] == 2
        for _ in range(2):
            method, _, body = channel.basic_get("plain")
            assert body == b"body"
            channel.basic_reject(method.delivery_tag, requeue=False)
        again = dead_letters(ledger=True, redrive=True, choice=choice, max_replays=1, context=context(spark, broker))
        assert (again.figures["sent again"], again.figures["replayed too often"]) == (0, 2)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_snapshot_has_the_latest_value_of_each_key(spark: Any, broker: Broker, tmp_path: Path, format: str) -> None:
    broker.create_topic("prices", partitions=2)
    for number in range(12):
        broker.send("prices", str(number), f"key {number % 4}", partition=number % 2)
    broker.send("prices", None, "key 1", partition=1)
    broker.send("prices", "no key", None)
    options = context(spark, broker, rows_per_batch=6)
    outcome = snapshot(["prices"], lake=tmp_path / "lake", format=format, context=options)

    def table() -> dict[str, str]:
        if format == "delta":
            from deltalake import DeltaTable

            rows = DeltaTable(tmp_path / "lake").to_pandas()
        else:
            rows = pandas.read_parquet(tmp_path / "lake")
        assert len(rows) == len(set(rows["key"]))
        return {row.key.decode(): row.value.decode() for row in rows.itertuples()}

    assert table() == {"key 0": "8", "key 2": "10", "key 3": "11"}
    assert outcome.figures["keys"] == 3
    broker.send("prices", "new", "key 2", partition=0)
    snapshot(["prices"], lake=tmp_path / "lake", format=format, context=options)
    assert table() == {"key 0": "8", "key 2": "new", "key 3": "11"}


AGGREGATE = """
to = "views-per-page"
window = "1 minute"
group_by = ["page"]
select = ["count(*) AS views", "max(ms) AS slowest"]

[from]
topic = "views"
columns = "page STRING, ms INT"
late = "30s"
"""

SQL = """
-- to: slow-views
-- from seen: page STRING, ms INT; topic views; late 30s
SELECT page, count_if(ms > 15) AS slow FROM seen WHERE ms IS NULL OR ms >= 0
GROUP BY window(timestamp, '1 minute'), page
"""


def view(broker: Broker, page: str, ms: int, seconds: int) -> None:
    broker.send("views", json.dumps({"page": page, "ms": ms}), timestamp_ms=START_MS + seconds * 1000)


def test_windows_are_written_once_when_late_messages_are_in(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("views")
    (tmp_path / "pages.toml").write_text(AGGREGATE)
    options = context(spark, broker, checkpoint=tmp_path / "checkpoint")
    for page, ms, seconds in (("a", 10, 0), ("a", 20, 59), ("b", 30, 5), ("a", 40, 61)):
        view(broker, page, ms, seconds)
    broker.send("views", "no JSON", timestamp_ms=START_MS)
    aggregate(tmp_path / "pages.toml", context=options)
    view(broker, "a", 50, 58)  # late, but within the limit
    view(broker, "a", 1, 200)
    aggregate(tmp_path / "pages.toml", context=options)
    view(broker, "a", 99, 1)  # too late
    aggregate(tmp_path / "pages.toml", context=options)
    found = {
        (row["start"][14:16], row.get("page")): (row["views"], row.get("slowest"))
        for row in bodies(broker, "views-per-page")
    }
    assert len(found) == len(bodies(broker, "views-per-page"))
    first, second = f"{START_MS // MINUTE_MS % 60:02}", f"{(START_MS // MINUTE_MS + 1) % 60:02}"
    assert found == {(first, "a"): (3, 50), (first, "b"): (1, 30), (first, None): (1, None), (second, "a"): (1, 40)}
    view(broker, "left out", -1, 100_000)  # nor does it advance the watermark, which would close the last window
    (tmp_path / "slow.sql").write_text(SQL)
    aggregate(tmp_path / "slow.sql", context=context(spark, broker, checkpoint=tmp_path / "slow"))
    assert {(row.get("page"), row["slow"]) for row in bodies(broker, "slow-views")} == {
        ("a", 3),
        ("a", 1),
        ("b", 1),
        (None, 0),
    }


JOIN = """
to = "clicked"
on = "left.id = right.view_id"
within = "1 minute"
select = ["left.id AS id", "left.page AS page", "right.button AS button"]

[left]
topic = "views"
columns = "id INT, page STRING"

[right]
topic = "clicks"
columns = "view_id INT, button STRING"
"""


def test_two_topics_are_joined_within_a_time(spark: Any, broker: Broker, tmp_path: Path) -> None:
    for topic in ("views", "clicks"):
        broker.create_topic(topic)
    for id, page in ((1, "a"), (2, "b"), (3, "c")):
        broker.send("views", json.dumps({"id": id, "page": page}), timestamp_ms=START_MS + id * 1000)
    for id, button, seconds in ((1, "buy", 20), (2, "back", 200), (1, "help", 30)):
        broker.send("clicks", json.dumps({"view_id": id, "button": button}), timestamp_ms=START_MS + seconds * 1000)
    (tmp_path / "join.toml").write_text(JOIN)
    join(tmp_path / "join.toml", context=context(spark, broker, checkpoint=tmp_path / "checkpoint"))
    found = sorted(bodies(broker, "clicked"), key=lambda row: row["button"])
    assert found == [{"id": 1, "page": "a", "button": "buy"}, {"id": 1, "page": "a", "button": "help"}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (AGGREGATE.replace('window = "1 minute"', 'window = "soon"'), "'soon' is not a duration"),
        (AGGREGATE.replace("late", "lates"), "the field lates is unknown"),
        (AGGREGATE.replace('to = "views-per-page"', ""), "to must be a string"),
        (AGGREGATE.replace("[from]", "[form]"), "the table \\[from\\] is missing"),
        ("to = ", "Invalid value"),
        (AGGREGATE.replace("count(*)", "nothing(*)"), "nothing"),
    ],
)
def test_an_invalid_recipe_is_refused_in_a_sentence(
    spark: Any, broker: Broker, tmp_path: Path, text: str, complaint: str
) -> None:
    broker.create_topic("views")
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(StartupError, match=complaint) as raised:
        aggregate(tmp_path / "recipe.toml", context=context(spark, broker, checkpoint=tmp_path / "checkpoint"))
    assert "\n" not in str(raised.value)


def test_lag_is_reported_in_messages_and_seconds_with_a_capacity_sheet(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    broker.create_topic("orders", partitions=2)
    for number in range(40):
        broker.send("orders", f"{number}", partition=number % 2)
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 20)], asynchronous=False)

    class Later:
        """Commits further offsets at the third sample."""

        def __init__(self) -> None:
            self.looks = 0

        def wait(self, _: float) -> bool:
            self.looks += 1
            if self.looks == 2:
                consumer.commit(offsets=[TopicPartition("orders", 0, 15)], asynchronous=False)
            return self.looks == 4

        def is_set(self) -> bool:
            return False

    options = context(spark, broker, checkpoint=tmp_path / "samples", once=False, stop=Later())
    outcome = lag(["billing"], window="1s", load=Load(4, 5.0, 45.0, peak_rate=2000), context=options)
    consumer.close()
    assert outcome.figures["lag (messages)"] == 5
    assert outcome.figures["lag (seconds)"] > 0
    assert sum(row["messages"] for row in outcome.table("End-to-end latency")) == 10
    assert outcome.table("Groups")[0]["drained in (s)"] is not None
    assert (outcome.figures["threads"], outcome.figures["nodes"]) == (40, 3)
    page, raised = tmp_path / "lag.html", tmp_path / "lag.json"
    write_report(outcome, page)
    write_json(outcome, raised)
    assert json.loads(raised.read_text())["figures"]["threads"] == 40
    text = page.read_text()
    assert text.count("<svg") == len(outcome.plots)
    assert not [address for address in ("src=", 'href="http', "@import", "<script") if address in text]
