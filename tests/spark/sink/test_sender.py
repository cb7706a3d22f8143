"""The tasks of the sink, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_trimq.mistakes import Mistake, Unreachable
from pyspark_trimq.sink import sender
from pyspark_trimq.sink.sender import Target, Token, send_at_least_once, send_exactly_once
from trimq.testing import Broker

ROWS = pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})


def target(broker: Broker) -> Target:
    return Target(broker.kafka, "orders", "none", {})


def test_a_token_is_spent_once_and_the_next_batch_has_another(broker: Broker) -> None:
    broker.create_topic("orders")
    assert send_exactly_once(target(broker), Token("q", 0, 0), [ROWS]) == (2, False)
    assert send_exactly_once(target(broker), Token("q", 0, 0), [ROWS]) == (0, True)
    assert send_exactly_once(target(broker), Token("q", 1, 0), [ROWS]) == (2, False)
    assert send_exactly_once(target(broker), Token("q", 0, 1), [ROWS]) == (2, False)
    assert len(broker.records("orders")) == 6


def test_tasks_beyond_the_partitions_of_the_token_topic_have_tokens_too(broker: Broker) -> None:
    broker.create_topic("orders")
    for part in (1, 33, 65):
        assert send_exactly_once(target(broker), Token("q", part, 0), [ROWS]) == (2, False)
        assert send_exactly_once(target(broker), Token("q", part, 0), [ROWS]) == (0, True)


def test_rows_that_fail_half_way_count_for_nothing(broker: Broker) -> None:
    broker.create_topic("orders")

    def failing() -> object:
        yield ROWS
        raise RuntimeError("the source has failed")

    with pytest.raises(RuntimeError, match="the source has failed"):
        send_exactly_once(target(broker), Token("q", 0, 0), failing())  # type: ignore[arg-type]
    assert send_exactly_once(target(broker), Token("q", 0, 0), [ROWS]) == (2, False)


def test_a_record_larger_than_the_send_buffer_is_refused(broker: Broker) -> None:
    broker.create_topic("orders")
    large = pa.RecordBatch.from_pydict({"value": [bytes(3_000_000)]})
    small = target(broker)._replace(client={"queue.buffering.max.kbytes": "1024"})
    with pytest.raises(Mistake, match=r"a record of 3000000 bytes .* kafka.queue.buffering.max.kbytes"):
        send_at_least_once(small, [large])


def test_a_full_disk_is_reported_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_TIMEOUT_S", 3)
    with Broker(folder=tmp_path) as broker:
        broker.create_topic("orders")
        assert send_exactly_once(target(broker), Token("q", 0, 0), [ROWS]) == (2, False)
    with Broker(folder=tmp_path, storage_low_water_bytes=10**17) as broker:
        monkeypatch.setattr(sender, "_has_token_topic", {broker.kafka})
        with pytest.raises(Unreachable, match=f"the broker at {broker.kafka} did not accept the rows: "):
            send_exactly_once(target(broker), Token("q", 0, 1), [ROWS])
        plain = target(broker)._replace(client={"message.timeout.ms": "2000"})
        with pytest.raises(Unreachable, match="did not accept"):
            send_at_least_once(plain, [ROWS])
    with Broker(folder=tmp_path) as broker:
        assert len(broker.records("orders")) == 2
        assert send_exactly_once(target(broker), Token("q", 0, 0), [ROWS]) == (0, True)
        assert send_exactly_once(target(broker), Token("q", 0, 1), [ROWS]) == (2, False)


def test_an_unreachable_broker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_TIMEOUT_S", 1)
    with pytest.raises(Unreachable, match=r"the broker at 127\.0\.0\.1:1 did not accept the rows"):
        send_exactly_once(Target("127.0.0.1:1", "orders", "none", {}), Token("q", 0, 0), [ROWS])
