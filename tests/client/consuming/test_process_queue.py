"""Unfinished messages of a queue: what may be committed, and when no more is pulled."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.client.consuming.process_queue import BufferLimits, ProcessQueue


@dataclass
class Item:
    offset: int
    size: int = 10


def filled(count: int, limits: BufferLimits | None = None) -> ProcessQueue[Item]:
    queue = ProcessQueue[Item](0, limits or BufferLimits())
    queue.put([Item(offset) for offset in range(count)], count)
    return queue


@given(st.permutations(range(12)))
def test_a_commit_never_passes_the_lowest_unfinished_message(order: list[int]) -> None:
    queue, unfinished = filled(12), set(range(12))
    for offset in order:
        assert queue.committable == min(unfinished)
        assert queue.finish(offset)
        assert not queue.finish(offset)
        unfinished.discard(offset)
        assert queue.committable == min(unfinished, default=12)
    assert (len(queue), queue.bytes) == (0, 0)


def test_messages_that_a_filter_left_out_are_committed_with_the_others() -> None:
    queue = ProcessQueue[Item](5, BufferLimits())
    assert queue.committable == 5
    queue.put([Item(7)], 20)
    assert queue.committable == 7
    queue.finish(7)
    assert queue.committable == 20


@pytest.mark.parametrize(
    ("limits", "count"),
    [(BufferLimits(messages=4), 4), (BufferLimits(bytes=40), 4), (BufferLimits(span=4), 4)],
)
def test_a_full_buffer_has_room_again_when_messages_are_finished(limits: BufferLimits, count: int) -> None:
    assert not filled(count - 1, limits).is_full
    queue = filled(count, limits)
    assert queue.is_full
    queue.finish(0)
    assert not queue.is_full


def test_one_unfinished_message_far_behind_stops_the_pulls() -> None:
    queue = filled(2000)
    for offset in range(1, 2000):
        queue.finish(offset)
    assert len(queue) == 1
    assert queue.is_full
    queue.finish(0)
    assert not queue.is_full


def test_a_single_large_message_does_not_block_an_empty_buffer() -> None:
    queue = ProcessQueue[Item](0, BufferLimits(bytes=5))
    assert not queue.is_full
    queue.put([Item(0)], 1)
    assert queue.is_full


def test_a_restart_forgets_everything() -> None:
    queue = filled(5)
    queue.restart(100)
    assert (len(queue), len(queue.waiting), queue.bytes, queue.committable) == (0, 0, 0, 100)
    assert not queue.finish(0)
