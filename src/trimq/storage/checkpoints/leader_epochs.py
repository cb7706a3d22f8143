"""Parser and formatter of the two text files of a partition folder, `leader-epoch-checkpoint` and `partition.metadata`,
in Kafka's formats. `atomic_file` writes them."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from trimq.storage.checkpoints.file_names import LEADER_EPOCHS, PARTITION_METADATA, CorruptCompanion

_VERSION = 0
_MAX_EPOCH = (1 << 31) - 1
_MAX_OFFSET = (1 << 63) - 1
_NO_TOPIC = UUID(int=0)  # Kafka's value for "no topic", which no file may hold


class EpochStart(NamedTuple):
    """Records from `start_offset` on were appended under the leader of `epoch`."""

    epoch: int
    start_offset: int


def format_epochs(starts: Sequence[EpochStart]) -> bytes:
    lines = [str(_VERSION), str(len(starts)), *(f"{epoch} {start_offset}" for epoch, start_offset in starts)]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def parse_epochs(data: bytes) -> list[EpochStart]:
    """Returns the epochs, oldest first. An empty file, as Kafka creates it, has none."""
    lines = _lines(data, LEADER_EPOCHS)
    if not lines:
        return []
    version = _number(lines[0], _MAX_EPOCH, "version")
    if version != _VERSION:
        raise CorruptCompanion(f"{LEADER_EPOCHS}: version {version} is not supported")
    if len(lines) < 2:
        raise CorruptCompanion(f"{LEADER_EPOCHS}: the number of entries is missing")
    count = _number(lines[1], _MAX_EPOCH, "number of entries")
    if count != len(lines) - 2:
        raise CorruptCompanion(f"{LEADER_EPOCHS}: {count} entries are announced, but {len(lines) - 2} are present")
    starts = [_parse_start(line) for line in lines[2:]]
    for before, after in pairwise(starts):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            raise CorruptCompanion(
                f"{LEADER_EPOCHS}: epoch {after.epoch} cannot start at {after.start_offset} after {before}"
            )
    return starts


def _parse_start(line: str) -> EpochStart:
    words = line.split()
    if len(words) != 2:
        raise CorruptCompanion(f"{LEADER_EPOCHS}: {line!r} is not an epoch and an offset")
    return EpochStart(_number(words[0], _MAX_EPOCH, "epoch"), _number(words[1], _MAX_OFFSET, "offset"))


def _number(word: str, most: int, what: str) -> int:
    # Limited to 19 digits, because int() gets slower with more digits.
    if word.isascii() and word.isdigit() and len(word) <= 19 and int(word) <= most:
        return int(word)
    raise CorruptCompanion(f"{LEADER_EPOCHS}: {word[:40]!r} is not a valid {what}")


def _lines(data: bytes, name: str) -> list[str]:
    try:
        return data.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise CorruptCompanion(f"{name}: not ASCII text") from None


def format_partition_metadata(topic: UUID) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {format_uuid(topic)}".encode("ascii")  # no line end, as in Kafka


@lru_cache(maxsize=16)  # the folders of one topic are opened one after the other and hold the same contents
def parse_partition_metadata(data: bytes) -> UUID:
    """Returns the topic id."""
    fields: dict[str, str] = {}
    for line in _lines(data, PARTITION_METADATA):
        name, colon, value = line.partition(":")
        if not colon or name in fields:
            raise CorruptCompanion(f"{PARTITION_METADATA}: {line[:80]!r} is not a valid line")
        fields[name] = value.strip()
    if fields.keys() != {"version", "topic_id"}:
        raise CorruptCompanion(f"{PARTITION_METADATA}: has fields {sorted(fields)} instead of version and topic_id")
    if fields["version"] != str(_VERSION):
        raise CorruptCompanion(f"{PARTITION_METADATA}: version {fields['version'][:40]!r} is not supported")
    return parse_uuid(fields["topic_id"])


def format_uuid(identity: UUID) -> str:
    """Returns the 16 bytes in URL-safe base 64 without padding, 22 characters, as Kafka prints them."""
    return urlsafe_b64encode(identity.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    if len(text) <= 24:
        try:
            data = urlsafe_b64decode(text.rstrip("=").encode("ascii") + b"==")
        except (UnicodeEncodeError, binascii.Error):
            data = b""
        identity = UUID(bytes=data) if len(data) == 16 else _NO_TOPIC
        # Compared, because the decoder skips unknown characters.
        if identity != _NO_TOPIC and format_uuid(identity) == text.rstrip("="):
            return identity
    raise CorruptCompanion(f"{PARTITION_METADATA}: {text[:40]!r} is not a topic id")
