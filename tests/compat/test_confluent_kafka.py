"""confluent-kafka (librdkafka) against a broker process: it fetches the records that it produced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tools.broker import running

PATIENCE_S = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


def produce(broker: str, topic: str, bodies: list[bytes], **settings: object) -> list[int]:
    """Sends each body, in order, to partition 0. Returns the acknowledged offsets."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": broker, "linger.ms": 5, **settings})
    for body in bodies:
        producer.produce(topic, body, key=body[:4], partition=0, headers={"n": body[:8]}, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []
    return offsets


def consume(broker: str, topic: str, count: int, **settings: object) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages: list[Message] = []
    try:
        while len(messages) < count:
            found = consumer.consume(count - len(messages), PATIENCE_S)
            assert found, f"only {len(messages)} of {count} messages arrived"
            assert [message.error() for message in found] == [None] * len(found)
            messages += found
    finally:
        consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_any_codec_are_fetched_unchanged(broker: str, codec: str) -> None:
    bodies = [b"%06d " % number + b"x" * (number % 300) for number in range(3000)]
    offsets = produce(broker, f"codec-{codec}", bodies, **{"compression.type": codec})
    assert offsets == list(range(3000))
    messages = consume(broker, f"codec-{codec}", 3000)
    assert [message.value() for message in messages] == bodies
    assert [message.key() for message in messages] == [body[:4] for body in bodies]
    assert [message.headers() for message in messages] == [[("n", body[:8])] for body in bodies]
    assert [message.offset() for message in messages] == offsets


@pytest.mark.parametrize("acks", ["1", "all"])
def test_acknowledged_messages_are_there_in_every_mode(broker: str, acks: str) -> None:
    assert produce(broker, f"acks-{acks}", [b"one", b"two"], acks=acks) == [0, 1]
    assert [message.value() for message in consume(broker, f"acks-{acks}", 2)] == [b"one", b"two"]


def test_messages_sent_without_acks_arrive_too(broker: str) -> None:
    produce(broker, "acks-0", [b"%d" % number for number in range(500)], acks="0")
    assert [message.value() for message in consume(broker, "acks-0", 500)] == [b"%d" % number for number in range(500)]


def test_a_message_of_nearly_the_largest_size_passes_and_a_larger_one_is_refused(broker: str) -> None:
    large = b"x" * 1_000_000
    limits = {"message.max.bytes": 4_000_000}
    assert produce(broker, "large", [large], **limits) == [0]
    assert consume(broker, "large", 1)[0].value() == large
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker, **limits})
    producer.produce("large", b"x" * 2_000_000, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_a_look_up_by_time_finds_the_first_message_that_is_not_older(broker: str) -> None:
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 50, "compression.type": "lz4"})
    for number in range(100):
        producer.produce("times", b"%d" % number, partition=0, timestamp=1_700_000_000_000 + 10 * number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "none"})
    try:
        asked = [TopicPartition("times", 0, 1_700_000_000_000 + 415)]
        assert [found.offset for found in consumer.offsets_for_times(asked, timeout=PATIENCE_S)] == [42]
        assert consumer.get_watermark_offsets(TopicPartition("times", 0), timeout=PATIENCE_S) == (0, 100)
    finally:
        consumer.close()


def test_a_waiting_consumer_gets_a_message_as_soon_as_it_is_there(broker: str) -> None:
    produce(broker, "waiting", [b"first"])
    consumer = Consumer(
        {"bootstrap.servers": broker, "group.id": "none", "fetch.wait.max.ms": 20_000, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("waiting", 0, OFFSET_BEGINNING)])
    try:
        assert consumer.poll(PATIENCE_S).value() == b"first"
        produce(broker, "waiting", [b"second"])
        assert consumer.poll(PATIENCE_S / 2).value() == b"second"
    finally:
        consumer.close()


def test_all_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        assert produce(addresses["kafka"], "kept", [b"a", b"b", b"c"]) == [0, 1, 2]
    (tmp_path / "ready.json").unlink()
    with running(tmp_path) as addresses:
        assert [message.value() for message in consume(addresses["kafka"], "kept", 3)] == [b"a", b"b", b"c"]
        assert produce(addresses["kafka"], "kept", [b"d"]) == [3]
