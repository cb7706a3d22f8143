from __future__ import annotations

import struct

import pytest

from trimq.protocols.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from trimq.protocols.kafka.wire.codec import encode
from trimq.protocols.kafka.wire.fast_produce import ProduceRequestReader, write_produce_response, write_single_append
from trimq.protocols.kafka.wire.primitives import MalformedMessage

TOPIC_ID = bytes(range(16))


def sent(version: int, *topics: str, acks: int = -1) -> bytearray:
    """Request bytes after the correlation id, with two partitions in each topic."""
    partitions = [PartitionProduceData(0, b"first" * 50), PartitionProduceData(7, b"second" * 5000)]
    data = [TopicProduceData(name, TOPIC_ID, partitions) for name in topics]
    body = encode(ProduceRequest(acks=acks, timeout_ms=30, topic_data=data), version)
    return bytearray(b"\x00\x02id" + (b"\0" if version >= 9 else b"") + body)


def read(requests: ProduceRequestReader, data: bytearray, version: int) -> ProduceRequest:
    client_id, message = requests.read(data, 0, len(data), version)
    assert client_id == "id"
    return message


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12, 13])
@pytest.mark.parametrize("topics", [(), ("one",), ("one", "two")])
def test_every_topic_and_partition_is_read_the_first_time_and_the_next(version: int, topics: tuple[str, ...]) -> None:
    requests = ProduceRequestReader()
    for _ in range(2):
        message = read(requests, sent(version, *topics), version)
        assert (message.acks, message.timeout_ms, len(message.topic_data)) == (-1, 30, len(topics))
        for topic, name in zip(message.topic_data, topics, strict=True):
            assert (topic.name, topic.topic_id) == (("", TOPIC_ID) if version == 13 else (name, bytes(16)))
            assert [partition.index for partition in topic.partition_data] == [0, 7]
            assert [partition.records for partition in topic.partition_data] == [b"first" * 50, b"second" * 5000]


def test_a_request_that_differs_is_read_anew() -> None:
    requests = ProduceRequestReader()
    assert read(requests, sent(9, "one"), 9).topic_data[0].name == "one"
    assert read(requests, sent(9, "two"), 9).topic_data[0].name == "two"
    assert read(requests, sent(9, "two", acks=1), 9).acks == 1
    assert read(requests, sent(3, "two", acks=1), 3).topic_data[0].name == "two"


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_request_cut_anywhere_is_refused_with_any_bytes_after_it(version: int, seen_before: bool) -> None:
    data = [TopicProduceData("one", TOPIC_ID, [PartitionProduceData(0, b"batch")])]
    body = encode(ProduceRequest(acks=1, topic_data=data), version)
    whole = bytearray(b"\x00\x02id" + (b"\0" if version >= 9 else b"") + body)
    for end in range(len(whole)):
        requests = ProduceRequestReader()
        if seen_before:
            read(requests, whole, version)
        for rest in (whole[end:], bytes(100)):
            with pytest.raises((MalformedMessage, IndexError, struct.error)):
                requests.read(whole[:end] + rest, 0, end, version)


@pytest.mark.parametrize("version", [3, 5, 8, 9, 13])
def test_a_response_to_one_partition_is_as_short_as_it_can_be(version: int) -> None:
    partition = PartitionProduceResponse(index=1, error_code=0, base_offset=2**40, log_start_offset=3)
    topic = TopicProduceResponse(name="one", topic_id=TOPIC_ID, partition_responses=[partition])
    response = ProduceResponse(responses=[topic], throttle_time_ms=4)
    assert write_produce_response(response, version) == encode(response, version)


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("name", ["one", "ü" * 70, "t" * 249])
def test_the_frame_for_one_appended_batch_is_that_of_the_codec(version: int, name: str) -> None:
    partition = PartitionProduceResponse(
        index=1, error_code=0, base_offset=2**40, log_append_time_ms=7, log_start_offset=3
    )
    topic = TopicProduceResponse(name=name, topic_id=TOPIC_ID, partition_responses=[partition])
    body = encode(ProduceResponse(responses=[topic], throttle_time_ms=4), version)
    frame = struct.pack(">iix", len(body) + 5, 99) + body
    assert write_single_append(99, version, name, TOPIC_ID, 1, 2**40, 7, 3, 4) == frame


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_response_with_an_error_message_contains_it(version: int) -> None:
    partition = PartitionProduceResponse(index=1, error_code=87, error_message="there is no batch")
    response = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])
    assert b"there is no batch" in write_produce_response(response, version)
