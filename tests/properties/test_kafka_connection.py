"""The same requests however the bytes are split; requests that were returned do not change afterwards."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from protocols.kafka.frames import request_frame
from protocols.kafka.strategies import comparable, examples, restricted, structs

from trimq.errors import ProtocolError
from trimq.protocols.kafka.messages.classic_groups import HeartbeatRequest
from trimq.protocols.kafka.messages.fetch import FetchRequest
from trimq.protocols.kafka.messages.produce import ProduceRequest
from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.wire.apis import APIS, request_class
from trimq.protocols.kafka.wire.connection import KafkaConnection, Request


def framed_requests(kind: type[RequestMessage]) -> st.SearchStrategy[tuple[RequestMessage, int]]:
    api = APIS[kind.API_KEY]
    return st.tuples(structs(kind), st.integers(api.min_version, api.max_version))


requests = st.lists(st.one_of(*map(framed_requests, (ProduceRequest, FetchRequest, HeartbeatRequest))), max_size=5)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def events(connection: KafkaConnection) -> list[tuple[Request, Any]]:
    found = []
    while (request := connection.next_event()) is not None:
        found.append((request, request.decode(request_class(request.api_key))))
    return found


@examples(150)
@given(requests, st.lists(st.integers(0, 30_000), max_size=20), st.sampled_from([16, 300, 65536]), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_requests(
    sent: list[tuple[RequestMessage, int]], cuts: list[int], buffer_size: int, patient: bool
) -> None:
    expected = [restricted(message, version) for message, version in sent]
    stream = b"".join(
        request_frame(message, version, correlation_id=number)
        for number, (message, (_, version)) in enumerate(zip(expected, sent, strict=True))
    )
    connection = KafkaConnection(buffer_size=buffer_size)
    found = []
    for piece in pieces_of(stream, cuts):
        connection.receive(piece)
        if not patient:
            found += events(connection)
    found += events(connection)
    # compared at the end, so that an overwritten view is noticed
    assert [request.correlation_id for request, _ in found] == list(range(len(sent)))
    assert [comparable(message) for _, message in found] == [comparable(message) for message in expected]


@examples(200)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_garbage_gives_requests_or_a_protocol_error(garbage: bytes, cuts: list[int]) -> None:
    connection = KafkaConnection(buffer_size=64)
    with contextlib.suppress(ProtocolError):
        for piece in pieces_of(garbage, cuts):
            connection.receive(piece)
            events(connection)


@examples(300)
@given(
    st.sampled_from(sorted(APIS)),
    st.integers(0, 18),
    st.binary(max_size=60),
    st.sampled_from([b"", b"\0", b"\0\0\0\x05"]),
)
def test_a_garbled_body_gives_a_message_or_a_protocol_error(key: int, version: int, body: bytes, more: bytes) -> None:
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff\0"
    content = header + body
    connection = KafkaConnection()
    connection.receive(len(content).to_bytes(4, "big") + content + more)
    with contextlib.suppress(ProtocolError):
        request = connection.next_event()
        assert request is not None
        if request.is_supported:
            request.decode(request_class(key))
