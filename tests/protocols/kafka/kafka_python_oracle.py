"""Kafka's messages in the classes of `kafka.protocol` of kafka-python, made from ours."""

from __future__ import annotations

import importlib
import pkgutil
import uuid
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from trimq.protocols.kafka.messages.schema import NO_ID, Field, Message, Struct, includes
from trimq.protocols.kafka.wire.apis import APIS


@cache
def classes() -> dict[str, Any]:
    """Every message class of the package, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about the import of its own files
        return {
            name: member for module in modules() for name, member in vars(module).items() if is_message(name, member)
        }


def modules() -> Iterator[ModuleType]:
    package = importlib.import_module("kafka.protocol")
    for found in pkgutil.walk_packages(package.__path__, "kafka.protocol."):
        if ".old" not in found.name and "generate" not in found.name:
            yield importlib.import_module(found.name)


def is_message(name: str, member: Any) -> bool:
    return name.endswith(("Request", "Response")) and hasattr(member, "API_KEY")


def versions_of(kind: type[Message]) -> list[int]:
    """Versions of a message that kafka-python supports; none if it does not know the message."""
    if kind.__name__ not in classes():
        return []
    api = APIS[kind.API_KEY]
    last = classes()[kind.__name__].max_version
    return [version for version in range(api.min_version, api.max_version + 1) if version <= last]


def reads_as_another_version(value: Message) -> bool:
    """Tells whether kafka-python reads this as another version: it reads refusals of ApiVersions as version 0."""
    return type(value).__name__ == "ApiVersionsResponse" and getattr(value, "error_code", 0) != 0


def decode(kind: type[Message], version: int, body: bytes) -> Any:
    return classes()[kind.__name__].decode(body, version=version)


def encode(theirs: Any) -> bytes:
    return bytes(theirs.encode())


def from_ours(value: Message, version: int) -> Any:
    return container_from(value, classes()[type(value).__name__], version)


def container_from(value: Struct, container: Any, version: int) -> Any:
    arguments = {}
    for field in value.FIELDS:
        held = getattr(value, field.name)
        if not includes(field.versions, version) or (held is None and field.tag is not None):
            continue
        theirs = field_of(container, field)
        arguments[theirs.name] = converted(held, field, theirs, version)
    return container(version=version, **arguments)


def field_of(container: Any, field: Field) -> Any:
    fields = container._struct.fields
    # it has shorter names for the authorized operations of cluster and topic
    return fields.get(field.name) or fields[field.name.removeprefix("cluster_").removeprefix("topic_")]


def converted(held: Any, field: Field, theirs: Any, version: int) -> Any:
    if isinstance(held, list) and isinstance(field.element, type):
        return [container_from(each, theirs.data_class, version) for each in held]
    if isinstance(held, Struct):
        return container_from(held, theirs.data_class, version)
    if field.kind == "uuid":
        return uuid.UUID(bytes=held)
    if theirs.type_str == "bitfield":
        return {bit for bit in range(32) if held >> bit & 1}
    return held


def plain(theirs: Any, kind: type[Struct], version: int) -> dict[str, Any]:
    """kafka-python's message as plain values, with our field names."""
    return {
        field.name: plain_field(theirs, field, version) for field in kind.FIELDS if includes(field.versions, version)
    }


def plain_field(theirs: Any, field: Field, version: int) -> Any:
    field_there = field_of(theirs, field)
    held = getattr(theirs, field_there.name)
    if held is not None and isinstance(field.element, type):
        if isinstance(held, list | tuple):
            return [plain(each, field.element, version) for each in held]
        return plain(held, field.element, version)
    if field.kind == "uuid":
        return NO_ID if held is None else held.bytes
    if field_there.type_str == "bitfield" and held is None:
        return {31}  # its reading of the number for "not requested"
    return bytes(held) if isinstance(held, memoryview) else held
