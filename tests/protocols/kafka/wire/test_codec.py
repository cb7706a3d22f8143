from __future__ import annotations

import struct

import pytest

from trimq.errors import ProtocolError
from trimq.protocols.kafka.messages.classic_groups import HeartbeatResponse
from trimq.protocols.kafka.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from trimq.protocols.kafka.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint
from trimq.protocols.kafka.messages.logs import ListOffsetsRequest
from trimq.protocols.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from trimq.protocols.kafka.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from trimq.protocols.kafka.wire.apis import UnsupportedRequest
from trimq.protocols.kafka.wire.codec import decode, encode, is_flexible, write_pieces
from trimq.protocols.kafka.wire.primitives import MalformedMessage


def test_a_message_has_the_bytes_that_kafka_gives_it() -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="ab")], allow_auto_topic_creation=True)
    assert encode(asked, 4) == bytes.fromhex("000000010002616201")
    assert encode(asked, 9) == bytes.fromhex("020361620001000000")


def test_a_field_that_a_version_lacks_is_not_written_and_reads_as_its_default() -> None:
    response = HeartbeatResponse(throttle_time_ms=9, error_code=27)
    assert encode(response, 0) == bytes.fromhex("001b")
    assert decode(HeartbeatResponse, 0, encode(response, 0)) == HeartbeatResponse(throttle_time_ms=0, error_code=27)


def test_tagged_fields_are_written_only_where_they_are_given() -> None:
    endpoint = NodeEndpoint(node_id=1, host="h", port=2)
    plain, given = FetchResponse(), FetchResponse(node_endpoints=[endpoint])
    assert encode(plain, 17)[-1:] == b"\0"
    assert len(encode(given, 17)) > len(encode(plain, 17))
    assert encode(given, 15) == encode(plain, 15)
    assert decode(FetchResponse, 17, encode(given, 17)) == given


def test_a_struct_in_a_tagged_field_is_written_and_read() -> None:
    partition = PartitionProduceResponse(index=1, current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4))
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    assert decode(ProduceResponse, 10, encode(response, 10)) == response


def test_a_null_struct_is_one_byte() -> None:
    response = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=1)
    assert encode(response, 0)[-2:] == b"\xff\0"
    assert decode(ConsumerGroupHeartbeatResponse, 0, encode(response, 0)).assignment is None


TOLERATED = [
    ("trailing bytes", MetadataRequest, 4, "0000000001aabb", MetadataRequest([], True)),
    ("trailing bytes, flexible", MetadataRequest, 9, "0100000000aabb", MetadataRequest([], False)),
    ("an array of length -2", MetadataRequest, 4, "fffffffe00", MetadataRequest(None, False)),
    ("an array of a negative varint", MetadataRequest, 9, "ffffffff0f00000000", MetadataRequest(None, False)),
    ("a boolean of 7", MetadataRequest, 4, "0000000007", MetadataRequest([], True)),
    ("an unknown tag", MetadataRequest, 9, "01000000016302aabb", MetadataRequest([], False)),
]


@pytest.mark.parametrize(("name", "kind", "version", "body", "expected"), TOLERATED, ids=[row[0] for row in TOLERATED])
def test_messages_that_kafka_tolerates_are_tolerated(
    name: str, kind: type[MetadataRequest], version: int, body: str, expected: MetadataRequest
) -> None:
    assert decode(kind, version, bytes.fromhex(body)) == expected


def test_text_that_is_not_utf8_is_read_with_replacements() -> None:
    asked = decode(MetadataRequest, 4, bytes.fromhex("00000001000361ff6200"))
    assert asked.topics == [MetadataRequestTopic(name="a\ufffdb")]


@pytest.mark.parametrize("tags", ["0200030361620003036364", "026301000003036364"])
def test_tags_may_come_twice_and_in_any_order(tags: str) -> None:
    body = encode(FetchRequest(), 12)[:-1] + bytes.fromhex(tags)
    assert decode(FetchRequest, 12, body).cluster_id == "cd"


REFUSED = [
    ("nothing", MetadataRequest, 4, ""),
    ("a cut number", MetadataRequest, 4, "0000"),
    ("a cut body", MetadataRequest, 4, "00000001000361"),
    ("a missing end", MetadataRequest, 9, "01000000"),
    ("null where it may not be", MetadataRequest, 0, "ffffffff"),
    ("a null name", MetadataRequest, 4, "00000001ffff00"),
    ("a null compact array", ListOffsetsRequest, 6, "ffffffff000000"),
    ("2^28 elements", MetadataRequest, 4, "10000000"),
    ("2^31-1 elements", MetadataRequest, 4, "7fffffff00"),
    ("2^32-2 elements", ListOffsetsRequest, 7, "ffffffff00feffffff0f00"),
    ("2^31-2 compact elements", MetadataRequest, 9, "ffffffff0700"),
    ("a varint of six bytes", MetadataRequest, 9, "80808080800100"),
    ("a string beyond the end", MetadataRequest, 4, "000000017fff6100"),
    ("a tag beyond the end", MetadataRequest, 9, "01000000016320aa"),
    ("more tags than bytes", MetadataRequest, 9, "010000007f"),
]


@pytest.mark.parametrize(("name", "kind", "version", "body"), REFUSED, ids=[row[0] for row in REFUSED])
def test_messages_for_which_kafka_closes_the_connection_are_refused(
    name: str, kind: type[MetadataRequest], version: int, body: str
) -> None:
    with pytest.raises(MalformedMessage):
        decode(kind, version, bytes.fromhex(body))


@pytest.mark.parametrize(("version", "count"), [(4, "10000000"), (9, "8180808001")])
def test_a_count_is_judged_before_the_first_element_is_read(version: int, count: str) -> None:
    body = bytes.fromhex(count) + encode(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), version)[1:]
    with pytest.raises(MalformedMessage, match="topics claims a length of 268435456, but only"):
        decode(MetadataRequest, version, body)


def test_a_string_longer_than_kafka_allows_is_refused() -> None:
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="a" * 32768)]), 9)
    with pytest.raises(MalformedMessage, match="more than 32767"):
        decode(MetadataRequest, 9, body)


def test_a_tagged_field_may_not_be_longer_than_its_size() -> None:
    body = encode(FetchRequest(), 12)[:-1] + bytes.fromhex("010001036162")
    with pytest.raises(MalformedMessage):
        decode(FetchRequest, 12, body)


def test_a_malformed_message_is_an_error_of_the_peer() -> None:
    assert issubclass(MalformedMessage, ProtocolError)
    assert issubclass(UnsupportedRequest, ProtocolError)


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_that_is_not_served_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedRequest, match="0 to 13"):
        decode(MetadataRequest, version, b"")
    with pytest.raises(UnsupportedRequest):
        encode(MetadataResponse(), version)


@pytest.mark.parametrize(
    "response",
    [
        HeartbeatResponse(error_code=2**15),
        HeartbeatResponse(error_code=None),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_named(response: HeartbeatResponse) -> None:
    with pytest.raises(ValueError, match="HeartbeatResponse version 1"):
        encode(response, 1)


def produce_request(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_writable_views_of_the_received_bytes(version: int) -> None:
    buffer = bytearray(encode(produce_request(b"batch"), version))
    records = decode(ProduceRequest, version, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:5] = b"PATCH"
    assert b"PATCH" in buffer


def test_all_but_records_outlives_the_buffer() -> None:
    buffer = bytearray(encode(produce_request(b"batch"), 9))
    message = decode(ProduceRequest, 9, buffer)
    buffer[:] = bytes(len(buffer))
    assert message.topic_data[0].name == "t"


def test_records_are_written_without_being_copied() -> None:
    records = bytearray(5000)
    pieces = write_pieces(produce_request(records), 9)  # type: ignore[arg-type]
    assert any(piece is records for piece in pieces)


@pytest.mark.parametrize(
    ("api_key", "version", "flexible"), [(0, 8, False), (0, 9, True), (17, 1, False), (60, 0, True)]
)
def test_flexible_versions_are_known(api_key: int, version: int, flexible: bool) -> None:
    assert is_flexible(api_key, version) is flexible


def test_reading_may_begin_anywhere() -> None:
    body = struct.pack(">ih", 5, 27)
    assert decode(HeartbeatResponse, 1, b"junk" + body, 4) == HeartbeatResponse(throttle_time_ms=5, error_code=27)
