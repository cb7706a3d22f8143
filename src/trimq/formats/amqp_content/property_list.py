"""Properties of an AMQP content, kept as the bytes that its producer sent: 16-bit flags and a list. Finds one property
without decoding the others, and changes one without touching their bytes."""

from __future__ import annotations

from struct import Struct

from trimq.formats.amqp_content.field_tables import (
    BadField,
    FieldTable,
    Value,
    read_entries,
    read_entries_leniently,
    read_table,
    write_table,
)
from trimq.model import Buffer

SHORT_STRING, TABLE, OCTET, TIMESTAMP = "short string", "table", "octet", "timestamp"

# In the order of their flags, from the highest bit down.
PROPERTIES: dict[str, str] = {
    "content_type": SHORT_STRING,
    "content_encoding": SHORT_STRING,
    "headers": TABLE,
    "delivery_mode": OCTET,
    "priority": OCTET,
    "correlation_id": SHORT_STRING,
    "reply_to": SHORT_STRING,
    "expiration": SHORT_STRING,
    "message_id": SHORT_STRING,
    "timestamp": TIMESTAMP,
    "type": SHORT_STRING,
    "user_id": SHORT_STRING,
    "app_id": SHORT_STRING,
    "cluster_id": SHORT_STRING,
}
FLAGS = {name: 1 << (15 - index) for index, name in enumerate(PROPERTIES)}
_ORDER = [(FLAGS[name], name, kind) for name, kind in PROPERTIES.items()]

TRANSIENT, PERSISTENT = 1, 2  # delivery modes

_U16 = Struct(">H")
_U32 = Struct(">I")
_U64 = Struct(">Q")

EMPTY = b"\0\0"  # no flag, no property


def flags_of(header: Buffer) -> int:
    """Returns the flags. `header`, here and below: the flags and the list in wire format."""
    flags: int = _U16.unpack_from(header)[0]
    return flags


def check_properties(header: Buffer) -> None:
    """Raises BadField if the list does not match its flags. Does not check inside tables. As in RabbitMQ, the two flags
    without a property are ignored."""
    if len(header) < 2:
        raise BadField("the property flags are missing")
    if _extents(header)[1] != len(header):
        raise BadField("the properties are longer than their flags say")


def read_property(header: Buffer, name: str) -> Value:
    """Returns one property, or None. Decodes no more than needed."""
    flag = FLAGS[name]
    if not flags_of(header) & flag:
        return None
    start, end = _extents(header, until=flag)[0][name]
    return _read(header, start, end, PROPERTIES[name])


def read_text(header: Buffer, name: str) -> str | None:
    """Returns the value of a short string, or None if it is not set. Bytes that are not UTF-8 become surrogates, so
    that a comparison with any name fails instead of raising."""
    extents, _ = _extents(header, FLAGS[name])
    if name not in extents:
        return None
    start, end = extents[name]
    return str(bytes(header[start + 1 : end]), "utf-8", "surrogateescape")


def read_properties(header: Buffer) -> dict[str, Value]:
    """Returns all properties present."""
    return {name: _read(header, *extent, PROPERTIES[name]) for name, extent in _extents(header)[0].items()}


def read_headers(header: Buffer) -> FieldTable:
    """Returns the table of application headers; empty if there is none."""
    flag = FLAGS["headers"]
    if not flags_of(header) & flag:
        return {}
    start, end = _extents(header, until=flag)[0]["headers"]
    return read_entries(header, start + 4, end)


def read_headers_leniently(header: Buffer) -> FieldTable:
    """Like `read_headers`, but keeps undecodable values: see `read_entries_leniently`."""
    flag = FLAGS["headers"]
    if not flags_of(header) & flag:
        return {}
    start, end = _extents(header, until=flag)[0]["headers"]
    return read_entries_leniently(header, start + 4, end)


def is_persistent(header: Buffer) -> bool:
    return read_property(header, "delivery_mode") == PERSISTENT


def replace(header: Buffer, **changes: Value) -> bytes:
    """Returns the same properties, byte for byte, except for the named ones: a new value, or None to remove it."""
    extents, _ = _extents(header)
    flags = 0
    pieces = [b""]
    for flag, name, kind in _ORDER:
        if name in changes:
            if (value := changes[name]) is None:
                continue
            pieces.append(_write(value, kind))
        elif name in extents:
            start, end = extents[name]
            pieces.append(bytes(header[start:end]))
        else:
            continue
        flags |= flag
    pieces[0] = _U16.pack(flags)
    return b"".join(pieces)


def write_properties(**properties: Value) -> bytes:
    return replace(EMPTY, **properties)


def _extents(header: Buffer, until: int = 0) -> tuple[dict[str, tuple[int, int]], int]:
    """Returns begin and end of each property, up to the one with the flag `until`, and the end of the last one."""
    flags = flags_of(header)
    size = len(header)
    position = 2
    found: dict[str, tuple[int, int]] = {}
    for flag, name, kind in _ORDER:
        if not flags & flag:
            continue
        start = position
        if kind is SHORT_STRING:
            position += 1 + header[position] if position < size else 1
        elif kind is OCTET:
            position += 1
        elif kind is TIMESTAMP:
            position += 8
        else:
            position += 4 + _U32.unpack_from(header, position)[0] if position + 4 <= size else 4
        if position > size:
            raise BadField(f"the properties are truncated within {name}")
        found[name] = start, position
        if flag == until:
            break
    return found, position


def _read(header: Buffer, start: int, end: int, kind: str) -> Value:
    if kind is SHORT_STRING:
        try:
            return str(bytes(header[start + 1 : end]), "utf-8")
        except UnicodeDecodeError:
            raise BadField("a property is not UTF-8") from None
    if kind is OCTET:
        return header[start]
    if kind is TIMESTAMP:
        seconds: int = _U64.unpack_from(header, start)[0]
        return seconds
    return read_table(header, start, end)[0]


def _write(value: Value, kind: str) -> bytes:
    if kind is SHORT_STRING and isinstance(value, str):
        encoded = value.encode("utf-8")
        if len(encoded) > 255:
            raise BadField(f"a property of {len(encoded)} bytes, but at most 255 are allowed")
        return bytes((len(encoded),)) + encoded
    if kind is OCTET and isinstance(value, int):
        return bytes((value,))
    if kind is TIMESTAMP and isinstance(value, int):
        return _U64.pack(value)
    if kind is TABLE and isinstance(value, dict):
        return write_table(value)
    raise BadField(f"{value!r} is not of type {kind}")
