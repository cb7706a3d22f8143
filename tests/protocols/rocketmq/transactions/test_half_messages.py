"""Index of half messages: the offset at which recovery begins, and stragglers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, units_of
from protocols.rocketmq.transaction_desk import (
    COMMIT,
    PERCENTS,
    ROLLBACK,
    checked_times,
    commit_checked_messages,
    decide,
    found,
    half,
    half_messages_stored,
    heard,
    markers_stored,
    produce,
    torn,
)

from trimq.core.commit_log.stream import MessageQueue
from trimq.errors import DamagedSegment
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.transactions import half_messages
from trimq.wire.remoting import Command

GROUP, HALF_TOPIC, MARKER_TOPIC = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
FAR_BEHIND = 100


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the limits, so that a hundred transactions have the effect of thousands."""
    monkeypatch.setattr(half_messages, "STRAGGLER_DISTANCE", FAR_BEHIND)
    monkeypatch.setattr(half_messages, "CHECKPOINT_INTERVAL", 10)


def begins_at(desk: Desk, topic: str) -> int:
    """Offset at which a restart would begin to read."""
    answer = desk.broker.ask(14, {"consumerGroup": GROUP, "topic": topic, "queueId": 0})
    return int(answer.fields["offset"]) if answer.code == 0 else 0


def pass_by(desk: Desk, count: int) -> None:
    """Sends this many half messages and rolls them back, ten at a time."""
    for first in range(0, count, 10):
        replies = [begin_half(desk, number) for number in range(first, min(first + 10, count))]
        for reply in replies:
            roll_back(desk, desk.take(reply))
        desk.runner.settle()


def roll_back(desk: Desk, answer: Command) -> None:
    position = int(answer.fields["msgId"][16:], 16)
    place = {"tranStateTableOffset": answer.fields["queueOffset"], "commitLogOffset": position}
    desk.broker.begin(37, {"producerGroup": "pg", **place, "commitOrRollback": ROLLBACK})


def begin_half(desk: Desk, number: int) -> Reply:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01P{number}\x02"
    fields = {"a": "pg", "b": "p", "c": "TBW102", "d": 4, "e": 0, "f": 4, "g": 77, "h": 0, "i": properties}
    reply = desk.broker.begin(310, fields, b"passes by")
    assert reply is not None
    return reply


def left_behind(**settings: int) -> tuple[Desk, dict[str, Any]]:
    """Desk with a straggling half message that was moved to the end; returned with its original position."""
    desk = Desk(**settings)
    place = half(desk)
    desk.advance(6000)
    pass_by(desk, FAR_BEHIND + 50)
    assert half_messages_stored(desk) == 1 + FAR_BEHIND + 50 + 1
    return desk, place


@pytest.mark.parametrize("ends", ["restart", "kill"])
def test_a_start_reads_little_though_an_old_half_message_is_undecided(ends: str) -> None:
    desk, _ = left_behind()
    for _ in range(2):
        desk.advance(6000)
        pass_by(desk, FAR_BEHIND)
        desk = getattr(desk, ends)()
        stored = half_messages_stored(desk)
        assert stored - begins_at(desk, HALF_TOPIC) <= FAR_BEHIND + 50
        assert stored - begins_at(desk, MARKER_TOPIC) <= FAR_BEHIND + 50
    commit_checked_messages(desk)
    assert found(desk) == [b"half"]  # none of those rolled back was checked
    assert bodies_of(desk.broker.pull("p")) == []


def test_half_messages_that_wait_together_are_not_moved_past_each_other_for_ever() -> None:
    desk = Desk()
    for number in range(3 * FAR_BEHIND):
        begin_half(desk, number)
    desk.runner.settle()
    desk.advance(1_000_000)
    assert half_messages_stored(desk) == 3 * FAR_BEHIND


def test_a_half_message_is_not_moved_while_its_producer_may_decide_it() -> None:
    desk = Desk()
    place = half(desk)
    pass_by(desk, 3 * FAR_BEHIND)
    assert half_messages_stored(desk) == 1 + 3 * FAR_BEHIND
    assert decide(desk, place, COMMIT).code == 0


def test_a_start_reads_few_markers_though_all_half_messages_were_sent_before_any_decision() -> None:
    desk = Desk()
    half(desk)
    replies = [begin_half(desk, number) for number in range(5 * FAR_BEHIND)]
    answers = [desk.take(reply) for reply in replies]
    desk.advance(6000)
    for answer in answers:
        roll_back(desk, answer)
        desk.runner.settle()
    assert begins_at(desk, HALF_TOPIC) >= 5 * FAR_BEHIND
    assert markers_stored(desk) - begins_at(desk, MARKER_TOPIC) <= FAR_BEHIND + 50
    assert half_messages_stored(desk) < 10 * FAR_BEHIND
    desk = desk.kill()
    commit_checked_messages(desk)
    assert found(desk) == [b"half"]


@pytest.mark.parametrize("ends", ["", "restart", "kill"])
def test_a_moved_half_message_is_decided_by_its_original_position(ends: str) -> None:
    desk, place = left_behind()
    desk = getattr(desk, ends)() if ends else desk
    assert decide(desk, {**place, "producerGroup": "other"}, COMMIT).code == 1
    assert decide(desk, place, COMMIT).code == 0
    assert found(desk) == [b"half"]
    assert decide(desk, place, COMMIT).code == 1
    desk = desk.kill()
    assert decide(desk, place, COMMIT).code == 1
    assert found(desk) == [b"half"]
    (unit,) = units_of(desk.broker.pull("t", queue=1))
    assert not [name for name in read_properties(unit.properties) if name.startswith("TRIMQ")]


def moving() -> tuple[Desk, dict[str, Any]]:
    """Desk with a half message that is being moved; returned with its original position."""
    desk = Desk(commit_file_bytes=1 << 16)
    place = half(desk)
    pass_by(desk, FAR_BEHIND + 5)
    desk.advance(29_999)
    assert desk.message_time.step(desk.message_time.now_ms() + 1)  # the move begins at the next check
    return desk, place


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("ends", ["", "restart", "kill"])
def test_a_half_message_is_decided_while_it_is_moved(is_written: bool, ends: str) -> None:
    desk, place = moving()
    if is_written:
        desk.runner.end_pass()
    reply = desk.broker.begin(37, {**place, "commitOrRollback": COMMIT})
    assert reply is not None
    assert decide(desk, place, COMMIT).code == 1
    assert desk.take(reply).code == 0
    desk = getattr(desk, ends)() if ends else desk
    commit_checked_messages(desk)
    assert found(desk) == [b"half"]


def test_a_half_message_that_could_not_be_moved_is_decided_where_it_is() -> None:
    desk, place = moving()
    desk.fail_writes()
    desk.runner.end_pass()
    desk.files.before = lambda operation, name: None
    refused = decide(desk, place, COMMIT).code  # the failure of the move is not known yet
    assert [refused, decide(desk, place, COMMIT).code] in ([0, 1], [1, 0])
    desk = desk.kill()
    commit_checked_messages(desk)
    assert found(desk) == [b"half"]


def test_to_be_moved_is_not_to_be_asked_about() -> None:
    desk, _ = left_behind(transaction_check_max=2)
    produce(desk)
    desk.advance(90_000)
    assert [checked_times(question) for question in heard(desk)] == ["1", "2"]
    (unit,) = units_of(heard(desk)[0])
    assert not [name for name in read_properties(unit.properties) if name.startswith("TRIMQ")]


def test_a_moved_half_message_keeps_its_age() -> None:
    desk = Desk(retention_ms=3_600_000)
    half(desk)
    desk.advance(3_000_000)
    pass_by(desk, FAR_BEHIND + 50)
    assert half_messages_stored(desk) == 1 + FAR_BEHIND + 50 + 1
    desk = desk.restart()
    desk.advance(599_999)
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == []
    desk.advance(30_001)
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"half"]


def test_a_half_message_moved_during_a_power_cut_is_delivered_once() -> None:
    has_lost_a_marker = False
    for percent, is_decided in product(PERCENTS, (True, False)):
        desk, place = moving()
        if is_decided:
            desk.broker.begin(37, {**place, "commitOrRollback": COMMIT})
        desk = torn(desk, percent)
        after = half_messages_stored(desk), markers_stored(desk)
        has_lost_a_marker = has_lost_a_marker or after == (1 + FAR_BEHIND + 5 + 1, FAR_BEHIND + 5)
        commit_checked_messages(desk)
        assert found(desk) == [b"half"]
    assert has_lost_a_marker


def test_a_half_message_that_could_not_be_read_for_a_move_is_checked_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    produce(desk)
    read = MessageQueue.unit

    def fails_once(stream: MessageQueue, offset: int) -> Unit:
        monkeypatch.setattr(MessageQueue, "unit", read)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(MessageQueue, "unit", fails_once)
    half(desk)
    desk.advance(120_000)
    assert len(heard(desk)) >= 1


def test_an_unreadable_half_message_does_not_prevent_check_backs_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    produce(desk)
    read = MessageQueue.unit

    def damaged(stream: MessageQueue, offset: int) -> Unit:
        if offset == 0:
            raise DamagedSegment("store/commitlog/0", 7)
        return read(stream, offset)

    monkeypatch.setattr(MessageQueue, "unit", damaged)
    half(desk)
    half(desk)
    desk.advance(120_000)
    assert len(heard(desk)) >= 1
