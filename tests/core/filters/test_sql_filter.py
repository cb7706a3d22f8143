"""SQL92 filters over properties: results of Apache RocketMQ, a reference evaluator, and the limits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.filters.sql_filter import InvalidSqlFilter, compile_sql_filter

GOLDEN = Path(__file__).parents[2] / "golden" / "rocketmq" / "rocketmq-5.5.0.txt"
# The messages that the probe sends.
SENT: list[dict[str, str]] = [
    {"a": "5", "s": "abc", "f": "2.5", "b": "true"},
    {"a": "10", "s": "xyz", "b": "false", "TAGS": "T1"},
    {"s": "it's", "n": "-3", "TAGS": "T2"},
    {},
    {"a": "abc", "f": "1e3", "big": "9223372036854775807"},
]
REFUSED = "refused 23"


def delivered(expression: str) -> str:
    try:
        matches = compile_sql_filter(expression, 10_000, 100)
    except InvalidSqlFilter:
        return REFUSED
    return json.dumps([number for number, properties in enumerate(SENT) if matches(properties)])


def golden_table() -> list[tuple[str, str]]:
    lines = re.findall(r"^sql92\.(.*): (\[[0-9, ]*\]|refused 23)$", GOLDEN.read_text(), re.MULTILINE)
    return [(expression, wanted) for expression, wanted in lines if not expression.startswith("unparsable")]


@pytest.mark.parametrize(("expression", "wanted"), golden_table())
def test_apache_rocketmq_delivered_the_same(expression: str, wanted: str) -> None:
    assert delivered(expression) == wanted


def test_the_golden_table_was_found() -> None:
    assert len(golden_table()) > 40


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("NOT nope IS NULL", "[0, 1, 2, 3, 4]"),
        ("a BETWEEN 5 AND 1", REFUSED),
        ("a NOT BETWEEN 6 AND 20", "[0]"),
        ("a BETWEEN 1 AND 5 AND s = 'abc' OR n IS NOT NULL", "[0, 2]"),
        ("a > 3 b < 2", "[0, 1]"),
        ("a > 3 AND", REFUSED),
        ("(a > 3", REFUSED),
        ("a > 3)", "[0, 1]"),
        ("5 = a", "[0]"),
        ("TRUE = b", "[]"),
        ("5", REFUSED),
        ("a > 3 > 2", REFUSED),
        ("n > -5", "[2]"),
        ("-n > 1", "[]"),
        ("s NOT CONTAINS 'b'", "[1, 2]"),
        ("s ENDSWITH ''", "[]"),
        ("a = NULL", REFUSED),
        ("5 IN ('5')", REFUSED),
        ("big > 9000000000", "[4]"),
        ("big = 99999999999999999999", REFUSED),
        ("f > 2.0", "[0, 4]"),
        ("a = 5 -- the fifth\n AND f = 2.5", "[0]"),
        ("s = 'abc", REFUSED),
        ("s <> 5", "[]"),
        ("Andy IS NULL and island is null", "[0, 1, 2, 3, 4]"),
    ],
)
def test_corners(expression: str, wanted: str) -> None:
    assert delivered(expression) == wanted


# --- against a reference ----------------------------------------------------------------------------------------------

Tree = tuple[Any, ...]

NAMES = ("a", "b", "s")
names = st.sampled_from(NAMES)
numbers = st.integers(0, 12)
texts = st.sampled_from(["", "5", "x", "it's", "true", "1.5"])
leaves = st.one_of(
    st.tuples(st.just("order"), names, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), numbers),
    st.tuples(st.just("text"), names, st.sampled_from(["=", "<>"]), texts),
    st.tuples(st.just("in"), names, st.booleans(), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(st.just("null"), names, st.booleans()),
    st.tuples(st.just("between"), names, st.booleans(), numbers, numbers).map(
        lambda leaf: (*leaf[:3], min(leaf[3:]), max(leaf[3:]))
    ),
    st.tuples(st.just("constant"), st.sampled_from([True, False, None])),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=8,
)
messages = st.dictionaries(names, st.sampled_from(["5", "12", "-1", "x", "it's", "true", "1.5", "99999999999"]))


class EvaluationError(Exception):
    pass


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def to_sql(tree: Tree) -> str:
    match tree:
        case ("order", name, operator, number):
            return f"{name} {operator} {number}"
        case ("text", name, operator, text):
            return f"{name} {operator} {quoted(text)}"
        case ("in", name, is_not, wanted):
            return f"{name} {'NOT ' if is_not else ''}IN ({', '.join(map(quoted, wanted))})"
        case ("null", name, is_not):
            return f"{name} IS {'NOT ' if is_not else ''}NULL"
        case ("between", name, is_not, low, high):
            return f"{name} {'NOT ' if is_not else ''}BETWEEN {low} AND {high}"
        case ("constant", value):
            return str(value).upper().replace("NONE", "NULL")
        case ("not", inner):
            return f"NOT ({to_sql(inner)})"
        case (word, left, right):
            return f"({to_sql(left)}) {word} ({to_sql(right)})"
    raise AssertionError(tree)


def whole(text: str) -> int:
    if re.fullmatch(r"-?\d{1,9}", text) is None:
        raise EvaluationError
    return int(text)


def evaluate(tree: Tree, message: dict[str, str]) -> bool | None:
    match tree:
        case ("constant", value):
            return value
        case ("not", inner):
            found = evaluate(inner, message)
            return None if found is None else not found
        case ("and" | "or" as word, left, right):
            settles = word == "or"
            first = evaluate(left, message)
            if first is settles:
                return settles
            second = evaluate(right, message)
            return settles if second is settles else None if None in (first, second) else not settles
        case ("null", name, is_not):
            return (name not in message) is not is_not
    name = tree[1]
    if name not in message:
        return None
    value = message[name]
    match tree:
        case ("in", _, is_not, wanted):
            return (value in wanted) is not is_not
        case ("text", _, operator, text):
            return (value == text) is (operator == "=")
        case ("between", _, is_not, low, high):
            return (low <= whole(value) <= high) is not is_not
        case ("order", _, operator, number):
            found = whole(value)
            return {
                "<": found < number,
                "<=": found <= number,
                ">": found > number,
                ">=": found >= number,
                "=": found == number,
                "<>": found != number,
            }[operator]
    raise AssertionError(tree)


@given(trees, messages)
def test_any_expression_evaluates_as_the_reference_does(tree: Tree, message: dict[str, str]) -> None:
    try:
        wanted = evaluate(tree, message) is True
    except EvaluationError:
        wanted = False
    assert compile_sql_filter(to_sql(tree), 10_000, 1000)(message) is wanted


@given(st.text(max_size=60) | st.text("abAND NOTIN'()=<>-+.*/5e,", max_size=40), messages)
def test_any_text_is_an_expression_or_is_refused(text: str, message: dict[str, str]) -> None:
    try:
        matches = compile_sql_filter(text, 10_000, 1000)
    except InvalidSqlFilter:
        return
    assert matches(message) in (True, False)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 5000 + "a",
        "(" * 5000 + "a" + ")" * 5000,
        " AND ".join(["a = 1"] * 5000),
        "a " + "= b " * 5000,
        "-" * 5000 + "5 = a",
    ],
)
def test_an_expression_that_is_too_large_to_compile_is_refused(text: str) -> None:
    with pytest.raises(InvalidSqlFilter, match="more than 100 operators"):
        compile_sql_filter(text, 100_000, 100)


def test_an_expression_that_is_too_long_is_refused_before_parsing() -> None:
    with pytest.raises(InvalidSqlFilter, match="limit: 100 bytes"):
        compile_sql_filter("a = 'é" + "é" * 100 + "'", 100, 100)


def test_as_many_operators_as_are_allowed_are_evaluated() -> None:
    assert compile_sql_filter("NOT " * 500 + "TRUE", 10_000, 500)({}) is True


def test_the_grammar_is_loaded_with_the_first_expression() -> None:
    program = (
        "import sys, trimq.protocols.rocketmq.front_end; assert 'lark' not in sys.modules;"
        "from trimq.core.filters.sql_filter import compile_sql_filter; compile_sql_filter('a = 1', 99, 9);"
        "assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
