"""kafka-python without groups, against a broker process: every acks level, the codec in its package, idempotent and
transactional producers, look-up by time, large messages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.errors import KafkaError, MessageSizeTooLargeError

from tools.broker import running

PATIENCE_S = 30
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


def reader(broker: str, **settings: object) -> KafkaConsumer:
    return KafkaConsumer(bootstrap_servers=broker, consumer_timeout_ms=PATIENCE_S * 1000, **settings)


def read(broker: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """Reads this many records from the beginning."""
    partition = TopicPartition(topic, 0)
    with closing(reader(broker, isolation_level=isolation)) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [record.value for record in islice(consumer, count)]


def transactional(broker: str, name: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=name)
    producer.init_transactions()
    return producer


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_records_of_any_acks_level_are_read(broker: str, codec: str | None, acks: int | str) -> None:
    topic = f"codec-{codec}-{acks}"
    bodies = [b"%d " % number * 20 for number in range(200)]
    settings = {"enable_idempotence": False, "acks": acks, "compression_type": codec}
    with closing(KafkaProducer(bootstrap_servers=broker, **settings)) as producer:
        for sent in [producer.send(topic, body, partition=0) for body in bodies]:
            sent.get(PATIENCE_S)
    assert read(broker, topic, 200) == bodies


def test_an_idempotent_producer_keeps_its_order(broker: str) -> None:
    bodies = [b"%d" % number for number in range(1000)]
    with closing(KafkaProducer(bootstrap_servers=broker, enable_idempotence=True)) as producer:
        for sent in [producer.send("idempotent", body, partition=0) for body in bodies]:
            sent.get(PATIENCE_S)
    assert read(broker, "idempotent", 1000) == bodies


def test_committed_records_are_read_and_aborted_ones_are_not(broker: str) -> None:
    with closing(transactional(broker, "both-ways")) as producer:
        for number in range(6):
            producer.begin_transaction()
            producer.send("both-ways", b"%d" % number, partition=0).get(PATIENCE_S)
            if number % 3 == 0:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert read(broker, "both-ways", 4) == [b"1", b"2", b"4", b"5"]
    assert len(read(broker, "both-ways", 6, "read_uncommitted")) == 6


def test_a_replaced_producer_is_fenced(broker: str) -> None:
    old = transactional(broker, "fenced")
    old.begin_transaction()
    old.send("fenced", b"lost", partition=0).get(PATIENCE_S)
    with closing(transactional(broker, "fenced")) as new:
        with pytest.raises(KafkaError, match=r"(?i)fenced|epoch"):
            old.commit_transaction()
        new.begin_transaction()
        new.send("fenced", b"kept", partition=0).get(PATIENCE_S)
        new.commit_transaction()
    old.close(0)
    assert read(broker, "fenced", 1) == [b"kept"]


def test_offsets_are_committed_with_the_transaction_or_not_at_all(broker: str) -> None:
    source = TopicPartition("source", 0)
    with (
        closing(transactional(broker, "offsets")) as producer,
        closing(reader(broker, group_id="movers", enable_auto_commit=False)) as consumer,
    ):
        for is_commit, expected in ((False, None), (True, 7)):
            producer.begin_transaction()
            producer.send("source", b"x", partition=0).get(PATIENCE_S)
            producer.send_offsets_to_transaction({source: OffsetAndMetadata(7, "", -1)}, "movers")
            if is_commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            assert consumer.committed(source) == expected


def test_a_look_up_by_time_finds_the_first_message_that_is_not_older(broker: str) -> None:
    partition = TopicPartition("times", 0)
    with closing(KafkaProducer(bootstrap_servers=broker, compression_type="gzip", linger_ms=50)) as producer:
        for sent in [
            producer.send("times", b"%d" % number, partition=0, timestamp_ms=FIRST_MS + 10 * number)
            for number in range(100)
        ]:
            sent.get(PATIENCE_S)
    with closing(reader(broker)) as consumer:
        consumer.assign([partition])
        assert consumer.offsets_for_times({partition: FIRST_MS + 415})[partition].offset == 42
        consumer.seek(partition, 42)
        assert next(consumer).value == b"42"


def test_a_large_message_passes_and_a_larger_one_is_refused(broker: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker, max_request_size=4_000_000)) as producer:
        producer.send("large", b"x" * 1_000_000, partition=0).get(PATIENCE_S)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("large", b"x" * 2_000_000, partition=0).get(PATIENCE_S)
    assert read(broker, "large", 1) == [b"x" * 1_000_000]
