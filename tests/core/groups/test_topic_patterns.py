from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.groups.topic_patterns import MAX_CHARACTERS, Pattern
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
    ("a{1000}", "a" * 1000, True),
    ("a{,3}", "a{,3}", True),
    ("a{x}", "a{x}", True),
    ("(ab){1,2}c", "ababc", True),
    ("a+?b*?", "aab", True),
    (".", "\n", False),
    ("(?s).", "\n", True),
    ("[a-c]+x?", "abcx", True),
    ("[^a-c]+", "abc", False),
    ("[]a]", "]", True),
    ("[a-]", "-", True),
    (r"[\d_]+", "1_2", True),
    ("[[:alpha:]]+", "abc", True),
    ("[[:^alpha:]]+", "12", True),
    (r"\w+-\d+", "tt-12", True),
    (r"\W", "-", True),
    (r"\w", "é", False),
    (r"\Qa.b\E.", "a.bc", True),
    (r"\Qa.b", "axb", False),
    (r"\x61\x{62}", "ab", True),
    (r"a\.b", "a.b", True),
    (r"a\.b", "axb", False),
    ("(?:x|y)*z", "xyxz", True),
    ("(?P<name>a)b", "ab", True),
    ("(?<name>a)b", "ab", True),
    ("(?P<1>a)", "a", True),
    ("(?i)AbC", "aBc", True),
    ("x(?i)y", "xY", True),
    ("(?i:x)y", "XY", False),
    ("(?i)[a-c]", "B", True),
    ("(?i-i)a", "A", False),
    ("(?s)a", "a", True),
    ("größe", "größe", True),
    ("(?i)größe", "GRÖßE", True),
    (r"\pL+", "größe", True),
    (r"\pL+", "größe1", False),
    (r"[\p{Greek}\d]+", "λ1", True),
    (r"\P{Lu}", "A", False),
    (r".*\borders\b.*", "eu.orders-1", True),
    (r".*\borders\b.*", "eu.preorders", False),
    (r"a\Bb", "ab", True),
    ("(" * 200 + ")" * 200, "", True),
    ("a" * MAX_CHARACTERS, "a" * MAX_CHARACTERS, True),
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
    "(?P<>a)",
    "(?z)a",
    "(?i",
    r"\1",
    r"\Z",
    r"\p{Unheard}",
    "\\",
    r"\x{zz}",
    r"\xz",
]

TOO_LARGE = ["(a{100}){100}", "(((a{30}){30}){30})", r"\pL{100}", r"[\pL\pN]{9}.{900}", "a" * (MAX_CHARACTERS + 1)]

# Patterns that RE2 reads differently from RE2/J, which Kafka uses; these are RE2/J's answers.
MATCHES_AS_WITH_KAFKA = [
    (r"\é+", "éé", True),
    (r"[\é-\ü]", "ö", True),
    (r"\\é", r"\é", True),
    (r"[\\é]+", r"\é", True),
    (r"\Q\é\E", r"\é", True),
    (r"\Q\C\E", r"\C", True),
    (r"\\C", r"\C", True),
    (r"\Q(?<n>\E(?<n>a)", "(?<n>a", True),
    ("[(?<n>]+(?<n>a)", "(?<n>a", True),
    ("[](?<n>]+(?<n>a)", "](?<n>a", True),
    ("[[:alpha:](?<n>]+(?<n>a)", "(?<n>aa", True),
    (r"[\](?<n>]+(?<n>a)", "](?<n>a", True),
    (r"\(?<n>", "<n>", True),
]

REFUSED_AS_BY_KAFKA = [r"\C", r"a\C*", r"[\C]", "(?P<n>a)(?P<n>b)", "(?<n>a(?P<n>b))", "(?P<größe>a)"]


@pytest.mark.parametrize(("pattern", "name", "is_match"), MATCHES)
def test_a_name_matches_as_a_whole(pattern: str, name: str, is_match: bool) -> None:
    assert Pattern(pattern).matches(name) is is_match


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda each: each[:20])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", TOO_LARGE, ids=lambda each: each[:20])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"too large|repetition size|the limit is 1024"):
        Pattern(pattern)


@pytest.mark.parametrize(("pattern", "name", "is_match"), MATCHES_AS_WITH_KAFKA)
def test_a_pattern_that_re2_reads_differently_matches_as_with_kafka(pattern: str, name: str, is_match: bool) -> None:
    assert Pattern(pattern).matches(name) is is_match


@pytest.mark.parametrize("pattern", REFUSED_AS_BY_KAFKA)
def test_a_pattern_that_only_re2_accepts_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


def test_a_refusal_names_the_pattern_and_the_reason() -> None:
    with pytest.raises(InvalidPattern) as refused:
        Pattern("größe(?=b)")
    assert str(refused.value) == "'größe(?=b)' is not a valid pattern: invalid perl operator: (?="


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
def test_names_match_as_with_the_regular_expressions_of_python(pattern: str, names: list[str]) -> None:
    ours = Pattern(pattern)
    assert [ours.matches(name) for name in names] == [re.fullmatch(pattern, name) is not None for name in names]


@given(st.text("()[]{}|*+?.\\^$-:,<>=!PQECipLé019\n", max_size=30))
def test_any_text_is_a_valid_pattern_or_is_refused(text: str) -> None:
    with suppress(InvalidPattern):
        Pattern(text).matches("topic-1")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*b", ".*" * 100 + "b"])
def test_a_pattern_with_exponential_backtracking_is_matched_at_once(pattern: str) -> None:
    tested = Pattern(pattern)
    assert not any(tested.matches("a" * length) for length in range(249))


# Each of these is among the slowest of its kind within the limits. An idle machine needs a twentieth of the allowed
# time.
@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]*a[ab]{900}",
        "(?:[ab]?[ab]?b?){700}x",
        "(?:a*b*){1000}x",
        "(?<n>(?<m>a|b)*)*(?<k>.?){300}x",
        "|".join(f"[ab]*a[ab]{{{count}}}c" for count in range(1, 40)),
        r"\pL" * (MAX_CHARACTERS // 3),
        r"\pL|" * (MAX_CHARACTERS // 4),
        "[" * MAX_CHARACTERS,
        "[[:a:]" * (MAX_CHARACTERS // 6),
        r"\Q" * (MAX_CHARACTERS // 2),
        "(?<a>" * (MAX_CHARACTERS // 5),
    ],
    ids=lambda each: each[:20],
)
def test_the_slowest_patterns_are_matched_in_bounded_time(pattern: str) -> None:
    names = [
        format(number * 0x9E3779B97F4A7C15 % 2**248, "0249b").replace("0", "a").replace("1", "b") for number in range(5)
    ]
    before = time.process_time()
    with suppress(InvalidPattern):
        compiled = Pattern(pattern)
        for name in names:
            compiled.matches(name)
    assert time.process_time() - before < 1


def test_re2_is_loaded_with_the_first_pattern_and_writes_nothing_to_stderr() -> None:
    program = r"""
import sys, trimq.protocols.kafka.front_end
from trimq.errors.groups import InvalidPattern
from trimq.core.groups.topic_patterns import Pattern
assert "re2" not in sys.modules
Pattern("[ab]*a[ab]{900}").matches("ab" * 124)
assert "re2" in sys.modules
for bad in ("(", "(a{100}){100}", r"\pL{100}"):
    try:
        Pattern(bad)
    except InvalidPattern:
        continue
    raise AssertionError(bad)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"", b"")
