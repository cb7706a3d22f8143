"""Neutral message: what every layout can hold and give back. Owns the reserved names and the residue; knows no layout.

A message that crosses layouts travels in the natural fields of the other layout. What these cannot give back exactly is
kept whole in a residue (`Kept`), which a reader of the original protocol applies, and others show as one opaque header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from trimq.model import Headers

KAFKA, ROCKETMQ, AMQP = "kafka", "rocketmq", "amqp"
ORIGINS = frozenset((KAFKA, ROCKETMQ, AMQP))

ROCKETMQ_FIELD, AMQP_FIELD, KAFKA_FIELD, OURS = "rmq.", "amqp.", "kafka.", "trimq."
ESCAPE = "h."
"""Prefix of a header whose own name is reserved where it is shown."""

FROM = "trimq.from"
KEPT = "trimq.kept"
NULL = "trimq.null"
CUT = "trimq.cut"
SEQUENCE = "trimq.seq"

_RESERVED = (ROCKETMQ_FIELD, AMQP_FIELD, KAFKA_FIELD, OURS, ESCAPE)

TAGS, UNIQUE_KEY, KEYS = "rmq.TAGS", "rmq.UNIQ_KEY", "rmq.KEYS"

AMQP_PROPERTIES = {
    "amqp.content-type": "content_type",
    "amqp.content-encoding": "content_encoding",
    "amqp.delivery-mode": "delivery_mode",
    "amqp.priority": "priority",
    "amqp.correlation-id": "correlation_id",
    "amqp.reply-to": "reply_to",
    "amqp.expiration": "expiration",
    "amqp.message-id": "message_id",
    "amqp.type": "type",
    "amqp.app-id": "app_id",
    "amqp.cluster-id": "cluster_id",
}
"""Properties by field. `user_id` is not among them: consumers may trust that property, since the broker checks it, and
nobody checks a header of another protocol."""
USER_ID = "amqp.user-id"

_ACTING = frozenset((TAGS, UNIQUE_KEY, KEYS, *AMQP_PROPERTIES))
ACTING = {
    KAFKA: _ACTING,
    ROCKETMQ: frozenset(name for name in _ACTING if name.startswith(AMQP_FIELD)),
    AMQP: frozenset(name for name in _ACTING if name.startswith(ROCKETMQ_FIELD)),
}
"""Headers that set a field of another protocol, by the protocol of the writer. No other header does."""

_CONTROL = frozenset("\x00\x01\x02")
_LONGEST_NAME = 255 - len(ESCAPE)  # of a header in AMQP
NO_FIELDS: Mapping[str, str] = {}


class Neutral(NamedTuple):
    """One message between two layouts. `headers` have the names that their writer gave them; `fields` are the fields
    that only some protocols have, by full name (`rmq.TAGS`, `amqp.type`). `kept`: the encoded residue, empty if the
    natural fields give back everything. `sequence`: producer and place in its batch, of a message that an idempotent
    producer sent to a topic of another layout."""

    body: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    origin: str
    fields: Mapping[str, str] = NO_FIELDS
    kept: bytes = b""
    sequence: str = ""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """Residue: the envelope of a message as its own protocol wrote it, without the body. Version 1. `key` and
    `headers` are those of a record, `is_null` that its value was null; `properties` are the raw properties of a unit or
    of a content; `names` the exchange and routing key of a content; `numbers` the flag and the reconsume times of a
    unit; `host` where a unit was born. `timestamp_ms` is set if the other layout cannot hold it."""

    version: int
    origin: str
    key: bytes | None = None
    is_null: bool = False
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    properties: bytes = b""
    names: tuple[bytes, bytes] = (b"", b"")
    numbers: tuple[int, int] = (0, 0)
    host: bytes = b""
    timestamp_ms: int | None = None


VERSION = 1
encode_kept = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


def decode_kept(raw: bytes, origin: str) -> Kept | None:
    """Returns the residue of a message of this origin. None: these bytes are none, or of an unknown version."""
    try:
        kept = _decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return kept if kept.version == VERSION and kept.origin == origin else None


def is_reserved(name: str) -> bool:
    """Returns whether a header of this name must be escaped where fields are shown as headers."""
    return name.startswith(_RESERVED)


def usable_text(value: bytes | None) -> str | None:
    """Returns the value as text that every layout can hold; None if it is not such text."""
    if not value:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if _CONTROL.isdisjoint(text) else None


def is_usable_name(name: str) -> bool:
    """Returns whether every layout can hold a header of this name."""
    if not 0 < len(name) <= _LONGEST_NAME or not _CONTROL.isdisjoint(name) or not is_encodable(name):
        return False
    return name.isascii() or len(name.encode()) <= _LONGEST_NAME


def is_encodable(text: str) -> bool:
    """Returns whether the text has no lone surrogates, which stand for bytes that are not UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
