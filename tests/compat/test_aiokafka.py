"""aiokafka without groups, against a broker process: every codec and acks level, idempotent and transactional
producers, look-up by time, large messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced

from tools.broker import running

PATIENCE_S = 30
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["kafka"]


async def read(broker: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All records that are visible to this isolation level now."""
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=broker, isolation_level=isolation) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        bodies: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.position(partition) < end:
                found = await consumer.getmany(partition, timeout_ms=100)
                bodies += [record.value for record in found.get(partition, [])]
        return bodies


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_any_codec_and_acks_level_are_read(broker: str, codec: str | None, acks: int | str) -> None:
    async def main() -> None:
        topic = f"codec-{codec}-{acks}"
        bodies = [b"%d " % number * 20 for number in range(200)]
        async with AIOKafkaProducer(bootstrap_servers=broker, acks=acks, compression_type=codec) as producer:
            await asyncio.gather(*[await producer.send(topic, body, partition=0) for body in bodies])
        found: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < len(bodies):  # with acks=0 the producer does not know when the records have arrived
                found = await read(broker, topic)
        assert found == bodies

    asyncio.run(main())


def test_an_idempotent_producer_keeps_its_order(broker: str) -> None:
    async def main() -> None:
        bodies = [b"%d" % number for number in range(2000)]
        async with AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True) as producer:
            await asyncio.gather(*[await producer.send("idempotent", body, partition=0) for body in bodies])
        assert await read(broker, "idempotent") == bodies

    asyncio.run(main())


def test_committed_records_are_read_and_aborted_ones_are_not(broker: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker, transactional_id="both-ways") as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait("both-ways", b"%d" % number, partition=0)
                await (producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction())
        assert await read(broker, "both-ways") == [b"1", b"2", b"4", b"5"]
        assert len(await read(broker, "both-ways", "read_uncommitted")) == 6

    asyncio.run(main())


def test_a_replaced_producer_is_fenced(broker: str) -> None:
    async def main() -> None:
        old = AIOKafkaProducer(bootstrap_servers=broker, transactional_id="fenced")
        await old.start()
        await old.begin_transaction()
        await old.send_and_wait("fenced", b"lost", partition=0)
        async with AIOKafkaProducer(bootstrap_servers=broker, transactional_id="fenced") as new:
            with pytest.raises(ProducerFenced):
                await old.commit_transaction()
            async with new.transaction():
                await new.send_and_wait("fenced", b"kept", partition=0)
        await old.stop()
        assert await read(broker, "fenced") == [b"kept"]

    asyncio.run(main())


def test_offsets_are_committed_with_the_transaction_or_not_at_all(broker: str) -> None:
    async def main() -> None:
        source = TopicPartition("source", 0)
        async with (
            AIOKafkaProducer(bootstrap_servers=broker, transactional_id="offsets") as producer,
            AIOKafkaConsumer(bootstrap_servers=broker, group_id="movers", enable_auto_commit=False) as consumer,
        ):
            consumer.assign([source])
            for is_commit, expected in ((False, None), (True, 7)):
                await producer.begin_transaction()
                await producer.send_and_wait("source", b"x", partition=0)
                await producer.send_offsets_to_transaction({source: 7}, "movers")
                await (producer.commit_transaction() if is_commit else producer.abort_transaction())
                assert await consumer.committed(source) == expected

    asyncio.run(main())


def test_a_look_up_by_time_finds_the_first_message_that_is_not_older(broker: str) -> None:
    async def main() -> None:
        partition = TopicPartition("times", 0)
        async with AIOKafkaProducer(bootstrap_servers=broker, compression_type="zstd", linger_ms=50) as producer:
            sent = [
                await producer.send("times", b"%d" % number, partition=0, timestamp_ms=FIRST_MS + 10 * number)
                for number in range(100)
            ]
            await asyncio.gather(*sent)
        async with AIOKafkaConsumer(bootstrap_servers=broker) as consumer:
            consumer.assign([partition])
            found = await consumer.offsets_for_times({partition: FIRST_MS + 415})
            assert found[partition].offset == 42
            consumer.seek(partition, 42)
            assert (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value == b"42"

    asyncio.run(main())


def test_a_large_message_passes_and_a_larger_one_is_refused(broker: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker, max_request_size=4_000_000) as producer:
            await producer.send_and_wait("large", b"x" * 1_000_000, partition=0)
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait("large", b"x" * 2_000_000, partition=0)
        assert await read(broker, "large") == [b"x" * 1_000_000]

    asyncio.run(main())
