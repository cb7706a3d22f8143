"""Encodes many plain messages into units in one step. Knows the values shared by a queue; the queues assign the
offsets."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from trimq.formats.rocketmq_unit.unit import SHORT_HEAD
from trimq.model import Buffer

_LENGTH = Struct(">h")
_HEAD_BYTES = SHORT_HEAD.size + _LENGTH.size


class QueueTarget(NamedTuple):
    """Values shared by all messages of one queue. `take` assigns the next offset of the queue to a unit with this
    position, size and tags code; `magic` and `topic_field` are the encoded topic; `topic_hash` is the hash prefix of
    its keys."""

    take: Callable[[int, int, int], int]
    queue_id: int
    magic: int
    topic_field: bytes
    topic_hash: int


BatchMessage = tuple[QueueTarget, Buffer, bytes, int, int, int, int, int, int, bytes]
"""A message without a place: queue target, body, properties, flag, system flag without host bits, born time, reconsume
times, tags code, checksum of the body, born host. A plain tuple, since nearly every message creates one."""

UnitPosition = tuple[int, int]
"""Offset in the queue, and position in the log."""


def checksum(body: Buffer) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def batch_size(run: Sequence[BatchMessage]) -> int:
    """Returns the total size of the units that the messages will become."""
    return len(run) * _HEAD_BYTES + sum([len(each[1]) + len(each[0].topic_field) + len(each[2]) for each in run])


def encode_batch(
    run: Iterable[BatchMessage], position: int, room: int, store_ms: int, store_host: bytes
) -> tuple[bytes, list[UnitPosition]]:
    """Fast path of `encode_unit` for many messages; the caller falls back to it unless all hosts are IPv4 and all
    properties short enough. Returns the units of as many messages as fit into `room`, and the position of each."""
    pack, pack_length = SHORT_HEAD.pack, _LENGTH.pack
    head_bytes, end = _HEAD_BYTES, position + room
    parts: list[Buffer] = []
    places: list[UnitPosition] = []
    for lane, body, properties, flag, sys_flag, born_ms, times, code, crc, born_host in run:
        take, queue_id, magic, field, _ = lane
        body_bytes, properties_bytes = len(body), len(properties)
        size = head_bytes + body_bytes + len(field) + properties_bytes
        if position + size > end:
            break
        offset = take(position, size, code)
        head = pack(
            size, magic, crc, queue_id, flag, offset, position, sys_flag, born_ms, born_host,
            store_ms, store_host, times, 0, body_bytes,
        )  # fmt: skip
        parts += (head, body, field, pack_length(properties_bytes), properties)
        places.append((offset, position))
        position += size
    return b"".join(parts), places
