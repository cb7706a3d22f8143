"""Placement of messages whose writer names no stream, as AMQP publishers: by header, by key, else the same stream for
all messages of a pass. Pure."""

from __future__ import annotations

from trimq.formats.crossing.neutral import Neutral

PARTITION = "trimq.partition"

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_BITS = 0xFFFFFFFF


def find_place(message: Neutral, count: int, pass_number: int) -> int:
    """Returns the number of the stream for a message; `count`: of the topic's streams that accept writes. A header may
    name any number. Equal keys have the same stream as with the partitioner of Kafka's Java client."""
    for name, value in message.headers:
        if name == PARTITION and value is not None and value.isdigit() and len(value) < 10:
            return int(value)
    if message.key is None:
        return pass_number % count
    return (murmur2(message.key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """Returns the 32-bit MurmurHash2 that Kafka's clients use."""
    size = len(data)
    found = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _BITS
        word = (word ^ word >> 24) * _FACTOR & _BITS
        found = found * _FACTOR & _BITS ^ word
    if whole < size:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _BITS
    found = (found ^ found >> 13) * _FACTOR & _BITS
    return found ^ found >> 15
