"""What a broker tells the name server when it registers, as JSON or packed: its topics and the version of all that.
Pure: bytes in, values out."""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import msgspec

from trimq.protocols.rocketmq.lenient_json import BadJson, read_json

_LENGTH = struct.Struct(">i")


class BadRegistration(ValueError):
    """It cannot be read."""


class DataVersion(msgspec.Struct, frozen=True):
    """Of what a broker tells of its topics; another version means that something has changed."""

    counter: int = 0
    stateVersion: int = 0
    timestamp: int = 0


class Queues(NamedTuple):
    """A topic as one broker has it."""

    read: int
    write: int
    permissions: int
    flags: int = 0


class Registration(NamedTuple):
    topics: dict[str, Queues]
    version: DataVersion


def read_registration(body: bytes, is_packed: bool, max_bytes: int) -> Registration:
    """An empty body tells of nothing. `max_bytes` bounds what a packed one may become."""
    if not body:
        return Registration({}, DataVersion())
    try:
        return _read_packed(body, max_bytes) if is_packed else _read_plain(body)
    except (BadJson, msgspec.MsgspecError, zlib.error, struct.error, UnicodeDecodeError, KeyError, TypeError) as error:
        raise BadRegistration(f"a registration that cannot be read: {error}") from None


def read_version(body: bytes) -> DataVersion:
    try:
        return _version(read_json(body))
    except (BadJson, msgspec.MsgspecError) as error:
        raise BadRegistration(f"no version: {error}") from None


def _version(data: Any) -> DataVersion:
    return msgspec.convert(data or {}, DataVersion, strict=False)


def _read_plain(body: bytes) -> Registration:
    data = read_json(body)
    if not isinstance(data, dict):
        raise BadJson("not an object")
    wrapper = data.get("topicConfigSerializeWrapper") or {}
    table = wrapper.get("topicConfigTable") or {}
    return Registration({name: read_queues(row) for name, row in table.items()}, _version(wrapper.get("dataVersion")))


def read_queues(row: dict[str, Any]) -> Queues:
    given = (row["readQueueNums"], row["writeQueueNums"], row["perm"], row.get("topicSysFlag", 0))
    return msgspec.convert(given, Queues, strict=False)


def _read_packed(body: bytes, max_bytes: int) -> Registration:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, max_bytes)
    if inflater.unconsumed_tail:
        raise BadRegistration(f"a registration that is larger than {max_bytes} bytes")
    version, at = _take(data, 0)
    (count,) = _LENGTH.unpack_from(data, at)
    at += 4
    topics = {}
    for _ in range(count):  # each takes bytes that are there, or ends it
        text, at = _take(data, at)
        name, read, write, permissions, *_ = text.decode().split(" ")
        topics[name] = msgspec.convert((read, write, permissions), Queues, strict=False)
    return Registration(topics, _version(read_json(version)))


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += 4
    if not 0 <= length <= len(data) - at:
        raise BadRegistration("a length that is not there")
    return data[at : at + length], at + length
