"""Remoting connections: any split of the bytes gives the same events; garbage gives events or a protocol error."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trimq.errors import ProtocolError
from trimq.protocols.rocketmq.wire.headers import PullHeader, SendHeader, SendV2Header
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json
from trimq.wire.remoting import BadHeader, Command, RemotingConnection, encode_command

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12)
FIELDS = st.dictionaries(TEXT, TEXT, max_size=4)


def framed(header: bytes, body: bytes, kind: int) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_frame(code: int, opaque: int, fields: dict[str, str], body: bytes) -> bytes:
    header = json.dumps({"code": code, "opaque": opaque, "extFields": fields, "language": "GO"}).encode()
    return framed(header, body, 0)


def binary_frame(code: int, opaque: int, fields: dict[str, str], body: bytes) -> bytes:
    packed = b""
    for name, value in fields.items():
        first, second = name.encode(), value.encode()
        packed += struct.pack(">h", len(first)) + first + struct.pack(">i", len(second)) + second
    header = struct.pack(">hbhiii", code, 9, 0, opaque, 0, 0) + struct.pack(">i", len(packed)) + packed
    return framed(header, body, 1)


CODES = st.integers(0, 32_767)
FRAMES = st.builds(json_frame, CODES, INT32, FIELDS, st.binary(max_size=50)) | st.builds(
    binary_frame, CODES, INT32, FIELDS, st.binary(max_size=50)
)


def drain(connection: RemotingConnection) -> list[Command]:
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found


def shown(command: Command) -> tuple[Any, ...]:
    return command.code, command.opaque, command.flag, command.language, command.body, command.fields


@given(st.lists(FRAMES, max_size=6), st.data())
def test_any_split_gives_the_same_events(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frames)
    whole = RemotingConnection()
    whole.receive(stream)
    expected = [shown(command) for command in drain(whole)]
    assert len(expected) == len(frames)
    split = RemotingConnection()
    found = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 60))
        split.receive(stream[at : at + size])
        found += [shown(command) for command in drain(split)]
        at += size
    assert found == expected


@given(CODES, INT32, FIELDS, st.binary(max_size=20))
def test_both_header_formats_are_read_alike(code: int, opaque: int, fields: dict[str, str], body: bytes) -> None:
    both = RemotingConnection()
    both.receive(json_frame(code, opaque, fields, body) + binary_frame(code, opaque, fields, body))
    first, second = drain(both)
    assert shown(first) == shown(second)


@given(INT32, INT32, FIELDS, TEXT | st.none(), st.binary(max_size=20))
def test_a_command_survives_encoding_and_decoding(
    code: int, opaque: int, fields: dict[str, str], remark: str | None, body: bytes
) -> None:
    connection = RemotingConnection()
    connection.receive(encode_command(code, opaque, 1, fields, remark, len(body)) + body)
    (command,) = drain(connection)
    assert (command.code, command.opaque, command.fields, command.body) == (code, opaque, fields, body)
    assert command.remark == remark


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
HEADERS = st.dictionaries(
    st.sampled_from(["code", "opaque", "flag", "version", "language", "remark", "extFields", "x"]), JSON_VALUES
)


@given(st.lists(HEADERS.map(lambda header: framed(json.dumps(header).encode(), b"x", 0)), max_size=3))
def test_any_json_header_is_an_event_or_an_error(frames: list[bytes]) -> None:
    connection = RemotingConnection()
    connection.receive(b"".join(frames))
    with contextlib.suppress(ProtocolError):
        for command in drain(connection):
            for kind in (SendHeader, SendV2Header, PullHeader):
                with contextlib.suppress(BadHeader):
                    command.read(kind)


@given(st.binary(max_size=200))
def test_garbage_is_an_event_or_an_error(garbage: bytes) -> None:
    for kind in (0, 1):
        for data in (garbage, framed(garbage, b"", kind)):
            connection = RemotingConnection()
            connection.receive(data)
            with contextlib.suppress(ProtocolError, BadHeader):
                for command in drain(connection):
                    _ = command.fields


@given(JSON_VALUES)
def test_strict_json_is_read(value: Any) -> None:
    assert read_json(json.dumps(value).encode()) == value


@given(st.text('{}[]:,"0a \\', max_size=40))
def test_any_text_is_json_or_refused(text: str) -> None:
    with contextlib.suppress(BadJson):
        read_json(text.encode())


def as_java_writes(value: Any) -> str:
    """Writes keys without quotes where that can be read, and objects as keys unchanged."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{java_key(key)}:{as_java_writes(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_java_writes, value)) + "]"
    return json.dumps(value)


def java_key(key: str) -> str:
    is_bare = bool(key) and key.isascii() and key.isalnum()
    return key if is_bare or key.startswith('{"') else json.dumps(key)


JAVA_KEYS = (
    st.text(max_size=5).filter(lambda text: not text.startswith('{"'))
    | st.integers(0, 99).map(str)
    | st.integers(0, 9).map(lambda number: f'{{"brokerName":"a","queueId":{number},"topic":"{{t}}:,"}}')
)
JAVA_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text('"\\{}[]:,a0 é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JAVA_KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(JAVA_VALUES)
def test_json_as_java_writes_it_is_read_as_strict_json(value: Any) -> None:
    assert read_json(as_java_writes(value).encode()) == value
