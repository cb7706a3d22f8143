"""Messages over the HTTP port, without Spark."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa

from pyspark_trimq.broker.client import OffsetRange, StreamKey, open_broker_client
from trimq.testing import Broker

SCHEMA = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
COUNT = 60  # enough bytes for several responses


def body(number: int) -> bytes:
    return b"%06d" % number * 4000


def fill(broker: Broker) -> OffsetRange:
    broker.create_topic("orders")
    for number in range(COUNT):
        broker.send("orders", body(number))
    return OffsetRange(StreamKey("orders", 0), 0, COUNT)


def test_later_responses_do_not_change_earlier_batches(broker: Broker) -> None:
    wanted = fill(broker)
    with closing(open_broker_client(broker.http, "", is_committed=True)) as port:
        batches = list(port.read(wanted, SCHEMA, fails_on_loss=True))
    assert len(batches) > 2
    found = pa.Table.from_batches(batches).to_pydict()
    assert found["offset"] == list(range(COUNT))
    assert found["key"] == [None] * COUNT
    assert found["value"] == [body(number) for number in range(COUNT)]


def test_prefetched_requests_are_repeated_after_a_restart(broker: Broker) -> None:
    wanted = fill(broker)
    with closing(open_broker_client(broker.http, "", is_committed=True)) as port:
        batches = port.read(wanted, SCHEMA, fails_on_loss=True)
        found = [next(batches)]
        broker.restart()
        found += batches
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(COUNT))


def test_a_client_can_send_other_requests_before_it_has_read_everything(broker: Broker) -> None:
    wanted = fill(broker)
    with closing(open_broker_client(broker.http, "", is_committed=True)) as port:
        batches = port.read(wanted, SCHEMA, fails_on_loss=True)
        next(batches)
        assert port.ends("orders")[0].end == COUNT
        assert sum(batch.num_rows for batch in port.read(wanted, SCHEMA, fails_on_loss=True)) == COUNT
