"""Remoting frames: both header formats are read, JSON is written, and invalid frames close the connection."""

from __future__ import annotations

import json
import struct

import msgspec
import pytest

from trimq.protocols.rocketmq.wire.headers import QueryOffsetHeader, QueueHeader, SendV2Header
from trimq.wire.remoting import (
    LARGEST_SIZE,
    START_SIZE,
    BadHeader,
    BrokenFrame,
    Command,
    RemotingConnection,
    encode_command,
)


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def binary(code: int, fields: dict[str, str], language: int = 1, remark: bytes = b"") -> bytes:
    packed = b""
    for name, value in fields.items():
        packed += struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()
    return (
        struct.pack(">hbhiii", code, language, 401, 77, 2, len(remark))
        + remark
        + struct.pack(">i", len(packed))
        + packed
    )


def binary_frame() -> bytes:
    return framed(binary(10, {"a": "b"}), kind=1)


def received(data: bytes, **limits: int) -> list[Command]:
    connection = RemotingConnection(**limits)
    connection.receive(data)
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found


def one(data: bytes) -> Command:
    (command,) = received(data)
    return command


def test_a_json_header_is_read() -> None:
    fields = {"b": "t", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1", "h": "0"}
    header = {"code": 310, "extFields": fields, "flag": 2, "language": "CPP", "opaque": 7, "version": 63}
    command = one(framed(json.dumps(header).encode(), b"body"))
    assert (command.code, command.opaque, command.version, command.language) == (310, 7, 63, "CPP")
    assert (command.body, command.is_one_way, command.is_response) == (b"body", True, False)
    assert command.fields == fields
    assert (command.read(SendV2Header).topic, command.read(SendV2Header).queueId) == ("t", 3)


def test_a_binary_header_is_read() -> None:
    command = one(framed(binary(31, {"topic": "t", "queueId": "2"}, remark=b"why"), b"body", kind=1))
    assert (command.code, command.opaque, command.version, command.language) == (31, 77, 401, "CPP")
    assert (command.remark, command.body, command.is_one_way) == ("why", b"body", True)
    assert command.read(QueueHeader) == QueueHeader("t", 2)


def test_numbers_and_booleans_among_the_fields_are_as_good_as_text() -> None:
    header = b'{"code":14,"extFields":{"consumerGroup":5,"topic":"t","queueId":3,"setZeroIfNotFound":false,"x":null}}'
    command = one(framed(header))
    assert command.read(QueryOffsetHeader) == QueryOffsetHeader("5", "t", 3, False)
    assert command.fields == {"consumerGroup": "5", "topic": "t", "queueId": "3", "setZeroIfNotFound": "false"}


@pytest.mark.parametrize("value", ["true", "True", "false", "FALSE"])
def test_booleans_are_read_in_any_case(value: str) -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "3", "setZeroIfNotFound": value}
    command = one(framed(json.dumps({"code": 14, "extFields": fields}).encode()))
    assert command.read(QueryOffsetHeader).setZeroIfNotFound is (value.lower() == "true")


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":"30","opaque":"5","extFields":null}\n',
        b'{"code":30,"opaque":5,"language":12,"remark":"","unknown":{"a":[1]}}',
        b'{"code":30,"opaque":5,"version":"x"}',
        b'{"code":30,"opaque":5,"language":null,"extFields":[]}',
    ],
)
def test_a_header_is_read_with_lenience(header: bytes) -> None:
    command = one(framed(header))
    assert (command.code, command.opaque, command.flag) == (30, 5, 0)


@pytest.mark.parametrize("header", [b"{}", b"[]", b"7", b'{"opaque":4}', b""])
def test_a_frame_without_a_command_is_passed_over(header: bytes) -> None:
    commands = received(framed(header) + framed(b'{"code":1}'))
    assert [command.code for command in commands] == [1]


def test_a_header_of_an_unknown_kind_is_passed_over() -> None:
    assert received(framed(b'{"code":1}', kind=5)) == []


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 16 * 1024 * 1024 - 3),
        b"GET / HTTP/1.1\r\n",
        framed(b"not json"),
        framed(b'{"code":'),
        framed(b"\xff\xfe{}"),
        framed(b'{"code":1,"remark":"' + b"[" * 5 + b'"'),
        framed(b"[" * 100_000),
        struct.pack(">iI", 10, 20) + bytes(10),
        framed(b"\x00\x01", kind=1),
        framed(binary(1, {"a": "b"})[:-1], kind=1),
        framed(binary(1, {}) + b"\x00", kind=1)[:-5] + struct.pack(">i", 5) + b"\x00",
        framed(struct.pack(">hbhiii", 1, 0, 0, 0, 0, -1), kind=1),
    ],
)
def test_an_invalid_frame_ends_the_connection(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        received(data)


def test_a_header_over_the_limit_ends_the_connection() -> None:
    with pytest.raises(BrokenFrame, match="header of 2000 bytes"):
        received(framed(b'{"code":1}'.ljust(2000)), header_limit=1999)
    assert len(received(framed(b'{"code":1}'.ljust(2000)), header_limit=2000)) == 1


def test_a_frame_at_the_limit_is_read() -> None:
    data = framed(b'{"code":1}', bytes(5000))
    assert len(received(data, frame_limit=len(data))) == 1
    with pytest.raises(BrokenFrame):
        received(data, frame_limit=len(data) - 1)


def test_a_claimed_length_takes_no_memory() -> None:
    connection = RemotingConnection()
    connection.receive(struct.pack(">i", 16 * 1024 * 1024 - 4))
    assert connection.next_event() is None
    assert len(connection.get_buffer()) < 100_000


def test_a_connection_at_rest_holds_no_memory_unless_a_command_has_come_in_part() -> None:
    connection = RemotingConnection()
    data = framed(b'{"code":7}', b"body")
    connection.receive(data[:-1])
    assert connection.next_event() is None
    assert not connection.release_memory()
    connection.receive(data[-1:])
    assert connection.next_event() is not None
    assert connection.release_memory()
    connection.receive(data)
    event = connection.next_event()
    assert event is not None
    assert event.code == 7


@pytest.mark.parametrize("fields", [{"topic": "t"}, {"topic": "t", "queueId": "x"}, {"topic": "t", "queueId": ""}])
def test_a_missing_or_wrong_field_is_reported(fields: dict[str, str]) -> None:
    for data in (framed(json.dumps({"code": 30, "extFields": fields}).encode()), framed(binary(30, fields), kind=1)):
        with pytest.raises(BadHeader, match=r"queueId|int"):
            one(data).read(QueueHeader)


def test_fields_that_are_not_an_object_are_reported() -> None:
    with pytest.raises(BadHeader):
        _ = one(framed(b'{"code":30,"extFields":"x"}')).fields


def test_a_client_that_fills_the_buffer_gets_a_larger_one_until_it_is_idle() -> None:
    connection, frame = RemotingConnection(), framed(b'{"code":11}', b"x" * 45)  # 64 bytes
    rooms = []
    for _ in range(5):
        room = connection.get_buffer()
        rooms.append(len(room))
        room[:] = frame * (len(room) // len(frame))
        connection.buffer_updated(len(room))
        while connection.next_event() is not None:
            pass
    assert rooms == [START_SIZE, 2 * START_SIZE, LARGEST_SIZE, LARGEST_SIZE, LARGEST_SIZE]
    assert connection.release_memory()
    assert len(connection.get_buffer()) == START_SIZE


@pytest.mark.parametrize("piece", [1, 7, 64, 10_000])
def test_commands_that_are_alike_are_read_together_and_the_rest_one_by_one(piece: int) -> None:
    begins = (b'{"code":310,',)
    send = framed(b'{"code":310,"opaque":1}', b"body")
    broken = framed(b'{"code":310,"opaque":[]}', b"x")
    frames = [send, send, framed(b'{"code":11,"opaque":2}'), send, binary_frame(), broken, send, framed(b"")]
    connection, data = RemotingConnection(), b"".join(frames)
    taken: list[tuple[int, bytes]] = []
    alone: list[int] = []

    def take(found: dict[str, int], body: memoryview) -> bool:
        taken.append((found["opaque"], bytes(body)))
        return True

    for at in range(0, len(data), piece):
        connection.receive(data[at : at + piece])
        while True:
            connection.read_matching(begins, msgspec.json.Decoder(dict[str, int]).decode, take)
            if (command := connection.next_event()) is None:
                break
            alone.append(command.code)
    assert taken == [(1, b"body")] * 4
    assert alone == [11, 10, 310]
    assert connection.release_memory()


def test_a_command_that_is_not_taken_stays_for_the_next_event() -> None:
    connection = RemotingConnection()
    connection.receive(framed(b'{"code":310,"opaque":1}', b"body"))
    connection.read_matching((b"{",), msgspec.json.decode, lambda found, body: False)
    command = connection.next_event()
    assert command is not None
    assert (command.code, command.opaque, command.body) == (310, 1, b"body")


@pytest.mark.parametrize("data", [
    struct.pack(">iI", -5, 0),
    struct.pack(">iI", 2_000_000, 10) + b'{"code":310,',
    struct.pack(">iI", 30, 27) + b'{"code":310,"opaque":123456}',
])  # fmt: skip
def test_a_broken_frame_is_left_to_next_event(data: bytes) -> None:
    connection = RemotingConnection(frame_limit=1_000_000)
    connection.receive(data)
    connection.read_matching((b"{",), msgspec.json.decode, lambda found, body: True)
    with pytest.raises(BrokenFrame):
        connection.next_event()


def test_encoded_commands_can_be_decoded() -> None:
    frame = encode_command(0, -7, 1, {"offset": "0"}, None, 4) + b"body"
    command = one(frame)
    assert (command.code, command.opaque, command.is_response, command.body) == (0, -7, True, b"body")
    assert command.fields == {"offset": "0"}
    header = msgspec.json.decode(frame[8:-4])
    assert list(header) == ["code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version"]


def test_an_answer_without_fields_has_none() -> None:
    assert b"extFields" not in encode_command(1, 1, 1, {}, "why")
    assert b'"remark":"why"' in encode_command(1, 1, 1, {}, "why")
