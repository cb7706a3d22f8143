"""AMQP field tables: values of named types, decoded so that encoding gives the same bytes. Knows no method and no
property; never trusts a length before checking that the bytes are present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as PackError
from typing import TypeAlias

from trimq.model import Buffer

# Limit of nested tables, to bound the reader's recursion. RabbitMQ is limited by its frame size only.
MAX_DEPTH = 64
MAX_NAME_BYTES = 255

_unpack_u32 = Struct(">I").unpack_from
_pack_u32 = Struct(">I").pack


class BadField(Exception):
    """The bytes are not a field table, or a value cannot be encoded in one."""


class Byte(int):
    """Signed 8-bit number. A plain int is 64-bit, type `l`."""


class UnsignedByte(int): ...


class Short(int): ...


class UnsignedShort(int): ...


class Integer(int):
    """Signed 32-bit number."""


class UnsignedInteger(int): ...


class LongLong(int):
    """Signed 64-bit number encoded with the type `L`."""


class Timestamp(int):
    """Seconds since 1970, unsigned."""


class Single(float):
    """32-bit float. A plain float is 64-bit."""


class Octets(bytes):
    """Long string, type `S`, that is not UTF-8. Plain bytes are a byte array, type `x`."""


class RawValue(bytes):
    """An encoded value with its type byte, kept because it is nested too deeply to be decoded."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """value / 10^scale."""

    scale: int
    value: int


Value: TypeAlias = bool | int | float | str | bytes | Decimal | Sequence["Value"] | Mapping[str, "Value"] | None
FieldTable = dict[str, Value]

_NUMBERS: dict[int, tuple[Struct, type[int] | type[float]]] = {
    ord("b"): (Struct(">b"), Byte),
    ord("B"): (Struct(">B"), UnsignedByte),
    ord("s"): (Struct(">h"), Short),
    ord("u"): (Struct(">H"), UnsignedShort),
    ord("I"): (Struct(">i"), Integer),
    ord("i"): (Struct(">I"), UnsignedInteger),
    ord("l"): (Struct(">q"), int),
    ord("L"): (Struct(">q"), LongLong),
    ord("T"): (Struct(">Q"), Timestamp),
    ord("f"): (Struct(">f"), Single),
    ord("d"): (Struct(">d"), float),
}
_TYPES = {kind: (bytes([type]), form) for type, (form, kind) in _NUMBERS.items()}
_DECIMAL = Struct(">BI")
_OTHER_SIZES = {ord("t"): 1, ord("V"): 0, ord("D"): _DECIMAL.size}
_LONG = b"SFAx"
_TRUE, _FALSE = b"t\x01", b"t\x00"


# -- reading


def read_table(data: Buffer, position: int, end: int, depth: int = 0) -> tuple[FieldTable, int]:
    """Returns the table whose 32-bit length is at `position`, and the position after it."""
    start, finish = _read_extent(data, position, end)
    return read_entries(data, start, finish, depth), finish


def read_entries(data: Buffer, position: int, end: int, depth: int = 0) -> FieldTable:
    """Returns the entries of a table, which fill the bytes up to `end`."""
    if depth > MAX_DEPTH:
        raise BadField(f"tables are nested more than {MAX_DEPTH} deep")
    table: FieldTable = {}
    while position < end:
        start = position + 1
        position = start + data[position]
        if position > end:
            raise BadField("a name extends beyond its table")
        name = _decode(bytes(data[start:position]))
        table[name], position = read_value(data, position, end, depth)
    return table


def read_value(data: Buffer, position: int, end: int, depth: int = 0) -> tuple[Value, int]:
    """Returns the value whose type is at `position`, and the position after it."""
    if position >= end:
        raise BadField("a value extends beyond its table")
    type = data[position]
    position += 1
    if type in _NUMBERS:
        form, kind = _NUMBERS[type]
        finish = _require(position, form.size, end)
        return kind(form.unpack_from(data, position)[0]), finish
    if type == 0x74:  # t
        finish = _require(position, 1, end)
        return data[position] != 0, finish
    if type == 0x56:  # V
        return None, position
    if type == 0x44:  # D
        finish = _require(position, _DECIMAL.size, end)
        return Decimal(*_DECIMAL.unpack_from(data, position)), finish
    start, finish = _read_extent(data, position, end)
    if type == 0x53:  # S
        return read_long_string(bytes(data[start:finish])), finish
    if type == 0x46:  # F
        return read_entries(data, start, finish, depth + 1), finish
    if type == 0x41:  # A
        return _read_array(data, start, finish, depth + 1), finish
    if type == 0x78:  # x
        return bytes(data[start:finish]), finish
    raise BadField(f"unknown field type {type:#04x}")


def read_entries_leniently(data: Buffer, position: int, end: int) -> FieldTable:
    """Like `read_entries`, for any input of a producer: an undecodable value becomes a RawValue, and a name that is not
    UTF-8 keeps its bytes as surrogates. Raises BadField if the end of a value is unknown."""
    table: FieldTable = {}
    while position < end:
        start = position + 1
        position = _require(start, data[position], end)
        name = bytes(data[start:position]).decode("utf-8", "surrogateescape")
        finish = _end_of(data, position, end)
        try:
            table[name] = read_value(data, position, end)[0]
        except BadField:
            table[name] = RawValue(data[position:finish])
        position = finish
    return table


def _end_of(data: Buffer, position: int, end: int) -> int:
    """Returns the end of the value whose type is at `position`."""
    type, start = data[_require(position, 1, end) - 1], position + 1
    if type in _NUMBERS:
        return _require(start, _NUMBERS[type][0].size, end)
    if type in _OTHER_SIZES:
        return _require(start, _OTHER_SIZES[type], end)
    if type in _LONG:
        return _read_extent(data, start, end)[1]
    raise BadField(f"unknown field type {type:#04x}")


def read_long_string(raw: bytes) -> str | Octets:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return Octets(raw)


def _read_array(data: Buffer, position: int, end: int, depth: int) -> list[Value]:
    if depth > MAX_DEPTH:
        raise BadField(f"arrays are nested more than {MAX_DEPTH} deep")
    values: list[Value] = []
    while position < end:
        value, position = read_value(data, position, end, depth)
        values.append(value)
    return values


def _read_extent(data: Buffer, position: int, end: int) -> tuple[int, int]:
    start = _require(position, 4, end)
    (length,) = _unpack_u32(data, position)
    return start, _require(start, length, end)


def _require(position: int, size: int, end: int) -> int:
    finish = position + size
    if finish > end:
        raise BadField("a value extends beyond its table")
    return finish


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadField("a name is not UTF-8") from None


# -- writing


def write_table(table: Mapping[str, Value]) -> bytes:
    """Encodes a table with its length. Raises BadField if a name or a value cannot be encoded."""
    entries = b"".join([_write_name(name) + write_value(value) for name, value in table.items()])
    return _pack_u32(len(entries)) + entries


def write_value(value: Value) -> bytes:
    """Encodes a value with its type byte."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if value is None:
        return b"V"
    if isinstance(value, str):
        return _write_octets(b"S", value.encode("utf-8"))
    if isinstance(value, Octets):
        return _write_octets(b"S", value)
    if isinstance(value, bytes):
        return bytes(value) if isinstance(value, RawValue) else _write_octets(b"x", value)
    if isinstance(value, Mapping):
        return b"F" + write_table(value)
    if isinstance(value, Sequence):
        return _write_octets(b"A", b"".join(map(write_value, value)))
    return _write_number(value)


def _write_number(value: int | float | Decimal) -> bytes:
    try:
        if isinstance(value, Decimal):
            return b"D" + _DECIMAL.pack(value.scale, value.value)
        type, form = _TYPES[value.__class__]
        return type + form.pack(value)
    except (ArithmeticError, ValueError, KeyError, PackError) as error:
        raise BadField(f"{value!r} cannot be encoded in a field table: {error}") from None


def _write_octets(type: bytes, octets: bytes) -> bytes:
    return type + _pack_u32(len(octets)) + octets


def _write_name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > MAX_NAME_BYTES:
        raise BadField(f"a name of {len(encoded)} bytes, but at most {MAX_NAME_BYTES} are allowed")
    return bytes((len(encoded),)) + encoded
