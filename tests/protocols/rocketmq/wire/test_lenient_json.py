"""JSON as Java's clients write it."""

from __future__ import annotations

from typing import Any

import pytest

from trimq.protocols.rocketmq.wire import lenient_json
from trimq.protocols.rocketmq.wire.lenient_json import LENIENT_BYTES, BadJson, read_json, write_object_keyed


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{"addrs":{0:"h:1",1:"h:2"}}', {"addrs": {"0": "h:1", "1": "h:2"}}),
        (b'{{"queueId":0,"topic":"t"}:{"x":[1,{2:3}]}}', {'{"queueId":0,"topic":"t"}': {"x": [1, {"2": 3}]}}),
        (b'{ 0 : "a\\n" , }', {"0": "a\n"}),
        (b"{[1]:true}", {"[1]": True}),
        (b'{x:null,"y":-1.5e3}', {"x": None, "y": -1500.0}),
    ],
)
def test_objects_with_any_keys_are_read(data: bytes, found: Any) -> None:
    assert read_json(data) == found


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"{0:1", b"{0 1}", b"{0:x}", b"{:1}", b"{0:1}{", b"{0:\xff}", b"[1", b'{0:"a}', b"{0:1 2}"],
)
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(BadJson):
        read_json(data)


@pytest.mark.parametrize("opening", [b"[", b"{0:", b"{"])
def test_depth_is_bounded(opening: bytes) -> None:
    with pytest.raises(BadJson):
        read_json(b"{0:1," + opening * 100_000)


def test_a_map_with_objects_as_keys_comes_back() -> None:
    data = write_object_keyed([({"queueId": 0}, {"max": 3}), (1, "x")])
    assert data == b'{{"queueId":0}:{"max":3},1:"x"}'
    assert read_json(data) == {'{"queueId":0}': {"max": 3}, "1": "x"}


@pytest.mark.parametrize(
    "data", [b"[" + b"1," * 200_000 + b"}", b"{" + b"a:1," * 100_000 + b"]", b'{0:"' + b" " * 200_000]
)
def test_long_not_strictly_valid_json_is_not_parsed_twice(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> Any:
        raise AssertionError("the slow parser was used")

    monkeypatch.setattr(lenient_json, "_read_leniently", read)
    with pytest.raises(BadJson, match="not strict JSON, the limit is 131072 bytes"):
        read_json(data)


def test_a_file_of_the_own_disk_may_have_any_length() -> None:
    data = b"{" + b",".join(b"%d:%d" % (number, number) for number in range(20_000)) + b"}"
    assert len(data) > LENIENT_BYTES
    assert read_json(data, lenient_bytes=None) == {str(number): number for number in range(20_000)}
    with pytest.raises(BadJson):
        read_json(data)


@pytest.mark.parametrize(
    "data",
    [b"{,}", b"[ ,]", b"{0:1,,}", b"[0:1]", b"{0:1:2}", b'{"a"b:1}', b"{0\xc2\xa0:1}", b'{{"a":{}}:1}', b"{{]:1}"],
)
def test_nearly_matching_text_is_refused(data: bytes) -> None:
    with pytest.raises(BadJson):
        read_json(data)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{0:"{1:2},]",}', {"0": "{1:2},]"}),
        (b'{0:"\\"a:1,}"}', {"0": '"a:1,}'}),
        (b"{{0:1}:[2,],}", {'{"0":1}': [2]}),
        (b'{"topic":"t","currIdMap":{0:1,1:0}}', {"topic": "t", "currIdMap": {"0": 1, "1": 0}}),
    ],
)
def test_text_inside_strings_is_unchanged(data: bytes, found: Any) -> None:
    assert read_json(data) == found
