"""Field table values as RabbitMQ prints them in error texts: names of their types, and Erlang terms. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trimq.formats.amqp_content.field_tables import (
    Byte,
    Decimal,
    Integer,
    Octets,
    Short,
    Single,
    Timestamp,
    UnsignedByte,
    UnsignedInteger,
    UnsignedShort,
)

_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Byte, "byte"),
    (UnsignedByte, "unsignedbyte"),
    (Short, "short"),
    (UnsignedShort, "unsignedshort"),
    (Integer, "signedint"),
    (UnsignedInteger, "unsignedint"),
    (Timestamp, "timestamp"),
    (int, "long"),
    (Single, "float"),
    (float, "double"),
    (str, "longstr"),
    (Octets, "longstr"),
    (bytes, "binary"),
    (Decimal, "decimal"),
    (Mapping, "table"),
    (Sequence, "array"),
)
_VOID = "void"
_LINE = 79


def type_name(value: object) -> str:
    """Returns RabbitMQ's name of the type of a value."""
    return next((name for kind, name in _TYPES if isinstance(value, kind)), _VOID)


def term(value: object) -> str:
    """Prints a value as an Erlang term."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _binary(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return _binary(value)
    if isinstance(value, Decimal):
        return f"{{{value.scale},{value.value}}}"
    if isinstance(value, Mapping):
        fields = [f"{{{term(name)},{type_name(each)},{term(each)}}}" for name, each in value.items()]
        return f"[{','.join(fields)}]"
    if isinstance(value, Sequence):
        return f"[{','.join(typed_term(each) for each in value)}]"
    return repr(float(value)) if isinstance(value, float) else str(value)


def typed_term(value: object) -> str:
    """Prints a value with its type."""
    return f"{{{type_name(value)},{term(value)}}}"


def text_or_term(value: object) -> str:
    """Prints a string as it is, everything else as a term."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else term(value)


def atom(name: object) -> str:
    """Prints an atom, which needs quotes unless it is a plain word."""
    return str(name) if re.fullmatch("[a-z][a-zA-Z0-9_@]*", str(name)) else f"'{name}'"


def quoted(text: str) -> str:
    """Prints a string of Erlang, a list of characters."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def pair(tag: str, value: str, column: int) -> str:
    """Prints a tuple of an atom and a printed value that begins in this column, as `~p` does: the value is on a line of
    its own if the line would be too long."""
    printed = f"{{{tag},{value}}}"
    return printed if column + len(printed) < _LINE else f"{{{tag},\n{' ' * (column + 1)}{value}}}"


def _binary(octets: bytes) -> str:
    if not octets:
        return "<<>>"
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        return f"<<{','.join(map(str, octets))}>>"
    return f"<<{quoted(text)}>>" if text.isascii() else f"<<{quoted(text)}/utf8>>"
