from __future__ import annotations

import pytest

from trimq.model import Buffer
from trimq.protocols.kafka.messages.schema import (
    RequestMessage,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    tagged_struct,
)
from trimq.protocols.kafka.wire.writer_compiler import SHORT_ARRAY, compile_writer


class Point(Struct):
    x: int = int8()


class Drawing(RequestMessage, api_key=0):
    count: int = int32()
    closed: bool = boolean("1+")
    title: str = string()
    note: str | None = nullable_string("1+", default=None)
    numbers: list[int] = array(int16)
    points: list[Point] | None = nullable_array(Point)
    centre: Point | None = nullable_struct(Point)
    corner: Point | None = tagged_struct(Point, "2+", tag=1)
    scale: int = int8("2+", default=1, tag=0)


def written(drawing: Drawing, version: int, flexible: bool) -> str:
    pieces: list[Buffer] = []
    compile_writer(Drawing, version, flexible)(pieces.append, drawing)
    return b"".join(pieces).hex()


def test_a_legacy_version_has_whole_lengths_and_no_tags() -> None:
    drawing = Drawing(count=1, closed=True, title="ab", numbers=[3], points=[Point(4)], scale=9)
    assert written(drawing, 0, False) == "00000001000261620000000100030000000104ff"
    assert written(drawing, 1, False) == "000000010100026162ffff0000000100030000000104ff"


def test_a_flexible_version_has_compact_lengths_and_an_end_of_tags() -> None:
    drawing = Drawing(count=1, title="ab", note="", numbers=[3], points=None, centre=Point(5))
    assert written(drawing, 2, True) == "0000000100036162010200030001050000"


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    drawing = Drawing(points=None, corner=Point(7), scale=2)
    assert written(drawing, 2, True).endswith("0200010201020700")


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("count", [0, 1, SHORT_ARRAY - 1, SHORT_ARRAY, SHORT_ARRAY + 1, 200])
def test_arrays_of_numbers_of_any_length_are_written(count: int, flexible: bool) -> None:
    length = {False: f"{count:08x}", True: f"{count + 1:02x}" if count < 127 else "c901"}[flexible]
    text = written(Drawing(numbers=list(range(count))), 0, flexible)
    assert length + "".join(f"{number:04x}" for number in range(count)) in text


@pytest.mark.parametrize(("length", "written_length"), [(126, "7f"), (127, "8001"), (300, "ad02")])
def test_long_strings_have_long_lengths(length: int, written_length: str) -> None:
    text = written(Drawing(title="a" * length), 0, True)
    assert text.startswith("00000000" + written_length + "61" * length)
