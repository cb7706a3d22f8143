"""Declaration of methods: their numbers on the wire and the types of their fields. Knows no bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

import msgspec

from trimq.formats.amqp_content.field_tables import FieldTable

# Field types. The codec looks them up by the name in the annotation.
Octet = int
Short = int
Long = int
LongLong = int
Bit = bool
ShortString = str
AnyString = str  # need not be UTF-8: as in RabbitMQ, names in messages are not checked
LongString = bytes
Arguments = FieldTable

EMPTY: FieldTable = msgspec.field(default_factory=dict)


class Method(msgspec.Struct):
    """One method. `ID`: class and method number combined, as encoded in a frame."""

    ID: ClassVar[int]
    NAME: ClassVar[str]

    @property
    def class_and_method(self) -> tuple[int, int]:
        return self.ID >> 16, self.ID & 0xFFFF


M = TypeVar("M", bound=type[Method])

METHODS: dict[int, type[Method]] = {}


def method(class_id: int, method_id: int, name: str) -> Callable[[M], M]:
    """Registers a method class under its class and method number."""

    def register(kind: M) -> M:
        kind.ID = class_id << 16 | method_id
        kind.NAME = name
        METHODS[kind.ID] = kind
        return kind

    return register
