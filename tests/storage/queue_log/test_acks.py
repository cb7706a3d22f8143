"""The acknowledgement log of one queue segment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.storage.queue_log.acks import encode_attempts, encode_bitmap, encode_ranges, replay

MESSAGES = st.sets(st.integers(0, 99))


@given(MESSAGES, MESSAGES, st.dictionaries(st.integers(0, 99), st.integers(1, 1000)))
def test_encoded_acks_are_replayed(some: set[int], more: set[int], attempts: dict[int, int]) -> None:
    data = encode_ranges(some) + encode_attempts(attempts) + encode_ranges(more)
    found = replay(data, 100)
    assert {message for message in range(100) if found.flags[message]} == some | more
    assert found.attempts == attempts
    assert (found.size, found.has_unknown_messages) == (len(data), False)


@given(MESSAGES)
def test_a_bitmap_equals_ranges(settled: set[int]) -> None:
    flags = bytearray(message in settled for message in range(100))
    assert replay(encode_bitmap(flags), 100).flags == flags


def test_adjacent_acks_are_encoded_as_one_range() -> None:
    assert len(encode_ranges(range(1000))) == len(encode_ranges([5]))


def test_a_repeated_ack_does_not_count_for_another_message() -> None:
    assert replay(encode_ranges([3, 1, 1]), 5).flags == bytearray([0, 1, 0, 1, 0])


@pytest.mark.parametrize(
    "record", [encode_ranges([1, 2, 7]), encode_bitmap(bytearray([1] * 8)), encode_attempts({7: 2})]
)
def test_acks_of_unknown_messages_are_reported(record: bytes) -> None:
    found = replay(record, 5)
    assert found.has_unknown_messages
    assert len(found.flags) == 5
    assert not replay(record, 8).has_unknown_messages


def test_a_torn_record_ends_the_replay() -> None:
    whole, torn = encode_ranges([1]), encode_ranges([2])
    for size in range(len(torn)):
        found = replay(whole + torn[:size], 10)
        assert (list(found.flags).index(1), sum(found.flags), found.size) == (1, 1, len(whole))


def test_a_flipped_bit_ends_the_replay() -> None:
    data = bytearray(encode_ranges([1, 2]))
    for at in range(len(data)):
        data[at] ^= 1
        assert sum(replay(data, 10).flags) == 0, f"byte {at}"
        data[at] ^= 1


def test_an_empty_file_or_record_acks_nothing() -> None:
    assert sum(replay(b"", 10).flags) == 0
    assert sum(replay(encode_ranges([]) + encode_bitmap(b""), 10).flags) == 0
