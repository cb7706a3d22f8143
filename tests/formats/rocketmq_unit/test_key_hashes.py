"""Hashes of many keys at once equal those of each key alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.rocketmq_unit.key_hashes import TopicKey, key_hashes
from trimq.formats.rocketmq_unit.properties import java_hash, key_hash

TOPICS = st.sampled_from([0, 1, -1, java_hash("orders#"), 2**31 - 1, -(2**31)])
OF_A_PRODUCER = st.text(st.characters(max_codepoint=127), min_size=32, max_size=32)
KEYS = st.one_of(OF_A_PRODUCER, OF_A_PRODUCER, st.text(max_size=40), st.text(min_size=32, max_size=32))


def one_by_one(keys: list[TopicKey]) -> list[int]:
    return [key_hash(topic, key) for topic, key, _, _ in keys]


@given(TOPICS, st.lists(OF_A_PRODUCER, max_size=150))
def test_keys_of_one_topic_and_length_are_hashed_together(topic: int, keys: list[str]) -> None:
    asked = [(topic, key, 0, 0) for key in keys]
    assert key_hashes(asked) == one_by_one(asked)


@given(TOPICS, st.sampled_from(["01", "é1", "02"]), st.lists(OF_A_PRODUCER, max_size=80))
def test_longer_keys_with_a_common_prefix_are_hashed_together(topic: int, beginning: str, keys: list[str]) -> None:
    asked = [(topic, beginning + key, 0, 0) for key in keys]
    assert key_hashes(asked) == one_by_one(asked)
    asked += [(topic, f"0{number % 3}{key}", 0, 0) for number, key in enumerate(keys)]
    assert key_hashes(asked) == one_by_one(asked)


@given(st.lists(st.tuples(TOPICS, KEYS, st.just(0), st.just(0)), max_size=100))
def test_keys_of_any_kind_may_be_mixed(keys: list[TopicKey]) -> None:
    assert key_hashes(keys) == one_by_one(keys)


def test_the_one_hash_without_a_positive_counterpart_becomes_zero() -> None:
    key = "7F0000010000000000000000000000AB"
    lift = pow(31, len(key), 1 << 32)
    topic = (2**31 - java_hash(key)) * pow(lift, -1, 1 << 32) % (1 << 32)
    assert java_hash(key, topic) == -(2**31)
    assert key_hashes([(topic, key, 0, 0)] * 9) == [0] * 9
