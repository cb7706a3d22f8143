"""Kafka requests and responses about topics: leaders, topic ids and sizes on disk. Apache Kafka has topic ids since
2.8; they reveal that a topic was deleted and created again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from pyspark_trimq.broker.kafka_wire import Address, ResponseReader, array, int32, text

T = TypeVar("T")

API_VERSIONS, DESCRIBE_LOG_DIRS = (18, 0), (35, 1)
METADATA, METADATA_WITH_IDS = (3, 4), (3, 10)

_NO_ID = uuid.UUID(int=0)


class TopicMetadata(NamedTuple):
    """`id` is empty if the broker has no topic ids."""

    error: int
    leaders: dict[int, int]
    id: str = ""
    is_internal: bool = False


class Metadata(NamedTuple):
    brokers: dict[int, Address]
    topics: dict[str, TopicMetadata]


def metadata_version(response: ResponseReader) -> tuple[int, int]:
    """Returns the Metadata version to use, from a response to API_VERSIONS."""
    response.int16()
    versions = response.array(lambda: (response.int16(), response.int16(), response.int16()))
    key, version = METADATA_WITH_IDS
    is_served = any(api == key and first <= version <= last for api, first, last in versions)
    return METADATA_WITH_IDS if is_served else METADATA


def metadata_request(version: tuple[int, int], topics: Iterable[str] | None) -> bytes:
    """Requests all topics if `topics` is None. Does not create topics."""
    if version == METADATA_WITH_IDS:
        named = None if topics is None else [_NO_ID.bytes + _compact_text(name) + b"\x00" for name in topics]
        listed = b"\x00" if named is None else _uvarint(len(named) + 1) + b"".join(named)
        return listed + b"\x00\x00\x00" + b"\x00"
    return (int32(-1) if topics is None else array(text(name) for name in topics)) + b"\x00"


def read_metadata(version: tuple[int, int], response: ResponseReader) -> Metadata:
    return (
        _read_metadata_v10(_FlexibleReader(response)) if version == METADATA_WITH_IDS else _read_metadata_v4(response)
    )


def _read_metadata_v4(response: ResponseReader) -> Metadata:
    response.int32()
    brokers = response.array(lambda: (response.int32(), response.text(), response.int32(), response.text()))
    response.text()
    response.int32()

    def partition() -> tuple[int, int]:
        response.int16()
        number, leader = response.int32(), response.int32()
        response.array(response.int32)
        response.array(response.int32)
        return number, leader

    def topic() -> tuple[str, TopicMetadata]:
        error, name = response.int16(), response.text()
        is_internal = bool(response.int8())
        return name, TopicMetadata(error, dict(response.array(partition)), is_internal=is_internal)

    topics = dict(response.array(topic))
    return Metadata({id: Address(host, port) for id, host, port, _ in brokers}, topics)


class _FlexibleReader:
    """Reads flexible versions: compact lengths (varints) and tagged fields."""

    def __init__(self, response: ResponseReader) -> None:
        self.response = response
        self.tags()

    def uvarint(self) -> int:
        found = shift = 0
        while (byte := self.response.take(1)[0]) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift

    def text(self) -> str:
        return bytes(self.response.take(max(self.uvarint() - 1, 0))).decode()

    def array(self, read: Callable[[], T]) -> list[T]:
        return [read() for _ in range(self.uvarint() - 1)]

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.response.take(self.uvarint())


def _read_metadata_v10(compact: _FlexibleReader) -> Metadata:
    response = compact.response
    response.int32()

    def broker() -> tuple[int, Address]:
        id, host, port = response.int32(), compact.text(), response.int32()
        compact.text()
        compact.tags()
        return id, Address(host, port)

    def partition() -> tuple[int, int]:
        response.int16()
        number, leader = response.int32(), response.int32()
        response.int32()
        for _ in range(3):
            compact.array(response.int32)
        compact.tags()
        return number, leader

    def topic() -> tuple[str, TopicMetadata]:
        error, name, id = response.int16(), compact.text(), uuid.UUID(bytes=bytes(response.take(16)))
        is_internal = bool(response.int8())
        leaders = dict(compact.array(partition))
        response.int32()
        compact.tags()
        return name, TopicMetadata(error, leaders, "" if id == _NO_ID else str(id), is_internal)

    brokers = dict(compact.array(broker))
    compact.text()
    response.int32()
    return Metadata(brokers, dict(compact.array(topic)))


def _uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _compact_text(value: str) -> bytes:
    raw = value.encode()
    return _uvarint(len(raw) + 1) + raw


def sizes_request(topic: str, numbers: Iterable[int]) -> bytes:
    return array([text(topic) + array(int32(number) for number in numbers)])


def read_sizes(response: ResponseReader) -> dict[int, int]:
    """Returns the size of each partition in bytes; empty if the user lacks the permission."""
    response.int32()

    def partition() -> tuple[int, int]:
        number, size = response.int32(), response.int64()
        response.int64()
        response.int8()
        return number, size

    def folder() -> list[tuple[int, int]]:
        response.int16()
        response.text()
        topics = response.array(lambda: (response.text(), response.array(partition)))
        return [row for _, rows in topics for row in rows]

    return {number: size for rows in response.array(folder) for number, size in rows}
