"""Lowest sequence numbers that a stream still waits for."""

from __future__ import annotations

from uuid import UUID

from trimq.core.transactions.lowest_sequences import LowestSequences
from trimq.model import StreamId

STREAM = StreamId(UUID(int=1), 0)


def test_a_later_batch_waits_for_the_lowest_that_was_seen() -> None:
    lowest = LowestSequences()
    lowest.note(7, STREAM, 0, 5, starts_at_zero=False)
    lowest.note(7, STREAM, 0, 3, starts_at_zero=False)
    lowest.note(7, STREAM, 0, 9, starts_at_zero=False)
    assert lowest.highest_allowed(7, STREAM, is_known=False) == 3
    lowest.forget(7, STREAM)
    assert lowest.highest_allowed(7, STREAM, is_known=False) is None


def test_a_new_epoch_begins_anew() -> None:
    lowest = LowestSequences()
    lowest.note(7, STREAM, 1, 3, starts_at_zero=False)
    lowest.note(7, STREAM, 2, 8, starts_at_zero=False)
    lowest.note(7, STREAM, 1, 0, starts_at_zero=False)
    assert lowest.highest_allowed(7, STREAM, is_known=True) == 8


def test_some_producers_must_begin_with_zero() -> None:
    lowest = LowestSequences()
    lowest.note(7, STREAM, 0, 4, starts_at_zero=True)
    assert lowest.highest_allowed(7, STREAM, is_known=False) == 0
    assert lowest.highest_allowed(7, STREAM, is_known=True) == 4


def test_the_oldest_entry_is_forgotten_when_there_are_too_many() -> None:
    lowest = LowestSequences(most=2)
    for producer_id in range(3):
        lowest.note(producer_id, STREAM, 0, 1, starts_at_zero=False)
    found = [lowest.highest_allowed(producer_id, STREAM, is_known=True) for producer_id in range(3)]
    assert found == [None, 1, 1]


def test_the_marker_of_a_transaction_ends_the_wait_unless_the_next_one_has_begun() -> None:
    lowest = LowestSequences()
    lowest.note(7, STREAM, 1, 3, starts_at_zero=False)
    lowest.note(8, STREAM, 1, 3, starts_at_zero=True)
    for producer_id in (7, 8):
        lowest.end_transaction(producer_id, STREAM, 1)
    assert lowest.highest_allowed(7, STREAM, is_known=True) is None
    assert lowest.highest_allowed(8, STREAM, is_known=True) == 3
    lowest.end_transaction(8, STREAM, 0)
    assert lowest.highest_allowed(8, STREAM, is_known=True) is None
