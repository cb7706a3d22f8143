"""Encodes and decodes messages of every API and version in `apis`. Compiles readers and writers on first use."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from trimq.model import Buffer
from trimq.protocols.kafka.messages.schema import Message, Struct
from trimq.protocols.kafka.wire.apis import APIS, UnsupportedRequest
from trimq.protocols.kafka.wire.primitives import MalformedMessage
from trimq.protocols.kafka.wire.reader_compiler import NO_ELEMENT_LIMIT, Reader, compile_reader, holds_records
from trimq.protocols.kafka.wire.writer_compiler import Writer, compile_writer

M = TypeVar("M", bound=Message)
Form = Callable[[Buffer], Buffer]


def decode(kind: type[M], version: int, buffer: Buffer, position: int = 0, max_elements: int = NO_ELEMENT_LIMIT) -> M:
    """Decodes the body of a message that begins at `position` and may end before the buffer does.

    Record batches become views of `buffer`; all other values are copied. Raises MalformedMessage if the bytes are not
    such a message, or if its arrays have more than `max_elements` elements in total, and UnsupportedRequest if the
    version is not served.
    """
    reader, form = message_reader(kind, version)
    try:
        message: M = reader(form(buffer), position, max_elements)[0]
    except (IndexError, struct.error):
        raise MalformedMessage(f"{kind.__name__} version {version} ends too early") from None
    return message


def encode(message: Message, version: int) -> bytes:
    """Encodes the body of a message. Raises ValueError if a value does not fit its field: a bug of the caller."""
    return b"".join(write_pieces(message, version))


def write_pieces(message: Message, version: int) -> list[Buffer]:
    """Like `encode`, but returns pieces; record batches are the caller's buffers, not copies."""
    kind = type(message)
    writer = message_writer(kind, version)
    pieces: list[Buffer] = []
    try:
        writer(pieces.append, message)
    except (TypeError, AttributeError, struct.error, UnicodeError) as mistake:
        raise ValueError(f"{message!r} cannot be written as {kind.__name__} version {version}: {mistake}") from mistake
    return pieces


def is_flexible(api_key: int, version: int) -> bool:
    """Returns whether a version has compact lengths, tagged fields and the newer headers."""
    return version >= APIS[api_key].flexible_from


@cache
def message_reader(kind: type[Message], version: int) -> tuple[Reader, Form]:
    """Returns the reader of a message, and the conversion of a buffer to the type that the reader needs."""
    check_version(kind.API_KEY, version)
    reader = compile_reader(kind, version, is_flexible(kind.API_KEY, version))
    return reader, memoryview if holds_records(kind) else bytes


@cache
def message_writer(kind: type[Message], version: int) -> Writer:
    check_version(kind.API_KEY, version)
    return compile_writer(kind, version, is_flexible(kind.API_KEY, version))


@cache
def struct_writer(kind: type[Struct], version: int, flexible: bool) -> Writer:
    """Returns the writer of a struct inside a message, for the hand-written fast paths."""
    return compile_writer(kind, version, flexible)


def check_version(api_key: int, version: int) -> None:
    api = APIS[api_key]
    if not api.min_version <= version <= api.max_version:
        raise UnsupportedRequest(api_key, version)
