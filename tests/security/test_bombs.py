"""Attacks t6 and t7: batches that expand, or have many records, and searches in them, must not keep others waiting."""

from __future__ import annotations

import pytest
from security.attacked import kafka, others_are_served

from tools.broker import running
from trimq.formats.kafka_batch.builder import encode_record, from_records
from trimq.formats.kafka_batch.compression import Codec, compress
from trimq.formats.kafka_batch.header import BatchHeader, build_batch
from trimq.model import Record
from trimq.protocols.kafka.messages.logs import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreateTopicsRequest

MIB = 1 << 20
BATCHES = 60
NOW_MS = 1_700_000_000_000


def zeros(size: int, codec: Codec) -> bytearray:
    """One record of zeros, compressed."""
    return from_records([Record(bytes(size), timestamp_ms=NOW_MS)], codec=codec)


def many_records(count: int) -> bytearray:
    """Records of different sizes, which take the longest to check."""
    data = b"".join(encode_record(n % 50, n, None, b"x" * (n % 3)) for n in range(count))
    header = BatchHeader(0, 0, -1, 2, 0, Codec.ZSTD, count - 1, NOW_MS, NOW_MS + 49, -1, -1, -1, count)
    return build_batch(header, compress(Codec.ZSTD, data))


def produce(*batches: bytearray) -> ProduceRequest:
    sent = [PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=sent)])


PARTITIONS = 300
TOPIC = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)])


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        with kafka(addresses["kafka"]) as ask:
            assert ask(TOPIC, 5).topics[0].error_code == 0
        yield addresses


@pytest.mark.parametrize(
    "batch",
    [
        zeros(127 * MIB, Codec.ZSTD),
        zeros(60 * MIB, Codec.GZIP),
        zeros(60 * MIB, Codec.LZ4),
        zeros(20 * MIB, Codec.SNAPPY),
        many_records(499_000),
    ],
    ids=["zstd", "gzip", "lz4", "snappy", "records"],
)
def test_many_large_batches_in_one_request(addresses: dict[str, str], batch: bytearray) -> None:
    def attack() -> None:
        with kafka(addresses["kafka"]) as ask:
            response = ask(produce(*[batch] * BATCHES), 9)
            codes = [each.error_code for each in response.responses[0].partition_responses]
            assert codes[0] == 0
            assert codes[-1] == 10  # MESSAGE_TOO_LARGE

    others_are_served(addresses["http"], attack)


def test_many_small_bombs_in_one_request(addresses: dict[str, str]) -> None:
    def attack() -> None:
        with kafka(addresses["kafka"]) as ask:
            ask(produce(*[zeros(MIB, Codec.ZSTD)] * PARTITIONS), 9)

    others_are_served(addresses["http"], attack)


def test_a_search_by_time_in_a_large_batch(addresses: dict[str, str]) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-3)
    latest = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])

    def attack() -> None:
        with kafka(addresses["kafka"]) as ask:
            assert ask(produce(many_records(499_000)), 9).responses[0].partition_responses[0].error_code == 0
            assert ask(latest, 8).topics[0].partitions[0].timestamp == NOW_MS + 49

    others_are_served(addresses["http"], attack)
