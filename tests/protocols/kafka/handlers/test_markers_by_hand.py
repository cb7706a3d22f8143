"""Markers that an administrator writes, and partitions that he would place elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import TRANSACTIONAL_BIT, build_batch, check
from trimq.model import Record
from trimq.protocols.kafka.messages.logs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.transactions import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from trimq.protocols.kafka.names.codes import Code


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t")
    return desk


def open_transaction(desk: Desk) -> Any:
    """A producer with one record in an open transaction."""
    started = desk.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
    plain = from_records([Record(b"open", timestamp_ms=1)])
    header = check(plain)._replace(
        attributes=TRANSACTIONAL_BIT,
        producer_id=started.producer_id,
        producer_epoch=started.producer_epoch,
        base_sequence=0,
    )
    data = PartitionProduceData(index=0, records=build_batch(header, plain[61:]))
    request = ProduceRequest(
        transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    assert desk.ask(request, 12).responses[0].partition_responses[0].error_code == Code.NONE
    return started


def write_marker(
    desk: Desk, producer: Any, epoch: int, topic: str = "t", indexes: tuple[int, ...] = (0,), coordinator_epoch: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
    )
    found = desk.ask(WriteTxnMarkersRequest(markers=[marker])).markers[0]
    assert found.producer_id == producer.producer_id
    return found.topics[0].partitions[0].error_code


def test_an_administrator_ends_open_records(desk: Desk) -> None:
    producer = open_transaction(desk)
    stream = desk.core.broker.topics.get(desk.caller, "t").stream(0)
    assert stream.stable_end == 0
    assert write_marker(desk, producer, producer.producer_epoch, "missing") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert write_marker(desk, producer, producer.producer_epoch - 1) == Code.INVALID_PRODUCER_EPOCH
    assert stream.stable_end == 0
    assert write_marker(desk, producer, producer.producer_epoch) == Code.NONE
    assert (stream.stable_end, stream.end) == (2, 2)
    assert [each.producer_id for each in stream.aborted(0, 2)] == [producer.producer_id]


def test_a_marker_has_the_epoch_of_its_coordinator_which_fences_older_ones(desk: Desk) -> None:
    producer = open_transaction(desk)
    assert write_marker(desk, producer, producer.producer_epoch, coordinator_epoch=5) == Code.NONE
    asked = TopicRequest(name="t", partition_indexes=[0])
    (topic,) = desk.ask(DescribeProducersRequest(topics=[asked])).topics
    assert topic.partitions[0].active_producers[0].coordinator_epoch == 5
    epoch = producer.producer_epoch
    assert write_marker(desk, producer, epoch, coordinator_epoch=4) == Code.TRANSACTION_COORDINATOR_FENCED


def test_a_partition_that_is_listed_twice_gets_one_marker(desk: Desk) -> None:
    producer = open_transaction(desk)
    assert write_marker(desk, producer, producer.producer_epoch, indexes=(0, 0)) == Code.NONE
    assert desk.core.broker.topics.get(desk.caller, "t").stream(0).end == 2


def test_a_partition_stays_in_the_one_folder(desk: Desk) -> None:
    def place(path: str, topic: str, index: int) -> int:
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
        found = desk.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])).results[0]
        assert found.topic_name == topic
        return found.partitions[0].error_code

    assert place(desk.settings.data_dir, "t", 0) == Code.NONE
    assert place("/elsewhere", "t", 0) == Code.LOG_DIR_NOT_FOUND
    assert place("/elsewhere", "t" * 213, 0) == Code.LOG_DIR_NOT_FOUND
    assert place("/elsewhere", "t" * 214, 0) == Code.INVALID_TOPIC
    assert place(desk.settings.data_dir, "t", 7) == Code.UNKNOWN_TOPIC_OR_PARTITION
