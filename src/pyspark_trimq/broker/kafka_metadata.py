"""Which topics a Kafka broker has, as whom it knows them, and how much it keeps of each: requests and answers. Topics
have ids since Kafka 2.8, by which one that was deleted and made anew is told from the old one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from pyspark_trimq.broker.kafka_wire import Address, Answer, array, int32, text

T = TypeVar("T")

API_VERSIONS, DESCRIBE_LOG_DIRS = (18, 0), (35, 1)
METADATA, METADATA_WITH_IDS = (3, 4), (3, 10)

_NO_ID = uuid.UUID(int=0)


class TopicFacts(NamedTuple):
    """`id`: empty, if the broker gives topics none. `is_internal`: the broker has it for itself."""

    error: int
    leaders: dict[int, int]
    id: str = ""
    is_internal: bool = False


class Metadata(NamedTuple):
    brokers: dict[int, Address]
    topics: dict[str, TopicFacts]


def metadata_version(answer: Answer) -> tuple[int, int]:
    """The one to ask for, by an answer to API_VERSIONS."""
    answer.int16()
    versions = answer.array(lambda: (answer.int16(), answer.int16(), answer.int16()))
    key, version = METADATA_WITH_IDS
    is_served = any(api == key and first <= version <= last for api, first, last in versions)
    return METADATA_WITH_IDS if is_served else METADATA


def metadata_request(version: tuple[int, int], topics: Iterable[str] | None) -> bytes:
    """Of all topics, if none are named. None is created by asking."""
    if version == METADATA_WITH_IDS:
        named = None if topics is None else [_NO_ID.bytes + _compact_text(name) + b"\x00" for name in topics]
        listed = b"\x00" if named is None else _uvarint(len(named) + 1) + b"".join(named)
        return listed + b"\x00\x00\x00" + b"\x00"
    return (int32(-1) if topics is None else array(text(name) for name in topics)) + b"\x00"


def read_metadata(version: tuple[int, int], answer: Answer) -> Metadata:
    return _with_ids(_Compact(answer)) if version == METADATA_WITH_IDS else _without_ids(answer)


def _without_ids(answer: Answer) -> Metadata:
    answer.int32()
    brokers = answer.array(lambda: (answer.int32(), answer.text(), answer.int32(), answer.text()))
    answer.text()
    answer.int32()

    def partition() -> tuple[int, int]:
        answer.int16()
        number, leader = answer.int32(), answer.int32()
        answer.array(answer.int32)
        answer.array(answer.int32)
        return number, leader

    def topic() -> tuple[str, TopicFacts]:
        error, name = answer.int16(), answer.text()
        is_internal = bool(answer.int8())
        return name, TopicFacts(error, dict(answer.array(partition)), is_internal=is_internal)

    topics = dict(answer.array(topic))
    return Metadata({id: Address(host, port) for id, host, port, _ in brokers}, topics)


class _Compact:
    """Fields of the newer kind: lengths are short, and there may be more behind."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.tags()

    def uvarint(self) -> int:
        found = shift = 0
        while (byte := self.answer.take(1)[0]) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift

    def text(self) -> str:
        return bytes(self.answer.take(max(self.uvarint() - 1, 0))).decode()

    def array(self, read: Callable[[], T]) -> list[T]:
        return [read() for _ in range(self.uvarint() - 1)]

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.answer.take(self.uvarint())


def _with_ids(compact: _Compact) -> Metadata:
    answer = compact.answer
    answer.int32()

    def broker() -> tuple[int, Address]:
        id, host, port = answer.int32(), compact.text(), answer.int32()
        compact.text()
        compact.tags()
        return id, Address(host, port)

    def partition() -> tuple[int, int]:
        answer.int16()
        number, leader = answer.int32(), answer.int32()
        answer.int32()
        for _ in range(3):
            compact.array(answer.int32)
        compact.tags()
        return number, leader

    def topic() -> tuple[str, TopicFacts]:
        error, name, id = answer.int16(), compact.text(), uuid.UUID(bytes=bytes(answer.take(16)))
        is_internal = bool(answer.int8())
        leaders = dict(compact.array(partition))
        answer.int32()
        compact.tags()
        return name, TopicFacts(error, leaders, "" if id == _NO_ID else str(id), is_internal)

    brokers = dict(compact.array(broker))
    compact.text()
    answer.int32()
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


def read_sizes(answer: Answer) -> dict[int, int]:
    """How many bytes the asked one keeps of each partition; of none, if the user may not know."""
    answer.int32()

    def partition() -> tuple[int, int]:
        number, size = answer.int32(), answer.int64()
        answer.int64()
        answer.int8()
        return number, size

    def folder() -> list[tuple[int, int]]:
        answer.int16()
        answer.text()
        topics = answer.array(lambda: (answer.text(), answer.array(partition)))
        return [row for _, rows in topics for row in rows]

    return {number: size for rows in answer.array(folder) for number, size in rows}
