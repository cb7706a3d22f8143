"""Names of topics as clients of other protocols write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trimq.core.crossing.names import escape, unescape
from trimq.model import DEFAULT_NAMESPACE, Layout, TopicName

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40)
NAMES = st.builds(TopicName, st.one_of(st.just(DEFAULT_NAMESPACE), TEXT), TEXT)
TRICKY = st.text(st.sampled_from("a.x%2Ff25_-/"), min_size=1, max_size=12)
TRICKY_NAMES = st.builds(TopicName, st.one_of(st.just(DEFAULT_NAMESPACE), TRICKY), TRICKY)
LEGAL = {
    Layout.PARTITION_LOG: re.compile(r"[a-zA-Z0-9._-]+"),
    Layout.COMMIT_LOG: re.compile(r"[%|a-zA-Z0-9._-]+"),
}
faces = pytest.mark.parametrize("face", LEGAL, ids=lambda face: face.value)


@faces
@given(name=st.one_of(NAMES, TRICKY_NAMES))
@example(name=TopicName("shop", "tasks"))
def test_an_escaped_name_is_legal_and_means_the_same_topic(face: Layout, name: TopicName) -> None:
    text = escape(name, face)
    if text is None:
        return
    assert LEGAL[face].fullmatch(text)
    found = unescape(text, face)
    if found is None:
        assert TopicName(DEFAULT_NAMESPACE, text) == name, "a name without an escape is the name itself"
    elif text != name.name or name.namespace != DEFAULT_NAMESPACE:
        assert found == name


@faces
@given(one=st.one_of(NAMES, TRICKY_NAMES), other=st.one_of(NAMES, TRICKY_NAMES))
def test_two_escaped_names_differ(face: Layout, one: TopicName, other: TopicName) -> None:
    """Unless one of them is spelled as the escape of the other: a name that exists as it is written counts first."""
    text = escape(one, face)
    if one == other or text is None or text != escape(other, face):
        return
    literal = TopicName(DEFAULT_NAMESPACE, text)
    assert literal in (one, other)


@pytest.mark.parametrize(
    ("name", "face", "text"),
    [
        (TopicName(DEFAULT_NAMESPACE, "pay%x"), Layout.PARTITION_LOG, "pay.x25x"),
        (TopicName("shop", "tasks"), Layout.PARTITION_LOG, "shop.x2Ftasks"),
        (TopicName("shop", "tasks"), Layout.COMMIT_LOG, "shop%2Ftasks"),
        (TopicName(DEFAULT_NAMESPACE, "a/b"), Layout.COMMIT_LOG, "a%2fb"),
        (TopicName(DEFAULT_NAMESPACE, "é"), Layout.PARTITION_LOG, ".xC3.xA9"),
        (TopicName(DEFAULT_NAMESPACE, "é" * 50), Layout.COMMIT_LOG, None),
    ],
)
def test_names_are_escaped_byte_by_byte(name: TopicName, face: Layout, text: str | None) -> None:
    assert escape(name, face) == text


@pytest.mark.parametrize("text", [".xFF", "%FF", "%zz", ".x2", "plain"])
def test_an_escape_that_is_none_means_no_other_topic(text: str) -> None:
    for face in LEGAL:
        assert unescape(text, face) is None
