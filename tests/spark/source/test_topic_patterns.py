"""Topics selected by a pattern: those of users, of every layout."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyspark_trimq.arrow.columns import row_schema
from pyspark_trimq.sink.sender import Target, Token, send_exactly_once
from pyspark_trimq.source.batch_reader import BatchReader
from pyspark_trimq.source.stream_reader import StreamReader
from tests.spark.arrow.test_message_rows import send_units
from trimq.testing import Broker

ROWS = pa.RecordBatch.from_pydict({"value": [b"one"]})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(rocketmq_listen="127.0.0.1:0", rocketmq_broker_listen="127.0.0.1:0") as broker:
        yield broker


def topics_of(bootstrap: str, pattern: str) -> set[str]:
    reader = StreamReader(row_schema(False), {"bootstrap": bootstrap, "subscribePattern": pattern})
    try:
        return set(reader.initialOffset()) - {""}
    finally:
        reader.stop()


def test_a_pattern_leaves_out_internal_topics_of_brokers_and_sinks(broker: Broker) -> None:
    broker.create_topic("orders")
    send_exactly_once(Target(broker.kafka, "orders", "none", {}), Token("q", 0, 0), [ROWS])
    for name in ("%DLQ%billing", "%RETRY%billing"):  # topics with messages of users
        send_units(broker, name, b"", b"two")
    assert topics_of(broker.http, ".*") == {"orders", "%DLQ%billing", "%RETRY%billing"}
    assert topics_of(broker.kafka, ".*") == {"orders"}


def test_internal_topics_can_be_read_by_name(broker: Broker) -> None:
    given = {"bootstrap": broker.http, "subscribe": "TBW102,RMQ_SYS_TRANS_HALF_TOPIC"}
    assert BatchReader(row_schema(False), given).partitions() == []
    assert topics_of(broker.http, "TBW102") == set()
