from __future__ import annotations

import struct

import pytest
from protocols.kafka.frames import framed, request_frame

from trimq.protocols.kafka.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from trimq.protocols.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from trimq.protocols.kafka.messages.handshakes import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from trimq.protocols.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.wire.apis import UnsupportedRequest
from trimq.protocols.kafka.wire.codec import encode
from trimq.protocols.kafka.wire.connection import KafkaConnection, Request, encode_response
from trimq.protocols.kafka.wire.frames import InvalidFrame
from trimq.protocols.kafka.wire.primitives import MalformedMessage

PRODUCE = ProduceRequest(
    acks=1, timeout_ms=5, topic_data=[TopicProduceData("t", bytes(16), [PartitionProduceData(3, b"batch")])]
)


def received(data: bytes) -> KafkaConnection:
    connection = KafkaConnection()
    connection.receive(data)
    return connection


def only_request(data: bytes) -> Request:
    connection = received(data)
    request = connection.next_event()
    assert request is not None
    assert connection.next_event() is None
    return request


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("client_id", ["client", "", None, "größe"])
def test_a_request_has_its_header_and_its_body(version: int, client_id: str | None) -> None:
    message = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    request = only_request(request_frame(message, version, correlation_id=-5, client_id=client_id))
    assert (request.api_key, request.api_version, request.correlation_id) == (12, version, -5)
    assert request.client_id == client_id
    assert request.decode(HeartbeatRequest) == message


def test_tagged_fields_in_a_header_are_skipped() -> None:
    tags = bytes.fromhex("020001aa0500")
    message = HeartbeatRequest(group_id="g")
    assert only_request(request_frame(message, 4, tags=tags)).decode(HeartbeatRequest) == message
    data = request_frame(PRODUCE, 9, tags=tags)
    assert only_request(data).decode(ProduceRequest).topic_data[0].name == "t"


@pytest.mark.parametrize("version", [3, 9])
def test_a_negative_length_of_the_client_id_means_none(version: int) -> None:
    body = encode(PRODUCE, version)
    header = struct.pack(">hhih", 0, version, 1, -2) + (b"\0" if version >= 9 else b"")
    assert only_request(framed(header + body)).client_id is None


def test_each_request_has_the_client_id_that_it_came_with() -> None:
    names = ["a", "b", "b", None, "bb", "b"]
    connection = received(b"".join(request_frame(HeartbeatRequest(), 0, client_id=name) for name in names))
    assert [getattr(connection.next_event(), "client_id", "-") for _ in names] == names


def test_a_request_is_read_only_as_its_own_kind() -> None:
    with pytest.raises(TypeError, match="not a HeartbeatRequest"):
        only_request(request_frame(MetadataRequest(), 1)).decode(HeartbeatRequest)


def test_records_are_writable_views_and_can_be_taken_once() -> None:
    connection = received(request_frame(PRODUCE, 9))
    request = connection.next_event()
    assert request is not None
    records = request.decode(ProduceRequest).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"B"
    assert bytes(records) == b"Batch"
    with pytest.raises(RuntimeError, match="only once"):
        request.decode(ProduceRequest)


def test_a_waiting_request_does_not_hold_the_receive_buffer() -> None:
    connection = received(request_frame(PRODUCE, 9))
    request = connection.next_event()
    assert request is not None
    memory = connection._received.data
    with pytest.raises(BufferError):
        memory.append(0)
    request.decode(ProduceRequest)
    memory.append(0)


@pytest.mark.parametrize("version", [-1, 5, 127])
def test_an_unknown_version_of_api_versions_is_an_event_to_be_answered(version: int) -> None:
    frame = framed(struct.pack(">hhih", 18, version, 9, -1) + b"\0whatever")
    request = only_request(frame)
    assert not request.is_supported
    refused = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)])
    assert b"".join(encode_response(request, refused, version=0)) == bytes.fromhex(
        "0000001000000009002300000001001200000004"
    )


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (-1, 0), (1, 3), (1, 19), (0, 2), (0, 14), (3, -1)])
def test_an_unknown_api_or_version_is_refused(api_key: int, version: int) -> None:
    connection = received(framed(struct.pack(">hhih", api_key, version, 1, -1) + bytes(20)))
    with pytest.raises(UnsupportedRequest):
        connection.next_event()


@pytest.mark.parametrize(
    "frame",
    [
        framed(b"x"),
        framed(struct.pack(">hhi", 0, 3, 1)),
        framed(struct.pack(">hhi", 3, 1, 1)),
        framed(struct.pack(">hhih", 3, 1, 1, 10) + b"short"),
        framed(struct.pack(">hhih", 3, 9, 1, -1)),
        framed(struct.pack(">hhih", 0, 9, 1, -1)),
        framed(struct.pack(">hhih", 0, 3, 1, 10)),
    ],
)
def test_a_frame_too_short_for_its_header_is_refused(frame: bytes) -> None:
    connection = received(frame + bytes(100))
    with pytest.raises(MalformedMessage):
        connection.next_event()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01\x02\x00\x01"])
def test_other_protocols_are_refused(garbage: bytes) -> None:
    with pytest.raises(InvalidFrame):
        received(garbage).next_event()


def test_requests_before_a_bad_frame_are_delivered() -> None:
    connection = received(request_frame(HeartbeatRequest(), 0) + struct.pack(">i", -1))
    assert connection.next_event() is not None
    with pytest.raises(InvalidFrame):
        connection.next_event()


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_has_the_header_of_its_version(version: int) -> None:
    request = Request(12, version, 258, None)
    answer = b"".join(encode_response(request, HeartbeatResponse(error_code=25)))
    body = encode(HeartbeatResponse(error_code=25), version)
    tags = b"\0" if version == 4 else b""
    assert answer == framed(struct.pack(">i", 258) + tags + body)


def test_a_request_is_answered_only_by_its_own_kind() -> None:
    with pytest.raises(TypeError, match="cannot be answered with a HeartbeatResponse"):
        encode_response(Request(3, 1, 258, None), HeartbeatResponse())


def test_api_versions_is_answered_with_the_oldest_header() -> None:
    request = Request(18, 4, 258, None)
    answer = b"".join(encode_response(request, ApiVersionsResponse()))
    assert answer == framed(struct.pack(">i", 258) + encode(ApiVersionsResponse(), 4))


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_the_records_of_a_fetch_are_sent_as_they_are(version: int) -> None:
    records = memoryview(bytearray(10_000))
    partition = PartitionData(partition_index=1, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    buffers = encode_response(Request(1, version, 5, None), response)
    assert any(buffer is records for buffer in buffers)
    tags = b"\0" if version >= 12 else b""
    assert b"".join(buffers) == framed(struct.pack(">i", 5) + tags + encode(response, version))


def test_a_fetch_request_outlives_the_receive_buffer() -> None:
    connection = received(request_frame(FetchRequest(max_wait_ms=7), 12))
    request = connection.next_event()
    connection.receive(request_frame(FetchRequest(max_wait_ms=8), 12))
    assert request is not None
    assert request.decode(FetchRequest).max_wait_ms == 7


def test_an_api_versions_request_is_read_in_every_version() -> None:
    message = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    for version in range(5):
        request = only_request(request_frame(message, version))
        assert request.is_supported
        assert request.decode(ApiVersionsRequest).client_software_name == ("n" if version >= 3 else "")


def test_a_request_without_records_has_a_limit_of_its_own() -> None:
    small = request_frame(MetadataRequest(topics=[]), 12)
    limit = len(small) - 4
    connection = KafkaConnection(command_limit=limit)
    connection.receive(small + request_frame(PRODUCE, 9) + request_frame(HeartbeatRequest(group_id="g" * limit), 4))
    first, second = connection.next_event(), connection.next_event()
    assert first is not None
    assert second is not None
    assert len(second.decode(ProduceRequest).topic_data) == 1
    with pytest.raises(InvalidFrame, match=f"^Heartbeat of \\d+ bytes, but at most {limit} are allowed$"):
        connection.next_event()


def partitions(*counts: int) -> ProduceRequest:
    topics = [
        TopicProduceData("t", bytes(16), [PartitionProduceData(index, None) for index in range(count)])
        for count in counts
    ]
    return ProduceRequest(acks=1, timeout_ms=5, topic_data=topics)


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (partitions(101), 3, "partition_data"),
        (partitions(101), 9, "partition_data"),
        (partitions(50, 49), 3, "partition_data"),
        (partitions(50, 49), 9, "partition_data"),
        (partitions(*[0] * 101), 9, "topic_data"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 101), 9, "topics"),
        (
            FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()] * 50) for _ in range(2)]),
            12,
            "partitions",
        ),
    ],
)
def test_the_arrays_of_a_request_have_a_limit_together(message: RequestMessage, version: int, field: str) -> None:
    connection = KafkaConnection(element_limit=100)
    connection.receive(request_frame(message, version))

    def take() -> None:
        request = connection.next_event()
        assert request is not None
        request.decode(type(message))

    with pytest.raises(MalformedMessage, match=f"^{field} and the arrays before it have too many elements$"):
        take()


@pytest.mark.parametrize("message", [partitions(100), partitions(49, 49), MetadataRequest(topics=[])])
def test_a_request_within_the_limit_of_elements_is_read(message: RequestMessage) -> None:
    connection = KafkaConnection(element_limit=100)
    connection.receive(request_frame(message, 9))
    request = connection.next_event()
    assert request is not None
    assert request.decode(type(message)) is not None
