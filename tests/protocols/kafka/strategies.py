"""Hypothesis strategies made from the schemas of Kafka's messages, for the tests of the codec."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from trimq.protocols.kafka.messages.schema import NO_ID, Field, Message, Struct, includes, plain_default
from trimq.protocols.kafka.wire import apis
from trimq.protocols.kafka.wire.apis import APIS

MORE = int(os.environ.get("TRIMQ_TEST_EXAMPLES_FACTOR", "1"))

INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
A_DAY_MS = 86_400_000


def examples(count: int) -> settings:
    """Settings for a property test; an environment variable multiplies the number of examples."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    phases = [Phase.explicit, Phase.generate, Phase.shrink]  # without `explain`, which takes minutes for a message
    return settings(max_examples=count * MORE, suppress_health_check=slow, database=None, phases=phases)


def message_classes() -> list[type[Message]]:
    """The request and response classes of every API."""
    return [kind for key in APIS for kind in (apis.request_class(key), apis.response_class(key))]


def versions_of(kind: type[Message]) -> range:
    api = APIS[kind.API_KEY]
    return range(api.min_version, api.max_version + 1)


@cache
def structs(kind: type[Struct]) -> st.SearchStrategy[Any]:
    """Any value of a struct or message, with the fields of all versions; see `restricted`."""
    return st.builds(kind, **{field.name: values(field) for field in kind.FIELDS})


def values(field: Field) -> st.SearchStrategy[Any]:
    plain = plain_values(field)
    if field.nullable != "none" or (field.kind == "struct" and field.tag is not None):
        return st.none() | plain
    return plain


def plain_values(field: Field) -> st.SearchStrategy[Any]:
    if field.kind == "array":
        return st.lists(elements(field), max_size=2)
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return structs(field.element)
    return numbers(field) if field.kind in INTEGERS else OTHERS[field.kind]


def numbers(field: Field) -> st.SearchStrategy[int]:
    if "error_code" in field.name:
        return st.integers(-1, 119)  # codes that all oracles know
    if field.kind == "int64" and (field.name.endswith("_ms") or "timestamp" in field.name):
        return st.integers(0, 10_000 * A_DAY_MS)  # oracles convert these to dates and durations
    bits = INTEGERS[field.kind]
    return st.integers(-(2**bits), 2**bits - 1)


def elements(field: Field) -> st.SearchStrategy[Any]:
    if isinstance(field.element, type):
        return structs(field.element)
    assert field.element is not None
    one = field.element()
    return plain_values(Field(one.kind, name=field.name))


OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "uuid": st.just(NO_ID) | st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=5) | st.sampled_from(["a" * 126, "b" * 127, "c" * 300]),
    "bytes": st.binary(max_size=5) | st.just(b"d" * 200),
    "records": st.binary(max_size=5) | st.sampled_from([b"e" * 200, b"f" * 5000, b"g" * 20000]),
}


def restricted(value: Any, version: int) -> Any:
    """`value` after a round trip through `version`: fields that the version lacks have their default."""
    kind = type(value)
    return kind(**{field.name: restricted_field(value, field, version) for field in kind.FIELDS})


def restricted_field(value: Any, field: Field, version: int) -> Any:
    if not includes(field.versions, version):
        return default_of(field)
    held = getattr(value, field.name)
    if held is None and field.tag is None and not includes(field.nullable, version):
        return non_null(field, version)
    if isinstance(held, list):
        return [restricted(each, version) if isinstance(each, Struct) else each for each in held]
    if isinstance(held, Struct):
        held = restricted(held, version)
        if field.tag is not None and held == type(held)():
            return None  # defaults in a tagged field are not written
    return held


def default_of(field: Field) -> Any:
    default = plain_default(field)
    # `msgspec.field` wraps a default factory
    return default.default_factory() if hasattr(default, "default_factory") else default


def non_null(field: Field, version: int) -> Any:
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return restricted(field.element(), version)
    return {"array": [], "string": "", "bytes": b"", "records": b""}[field.kind]


def comparable(value: Any) -> Any:
    """A message as plain values, so that records in different kinds of buffer compare equal."""
    if isinstance(value, Struct):
        return {name: comparable(getattr(value, name)) for name in msgspec.structs.asdict(value)}
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def full(kind: type[Struct]) -> Any:
    """A message with every field set and two elements in every array."""
    return kind(**{field.name: full_value(field) for field in kind.FIELDS})


def full_value(field: Field) -> Any:
    if isinstance(field.element, type):
        return [full(field.element), full(field.element)] if field.kind == "array" else full(field.element)
    if field.kind == "array":
        assert field.element is not None
        one = full_value(Field(field.element().kind, name=field.name))
        return [one, one]
    others = {"bool": True, "float64": 1.5, "uuid": bytes(range(16)), "string": "text", "bytes": b"bytes"}
    return {**others, "records": b"batch" * 20}.get(field.kind, 7)
