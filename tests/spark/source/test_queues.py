"""AMQP queues with consumers that are ahead of Spark: acknowledged messages are skipped, lost ones are reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.broker.client import BrokerClient, OffsetRange, StreamKey, open_broker_client
from pyspark_trimq.mistakes import Lost
from pyspark_trimq.pipelines import PipelineContext, archive
from pyspark_trimq.source.stream_reader import StreamReader
from trimq.testing import Broker

JOBS = StreamKey("jobs", 0)
KEPT = pika.BasicProperties(delivery_mode=2)
SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
PATIENCE_S = 30


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(storage_queue_segment_bytes=4096) as broker:
        yield broker


@pytest.fixture
def channel(broker: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("jobs", durable=True)
        yield channel


def publish(channel: Any, first: int, after: int, size: int = 1000) -> None:
    for number in range(first, after):
        channel.basic_publish("", "jobs", b"%d" % number + bytes(size), KEPT)


def take(channel: Any, port: BrokerClient, count: int) -> None:
    """Acknowledges `count` messages, and waits until whole segments are deleted."""
    before = port.ends("jobs")[0].start
    for _ in range(count):
        channel.basic_ack(channel.basic_get("jobs")[0].delivery_tag)
    deadline = time.monotonic() + PATIENCE_S
    while port.ends("jobs")[0].start == before:
        assert time.monotonic() < deadline, "no segment goes"
        time.sleep(0.01)


def reader_of(broker: Broker, **options: str) -> StreamReader:
    given = {"bootstrap": broker.http, "subscribe": "jobs", "startingOffsets": "earliest", **options}
    return StreamReader(row_schema(False), given)


def offsets(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [at for batch in batches for at in batch.column("offset").to_pylist()]


def test_a_stream_skips_messages_acknowledged_ahead_of_it(broker: Broker, channel: Any) -> None:
    reader = reader_of(broker)
    publish(channel, 0, 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert offsets(reader, start, end) == [0, 1, 2, 3, 4]
    publish(channel, 5, 40)
    planned = reader.latestOffset(end, reader.getDefaultReadLimit())
    take(channel, reader._connected(), 30)
    assert offsets(reader, end, planned) == list(range(30, 40))
    start, end = planned, reader.latestOffset(planned, reader.getDefaultReadLimit())
    assert start == end
    reader.stop()


def test_a_running_batch_continues_at_the_current_start_of_the_queue(broker: Broker, channel: Any) -> None:
    publish(channel, 0, 30, 40_000)  # several responses of the broker
    with closing(open_broker_client(broker.http, "", is_committed=True)) as port:
        batches = port.read(OffsetRange(JOBS, 0, 30), SCHEMA, fails_on_loss=True)
        found = next(batches).column("offset").to_pylist()
        assert len(found) < 10
        with closing(open_broker_client(broker.http, "", is_committed=True)) as other:
            take(channel, other, 25)
        found += [at for batch in batches for at in batch.column("offset").to_pylist()]
    assert found[-5:] == [25, 26, 27, 28, 29]
    assert found == sorted(set(found))


def test_a_recreated_queue_is_not_mistaken_for_the_old_one(broker: Broker, channel: Any) -> None:
    reader = reader_of(broker)
    publish(channel, 0, 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    channel.queue_delete("jobs")
    channel.queue_declare("jobs", durable=True)
    publish(channel, 0, 9)
    with pytest.raises(Lost, match="messages 0 to 5 of jobs 0 were to be read"):
        reader.partitions(start, end)
    with pytest.raises(Lost, match="'jobs' was deleted and created again"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    reader.stop()


def test_expired_messages_of_a_stream_queue_are_lost(broker: Broker, channel: Any) -> None:
    limits = {"x-queue-type": "stream", "x-max-length-bytes": 8000, "x-stream-max-segment-size-bytes": 4096}
    channel.queue_delete("jobs")
    channel.queue_declare("jobs", durable=True, arguments=limits)
    reader = reader_of(broker)
    publish(channel, 0, 5)
    start = reader.initialOffset()
    publish(channel, 5, 60)
    assert reader._connected().ends("jobs")[0].start > 0
    with pytest.raises(Lost, match="messages 0 to 60 of jobs 0 were to be read, but it has messages from"):
        reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    reader.stop()


def test_an_archive_of_a_queue_continues_behind_its_consumers(
    spark: Any, broker: Broker, channel: Any, tmp_path: Path
) -> None:
    context = PipelineContext(bootstrap=broker.http, spark=spark, show=False)
    publish(channel, 0, 5)
    assert archive(["jobs"], lake=tmp_path / "lake", context=context).figures["rows archived"] == 5
    publish(channel, 5, 40)
    with closing(open_broker_client(broker.http, "", is_committed=True)) as port:
        take(channel, port, 30)
    assert archive(["jobs"], lake=tmp_path / "lake", context=context).figures["rows archived"] == 10
