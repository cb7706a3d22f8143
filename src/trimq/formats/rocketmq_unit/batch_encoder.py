"""Units of messages that came together and ask for nothing but to be stored: all of them in one step. Knows what their
queues share; which places they get is told by those."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

from trimq.formats.rocketmq_unit.unit import SHORT_HEAD
from trimq.model import Buffer

_LENGTH = Struct(">h")


class QueueTarget(NamedTuple):
    """What all messages of one queue share. `take` gives the next offset of the queue to whoever stands at a position,
    with a size and the code of its tags; `magic` and `topic_field` are what the topic asks for in a unit; `topic_hash`
    is what the hashes of its keys go on from."""

    take: Callable[[int, int, int], int]
    queue_id: int
    magic: int
    topic_field: bytes
    topic_hash: int


BatchMessage = tuple[QueueTarget, Buffer, bytes, int, int, int, int, int, int, bytes]
"""A message without a place: its lane, body, properties, flag, system flag without any bit for hosts, when it was born,
how often it was consumed again, the code of its tags, the checksum of its body, and the host it was born at. A plain
tuple, since one is made for nearly every message."""

UnitPosition = tuple[int, int]
"""Offset in its queue, and position in the log."""


def checksum(body: Buffer) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_batch(
    run: Iterable[BatchMessage], position: int, room: int, store_ms: int, store_host: bytes
) -> tuple[bytes, list[UnitPosition]]:
    """The units of the first of them, as many as there is room for, one behind the other, and where each is. All hosts
    are of IPv4, and all properties are short enough."""
    pack, pack_length = SHORT_HEAD.pack, _LENGTH.pack
    head_bytes, end = SHORT_HEAD.size + 2, position + room
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
