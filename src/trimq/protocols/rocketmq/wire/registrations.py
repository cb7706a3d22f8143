"""Registration of a broker at the name server: its topics and their data version, as JSON or compressed. Pure: bytes
in, values out.

Compressed form (zlib): int32 length and JSON of the data version, int32 count, then for each topic int32 length and the
text `name readQueues writeQueues permissions ...`, separated by spaces."""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import msgspec

from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json

_LENGTH = struct.Struct(">i")
_MIN_WORDS = 4  # fields of a packed topic: name, read queues, write queues, permissions


class BadRegistration(ValueError):
    """The registration cannot be parsed."""


_UNREADABLE = (BadJson, msgspec.MsgspecError, UnicodeDecodeError)


class DataVersion(msgspec.Struct, frozen=True):
    """Version of the topics that a broker registers. A different version means that a topic has changed."""

    counter: Int64 = 0
    stateVersion: Int64 = 0
    timestamp: Int64 = 0


class QueueData(NamedTuple):
    """Queues and permissions of a topic at one broker."""

    read: Int32
    write: Int32
    permissions: Int32
    flags: Int32 = 0


class Registration(NamedTuple):
    topics: dict[str, QueueData]
    version: DataVersion


def read_registration(body: bytes, is_packed: bool, max_bytes: int) -> Registration:
    """An empty body is a registration without topics. `max_bytes` limits the size of a decompressed body."""
    if not body:
        return Registration({}, DataVersion())
    try:
        return _read_packed(body, max_bytes) if is_packed else _read_plain(body)
    except (*_UNREADABLE, zlib.error, struct.error, KeyError, TypeError) as error:
        raise BadRegistration(f"invalid broker registration: {error}") from None


def write_registration(registration: Registration) -> bytes:
    """Returns the body in JSON, which every version of a name server reads."""
    table = {
        name: {
            "order": False,
            "perm": queues.permissions,
            "readQueueNums": queues.read,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": queues.flags,
            "writeQueueNums": queues.write,
        }
        for name, queues in registration.topics.items()
    }
    wrapper = {"dataVersion": registration.version, "topicConfigTable": table}
    return msgspec.json.encode({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def read_version(body: bytes) -> DataVersion:
    try:
        return _version(read_json(body))
    except _UNREADABLE as error:
        raise BadRegistration(f"invalid data version: {error}") from None


def _version(data: Any) -> DataVersion:
    return msgspec.convert(data or {}, DataVersion, strict=False)


def _read_plain(body: bytes) -> Registration:
    data = read_json(body)
    wrapper = _object(_object(data).get("topicConfigSerializeWrapper"))
    table = _object(wrapper.get("topicConfigTable"))
    topics = {name: read_queue_data(_object(row)) for name, row in table.items()}
    return Registration(topics, _version(wrapper.get("dataVersion")))


def _object(data: Any) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadRegistration(f"invalid broker registration: {data!r:.40} is not a JSON object")
    return data


def read_queue_data(row: dict[str, Any]) -> QueueData:
    given = (row["readQueueNums"], row["writeQueueNums"], row["perm"], row.get("topicSysFlag", 0))
    return msgspec.convert(given, QueueData, strict=False)


def _read_packed(body: bytes, max_bytes: int) -> Registration:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, max_bytes)
    if inflater.unconsumed_tail:
        raise BadRegistration(f"invalid broker registration: larger than {max_bytes} bytes after decompression")
    version, at = _take(data, 0)
    (count,) = _LENGTH.unpack_from(data, at)
    at += 4
    topics = {}
    for _ in range(count):  # ends by an error if `count` is too large: `_take` finds no more bytes
        text, at = _take(data, at)
        words = text.decode().split(" ")
        if len(words) < _MIN_WORDS:
            raise BadRegistration(f"invalid broker registration: a topic has {len(words)} fields, expected at least 4")
        name, read, write, permissions = words[:_MIN_WORDS]
        topics[name] = msgspec.convert((read, write, permissions), QueueData, strict=False)
    return Registration(topics, _version(read_json(version)))


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += 4
    if not 0 <= length <= len(data) - at:
        raise BadRegistration("invalid broker registration: a length exceeds the remaining bytes")
    return data[at : at + length], at + length
