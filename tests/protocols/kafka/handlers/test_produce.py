"""Produce: accepted and refused requests, and the time of the response."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.frames import request_frame

from trimq.errors import ProtocolError
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import HEADER_BYTES, TRANSACTIONAL_BIT, build_batch, read_header
from trimq.model import SYSTEM, Record
from trimq.protocols.kafka.messages.logs import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.names.codes import Code

FIRST_BY_ID = 13


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.create("t", 2)
    return desk


def batch(body: bytes = b"x") -> bytearray:
    return bytearray(from_records([Record(body, timestamp_ms=1)]))


def data(records: bytes | bytearray | None, partition: int = 0, topic: str = "t", id: bytes = bytes(16)) -> Any:
    one = PartitionProduceData(index=partition, records=records)
    return TopicProduceData(name=topic, topic_id=id, partition_data=[one])


def ask(desk: Desk, *topics: TopicProduceData, acks: int = -1, version: int = 9) -> list[tuple[int, int]]:
    """Error code and base offset of every partition, in the order of the response."""
    response = desk.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=list(topics)), version)
    return [
        (partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    ]


def end(desk: Desk, partition: int = 0) -> int:
    return desk.core.broker.topics.get(SYSTEM, "t").stream(partition).end


def refused(desk: Desk) -> dict[str, int]:
    family = desk._conversation._context.counts._refused_writes
    return {reason: counter.value for (_, reason), counter in family.members.items()}


def bend(records: bytearray, position: int) -> bytearray:
    records[position] ^= 1
    return records


def with_length(records: bytearray, length: int) -> bytearray:
    records[8:12] = length.to_bytes(4, "big", signed=True)
    return records


CRC = 17


@pytest.mark.parametrize(
    ("limits", "records"),
    [
        ({"batch_expansion_bytes": 10_000}, [Record(bytes(20_000), timestamp_ms=1)]),
        ({"records_per_batch": 100}, [Record(b"", timestamp_ms=1)] * 101),
        ({"records_per_batch": 100}, [Record(b"", timestamp_ms=1, headers=(("h", b""),) * 200)]),
    ],
)
def test_a_batch_that_takes_long_to_look_through_is_too_large(limits: dict[str, int], records: list[Record]) -> None:
    desk = Desk(limits=limits)
    desk.create("t")
    sent = bytearray(from_records(records, codec=Codec.ZSTD))
    response = desk.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data(sent)]), 9)
    (partition,) = response.responses[0].partition_responses
    assert partition.error_code == Code.MESSAGE_TOO_LARGE
    assert str(next(iter(limits.values()))) in partition.error_message
    assert ask(desk, data(batch())) == [(Code.NONE, 0)]


@pytest.mark.parametrize(
    ("topics", "acks", "code", "reason"),
    [
        ([data(batch(), topic="none")], -1, Code.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopic"),
        ([data(batch(), topic="")], -1, Code.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopic"),
        ([data(batch(), topic="a b")], -1, Code.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopic"),
        ([data(batch(), partition=2)], -1, Code.UNKNOWN_TOPIC_OR_PARTITION, "UnknownStream"),
        ([data(batch(), partition=-1)], -1, Code.UNKNOWN_TOPIC_OR_PARTITION, "UnknownStream"),
        ([data(batch(), topic="none")], 5, Code.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopic"),
        ([data(batch())], 2, Code.INVALID_REQUIRED_ACKS, None),
        ([data(batch())], -2, Code.INVALID_REQUIRED_ACKS, None),
        ([data(None)], -1, Code.INVALID_RECORD, None),
        ([data(b"")], -1, Code.INVALID_RECORD, None),
        ([data(b"short")], -1, Code.INVALID_RECORD, "TruncatedBatch"),
        ([data(batch()[:-1])], -1, Code.INVALID_RECORD, "TruncatedBatch"),
        ([data(bend(batch(), CRC))], -1, Code.CORRUPT_MESSAGE, "BadChecksum"),
        ([data(bend(batch(), len(batch()) - 1))], -1, Code.CORRUPT_MESSAGE, "BadChecksum"),
        ([data(with_length(batch(), 20))], -1, Code.CORRUPT_MESSAGE, "BadLength"),
        ([data(with_length(batch(), -1))], -1, Code.CORRUPT_MESSAGE, "BadFraming"),
        ([data(batch(b"x" * 2_000_000))], -1, Code.MESSAGE_TOO_LARGE, "MessageTooLong"),
    ],
)
def test_an_invalid_batch_is_refused_with_its_code_and_counted(
    desk: Desk, topics: list[TopicProduceData], acks: int, code: Code, reason: str | None
) -> None:
    before = (end(desk, 0), end(desk, 1))
    assert ask(desk, *topics, acks=acks) == [(code, -1)]
    assert (end(desk, 0), end(desk, 1)) == before
    assert refused(desk) == ({reason: 1} if reason else {})


def test_a_partition_that_is_refused_does_not_touch_the_others(desk: Desk) -> None:
    partitions = [PartitionProduceData(index=index, records=batch()) for index in (0, 7, 1)]
    topics = [TopicProduceData(name="t", partition_data=partitions), data(batch(), topic="none")]
    unknown = (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert ask(desk, *topics) == [(0, 0), unknown, (0, 0), unknown]
    assert (end(desk, 0), end(desk, 1)) == (1, 1)


def test_a_partition_that_is_named_twice_gets_the_last_batch_and_the_refusal_of_any(desk: Desk) -> None:
    assert ask(desk, data(batch(b"first")), data(batch(b"second"))) == [(0, 0)]
    assert bytes(desk.fetch("t").responses[0].partitions[0].records).find(b"second") > 0
    assert end(desk) == 1
    assert ask(desk, data(batch()), data(b"short")) == [(Code.INVALID_RECORD, -1)]
    assert end(desk) == 2
    assert ask(desk, data(batch()), data(bend(batch(), CRC))) == [(Code.CORRUPT_MESSAGE, -1)]
    assert end(desk) == 2


def test_a_batch_without_framing_refuses_the_whole_request(desk: Desk) -> None:
    unframed = data(with_length(batch(), 1), topic="none")
    assert ask(desk, data(batch()), unframed) == [(Code.CORRUPT_MESSAGE, -1)] * 2
    assert ask(desk, unframed) == [(Code.CORRUPT_MESSAGE, -1)]
    assert end(desk) == 0


def test_a_transactional_batch_without_transactional_id_refuses_the_whole_request(desk: Desk) -> None:
    header = read_header(batch())
    transactional = build_batch(header._replace(attributes=TRANSACTIONAL_BIT), batch()[HEADER_BYTES:])
    denied = (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert ask(desk, data(batch()), data(transactional, partition=1)) == [denied] * 2
    assert ask(desk, data(transactional, topic="none")) == [denied]
    assert end(desk) == 0


def test_faults_of_the_framing_precede_invalid_acks_and_those_of_the_content_follow(desk: Desk) -> None:
    assert ask(desk, data(batch()[:-1]), acks=2) == [(Code.INVALID_RECORD, -1)]
    assert ask(desk, data(bend(batch(), CRC)), acks=2) == [(Code.INVALID_REQUIRED_ACKS, -1)]


@pytest.mark.parametrize(
    ("records", "code", "start"),
    [
        (bend(batch(), CRC), Code.CORRUPT_MESSAGE, -1),
        (batch(b"x" * 2_000_000), Code.MESSAGE_TOO_LARGE, -1),
        (bend(batch(b"x" * 2_000_000), CRC), Code.MESSAGE_TOO_LARGE, -1),
        (b"short", Code.INVALID_RECORD, -1),
        (bend(batch(), 7), Code.INVALID_RECORD, 1),
        (bend(batch(b"x" * 2_000_000), 7), Code.INVALID_RECORD, 1),
    ],
)
def test_a_refusal_names_the_start_of_the_partition_as_kafka_does(
    desk: Desk, records: bytearray, code: Code, start: int
) -> None:
    ask(desk, data(batch()))
    deleted = DeleteRecordsPartition(partition_index=0, offset=1)
    desk.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[deleted])]))
    refusal = desk.produce("t", records)
    assert (refusal.error_code, refusal.log_start_offset) == (code, start)


def test_topics_are_found_by_id_from_version_13_on(desk: Desk) -> None:
    id = desk.core.broker.topics.get(SYSTEM, "t").id.bytes
    assert ask(desk, data(batch(), topic="", id=id), version=FIRST_BY_ID) == [(0, 0)]
    for unknown in (b"\x07" * 16, bytes(16)):
        found = ask(desk, data(batch(), topic="", id=unknown), version=FIRST_BY_ID)
        assert found == [(Code.UNKNOWN_TOPIC_ID, -1)]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_is_answered(desk: Desk, version: int) -> None:
    assert ask(desk, data(batch()), version=version) == [(0, 0)]


class Sent:
    """A request with a reply that the test takes itself."""

    def __init__(self, desk: Desk, acks: int, records: bytearray, topic: str = "t") -> None:
        message = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data(records, topic=topic)])
        desk._receive(request_frame(message, 9))
        event = desk._conversation.next_event()
        assert event is not None
        self.reply = desk._conversation.handle(event)


@pytest.mark.parametrize("acks", [1, -1])
def test_an_answer_waits_for_the_disk(desk: Desk, acks: int) -> None:
    sent = Sent(desk, acks, batch())
    passes = desk.runner.passes
    assert sent.reply is not None
    assert not sent.reply.is_ready(passes.written, passes.durable)
    desk.runner.end_pass()
    assert not sent.reply.is_ready(passes.written, passes.durable)
    desk.runner.settle()
    assert sent.reply.is_ready(passes.written, passes.durable)


def test_answers_after_a_request_without_response_wait_until_its_records_can_be_read(desk: Desk) -> None:
    sent = Sent(desk, 0, batch())
    passes = desk.runner.passes
    assert end(desk) == 1
    assert sent.reply is not None
    assert not sent.reply.is_ready(passes.written, passes.durable)
    desk.runner.settle()
    assert sent.reply.is_ready(passes.written, passes.durable)
    assert list(sent.reply.take()) == []


def test_an_unknown_codec_refuses_the_request_of_an_old_client_only_for_a_partition_that_exists(desk: Desk) -> None:
    def unknown_codec() -> bytearray:
        header = read_header(batch())
        return bytearray(build_batch(header._replace(attributes=7), batch()[HEADER_BYTES:]))

    good, missing = data(batch()), data(unknown_codec(), topic="none")
    assert ask(desk, missing, good, version=5) == [(Code.UNKNOWN_TOPIC_OR_PARTITION, -1), (Code.NONE, 0)]
    unknown, good = data(unknown_codec(), 1), data(batch())
    assert ask(desk, good, unknown, version=5) == [(Code.UNSUPPORTED_COMPRESSION_TYPE, -1)] * 2
    unknown = data(unknown_codec(), topic="__transaction_state")
    assert ask(desk, good, unknown, version=5) == [(Code.UNSUPPORTED_COMPRESSION_TYPE, -1)] * 2


@pytest.mark.parametrize(("records", "topic"), [(bend(batch(), CRC), "t"), (batch(), "none")])
def test_an_error_without_response_closes_the_connection(desk: Desk, records: bytearray, topic: str) -> None:
    with pytest.raises(ProtocolError, match="with acks=0 failed"):
        Sent(desk, 0, records, topic)


def test_a_pass_that_could_not_be_written_is_refused_and_counted(desk: Desk) -> None:
    desk.fail_writes()
    assert ask(desk, data(batch())) == [(Code.KAFKA_STORAGE_ERROR, -1)]
    assert refused(desk) == {"WriteFailed": 1}
    desk.files.before = lambda operation, name: None
    assert ask(desk, data(batch())) == [(0, 0)]


def test_a_broker_that_stops_takes_nothing_more(desk: Desk) -> None:
    desk.core.stop_writes()
    assert ask(desk, data(batch())) == [(Code.NOT_LEADER_OR_FOLLOWER, -1)]
    assert refused(desk) == {"NotRunning": 1}


def test_a_disk_that_is_nearly_full_refuses_and_takes_again_when_there_is_room() -> None:
    desk = Desk(storage={"low_water_bytes": 1 << 62})
    assert desk.create("t").error_code == Code.KAFKA_STORAGE_ERROR
    assert "writes are accepted again at" in str(desk.create("t").error_message)


def test_nothing_is_kept_of_a_request_but_its_answer(desk: Desk) -> None:
    """A reply that waits for the disk must not hold the connection's receive buffer, or each request would allocate a
    new one."""
    sent = [Sent(desk, -1, batch(b"x" * 500)) for _ in range(50)]
    desk.runner.end_pass()
    received = desk._conversation._connection._received
    assert received._has_no_views()
    assert all(each.reply is not None for each in sent)


def test_every_bad_record_of_a_batch_is_named(desk: Desk) -> None:
    desk.create("compacted", cleanup_policy="compact")
    records = [Record(b"v", None if n % 10 == 0 else b"k", timestamp_ms=1) for n in range(100)]
    answer = desk.produce("compacted", bytearray(from_records(records)))
    assert answer.error_code == Code.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == list(range(0, 100, 10))
    assert all("no key" in error.batch_index_error_message for error in answer.record_errors)
