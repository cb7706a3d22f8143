"""How a method is declared: its place on the wire, and the types of its fields. Knows no bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

import msgspec

from trimq.formats.amqp_content.field_tables import FieldTable

# The words with which fields are declared: they say how a field is written, and are looked up by name.
Octet = int
Short = int
Long = int
LongLong = int
Bit = bool
ShortString = str
LongString = bytes
Arguments = FieldTable

EMPTY: FieldTable = msgspec.field(default_factory=dict)


class Method(msgspec.Struct):
    """One method. `ID` is its class and method number in one, as they stand in a frame."""

    ID: ClassVar[int]
    NAME: ClassVar[str]

    @property
    def class_and_method(self) -> tuple[int, int]:
        return self.ID >> 16, self.ID & 0xFFFF


M = TypeVar("M", bound=type[Method])

METHODS: dict[int, type[Method]] = {}


def method(class_id: int, method_id: int, name: str) -> Callable[[M], M]:
    """Give a method its place on the wire."""

    def register(kind: M) -> M:
        kind.ID = class_id << 16 | method_id
        kind.NAME = name
        METHODS[kind.ID] = kind
        return kind

    return register
