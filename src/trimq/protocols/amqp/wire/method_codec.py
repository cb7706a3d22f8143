"""Codec of methods. Compiles the fields of each method once to a reader and a writer; checks lengths against the
received bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as ShortOfBytes
from typing import Any

from trimq.formats.amqp_content.field_tables import BadField, read_table, write_table
from trimq.protocols.amqp.methods import METHODS, Method

_ID = Struct(">I")
_U32 = Struct(">I")
_NUMBERS = {"Octet": Struct(">B"), "Short": Struct(">H"), "Long": Struct(">I"), "LongLong": Struct(">Q")}
_MAX_SHORT_STRING = 255

Read = Callable[[bytes, int, list[Any]], int]
Write = Callable[[Method], bytes]


class BadMethod(Exception):
    """The arguments of a method cannot be decoded."""


class UnknownMethod(BadMethod):
    """No method has this number."""


class BadTable(BadMethod):
    """An argument is no field table."""


class BadText(BadMethod):
    """A string is not UTF-8."""


def method_id(payload: bytes) -> int:
    """Reads class and method number, which precede the arguments."""
    if len(payload) < 4:
        raise BadMethod("method frame is too short for a method number")
    number: int = _ID.unpack_from(payload)[0]
    return number


def read_method(payload: bytes) -> Method:
    """Decodes the payload of a method frame."""
    number = method_id(payload)
    kind = METHODS.get(number)
    if kind is None:
        raise UnknownMethod(f"unknown method {number >> 16}.{number & 0xFFFF}")
    values: list[Any] = []
    position = 4
    try:
        for read in _readers(kind):
            position = read(payload, position, values)
    except UnicodeDecodeError:
        raise BadText(f"{kind.NAME} has a string that is not UTF-8") from None
    except (IndexError, ShortOfBytes, BadField) as error:
        raise BadMethod(f"{kind.NAME} is malformed: {error}") from None
    if position != len(payload):
        raise BadMethod(f"{kind.NAME} has {len(payload) - position} extra bytes")
    return kind(*values)


def write_method(method: Method) -> bytes:
    """Encodes the payload of a method frame."""
    return b"".join([_ID.pack(method.ID), *(write(method) for write in _writers(type(method)))])


# -- compiled once for each method


def _steps(kind: type[Method]) -> list[tuple[str, list[str]]]:
    """Returns the fields in order with their type; adjacent bits share one octet and one step."""
    steps: list[tuple[str, list[str]]] = []
    for name in kind.__struct_fields__:
        type_name = kind.__annotations__[name]
        if type_name == "Bit" and steps and steps[-1][0] == "Bit":
            steps[-1][1].append(name)
        else:
            steps.append((type_name, [name]))
    return steps


@cache
def _readers(kind: type[Method]) -> list[Read]:
    return [_reader(type_name, len(names)) for type_name, names in _steps(kind)]


@cache
def _writers(kind: type[Method]) -> list[Write]:
    return [_writer(type_name, names) for type_name, names in _steps(kind)]


def _reader(type_name: str, count: int) -> Read:
    if type_name in _NUMBERS:
        form = _NUMBERS[type_name]

        def read_number(payload: bytes, position: int, values: list[Any]) -> int:
            values.append(form.unpack_from(payload, position)[0])
            return position + form.size

        return read_number
    if type_name == "Bit":

        def read_bits(payload: bytes, position: int, values: list[Any]) -> int:
            octet = payload[position]
            values.extend(bool(octet >> index & 1) for index in range(count))
            return position + 1

        return read_bits
    return _TEXT_READERS[type_name]


def _read_short_string(payload: bytes, position: int, values: list[Any]) -> int:
    start = position + 1
    end = start + payload[position]
    if end > len(payload):
        raise BadField("string extends beyond the method frame")
    values.append(payload[start:end].decode("utf-8"))
    return end


def _read_long_string(payload: bytes, position: int, values: list[Any]) -> int:
    start = position + 4
    end: int = start + _U32.unpack_from(payload, position)[0]
    if end > len(payload):
        raise BadField("string extends beyond the method frame")
    values.append(payload[start:end])
    return end


def _read_octets(payload: bytes, position: int, values: list[Any]) -> int:
    start = position + 1
    end = start + payload[position]
    if end > len(payload):
        raise BadField("string extends beyond the method frame")
    values.append(payload[start:end].decode("utf-8", "surrogateescape"))
    return end


def _read_table(payload: bytes, position: int, values: list[Any]) -> int:
    end: int = position + 4 + _U32.unpack_from(payload, position)[0]
    if end > len(payload):
        raise BadField("table extends beyond the method frame")
    try:
        values.append(read_table(payload, position, end)[0])
    except (IndexError, BadField) as error:
        raise BadTable(f"a table is malformed: {error}") from None
    return end


_TEXT_READERS: dict[str, Read] = {
    "ShortString": _read_short_string,
    "AnyString": _read_octets,
    "LongString": _read_long_string,
    "Arguments": _read_table,
}


def _writer(type_name: str, names: list[str]) -> Write:
    name = names[0]
    if type_name in _NUMBERS:
        pack = _NUMBERS[type_name].pack
        return lambda method: pack(getattr(method, name))
    if type_name == "Bit":

        def write_bits(method: Method) -> bytes:
            return bytes((sum(bool(getattr(method, bit)) << index for index, bit in enumerate(names)),))

        return write_bits
    if type_name == "Arguments":
        return lambda method: write_table(getattr(method, name))
    if type_name == "LongString":
        return lambda method: _U32.pack(len(getattr(method, name))) + getattr(method, name)
    return lambda method: write_short_string(getattr(method, name))


def write_short_string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    if len(encoded) > _MAX_SHORT_STRING:
        raise BadMethod(f"short string of {len(encoded)} bytes exceeds the limit of {_MAX_SHORT_STRING} bytes")
    return bytes((len(encoded),)) + encoded
