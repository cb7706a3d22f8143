"""Hand-written fast paths give the same results as the compiled codec."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from protocols.kafka.frames import request_frame
from protocols.kafka.strategies import comparable, examples, restricted, structs

from trimq.protocols.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from trimq.protocols.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from trimq.protocols.kafka.wire.codec import decode, encode
from trimq.protocols.kafka.wire.connection import KafkaConnection, Request, encode_response
from trimq.protocols.kafka.wire.fast_fetch import write_fetch_response
from trimq.protocols.kafka.wire.fast_produce import ProduceRequestReader, write_produce_response
from trimq.protocols.kafka.wire.primitives import MalformedMessage

produce_versions = st.integers(3, 13)
fetch_versions = st.integers(4, 18)

clean_partitions = st.builds(PartitionProduceResponse, index=st.integers(0, 9), base_offset=st.integers(0, 2**62))
clean_topics = st.builds(
    TopicProduceResponse, name=st.text(max_size=200), partition_responses=st.lists(clean_partitions, max_size=3)
)
clean_responses = st.builds(
    ProduceResponse, responses=st.lists(clean_topics, max_size=2), throttle_time_ms=st.integers(0, 9)
)
fetched_partitions = st.builds(
    PartitionData,
    partition_index=st.integers(0, 9),
    high_watermark=st.integers(0, 2**62),
    aborted_transactions=st.none() | st.just([]),
    records=st.none() | st.sampled_from([b"", b"r" * 100, b"s" * 2047, b"t" * 2048, b"u" * 40_000]),
)
fetched = st.builds(
    FetchResponse,
    responses=st.lists(
        st.builds(FetchableTopicResponse, partitions=st.lists(fetched_partitions, max_size=4)), max_size=3
    ),
)


@examples(150)
@given(structs(ProduceRequest), produce_versions, st.none() | st.text(max_size=9))
def test_a_produce_request_is_read_as_the_compiled_reader_reads_it(
    message: ProduceRequest, version: int, client_id: str | None
) -> None:
    message = restricted(message, version)
    connection = KafkaConnection()
    for _ in range(2):  # the second time by the comparison with the first
        connection.receive(request_frame(message, version, client_id=client_id))
        request = connection.next_event()
        assert request is not None
        assert request.client_id == client_id
        assert comparable(request.decode(ProduceRequest)) == comparable(message)


@examples(100)
@given(st.lists(st.tuples(structs(ProduceRequest), produce_versions), max_size=4))
def test_no_request_is_mistaken_for_the_previous_one(messages: list[tuple[ProduceRequest, int]]) -> None:
    connection = KafkaConnection()
    for message, version in messages:
        connection.receive(request_frame(restricted(message, version), version))
        request = connection.next_event()
        assert request is not None
        assert comparable(request.decode(ProduceRequest)) == comparable(restricted(message, version))


@examples(200)
@given(structs(ProduceRequest), produce_versions, st.data())
def test_a_damaged_produce_request_is_read_or_refused_as_the_compiled_reader_does(
    message: ProduceRequest, version: int, data: st.DataObject
) -> None:
    message = restricted(message, version)
    body = bytearray(encode(message, version))
    reader = ProduceRequestReader()
    no_client = b"\xff\xff\0" if version >= 9 else b"\xff\xff"
    if data.draw(st.booleans(), label="a valid request first"):
        whole = bytearray(no_client + body)
        reader.read(whole, 0, len(whole), version)
    at = data.draw(st.integers(0, len(body) - 1))
    body[at : at + 4] = data.draw(
        st.sampled_from([b"", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80", b"\0\0\0\x01"])
    )
    # the bytes of another frame follow in the buffer, and must not be read
    buffer = bytearray(no_client + body + b"\0" * 64)
    end = len(no_client) + len(body)
    try:
        expected = comparable(decode(ProduceRequest, version, bytes(body)))
    except MalformedMessage:
        expected = None
    try:
        read = comparable(reader.read(buffer, 0, end, version)[1])
    except (MalformedMessage, IndexError, struct.error):
        read = None
    assert read == expected


@examples(150)
@given(structs(ProduceResponse) | clean_responses, produce_versions)
def test_a_produce_response_is_written_as_the_compiled_writer_writes_it(
    response: ProduceResponse, version: int
) -> None:
    assert write_produce_response(restricted(response, version), version) == encode(
        restricted(response, version), version
    )


@examples(150)
@given(structs(FetchResponse) | fetched, fetch_versions)
def test_a_fetch_response_is_written_as_the_compiled_writer_writes_it(response: FetchResponse, version: int) -> None:
    response = restricted(response, version)
    buffers = write_fetch_response(response, version)
    assert b"".join(buffers) == encode(response, version)
    assert isinstance(buffers[0], bytes)
    framed = encode_response(Request(1, version, 1, None), response)
    assert struct.unpack_from(">i", framed[0]) == (sum(map(len, framed)) - 4,)
