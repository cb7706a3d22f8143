"""Metadata that Kafka consumers exchange in classic groups: subscriptions and assignments. The broker passes them on
unread, unless it assigns the partitions itself or must know whether a topic is in use.

    subscription  | version i16 | topics | user data | v1: owned partitions | v2: generation i32 | v3: rack |
    assignment    | version i16 | partitions | user data |
    partitions    | count i32, each: topic string, count i32, numbers i32 |
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

CONSUMER = "consumer"
"""Protocol type of groups whose members exchange this metadata."""

_MAX_VERSION = 3

PartitionsByTopic = dict[str, list[int]]


class BadMetadata(ValueError):
    """The bytes are not a subscription or an assignment."""


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: PartitionsByTopic
    """Partitions that the member has and wants to keep; empty before version 1."""
    rack: str | None


def read_subscription(metadata: bytes) -> Subscription:
    reader = _Reader(metadata)
    version = reader.int16()
    if version < 0:
        raise BadMetadata(f"version {version}")
    topics = tuple(reader.name() for _ in range(reader.count()))
    reader.skip_bytes()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.int32()
    rack = reader.string() if version >= 3 else None
    return Subscription(version, topics, owned, rack)


def read_topics(metadata: bytes) -> set[str] | None:
    """Returns the topics of a subscription, or None if the bytes are not a subscription."""
    try:
        reader = _Reader(metadata)
        reader.int16()
        return {reader.name() for _ in range(reader.count())}
    except BadMetadata:
        return None


def read_assignment(assignment: bytes) -> PartitionsByTopic:
    reader = _Reader(assignment)
    if reader.int16() < 0:
        raise BadMetadata("negative version")
    return reader.partitions()


def write_assignment(version: int, partitions: Mapping[str, list[int]]) -> bytes:
    parts = [struct.pack(">hi", min(version, _MAX_VERSION), len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    parts.append(struct.pack(">i", -1))
    return b"".join(parts)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def _unpack(self, form: str, size: int) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._at)
        except struct.error:
            raise BadMetadata("too short") from None
        self._at += size
        return int(value)

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise BadMetadata(f"a list of {count}")
        return count

    def string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise BadMetadata("a string is not UTF-8") from None

    def name(self) -> str:
        name = self.string()
        if name is None:
            raise BadMetadata("a topic has no name")
        return name

    def skip_bytes(self) -> None:
        length = self.int32()
        if length != -1:
            self._take(length)

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise BadMetadata(f"a field of {length} bytes")
        self._at += length
        return self._data[self._at - length : self._at]

    def partitions(self) -> PartitionsByTopic:
        found: PartitionsByTopic = {}
        for _ in range(self.count()):
            topic = self.name()
            found.setdefault(topic, []).extend(self.int32() for _ in range(self.count()))
        return found
