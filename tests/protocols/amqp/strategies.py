"""Hypothesis strategies for AMQP: field values of every type, methods with any legal fields, contents."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from trimq.formats.amqp_content import field_tables as fields
from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods

MORE = int(os.environ.get("TRIMQ_TEST_EXAMPLES_FACTOR", "1"))


def examples(count: int) -> settings:
    return settings(max_examples=count * MORE, suppress_health_check=[HealthCheck.too_slow], database=None)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    signed(64),
    signed(8).map(fields.Byte),
    unsigned(8).map(fields.UnsignedByte),
    signed(16).map(fields.Short),
    unsigned(16).map(fields.UnsignedShort),
    signed(32).map(fields.Integer),
    unsigned(32).map(fields.UnsignedInteger),
    signed(64).map(fields.LongLong),
    unsigned(64).map(fields.Timestamp),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(fields.Single),
    st.builds(fields.Decimal, unsigned(8), unsigned(32)),
    texts,
    st.binary(max_size=10),
    st.binary(max_size=10).map(lambda tail: fields.Octets(b"\xff" + tail)),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
tables = st.dictionaries(texts, values, max_size=4)

# Tables that all other libraries read with the same values, although not with the same types.
plain_tables = st.dictionaries(
    st.text("abcdef-", min_size=1, max_size=8),
    st.one_of(st.booleans(), st.none(), signed(64), st.text("xyz", max_size=5), st.lists(signed(64), max_size=2)),
    max_size=3,
)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "Octet": unsigned(8),
    "Short": unsigned(16),
    "Long": unsigned(32),
    "LongLong": unsigned(64),
    "Bit": st.booleans(),
    "ShortString": names,
    "AnyString": names,
    "LongString": st.binary(max_size=30),
    "Arguments": tables,
}

PLAIN_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "ShortString": st.text("abcxyz.-_", max_size=20),
    "AnyString": st.text("abcxyz.-_", max_size=20),
    "LongString": st.text("abc", max_size=20).map(str.encode),
    "LongLong": unsigned(63),
    "Arguments": plain_tables,
}


@cache
def methods_of(kind: type[methods.Method], is_plain: bool = False) -> st.SearchStrategy[methods.Method]:
    chosen = {**FIELDS, **PLAIN_FIELDS} if is_plain else FIELDS
    fields = {name: chosen[kind.__annotations__[name]] for name in kind.__struct_fields__}
    return st.fixed_dictionaries(fields).map(lambda found: kind(**found))


def any_method(is_plain: bool = False) -> st.SearchStrategy[methods.Method]:
    return st.sampled_from(list(methods.METHODS.values())).flatmap(lambda kind: methods_of(kind, is_plain))


properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text("ab/", max_size=5),
        "headers": tables,
        "delivery_mode": st.integers(0, 2),
        "message_id": names.filter(lambda name: len(name.encode()) < 256),
        "timestamp": unsigned(64),
    },
).map(lambda found: write_properties(**found))
