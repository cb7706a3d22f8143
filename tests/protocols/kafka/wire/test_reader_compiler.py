from __future__ import annotations

import pytest

from trimq.protocols.kafka.messages.fetch import FetchRequest, FetchResponse
from trimq.protocols.kafka.messages.metadata import MetadataRequest, MetadataResponsePartition
from trimq.protocols.kafka.messages.produce import ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.schema import (
    Message,
    RequestMessage,
    Struct,
    array,
    int8,
    int32,
    nullable_array,
    string,
    struct,
)
from trimq.protocols.kafka.wire.reader_compiler import build_reader_source, compile_reader, holds_records, minimal_size


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(ProduceRequest, True), (FetchResponse, True), (FetchRequest, False), (MetadataRequest, False)],
)
def test_it_is_known_which_messages_hold_views(kind: type[Message], expected: bool) -> None:
    assert holds_records(kind) is expected


@pytest.mark.parametrize(
    ("kind", "version", "flexible", "size"),
    [
        (TopicProduceData, 3, False, 2 + 4),
        (TopicProduceData, 9, True, 1 + 1 + 1),
        (TopicProduceData, 13, True, 16 + 1 + 1),
        (MetadataResponsePartition, 1, False, 2 + 4 + 4 + 4 + 4),
    ],
)
def test_the_smallest_size_of_a_struct_is_known(kind: type[Struct], version: int, flexible: bool, size: int) -> None:
    assert minimal_size(kind, version, flexible) == size


class Point(Struct):
    x: int = int8()
    y: int = int8("2+", default=9)


class Drawing(RequestMessage, api_key=0):
    count: int = int32()
    length: int = int32()
    origin: Point = struct(Point)
    points: list[Point] = array(Point)
    names: list[str] | None = nullable_array(string)


def test_a_reader_gives_the_message_and_the_position_after_it() -> None:
    body = bytes.fromhex("00000001000000020300000002040500000001000161")
    read = compile_reader(Drawing, 1, False)
    drawing = Drawing(count=1, length=2, origin=Point(3, 9), points=[Point(4, 9), Point(5, 9)], names=["a"])
    assert read(b"??" + body + b"more", 2) == (drawing, 2 + len(body))


def test_fields_named_like_variables_of_the_generated_reader_are_read() -> None:
    class Words(RequestMessage, api_key=0):
        position: int = int8()
        size: int = int8()
        buffer: str = string()
        end: list[int] = array(int8)

    message, _ = compile_reader(Words, 0, True)(bytes.fromhex("0102026103040500"), 0)
    assert message == Words(position=1, size=2, buffer="a", end=[4, 5])


def test_consecutive_numbers_are_unpacked_at_once() -> None:
    lines = "\n".join(build_reader_source(FetchRequest, 17, True).lines)
    assert "unpack_from_iiqiqiB" in lines
