"""Headers against bindings, as RabbitMQ 4.3.6 answered."""

from __future__ import annotations

import pytest

from trimq.core.header_matching import check_arguments, matches
from trimq.core.queue_refusals import InvalidMatch
from trimq.formats.field_tables import Byte, Integer, Table

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
def test_headers_match(arguments: Table, headers: Table, expected: bool) -> None:
    assert matches(arguments, headers) is expected


@pytest.mark.parametrize("way", ["foo", 1, None])
def test_another_way_to_match_is_refused(way: object) -> None:
    with pytest.raises(InvalidMatch):
        check_arguments({"x-match": way})  # type: ignore[dict-item]
    check_arguments({"a": 1})
