"""Message classes of RocketMQ's gRPC API, built from `declaration`. They have a descriptor pool of their own, because a
client package that declares the same names may be loaded in the same process. The classes are attributes of this
module: `wire.Status(...)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

from trimq.protocols.rocketmq.grpc.wire.declaration import INNER_ENUMERATIONS, MESSAGES, PACKAGE
from trimq.protocols.rocketmq.grpc.wire.enums import ENUMERATIONS

_FILE = "trimq/rocketmq_v2.proto"
_Field = descriptor_pb2.FieldDescriptorProto

_GOOGLE = {"Time": ".google.protobuf.Timestamp", "Span": ".google.protobuf.Duration"}
_PLAIN = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
}
_ENUMERATION_NAMES = {each.__name__ for each in ENUMERATIONS} | set(INNER_ENUMERATIONS)


def _lines() -> Iterator[list[str]]:
    """Yields name and fields of each message; an indented line continues the line before it."""
    words: list[str] = []
    for line in MESSAGES.strip().splitlines():
        if not line.startswith(" ") and words:
            yield words
            words = []
        words += line.split()
    yield words


def describe() -> Any:
    """Returns the declaration as a FileDescriptorProto."""
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=PACKAGE, syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
    for enumeration in ENUMERATIONS:
        _add_values(file.enum_type.add(), enumeration.__name__, [(each.name, each.value) for each in enumeration])
    for name, *fields in _lines():
        _describe_message(file.message_type.add(name=name), fields)
    return file


def _add_values(described: Any, name: str, values: list[tuple[str, int]]) -> None:
    described.name = name
    for value, number in values:
        described.value.add(name=value, number=number)


def _describe_message(message: Any, fields: list[str]) -> None:
    for full, values in INNER_ENUMERATIONS.items():
        owner, _, name = full.partition(".")
        if owner == message.name:
            _add_values(message.enum_type.add(), name, [(value, number) for number, value in enumerate(values)])
    choices = list(dict.fromkeys(field.partition("|")[0] for field in fields if "|" in field))
    for choice in choices:
        message.oneof_decl.add(name=choice)
    for number, text in enumerate(fields, 1):
        choice, bar, rest = text.rpartition("|")
        name, _, kind = rest.partition(":")
        field = message.field.add(name=name.rstrip("*?{}"), number=number, label=_Field.LABEL_OPTIONAL)
        if name.endswith("{}"):
            _describe_map(message, field)
            continue
        _set_type(field, kind or "string")
        if name.endswith("*"):
            field.label = _Field.LABEL_REPEATED
        elif bar:
            field.oneof_index = choices.index(choice)
    _mark_optional(message, fields)


def _mark_optional(message: Any, fields: list[str]) -> None:
    """Declares each optional field as a oneof of its own; protobuf requires these after all others."""
    for field, text in zip(message.field, fields, strict=True):
        if text.partition(":")[0].endswith("?"):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _describe_map(message: Any, field: Any) -> None:
    entry = message.nested_type.add(name="".join(map(str.title, field.name.split("_"))) + "Entry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"


def _set_type(field: Any, kind: str) -> None:
    if kind in _PLAIN:
        field.type = _PLAIN[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind in _ENUMERATION_NAMES else _Field.TYPE_MESSAGE
        field.type_name = _GOOGLE.get(kind, f".{PACKAGE}.{kind}")


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    described = describe()
    pool.AddSerializedFile(described.SerializeToString())
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}"))
        for message in described.message_type
    }


globals().update(_classes())


def __getattr__(name: str) -> Any:
    """Called for unknown names only. Declares every class to type checkers."""
    raise AttributeError(f"no message is called {name}")
