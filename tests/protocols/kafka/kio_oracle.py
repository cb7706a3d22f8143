"""Kafka's messages in the classes of `kio`, made from ours. kio has one class per version, and its own types for error
codes, durations, times and ids."""

from __future__ import annotations

import dataclasses
import datetime
import io
import re
import uuid
from functools import cache
from typing import Any, get_args

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from trimq.protocols.kafka.messages.schema import Message, RequestMessage, Struct
from trimq.protocols.kafka.wire.apis import APIS

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ONE_MS = datetime.timedelta(milliseconds=1)


def versions_of(kind: type[Message]) -> list[int]:
    api = APIS[kind.API_KEY]
    known = schema_name_map[api_key_map[kind.API_KEY]]
    return [version for version in range(api.min_version, api.max_version + 1) if version in known]


@cache
def entity_class(kind: type[Message], version: int) -> Any:
    side = EntityType.request if issubclass(kind, RequestMessage) else EntityType.response
    return getattr(load_payload_module(kind.API_KEY, version, side), kind.__name__)


@cache
def reader(kind: type[Message], version: int) -> Any:
    return entity_reader(entity_class(kind, version))


@cache
def writer(entity: Any) -> Any:
    return entity_writer(entity)


def decode(kind: type[Message], version: int, body: bytes) -> Any:
    value, size = reader(kind, version)(body, 0)
    assert size == len(body)
    return value


def encode(theirs: Any) -> bytes:
    out = io.BytesIO()
    writer(type(theirs))(out, theirs)
    return out.getvalue()


def from_ours(value: Message, version: int) -> Any:
    return entity_from(value, entity_class(type(value), version))


def entity_from(value: Struct, entity: Any) -> Any:
    arguments = {}
    for field in dataclasses.fields(entity):
        name = field.name if hasattr(value, field.name) else field.name + "_ms"
        held = getattr(value, name)
        if held is None and field.metadata.get("tag") is not None and is_struct(field.type):
            continue  # kio uses its default struct here
        arguments[field.name] = converted(held, field)
    return entity(**arguments)


def is_struct(annotation: Any) -> bool:
    return dataclasses.is_dataclass(annotation)


def converted(held: Any, field: Any) -> Any:
    if isinstance(held, list):
        return tuple(
            entity_from(each, element_class(field.type)) if isinstance(each, Struct) else each for each in held
        )
    if isinstance(held, Struct):
        return entity_from(held, element_class(field.type))
    kind = field.metadata.get("kafka_type", "")
    if kind == "error_code":
        return ErrorCode(held)
    if re.match("timedelta", kind):
        return held * ONE_MS
    if re.match("datetime", kind):
        return None if held == -1 else EPOCH + held * ONE_MS
    if kind == "uuid":
        return uuid.UUID(bytes=held) if any(held) else None
    return held


def element_class(annotation: Any) -> Any:
    """The dataclass inside `tuple[X, ...]`, `X | None` or both."""
    if is_struct(annotation):
        return annotation
    for inner in get_args(annotation):
        found = element_class(inner)
        if found is not None:
            return found
    return None
