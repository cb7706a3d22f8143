"""Checkpoint of a schedule queue: it covers delivered messages, and never a pending one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk

from trimq.formats.rocketmq_unit.schedule import WHEEL_TOPIC
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.schedule.offset_set import OffsetSet
from trimq.protocols.rocketmq.schedule.progress import ScheduleProgress

SECOND = 1000
LOG_END = 10_000


def waiting(desk: Desk, dues_s: Sequence[int], offset: int = 0, text: str = "") -> ScheduleProgress:
    """Schedule queue of messages with these due times; none has a timer yet."""
    for number, due_s in enumerate(dues_s):
        properties = f"UNIQ_KEY\x01K{number}\x02TIMER_DELIVER_MS\x01{NOW_MS + due_s * SECOND}\x02"
        assert desk.broker.send("t", b"x", 0, properties).code == 0
    assert desk.core.commit_log_service is not None
    topic = desk.core.commit_log_service.commit_log.topics.get(SYSTEM, WHEEL_TOPIC)
    return ScheduleProgress(topic, topic.stream(0), 0, offset, text)


def left(queue: ScheduleProgress) -> list[int]:
    """Offsets that are pending after a restart from the checkpoint that is written now."""
    again = ScheduleProgress(queue.topic, queue.stream, 0, queue.next_offset, queue.write_checkpoint())
    return [offset for offset, due_ms in again.stream.codes(again.next_offset) if again.find(offset, due_ms, 0, 0)]


def test_delivered_messages_behind_a_long_delay_are_not_found_again() -> None:
    queue = waiting(Desk(), [50, 10, 30, 20])
    queue.indexed_to = 4
    for offset in (1, 3):
        assert queue.finish(queue.begin([offset], LOG_END))
    assert left(queue) == [0, 2]
    queue.finish(queue.begin([2], LOG_END))
    assert left(queue) == [0]


def test_one_that_was_timed_late_is_not_taken_for_done_because_a_later_one_is() -> None:
    queue = waiting(Desk(), [50, 20, 10])
    queue.indexed_to = 2
    fired = queue.begin([1], LOG_END)
    queue.indexed_to = 3
    queue.finish(fired)
    assert left(queue) == [0, 2]


def test_a_retried_message_is_not_taken_for_delivered_because_later_ones_are() -> None:
    queue = waiting(Desk(), [50, 10, 20, 30])
    queue.indexed_to = 4
    first, second = queue.begin([1], LOG_END), queue.begin([2], LOG_END + 1)
    queue.fail(first)
    queue.finish(second)
    assert left(queue) == [0, 1, 2, 3]
    assert queue.checkpoint.log_position == 0
    queue.finish(queue.begin([1], LOG_END + 2))
    assert left(queue) == [0, 3]
    assert queue.checkpoint.log_position == LOG_END + 2


def test_a_later_delivery_is_noted_when_all_before_it_are_delivered() -> None:
    queue = waiting(Desk(), [50, 10, 20])
    queue.indexed_to = 3
    first, second = queue.begin([1], LOG_END), queue.begin([2], LOG_END + 1)
    queue.finish(second)
    assert left(queue) == [0, 1, 2]
    queue.finish(first)
    assert left(queue) == [0]


def test_the_log_is_looked_at_again_until_all_that_may_have_come_is_done_with() -> None:
    queue = waiting(Desk(), [50, 10, 20])
    for offset, due_ms in queue.stream.codes(0):
        assert queue.find(offset, due_ms, NOW_MS + 20 * SECOND, NOW_MS)
    queue.indexed_to = 3
    assert len(queue.maybe_delivered) == 2
    queue.finish(queue.begin([1], LOG_END))
    assert queue.checkpoint.log_position == 0
    queue.finish(queue.begin([2], LOG_END + 1))
    assert queue.checkpoint.log_position == LOG_END + 1


def test_a_recall_is_looked_for_until_the_checkpoint_covers_both_messages() -> None:
    queue = waiting(Desk(), [50, 10, 10])
    queue.indexed_to = 3
    queue.set_recalls([])
    queue.add_recall(NOW_MS + 10 * SECOND, 2)
    refused = queue.begin([1], LOG_END)
    queue.finish(queue.begin([2], LOG_END))
    queue.fail(refused)
    queue.write_checkpoint()
    assert queue.checkpoint.recalls_from == 2
    queue.finish(queue.begin([1], LOG_END))
    queue.write_checkpoint()
    assert queue.checkpoint.recalls_from == 3


def test_a_note_of_more_than_there_is_is_not_believed() -> None:
    queue = waiting(Desk(), [50, 10], text="99999999999999 1 3 0 0 0")
    assert queue.discard_checkpoint(LOG_END)
    assert left(queue) == [0, 1]
    other = waiting(Desk(), [50, 10], 7, f"99999999999999 1 2 {LOG_END + 1} 0 0")
    assert other.discard_checkpoint(LOG_END)
    assert other.next_offset == 2


def test_an_invalid_checkpoint_is_ignored() -> None:
    for text in ("", "1 2 3", "a b c d e f"):
        assert left(waiting(Desk(), [50], text=text)) == [0]


@given(st.lists(st.integers(0, 300)), st.integers(0, 300), st.integers(0, 300))
def test_marks_are_a_set_of_offsets(offsets: list[int], begin: int, end: int) -> None:
    marks = OffsetSet(10)
    for offset in offsets:
        marks.add(10 + offset)
    assert len(marks) == len({*offsets})
    assert [offset for offset in range(301) if 10 + offset in marks] == sorted({*offsets})
    assert marks.first(10 + begin, 10 + end) == min(
        (10 + offset for offset in offsets if begin <= offset < end), default=10 + end
    )
    gaps = (10 + offset for offset in range(begin, 500) if offset not in offsets)
    assert marks.first_gap(10 + begin) == next(gaps)


def test_marks_forget_a_long_head() -> None:
    marks = OffsetSet(0)
    marks.add(100_000)
    marks.forget_before(70_000)
    assert 100_000 in marks
    assert marks.first(70_000, 200_000) == 100_000
    assert marks.first_gap(100_000) == 100_001
    marks.clear()
    assert len(marks) == 0
