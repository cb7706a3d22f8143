"""RocketMQ's message units as neutral messages, and back. Owns the names of properties that RocketMQ gives a meaning:
no header of another protocol becomes one of them, except the few that may be set."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from trimq.errors import InvalidRecords
from trimq.formats.crossing.neutral import (
    ACTING,
    AMQP,
    AMQP_FIELD,
    AMQP_PROPERTIES,
    ESCAPE,
    KEYS,
    ORIGINS,
    ROCKETMQ,
    ROCKETMQ_FIELD,
    TAGS,
    UNIQUE_KEY,
    VERSION,
    Kept,
    Neutral,
    decode_kept,
    encode_kept,
    is_reserved,
    is_usable_name,
    usable_text,
)
from trimq.formats.kafka_batch.compression import BadCompression, Codec, decompress_once
from trimq.formats.rocketmq_unit.hosts import pack_host, unpack_host
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.ttl import TTL_MS
from trimq.formats.rocketmq_unit.unit import COMPRESSED, LONGEST_SENT_PROPERTIES, Unit
from trimq.model import Buffer

FROM_PROPERTY, KEPT_PROPERTY, CUT_PROPERTY = "TRIMQ_FROM", "TRIMQ_KEPT", "TRIMQ_CUT"
SEQUENCE_PROPERTY = "TRIMQ_SEQ"
_OURS = ("TRIMQ_", "trimq.")

_PRIORITY = "_SYS_MSG_PRIORITY_"
_SHARDING_KEY = "__SHARDINGKEY"

# Properties that RocketMQ's clients and brokers give a meaning.
RESERVED = frozenset(
    (
        *("KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP"),
        *("MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
        *("RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES"),
        *("CONSUME_START_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "INSTANCE_ID"),
        *("TRANSACTION_CHECK_TIMES", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *(
            "CLUSTER",
            "MSG_TYPE",
            "POP_CK",
            "POP_CK_OFFSET",
            "1ST_POP_TIME",
            "ORIGIN_GROUP",
            "DUP_INFO",
            "TRACE_CONTEXT",
        ),
        *("BORN_HOST", "BORN_TIMESTAMP", "LITE_TOPIC", "TRANSIENT"),
    )
)
_RESERVED_PREFIXES = ("__", "_SYS_", "INNER_", "TIMER_", "DLQ_", *_OURS)

# Properties of the broker's own, without meaning to a reader.
_LEFT_OUT = frozenset(("MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT"))

# Properties that act on a broker or a client that receives them: a residue cannot set them.
_POWERFUL = frozenset(
    (
        *(
            "DELAY",
            "RETRY_TOPIC",
            "REAL_TOPIC",
            "REAL_QID",
            "TRAN_MSG",
            "PGROUP",
            "ORIGIN_MESSAGE_ID",
            "RECONSUME_TIME",
        ),
        *("TRANSFER_FLAG", "MAX_RECONSUME_TIMES", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
        *("ARRIVE_TIME", "PUSH_REPLY_TIME", "LITE_TOPIC"),
    )
)
_POWERFUL_PREFIXES = ("INNER_", "TIMER_", "DLQ_", "__STARTDELIVERTIME", "TRIMQ_")

_NATURAL_OF_AMQP = {
    "amqp.message-id": "UNIQ_KEY",
    "amqp.correlation-id": "CORRELATION_ID",
    "amqp.type": "TAGS",
    "amqp.priority": _PRIORITY,
    "amqp.expiration": TTL_MS,
}
_FIELD_OF_AMQP = {name: field for field, name in _NATURAL_OF_AMQP.items()}

FLAG, RECONSUME_TIMES, BORN_HOST = "rmq.flag", "rmq.reconsume-times", "rmq.born-host"

_OR_GZIP = 32  # for zlib: accepts a gzip header too, which gRPC producers write

# Bits 8 to 10 of a unit's system flag: compression of the body. Old producers left them 0 and used zlib.
_COMPRESSIONS = {1: Codec.LZ4, 2: Codec.ZSTD}
COMPRESSION_BITS = COMPRESSED | 7 << 8

MAX_EXPANDED_BYTES = 256 << 20

_CONTROL = str.maketrans({"\x00": "�", "\x01": "�", "\x02": "�"})


class UnitFields(NamedTuple):
    """Fields of a unit that a producer determines. `born_host` b"": not known."""

    body: Buffer
    properties: Mapping[str, str]
    born_ms: int
    flag: int = 0
    reconsume_times: int = 0
    born_host: bytes = b""


def to_neutral(unit: Unit, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> Neutral:
    """Converts a stored unit. Raises InvalidRecords if its body cannot be expanded."""
    properties = read_properties(unit.properties)
    origin = properties.get(FROM_PROPERTY)
    body = expanded_body(unit.body, unit.sys_flag, max_expanded_bytes)
    if origin is not None and origin in ORIGINS and origin != ROCKETMQ:
        return _translated(body, properties, unit.born_ms, origin)
    return sent_to_neutral(UnitFields(body, properties, unit.born_ms, unit.flag, unit.reconsume_times, unit.born_host))


def sent_to_neutral(unit: UnitFields) -> Neutral:
    """Converts what a RocketMQ producer sends, whose properties of ours mean nothing."""
    body, properties, born_ms, flag, times, host = unit
    fields: dict[str, str] = {}
    headers: list[tuple[str, bytes | None]] = []
    acting = ACTING[ROCKETMQ]
    is_plain = flag == 0 and times == 0 and born_ms >= 0
    key = properties.get("KEYS")
    for name, value in properties.items():
        if name in ("KEYS", *_LEFT_OUT):
            continue
        if is_own(name):
            if not name.startswith(_OURS) or name == TTL_MS:
                fields[ROCKETMQ_FIELD + name] = value
            is_plain = is_plain and name in ("TAGS", "UNIQ_KEY")
        elif name in acting:
            fields[name] = value
            headers.append((name, value.encode("utf-8", "replace")))
            is_plain = False
        else:
            headers.append((name, value.encode("utf-8", "replace")))
            is_plain = is_plain and is_usable_name(name)
    if flag:
        fields[FLAG] = str(flag)
    if times:
        fields[RECONSUME_TIMES] = str(times)
    if host:
        address, port = unpack_host(host)
        fields[BORN_HOST] = f"{address}:{port}"
    if key is None and (sharding_key := properties.get(_SHARDING_KEY)) is not None:
        key, is_plain = sharding_key, False
    kept = b"" if is_plain else encode_kept(_envelope(unit))
    raw_key = None if key is None else key.encode("utf-8", "replace")
    return Neutral(bytes(body), raw_key, tuple(headers), born_ms, ROCKETMQ, fields, kept)


def is_own(name: str) -> bool:
    """Returns whether RocketMQ or this broker gives a property of this name a meaning."""
    return name in RESERVED or name.startswith(_RESERVED_PREFIXES)


def from_neutral(message: Neutral, may_cut: bool = True) -> UnitFields:
    """Returns the unit that a RocketMQ client sees, and that a commit log stores. Properties that do not fit are cut
    and named by `TRIMQ_CUT`; unless `may_cut`, raises InvalidRecords."""
    if message.origin == ROCKETMQ:
        return _own(message)
    body, key, headers, born_ms, origin, fields, kept, sequence = message
    properties: dict[str, str] = {}
    if (tags := fields.get(TAGS)) is not None:
        properties["TAGS"] = tags
    text = fields.get(KEYS) or usable_text(key)
    if text is not None:
        properties["KEYS"] = text
    for name, value in fields.items():
        if not value or name in (TAGS, KEYS):
            continue
        if name == UNIQUE_KEY:
            properties["UNIQ_KEY"] = value
        elif origin == AMQP and (natural := _NATURAL_OF_AMQP.get(name)) is not None:
            if natural != TTL_MS or value.isdigit():
                properties.setdefault(natural, value)
        elif name.startswith(AMQP_FIELD):
            properties[name] = value
    properties = {name: value.translate(_CONTROL) for name, value in properties.items()}
    for name, raw in headers:
        shown = usable_text(raw)
        if shown is not None and name not in fields and name and name.translate(_CONTROL) == name:
            properties[_escaped(name)] = shown
    properties[FROM_PROPERTY] = origin
    if sequence:
        properties[SEQUENCE_PROPERTY] = sequence
    if kept:
        properties[KEPT_PROPERTY] = base64.urlsafe_b64encode(kept).decode()
    return UnitFields(body or b"", _fitting(properties, may_cut), born_ms)


def restore(kept: Kept, body: bytes | None, timestamp_ms: int) -> UnitFields:
    """Returns the unit whose residue another layout holds, without properties that would act."""
    properties = read_properties(kept.properties)
    harmless = {
        name: value
        for name, value in properties.items()
        if name not in _POWERFUL and (name == TTL_MS or not name.startswith(_POWERFUL_PREFIXES))
    }
    time_ms = timestamp_ms if kept.timestamp_ms is None else kept.timestamp_ms
    return UnitFields(body or b"", harmless, time_ms, *kept.numbers, kept.host)


def expanded_body(body: Buffer, sys_flag: int, max_bytes: int = MAX_EXPANDED_BYTES) -> bytes:
    """Returns the uncompressed body. Raises InvalidRecords if it cannot be expanded, or not within `max_bytes`."""
    if not sys_flag & COMPRESSED:
        return bytes(body)
    try:
        codec = _COMPRESSIONS.get(sys_flag >> 8 & 7)
        if codec is not None:
            return bytes(decompress_once(codec, body, max_bytes))
        expander = zlib.decompressobj(zlib.MAX_WBITS | _OR_GZIP)
        expanded = expander.decompress(body, max_bytes)
    except (zlib.error, BadCompression) as error:
        raise InvalidRecords(f"the body cannot be expanded: {error}") from error
    if expander.unconsumed_tail:
        raise InvalidRecords(f"the body expands to more than {max_bytes} bytes")
    if not expander.eof:
        raise InvalidRecords("the body cannot be expanded: its end is missing")
    return expanded


def _own(message: Neutral) -> UnitFields:
    kept = decode_kept(message.kept, ROCKETMQ) if message.kept else None
    if kept is not None:
        return restore(kept, message.body, message.timestamp_ms)
    fields = message.fields
    properties: dict[str, str] = {}
    if (key := usable_text(message.key)) is not None:
        properties["KEYS"] = key
    for name, value in fields.items():
        if name.startswith(ROCKETMQ_FIELD) and name not in (FLAG, RECONSUME_TIMES, BORN_HOST, KEYS):
            own = name[len(ROCKETMQ_FIELD) :]
            if own not in _POWERFUL and not own.startswith(_POWERFUL_PREFIXES):
                properties[own] = value
    for name, raw in message.headers:
        if not is_own(name) and (text := usable_text(raw)) is not None:
            properties[name] = text
    return UnitFields(message.body or b"", properties, message.timestamp_ms, born_host=_host(fields.get(BORN_HOST, "")))


def _host(text: str) -> bytes:
    address, _, port = text.rpartition(":")
    try:
        return pack_host(address, int(port))
    except ValueError:
        return b""


def _translated(body: bytes, properties: Mapping[str, str], born_ms: int, origin: str) -> Neutral:
    raw_kept = b""
    if (text := properties.get(KEPT_PROPERTY)) is not None:
        try:
            raw_kept = base64.urlsafe_b64decode(text)
        except (binascii.Error, ValueError):
            raw_kept = b""
    if raw_kept and decode_kept(raw_kept, origin) is None:
        raw_kept = b""
    fields: dict[str, str] = {}
    headers: list[tuple[str, bytes | None]] = []
    for name, value in properties.items():
        if name == "KEYS" or name in _LEFT_OUT:
            continue
        if origin == AMQP and name in _FIELD_OF_AMQP:
            fields[_FIELD_OF_AMQP[name]] = value
        elif name.startswith(ESCAPE):
            headers.append((name[len(ESCAPE) :], value.encode("utf-8", "replace")))
        elif is_own(name):
            if not name.startswith(_OURS):
                fields[ROCKETMQ_FIELD + name] = value
        elif name in AMQP_PROPERTIES or (origin == AMQP and name.startswith(AMQP_FIELD)):
            fields[name] = value
        else:
            headers.append((name, value.encode("utf-8", "replace")))
    keys = properties.get("KEYS")
    key = None if keys is None else keys.encode("utf-8", "replace")
    sequence = properties.get(SEQUENCE_PROPERTY, "")
    return Neutral(body, key, tuple(headers), born_ms, origin, fields, raw_kept, sequence)


def _escaped(name: str) -> str:
    return ESCAPE + name if is_own(name) or is_reserved(name) else name


def _fitting(properties: dict[str, str], may_cut: bool) -> dict[str, str]:
    if sum([len(name) + len(value) for name, value in properties.items()]) < LONGEST_SENT_PROPERTIES // 4:
        return properties  # however many bytes its characters have
    sizes = {name: len((name + value).encode("utf-8", "replace")) + 2 for name, value in properties.items()}
    left = sum(sizes.values())
    if left <= LONGEST_SENT_PROPERTIES:
        return properties
    cut: list[str] = []
    room = LONGEST_SENT_PROPERTIES - 1024  # for the names of what is cut
    for name in sorted(sizes, key=lambda each: -sizes[each]):
        if left <= room:
            break
        if name not in (FROM_PROPERTY, SEQUENCE_PROPERTY):
            cut.append(name)
            left -= sizes[name]
    if not may_cut:
        names = ", ".join(cut[:5])
        raise InvalidRecords(
            f"the headers {names} do not fit the {LONGEST_SENT_PROPERTIES} bytes of RocketMQ's properties"
        )
    fitting = {name: value for name, value in properties.items() if name not in cut}
    fitting[CUT_PROPERTY] = " ".join(cut)[:1000]
    return fitting


def _envelope(unit: UnitFields) -> Kept:
    raw = "".join([f"{name}\x01{value}\x02" for name, value in unit.properties.items() if name not in _LEFT_OUT])
    return Kept(
        VERSION,
        ROCKETMQ,
        properties=raw.encode("utf-8", "replace"),
        numbers=(unit.flag, unit.reconsume_times),
        host=unit.born_host,
        timestamp_ms=unit.born_ms if unit.born_ms < 0 else None,
    )
