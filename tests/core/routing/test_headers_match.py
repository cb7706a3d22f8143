"""Headers exchanges, as observed with RabbitMQ 4.3.6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.routing.headers_match import HeaderIndex, check_arguments, matches
from trimq.errors.queues import InvalidMatch
from trimq.formats.amqp_content.field_tables import Byte, FieldTable, Integer

MATCHING = [
    ({}, {}, True),
    ({}, {"a": 1}, True),
    ({"a": 1}, {"a": 1, "z": 5}, True),
    ({"a": 1}, {"a": 2}, False),
    ({"a": 1}, {}, False),
    ({"a": Byte(1)}, {"a": Integer(1)}, True),
    ({"a": 1}, {"a": "1"}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": 1.0}, False),
    ({"a": 1.0}, {"a": 1.0}, True),
    ({"x-match": "all", "a": 1, "b": 2}, {"a": 1, "b": 2}, True),
    ({"x-match": "all", "a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 3}, False),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "all"}, {"a": 1}, True),
    ({"x-match": "all", "a": None}, {"a": "anything"}, True),
    ({"x-match": "all", "a": None}, {"b": 1}, False),
    ({"x-match": "all", "x-k": "v"}, {}, True),
    ({"x-match": "all-with-x", "x-k": "v"}, {}, False),
    ({"x-match": "all-with-x", "x-k": "v"}, {"x-k": "v"}, True),
    ({"x-match": "any-with-x", "x-k": "v", "a": 1}, {"x-k": "v"}, True),
]


@pytest.mark.parametrize(("arguments", "headers", "expected"), MATCHING)
def test_headers_match(arguments: FieldTable, headers: FieldTable, expected: bool) -> None:
    assert matches(arguments, headers) is expected


@pytest.mark.parametrize("way", ["foo", 1, None])
def test_an_unknown_x_match_is_refused(way: object) -> None:
    with pytest.raises(InvalidMatch):
        check_arguments({"x-match": way})  # type: ignore[dict-item]
    check_arguments({"a": 1})


NAMES = st.sampled_from(["a", "b", "c", "x-k"])
VALUES = st.sampled_from([None, 0, 1, 2, True, False, 1.0, 0.0, "1", "v", b"v", [1], {"n": 1}, Byte(1), Integer(2)])
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)
WAYS = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])
BINDINGS = st.lists(st.tuples(WAYS, TABLES).map(lambda pair: {"x-match": pair[0], **pair[1]}), max_size=12)


@given(BINDINGS, st.sets(st.integers(0, 11)), TABLES)
def test_an_index_of_bindings_finds_those_that_match_one_by_one_in_their_order(
    bindings: list[FieldTable], removed: set[int], headers: FieldTable
) -> None:
    index: HeaderIndex[int] = HeaderIndex()
    for number, arguments in enumerate(bindings):
        index.add(number, arguments)
    for number in removed:
        index.remove(number)
    left = [number for number in range(len(bindings)) if number not in removed]
    assert index.match(headers) == [number for number in left if matches(bindings[number], headers)]
    assert len(index) == len(left)


def test_only_bindings_with_a_common_header_are_compared() -> None:
    """Each comparison of a binding reads the headers; this keeps routing fast with many bindings."""

    class Watched(dict[str, object]):
        looks = 0

        def __contains__(self, name: object) -> bool:
            Watched.looks += 1
            return super().__contains__(name)

    index: HeaderIndex[int] = HeaderIndex()
    for number in range(5000):
        index.add(number, {"kind": "order", "customer": number})
    assert index.match(Watched(kind="order", customer=77)) == [77]  # type: ignore[arg-type]
    assert Watched.looks < 20
