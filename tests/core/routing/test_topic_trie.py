"""Topic patterns, compared with the answers of RabbitMQ 4.3.6 and with a simple matcher."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.routing.topic_trie import TopicTrie, words_of

KEYS = ["", "a", "a.b", "a.b.c", "b", "a..b", ".", "a.", ".a", "a.x.b", "a.x.y.b", "*", "#", "a.#", "aa"]

# The keys that each pattern matched on RabbitMQ, as indexes into KEYS.
TABLE = {
    "": [0],
    "#": list(range(15)),
    "*": [1, 4, 11, 12, 14],
    "a.*": [2, 7, 13],
    "a.#": [1, 2, 3, 5, 7, 9, 10, 13],
    "#.b": [2, 4, 5, 9, 10],
    "a.#.b": [2, 5, 9, 10],
    "*.*": [2, 6, 7, 8, 13],
    "#.#": list(range(15)),
    "a.*.#": [2, 3, 5, 7, 9, 10, 13],
    "#.a.#": [1, 2, 3, 5, 7, 8, 9, 10, 13],
    "*.#": list(range(1, 15)),
    "a.*.b": [5, 9],
    ".": [6],
    "a.": [7],
    "*#": [],
    "a*": [],
    "##": [],
    "a.#.#": [1, 2, 3, 5, 7, 9, 10, 13],
}


@pytest.mark.parametrize("pattern", TABLE)
def test_a_pattern_matches_as_on_rabbitmq(pattern: str) -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(pattern, "q")
    assert [place for place, key in enumerate(KEYS) if trie.match(key)] == TABLE[pattern]


def test_all_patterns_in_one_trie_match_as_each_alone() -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in TABLE:
        trie.add(pattern, pattern)
    for place, key in enumerate(KEYS):
        assert set(trie.match(key)) == {pattern for pattern, places in TABLE.items() if place in places}


def matches_simply(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches_simply(pattern[1:], words[at:]) for at in range(len(words) + 1))
    if not words:
        return False
    return (pattern[0] == "*" or (pattern[0] == words[0] and words[0] != "#")) and matches_simply(
        pattern[1:], words[1:]
    )


WORDS = st.lists(st.sampled_from(["a", "b", "", "c"]), max_size=5).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5).map(".".join)


@given(st.lists(PATTERNS, max_size=6), st.lists(PATTERNS, max_size=3), WORDS)
def test_the_trie_matches_as_the_simple_matcher(patterns: list[str], removed: list[str], key: str) -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in [*patterns, *removed]:
        trie.add(pattern, pattern)
    for pattern in removed:
        trie.remove(pattern, pattern)
    wanted = {pattern for pattern in patterns if matches_simply(words_of(pattern), words_of(key))}
    assert set(trie.match(key)) == wanted
    for pattern in patterns:
        trie.remove(pattern, pattern)
    assert trie._root.children == {}


def test_a_pattern_with_many_hashes_is_matched_quickly() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(".".join("#" * 20), "q")
    assert trie.match(".".join("abcdefghijklmnopqrstuvwxyz" * 2)) == ["q"]


def test_the_longest_pattern_and_key_take_little_time() -> None:
    """Steps grow with words times nodes; one more factor, as of all ways to spread the words, took 41 ms."""
    trie: TopicTrie[str] = TopicTrie()
    trie.add(".".join(["#", "a"] * 63), "q")
    key = ".".join(["a"] * 127) + "b"
    seconds = []
    for _ in range(5):
        began = time.thread_time()
        assert trie.match(key) == []
        seconds.append(time.thread_time() - began)
    assert min(seconds) < 0.010
