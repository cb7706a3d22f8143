from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.groups.topic_patterns import Pattern
from trimq.core.pattern_syntax import MOST_STATES
from trimq.errors.groups import InvalidPattern

MATCHES = [
    ("", "", True),
    ("", "a", False),
    ("a.*", "abc", True),
    ("a|b", "b", True),
    ("a|b", "ab", False),
    ("^a$", "a", True),
    ("a$b", "ab", False),
    (r"\Aa\z", "a", True),
    ("(^a|b)*", "ab", True),
    ("(a|)", "", True),
    ("()", "", True),
    ("a*", "", True),
    ("a+", "", False),
    ("a?b", "b", True),
    ("a{3}", "aaa", True),
    ("a{2,3}", "aaaa", False),
    ("a{2,}", "aaaaa", True),
    ("a{2,}", "a", False),
    ("a{0}b", "b", True),
    ("a{,3}", "a{,3}", True),
    ("a{x}", "a{x}", True),
    ("(ab){1,2}c", "ababc", True),
    ("a+?b*?", "aab", True),
    ("[a-c]+x?", "abcx", True),
    ("[^a-c]+", "abc", False),
    ("[]a]", "]", True),
    ("[a-]", "-", True),
    (r"[\d_]+", "1_2", True),
    ("[[:alpha:]]+", "abc", True),
    ("[[:^alpha:]]+", "12", True),
    (r"\w+-\d+", "tt-12", True),
    (r"\W", "-", True),
    (r"\Qa.b\E.", "a.bc", True),
    (r"\Qa.b", "axb", False),
    (r"\x61\x{62}", "ab", True),
    (r"a\.b", "a.b", True),
    (r"a\.b", "axb", False),
    ("(?:x|y)*z", "xyxz", True),
    ("(?P<name>a)b", "ab", True),
    ("(?<name>a)b", "ab", True),
    ("(?i)AbC", "aBc", True),
    ("x(?i)y", "xY", True),
    ("(?i:x)y", "XY", False),
    ("(?i)[a-c]", "B", True),
    ("(?i-i)a", "A", False),
    ("(?s)a", "a", True),
    ("größe", "größe", True),
]

REFUSED = [
    "(",
    ")",
    "a)",
    "[",
    "[a",
    "[b-a]",
    "[[:unknown:]]",
    "*a",
    "a**",
    "a+{2}",
    "a{1001}",
    "a{3,2}",
    "a(?=b)",
    "(?!x)",
    "(?<=x)",
    "(?P<n",
    "(?P<1>a)",
    "(?z)a",
    "(?i",
    r"\1",
    r"\pL",
    r"\b",
    "\\",
    r"\x{zz}",
    r"\xz",
    "(a{100}){100}",
    "(((a{30}){30}){30})",
    "(" * 200 + ")" * 200,
    "a" * MOST_STATES,
]


@pytest.mark.parametrize(("pattern", "name", "is_match"), MATCHES)
def test_a_name_matches_as_a_whole(pattern: str, name: str, is_match: bool) -> None:
    assert Pattern(pattern).matches(name) is is_match


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda each: each[:20])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "-"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,1}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@given(pattern=PARTS, names=st.lists(st.text("ab-", max_size=8), max_size=8))
def test_names_match_as_with_the_expressions_of_python(pattern: str, names: list[str]) -> None:
    try:
        ours = Pattern(pattern)
    except InvalidPattern:
        return  # larger than we take
    assert [ours.matches(name) for name in names] == [re.fullmatch(pattern, name) is not None for name in names]


@given(st.text("()[]{}|*+?.\\^$-:,<>=!PQEiax019\n", max_size=30))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    with suppress(InvalidPattern):
        Pattern(text).matches("topic-1")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*b", ".*" * 100 + "b"])
def test_what_would_never_end_with_backtracking_ends_at_once(pattern: str) -> None:
    tested = Pattern(pattern)
    assert not any(tested.matches("a" * length) for length in range(249))
