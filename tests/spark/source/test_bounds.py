"""Start and size of a micro-batch and a batch: limits, fair shares and timestamps."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.broker.client import StreamKey
from pyspark_trimq.source.batch_reader import BatchReader
from pyspark_trimq.source.bounds import limit_offsets
from pyspark_trimq.source.stream_reader import StreamReader
from trimq.testing import Broker

BOTH_PORTS = pytest.mark.parametrize("port", ["http", "kafka"])


def keys(count: int) -> list[StreamKey]:
    return [StreamKey("orders", number) for number in range(count)]


@pytest.mark.parametrize(
    ("new", "most", "shares"),
    [
        ([500, 1, 1], 10, [8, 1, 1]),
        ([500, 1, 1], 3, [1, 1, 1]),
        ([100, 300], 40, [11, 29]),
        ([5, 0, 5], 2, [1, 0, 1]),
        ([2, 3], 9, [2, 3]),
        ([0, 0], 9, [0, 0]),
    ],
)
def test_every_stream_with_something_new_has_a_share(new: list[int], most: int, shares: list[int]) -> None:
    streams = keys(len(new))
    end = dict(zip(streams, new, strict=True))
    found = limit_offsets(dict.fromkeys(streams, 0), end, most)
    assert list(found.values()) == shares
    assert limit_offsets(dict.fromkeys(streams, 0), end, most) == found


@pytest.mark.parametrize("most", range(1, 9))
@pytest.mark.parametrize("count", range(1, 8))
def test_no_stream_waits_for_ever(most: int, count: int) -> None:
    """Holds for any limit, and any number of new messages in the other streams."""
    rng = random.Random(f"{most} {count}")
    streams = keys(count)
    start = {key: rng.randrange(10) for key in streams}
    end = {key: start[key] + 5000 for key in streams}
    waits = dict.fromkeys(streams, 0)
    for _ in range(200):
        for key in streams[1:]:
            end[key] += rng.randrange(3)
        found = limit_offsets(start, end, most)
        assert sum(found.values()) - sum(start.values()) == most
        waits = {key: 0 if found[key] > start[key] else waits[key] + 1 for key in streams}
        assert max(waits.values()) < count
        start = found


def test_a_backlog_is_read_besides_streams_with_few_new_messages(broker: Broker) -> None:
    broker.create_topic("skew", partitions=3)
    for _ in range(50):
        broker.send("skew", "old", partition=0)
    given = {"bootstrap": broker.http, "subscribe": "skew", "startingOffsets": "earliest"}
    reader = StreamReader(row_schema(False), {**given, "maxOffsetsPerTrigger": "2"})
    at = reader.initialOffset()
    for _ in range(12):
        for number in (1, 2):
            broker.send("skew", "new", partition=number)
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert at["skew"] == {"0": 8, "1": 8, "2": 8}
    reader.stop()


@BOTH_PORTS
def test_timestamps_limit_the_start_and_end_of_a_batch(broker: Broker, port: str) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(10):
        broker.send("orders", str(index), partition=index % 2, timestamp_ms=1000 + index)

    def read(**times: str) -> list[int]:
        given = {"bootstrap": getattr(broker, port), "subscribe": "orders", **times}
        reader = BatchReader(row_schema(False), given)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())

    assert read(startingTimestamp="1004", endingTimestamp="1008") == [4, 5, 6, 7]
    assert read(startingTimestamp="1003") == [3, 4, 5, 6, 7, 8, 9]
    assert read(endingTimestamp="1002", startingOffsets="earliest") == [0, 1]
    assert read(startingTimestamp="5000") == []


@BOTH_PORTS
def test_a_stream_starts_at_a_timestamp_and_reports_the_latest_offsets(broker: Broker, port: str) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(10):
        broker.send("orders", str(index), partition=index % 2, timestamp_ms=1000 + index)
    given = {"bootstrap": getattr(broker, port), "subscribe": "orders", "startingTimestamp": "1004"}
    reader = StreamReader(row_schema(False), {**given, "maxOffsetsPerTrigger": "2"})
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    assert start["orders"] == {"0": 2, "1": 2}
    assert reader.latestOffset(start, reader.getDefaultReadLimit())["orders"] == {"0": 3, "1": 3}
    latest: Any = reader.reportLatestOffset()
    assert latest["orders"] == {"0": 5, "1": 5}
    reader.stop()
