"""Schema language of Kafka's messages: structs whose fields carry wire type, versions and tag. Knows the shape of
messages, not their bytes: `reader_compiler` and `writer_compiler` compile these schemas.

    class PartitionProduceResponse(Struct):
        index: int = int32()
        log_append_time_ms: int = int64("2+", default=-1)
        error_message: str | None = nullable_string("8+", default=None)

A struct is one class for all versions. A field that a version lacks has its default after reading, and is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import msgspec

T = TypeVar("T")

Element = Callable[..., Any]
NEVER = "none"
NO_ID = bytes(16)  # the all-zero uuid, which no topic has


@dataclass(slots=True)
class Field:
    """One field of a struct. `element` is the class of a struct field, or the element type of an array: a class or one
    of the functions below, as in `array(int32)`."""

    kind: str
    versions: str = "0+"
    nullable: str = NEVER
    default: Any = None
    tag: int | None = None
    element: Element | None = None
    name: str = ""


def version_range(versions: str) -> tuple[int, int]:
    """Returns the first and last version of `"3+"`, `"2-5"`, `"7"` or `"none"`."""
    if versions == NEVER:
        return 1, 0
    if versions.endswith("+"):
        return int(versions[:-1]), 32767
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def includes(versions: str, version: int) -> bool:
    first, last = version_range(versions)
    return first <= version <= last


class StructMeta(msgspec.StructMeta):
    """Replaces the fields of a class body by plain defaults, and keeps their schema in `FIELDS`."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        described = []
        for key, field in namespace.items():
            if isinstance(field, Field):
                field.name = key
                described.append(field)
        for field in described:
            namespace[field.name] = plain_default(field)
        namespace["FIELDS"] = tuple(described)
        if "api_key" in config:
            namespace["API_KEY"] = config.pop("api_key")
        return super().__new__(mcs, name, bases, namespace, **config)


def plain_default(field: Field) -> Any:
    if field.kind == "array" and field.default is not None:
        return msgspec.field(default_factory=list)
    if field.kind == "struct" and field.nullable == NEVER and field.tag is None:
        return msgspec.field(default_factory=cast("Callable[[], Any]", field.element))
    return field.default


class Struct(msgspec.Struct, metaclass=StructMeta, gc=False):
    """One struct of the protocol. Compares and prints by value. Must not be part of a reference cycle: the garbage
    collector does not track it."""

    FIELDS: ClassVar[tuple[Field, ...]]


class Message(Struct):
    """Body of a request or response. `API_KEY` refers to its row in `apis.APIS`, which has the versions."""

    API_KEY: ClassVar[int]


class RequestMessage(Message):
    """Body of a request."""


class ResponseMessage(Message):
    """Body of a response."""


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int8", versions, default=default, tag=tag))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int16", versions, default=default, tag=tag))


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("uint16", versions, default=default, tag=tag))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int32", versions, default=default, tag=tag))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast(int, Field("int64", versions, default=default, tag=tag))


def float64(versions: str = "0+", *, default: float = 0.0) -> float:
    return cast(float, Field("float64", versions, default=default))


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    return cast(bool, Field("bool", versions, default=default, tag=tag))


def uuid(versions: str = "0+", *, tag: int | None = None) -> bytes:
    """Sixteen bytes. Topic ids are compared and looked up as bytes: `uuid.UUID` objects cost ten times as much."""
    return cast(bytes, Field("uuid", versions, default=NO_ID, tag=tag))


def string(versions: str = "0+", *, default: str = "") -> str:
    return cast(str, Field("string", versions, default=default))


def nullable_string(
    versions: str = "0+", *, nullable: str = "0+", default: str | None = "", tag: int | None = None
) -> str | None:
    return cast("str | None", Field("string", versions, nullable, default, tag))


def blob(versions: str = "0+") -> bytes:
    return cast(bytes, Field("bytes", versions, default=b""))


def record_batches(versions: str = "0+", *, nullable: str = "0+") -> Records:
    """Record batches: read as a view of the received bytes (writable if those are), written from any buffer."""
    return cast("Records", Field("records", versions, nullable, None))


def array(element: Callable[..., T], versions: str = "0+", *, tag: int | None = None) -> list[T]:
    """Array of structs, `array(TopicData)`, or of plain values, `array(int32)`."""
    return cast("list[T]", Field("array", versions, default=(), tag=tag, element=element))


def nullable_array(
    element: Callable[..., T], versions: str = "0+", *, nullable: str = "0+", default: tuple[()] | None = ()
) -> list[T] | None:
    return cast("list[T] | None", Field("array", versions, nullable, default, element=element))


def struct(element: type[T], versions: str = "0+") -> T:
    return cast(T, Field("struct", versions, element=element))


def nullable_struct(element: type[T], versions: str = "0+", *, nullable: str = "0+") -> T | None:
    return cast("T | None", Field("struct", versions, nullable, element=element))


def tagged_struct(element: type[T], versions: str = "0+", *, tag: int) -> T | None:
    """Struct in a tagged field. None means absent, which on the wire stands for a struct of defaults."""
    return cast("T | None", Field("struct", versions, tag=tag, element=element))


Records = bytes | bytearray | memoryview | None
