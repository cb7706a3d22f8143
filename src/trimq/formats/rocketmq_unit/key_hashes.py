"""The hashes of many keys at once, as RocketMQ's index has them. Most keys are of one length, since producers give
them, and gRPC's producers begin them alike: those are hashed together, each in a lane of one long number."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from trimq.formats.rocketmq_unit.properties import java_hash, key_hash

TopicKey = tuple[int, str, int, int]
"""A key of a topic, for which the hash of that topic's name and a '#' stands, and the place of what has it."""

_LENGTH = 32
_LONGER = 34  # of gRPC's producers: the version of their ids comes first
_TOGETHER = 64
_WORTH_IT = 8
_BYTES = _TOGETHER * _LENGTH
_WORD = 0xFFFFFFFF
_LIFT = pow(31, _LENGTH, 1 << 32)
_HASH = Struct(f">{_LENGTH - 4}xi")


def _lanes(bits: int, width: int) -> int:
    """The lowest bits of each of the lanes that are so wide."""
    return sum((1 << bits) - 1 << at for at in range(0, _BYTES * 8, width))


# In each step neighbours become one: what stands before is lifted by what comes behind it. No lane overflows.
_STEPS = (
    (8, _lanes(8, 16), 31),
    (16, _lanes(16, 32), 31**2),
    (32, _lanes(32, 64), 31**4),
    (64, _lanes(32, 128), pow(31, 8, 1 << 32)),
    (128, _lanes(32, 256), pow(31, 16, 1 << 32)),
)
_ONES = _lanes(1, 256)


def key_hashes(keys: Sequence[TopicKey]) -> list[int]:
    """What `key_hash` gives for each."""
    found: list[int] = []
    for at in range(0, len(keys), _TOGETHER):
        found += _hash_some(keys[at : at + _TOGETHER])
    return found


def _hash_some(keys: Sequence[TopicKey]) -> list[int]:
    topics, texts, _, _ = zip(*keys, strict=True)
    joined = "".join(texts)
    if len(keys) >= _WORTH_IT and len({*topics}) == 1 and joined.isascii():
        lengths = {*map(len, texts)}
        if lengths == {_LENGTH}:
            return _hash_together(topics[0], joined)
        if lengths == {_LONGER} and len(beginnings := {text[:-_LENGTH] for text in texts}) == 1:
            begun = java_hash(beginnings.pop(), topics[0])
            return _hash_together(begun, "".join([text[-_LENGTH:] for text in texts]))
    found: dict[TopicKey, int] = {}
    for topic in {*topics}:
        alike = [key for key in keys if key[0] == topic and len(key[1]) == _LENGTH and key[1].isascii()]
        if len(alike) >= _WORTH_IT:
            found.update(zip(alike, _hash_together(topic, "".join(key[1] for key in alike)), strict=True))
    return [found[key] if key in found else key_hash(key[0], key[1]) for key in keys]


def _hash_together(topic: int, joined: str) -> list[int]:
    number = int.from_bytes(joined.encode("ascii"), "big")
    for shift, lanes, power in _STEPS:
        number = (number >> shift & lanes) * power + (number & lanes)
    number += (topic * _LIFT & _WORD) * _ONES
    hashes = _HASH.iter_unpack(number.to_bytes(_BYTES + 8, "big")[-len(joined) :])
    return [0 if hash == -0x80000000 else abs(hash) for (hash,) in hashes]
