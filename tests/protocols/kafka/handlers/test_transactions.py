"""Producers and transactions, request by request: ids and epochs, error codes by version, isolation levels, offsets."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import NOW_MS, Desk

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from trimq.protocols.kafka.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from trimq.protocols.kafka.messages.logs import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TopicRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from trimq.protocols.kafka.names.codes import Code

TOPIC = "orders"


class Client:
    """One transactional producer and its requests."""

    def __init__(self, desk: Desk, name: str = "t", version: int = 4) -> None:
        self.desk, self.name = desk, name
        response = self.init(version)
        assert response.error_code == Code.NONE
        self.id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0

    def init(self, version: int = 4, timeout_ms: int = 60_000, **claimed: int) -> Any:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms, **claimed)
        return self.desk.ask(request, version)

    def add(self, *partitions: int, version: int = 3, topic: str = TOPIC) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (found,) = self.desk.ask(request, version).results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    def send(self, partition: int = 0, version: int = 9, name: str | None = "t", transactional: bool = True) -> Any:
        batch = from_records(
            [Record(b"x", timestamp_ms=NOW_MS)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
        )
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[data])
        answer = self.desk.ask(request, version).responses[0].partition_responses[0]
        self.sequence += answer.error_code == Code.NONE
        return answer

    def end(self, committed: bool = True, version: int = 3) -> Any:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        return self.desk.ask(request, version)

    def add_group(self, group: str = "g", version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return int(self.desk.ask(request, version).error_code)

    def commit_offset(self, offset: int, version: int = 3, **fields: Any) -> int:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=fields.pop("partition", 0),
            committed_offset=offset,
            committed_metadata=fields.pop("metadata", "m"),
        )
        topic = TxnOffsetCommitRequestTopic(name=fields.pop("topic", TOPIC), partitions=[partition])
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=fields.pop("group", "g"),
            producer_id=self.id,
            producer_epoch=fields.pop("epoch", self.epoch),
            topics=[topic],
            **fields,
        )
        return int(self.desk.ask(request, version).topics[0].partitions[0].error_code)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create(TOPIC, 2)
    return desk


@pytest.fixture
def client(desk: Desk) -> Client:
    return Client(desk)


def fetch(desk: Desk, offset: int = 0, isolation_level: int = 1) -> Any:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[asked])]
    return desk.ask(FetchRequest(isolation_level=isolation_level, topics=topics), 12).responses[0].partitions[0]


def latest(desk: Desk, isolation_level: int) -> int:
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    asked = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    return int(desk.ask(asked, 5).topics[0].partitions[0].offset)


def committed(desk: Desk, stable: bool = True) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    found = desk.ask(OffsetFetchRequest(groups=groups, require_stable=stable), 8).groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


# -- ids and epochs


@pytest.mark.parametrize("version", range(6))
def test_a_plain_producer_gets_an_id_of_its_own(desk: Desk, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    first, second = desk.ask(request, version), desk.ask(request, version)
    assert (first.error_code, first.producer_epoch) == (Code.NONE, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize(
    ("fields", "version", "code"),
    [
        ({"timeout_ms": 0}, 4, Code.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, 4, Code.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, 4, Code.INVALID_REQUEST),
        ({"producer_epoch": 5}, 4, Code.INVALID_REQUEST),
        ({"producer_id": 999, "producer_epoch": 0}, 4, Code.PRODUCER_FENCED),
        ({"producer_id": 999, "producer_epoch": 0}, 3, Code.INVALID_PRODUCER_EPOCH),
    ],
)
def test_an_init_is_refused_with_the_code_of_its_version(
    client: Client, fields: dict[str, int], version: int, code: Code
) -> None:
    response = client.init(version, **fields)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


def test_a_second_init_raises_the_epoch(client: Client) -> None:
    assert client.init().producer_epoch == client.epoch + 1


def test_an_init_during_a_transaction_aborts_it_first(desk: Desk, client: Client) -> None:
    client.add(0)
    client.send()
    assert client.init().error_code == Code.CONCURRENT_TRANSACTIONS
    assert client.init().producer_epoch == client.epoch + 2
    assert client.send().error_code == Code.INVALID_PRODUCER_EPOCH
    assert len(fetch(desk).aborted_transactions) == 1


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_gets_the_code_of_its_version(client: Client, version: int) -> None:
    client.init()
    expected = Code.PRODUCER_FENCED if version >= 2 else Code.INVALID_PRODUCER_EPOCH
    assert client.end(version=version).error_code == expected
    assert client.add(0, version=min(version, 3)) == [expected]
    assert client.add_group(version=min(version, 4)) == expected


def test_a_disk_that_takes_nothing_is_a_coordinator_that_is_not_available(desk: Desk, client: Client) -> None:
    client.add(0)
    desk.fail_writes()
    assert client.init().error_code == Code.CONCURRENT_TRANSACTIONS
    assert client.add(0, 1) == [Code.COORDINATOR_NOT_AVAILABLE] * 2
    assert client.end().error_code == Code.COORDINATOR_NOT_AVAILABLE


# -- life cycle of a transaction


def test_one_unknown_partition_keeps_the_others_from_being_added(client: Client) -> None:
    assert client.add(0, 77) == [Code.OPERATION_NOT_ATTEMPTED, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.send().error_code == Code.INVALID_TXN_STATE


def test_a_batch_needs_its_transaction(client: Client) -> None:
    assert client.send().error_code == Code.INVALID_TXN_STATE
    assert client.send(name=None).error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    client.add(0)
    assert client.send().error_code == Code.NONE
    assert client.send(1).error_code == Code.INVALID_TXN_STATE
    assert client.send(transactional=False, name=None).error_code == Code.INVALID_TXN_STATE


def test_from_version_12_on_a_batch_adds_its_partition(desk: Desk, client: Client) -> None:
    assert client.send(version=12).base_offset == 0
    answer = client.end(version=5)
    assert (answer.error_code, answer.producer_epoch) == (Code.NONE, client.epoch + 1)
    again = client.end(version=5)
    assert (again.error_code, again.producer_epoch) == (Code.NONE, client.epoch + 1)
    assert fetch(desk).last_stable_offset == 2


def test_a_batch_is_refused_if_its_transaction_could_not_be_written(desk: Desk, client: Client) -> None:
    def refuse(operation: str, name: str) -> None:
        if operation == "write" and "transactions" in name:
            raise OSError(28, "full")

    desk.files.before = refuse
    assert client.send(version=12).error_code == Code.KAFKA_STORAGE_ERROR
    desk.files.before = lambda operation, name: None
    # With the same sequence number, a retry would be taken for the batch of the transaction that is aborted by now.
    assert client.send(version=12).error_code == Code.INVALID_PRODUCER_EPOCH


def test_a_first_batch_that_joins_has_sequence_0(client: Client) -> None:
    client.sequence = 5
    assert client.send(version=12).error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_may_be_asked_for_again(client: Client, is_commit: bool) -> None:
    assert client.end(is_commit).error_code == Code.INVALID_TXN_STATE
    client.add(0)
    assert [client.end(is_commit).error_code for _ in range(2)] == [Code.NONE] * 2
    assert client.end(not is_commit).error_code == Code.INVALID_TXN_STATE


def test_readers_of_committed_records_stop_at_the_open_transaction(desk: Desk, client: Client) -> None:
    client.add(0)
    client.send()
    found = fetch(desk)
    assert (found.high_watermark, found.last_stable_offset, found.records) == (1, 0, b"")
    assert (latest(desk, 0), latest(desk, 1)) == (1, 0)
    client.end(False)
    found = fetch(desk)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    assert aborted == [(client.id, 0)]
    assert (latest(desk, 0), latest(desk, 1)) == (2, 2)
    assert fetch(desk, isolation_level=0).aborted_transactions is None
    assert fetch(desk, 2).aborted_transactions == []


# -- offsets


def test_offsets_are_unstable_until_the_transaction_ends(desk: Desk, client: Client) -> None:
    assert client.commit_offset(7) == Code.INVALID_TXN_STATE
    assert client.add_group() == Code.NONE
    assert client.commit_offset(7) == Code.NONE
    assert committed(desk) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    assert committed(desk, stable=False) == (-1, Code.NONE)
    client.end()
    assert committed(desk) == (7, Code.NONE)


def test_from_version_5_on_the_group_need_not_be_added(desk: Desk, client: Client) -> None:
    assert client.commit_offset(7, version=5) == Code.NONE
    client.end(version=5)
    assert committed(desk) == (7, Code.NONE)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": -1}, Code.INVALID_PRODUCER_EPOCH),
        ({"epoch": 9}, Code.INVALID_PRODUCER_EPOCH),
        ({"topic": "missing"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 9}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 4097}, Code.OFFSET_METADATA_TOO_LARGE),
        ({"group": ""}, Code.INVALID_GROUP_ID),
        ({"generation_id": 1, "member_id": "nobody"}, Code.ILLEGAL_GENERATION),
    ],
)
def test_an_offset_that_cannot_be_committed_is_refused(client: Client, fields: dict[str, Any], code: Code) -> None:
    client.add_group()
    assert client.commit_offset(7, **fields) == code


# -- descriptions


def test_transactions_are_described_and_listed(desk: Desk, client: Client) -> None:
    client.add(1, 0)
    client.send()
    (found,) = desk.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert (found.transaction_state, found.transaction_start_time_ms) == ("Ongoing", NOW_MS)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, [0, 1])]
    (producers,) = desk.ask(DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])).topics
    (producer,) = producers.partitions[0].active_producers
    assert (producer.producer_id, producer.last_sequence, producer.current_txn_start_offset) == (client.id, 0, 0)
    client.end()
    (found,) = desk.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert (found.transaction_state, found.topics) == ("CompleteCommit", [])


@pytest.mark.parametrize(
    ("filters", "names", "unknown"),
    [
        ({}, ["t"], []),
        ({"state_filters": ["Empty"]}, ["t"], []),
        ({"state_filters": ["Ongoing"]}, [], []),
        ({"state_filters": ["Dead"]}, [], []),
        ({"state_filters": ["Nope"]}, [], ["Nope"]),
        ({"producer_id_filters": [4242]}, [], []),
        ({"duration_filter": 10**9}, ["t"], []),  # as in Kafka: it has not begun
        ({"duration_filter": NOW_MS + 1}, [], []),
        ({"transactional_id_pattern": "[s-u]"}, ["t"], []),
        ({"transactional_id_pattern": "."}, ["t"], []),
        ({"transactional_id_pattern": "tt"}, [], []),
    ],
)
def test_transactions_are_filtered(
    desk: Desk, client: Client, filters: dict[str, Any], names: list[str], unknown: list[str]
) -> None:
    answer = desk.ask(ListTransactionsRequest(**filters))
    assert [each.transactional_id for each in answer.transaction_states] == names
    assert answer.unknown_state_filters == unknown


def test_a_pattern_that_means_harm_costs_no_more_than_another(desk: Desk) -> None:
    """A backtracking engine would try 2 ** 60 ways to match."""
    Client(desk, "a" * 60)
    answer = desk.ask(ListTransactionsRequest(transactional_id_pattern="(a+)+b"))
    assert (answer.error_code, answer.transaction_states) == (Code.NONE, [])
    answer = desk.ask(ListTransactionsRequest(transactional_id_pattern="((a+)+)+"))
    assert [each.transactional_id for each in answer.transaction_states] == ["a" * 60]


def test_a_pattern_that_is_none_is_refused(desk: Desk) -> None:
    answer = desk.ask(ListTransactionsRequest(transactional_id_pattern="("))
    assert answer.error_code == Code.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(("name", "code"), [("", Code.INVALID_REQUEST), ("nobody", Code.TRANSACTIONAL_ID_NOT_FOUND)])
def test_a_transaction_that_is_not_there_is_not_described(desk: Desk, name: str, code: Code) -> None:
    (found,) = desk.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    assert (found.error_code, found.transaction_state) == (code, "")


def test_the_offsets_partition_of_a_group_is_part_of_its_transaction(desk: Desk, client: Client) -> None:
    for group in ("g", "orders-of-today"):
        assert client.add_group(group) == Code.NONE
    (found,) = desk.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    # "g".hashCode() is 103; that of the other one is negative in Java.
    (topic,) = found.topics
    assert topic.topic == "__consumer_offsets"
    assert 103 % 50 in topic.partitions
    assert all(0 <= index < 50 for index in topic.partitions)


def test_a_batch_after_a_refused_one_of_its_transaction_waits_for_it(desk: Desk, client: Client) -> None:
    assert client.send().error_code == Code.INVALID_TXN_STATE
    assert client.add(0) == [Code.NONE]
    client.sequence = 1
    assert client.send().error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    client.sequence = 0
    assert client.send().error_code == Code.NONE
    assert client.send().error_code == Code.NONE


def test_clients_that_know_it_hear_that_the_transaction_can_be_aborted(client: Client) -> None:
    assert client.send(version=11).error_code == Code.TRANSACTION_ABORTABLE
    assert client.commit_offset(1, version=4) == Code.TRANSACTION_ABORTABLE
    assert client.commit_offset(1, version=3) == Code.INVALID_TXN_STATE
