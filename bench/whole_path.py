"""One real client against one broker process, for orientation: librdkafka, 1 KB records, acks=all, one partition."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from bench.figures import Figure
from bench.processes import ChildFailed, RunningBroker, broker_in
from bench.sizes import Sizes

RECORD_BYTES = 1024


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    with broker_in(folder / "whole") as broker:
        _produce(broker, 0.1)  # creates the topic, opens the connection
        requests, cpu_s, began_s = _requests(broker), broker.cpu_s(), time.perf_counter()
        records = _produce(broker, sizes.produce_seconds)
        wall_s = time.perf_counter() - began_s
        requests, cpu_s = _requests(broker) - requests, broker.cpu_s() - cpu_s
    shutil.rmtree(folder / "whole")
    note = f"the producer is on the same machine; {records / requests:.0f} records per request"
    note += f", broker at {cpu_s / wall_s:.0%} of a core"
    yield Figure("produce 1 KB records, acks=all, librdkafka", records / wall_s, "records/s", note=note)
    yield Figure("the same, processor time of the broker", cpu_s / requests * 1e6, "us/request", note=note)


def _requests(broker: RunningBroker) -> float:
    with urlopen(f"http://{broker.addresses['http']}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('trimq_requests_total{listener="kafka"}'):
                return float(line.split()[-1])
    raise ChildFailed("the broker does not count its requests")


def _produce(broker: RunningBroker, seconds: float) -> int:
    """Returns the number of acknowledged records."""
    from confluent_kafka import KafkaError, Message, Producer

    delivered = 0

    def count(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        if error is not None:
            raise ChildFailed(f"a record was not accepted: {error}")
        delivered += 1

    producer = Producer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 100_000,
            "log_level": 0,
        }
    )
    body = bytes(RECORD_BYTES)
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        try:
            for _ in range(100):
                producer.produce("bench", body, on_delivery=count)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    producer.flush(30)
    return delivered
