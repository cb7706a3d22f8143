"""Patterns of policies and rights: RE2's meaning, clear refusals, old ones kept, and no pattern that takes long."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.name_patterns import MAX_CHARACTERS, NamePattern, require_valid
from trimq.errors import InvalidSetting


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("", ["", ""], ["a"]),
        (".*", ["", "a\n", "é"], []),
        ("^orders", ["orders", "orders-1"], ["my-orders"]),
        ("orders$", ["orders", "my-orders"], ["orders-1"]),
        ("^(a|b)-.*$", ["a-1", "b-"], ["c-1"]),
        (r"\Aq\Z", ["q", "q\n"], ["qq", "q\nq"]),
        ("^q$", ["q", "q\n"], ["q\n\n", "q\nq"]),
        (r"^(?m:q$)", ["q", "q\nq"], ["qq"]),
        (r"^[$]\$\Q$\E", ["$$$"], ["$$"]),
        (r"^amq\.gen-[\w-]+$", ["amq.gen-a_1-"], ["amq.gen-"]),
        ("é+", ["éé", "xé"], ["e"]),
        (r"\é", ["é"], ["e"]),
        ("(?i)orders", ["ORDERS"], ["order"]),
        ("(?P<kind>a)b", ["ab"], ["b"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"[[:alpha:]]\d", ["a1"], ["1a"]),
        ("\udc80", ["\udc80"], ["a"]),
    ],
)
def test_a_pattern_is_searched_for_anywhere_in_a_name(pattern: str, matched: list[str], others: list[str]) -> None:
    try:
        require_valid("read", pattern)
    except InvalidSetting:
        assert pattern == "\udc80"  # no text, but stored before
    found = NamePattern(pattern, "read")
    assert [found.search(name) for name in matched] == [True] * len(matched)
    assert [found.search(name) for name in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", r"lookaround \(\(\?=\) is not supported"),
        ("(?<!a)b", r"lookaround \(\(\?<!\) is not supported"),
        (r"(a)\1", r"backreference \(\\1\) is not supported"),
        ("(?P<x>a)(?P=x)", r"backreference \(\(\?P=\) is not supported"),
        ("(?>a)", "atomic group .* is not supported"),
        ("a++", "possessive quantifier .* is not supported"),
        ("(?(1)a|b)", "condition .* is not supported"),
        ("(?R)", "recursion .* is not supported"),
        ("[", "missing ]"),
        ("a{2000}", "invalid repetition size"),
        (r"(\pL{30}){30}", "too large"),
        ("a" * (MAX_CHARACTERS + 1), "exceeds the limit"),
    ],
)
def test_what_cannot_be_searched_in_bounded_time_is_refused_by_name(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        require_valid("pattern", pattern)


def test_a_pattern_that_was_stored_before_keeps_its_meaning_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    old = NamePattern(r"^(?!secret)", "policy old")
    assert "secret" not in caplog.text  # only when it is used
    assert [old.search(name) for name in ("orders", "secret")] == [True, False]
    assert "replace it (policy old" in caplog.text


def test_a_stored_pattern_that_is_none_at_all_matches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert not NamePattern("[", "read").search("[")
    assert "matches no name" in caplog.text


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a*)*b", "(a|aa)+$", "(.*a){20}", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_takes_long_on_any_name(pattern: str) -> None:
    found = NamePattern(pattern, "read")
    name = "a" * 250 + "!"
    found.search("")
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        found.search(name)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.010


@given(pattern=st.text(max_size=30), name=st.text(max_size=30))
def test_any_text_is_refused_or_searched_for(pattern: str, name: str) -> None:
    try:
        require_valid("read", pattern)
    except InvalidSetting:
        return
    assert NamePattern(pattern, "read").search(name) in (True, False)


def test_re2_is_loaded_with_the_first_pattern_that_needs_it() -> None:
    program = (
        "import sys; from trimq.core.name_patterns import NamePattern as P; "
        "assert P('.*', 'read').search('a') and not P('', 'read').search('a'); "
        "assert 're2' not in sys.modules; P('^a', 'read').search('a'); assert 're2' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
