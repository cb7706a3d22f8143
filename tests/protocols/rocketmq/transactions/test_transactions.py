"""Transactions: half messages are invisible; decisions, check-backs, and crashes in every phase."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, units_of
from protocols.rocketmq.transaction_desk import (
    COMMIT,
    PERCENTS,
    ROLLBACK,
    commit_checked_messages,
    decide,
    found,
    half,
    heard,
    markers_stored,
    place_of,
    produce,
    set_aside,
    torn,
)

from trimq.core.failures.ledger import Reason
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.model import SYSTEM


def test_a_half_message_is_visible_when_it_is_committed() -> None:
    desk = Desk()
    asked = half(desk)
    assert found(desk) == []
    assert decide(desk, asked, COMMIT).code == 0
    (unit,) = units_of(desk.broker.pull("t", queue=1, subscription="A"))
    assert (unit.body, unit.sys_flag, unit.prepared_position) == (b"half", 8, asked["commitLogOffset"])
    kept = read_properties(unit.properties)
    assert "REAL_TOPIC" not in kept
    assert (kept["TRAN_MSG"], kept["PGROUP"], kept["__transactionId__"]) == ("true", "pg", "U")


def test_a_rolled_back_half_message_is_never_visible() -> None:
    desk = Desk(transaction_check_max=2)
    produce(desk)
    assert decide(desk, half(desk), ROLLBACK).code == 0
    desk.advance(1_000_000)
    assert (found(desk), heard(desk)) == ([], [])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producerGroup": "other"}, 1),
        ({"commitLogOffset": 3}, 1),
        ({"commitLogOffset": 10**9}, 1),
        ({"tranStateTableOffset": 7}, 1),
        ({"commitOrRollback": 4}, 1),
        ({"commitOrRollback": "x"}, 1),
    ],
)
def test_a_decision_about_something_else_is_refused(fields: dict[str, Any], code: int) -> None:
    desk = Desk()
    asked = {**half(desk), "commitOrRollback": COMMIT, **fields}
    assert desk.broker.ask(37, asked).code == code
    assert found(desk) == []


def test_a_message_that_is_not_a_half_message_cannot_be_committed() -> None:
    desk = Desk()
    answer = desk.broker.send("t", b"plain", 1, "PGROUP\x01pg\x02")
    asked = {"producerGroup": "pg", "tranStateTableOffset": 0, "commitLogOffset": int(answer.fields["msgId"][16:], 16)}
    assert decide(desk, asked, COMMIT).code == 1


def test_an_unknown_decision_is_not_answered() -> None:
    desk = Desk()
    assert desk.broker.begin(37, {**half(desk), "commitOrRollback": 0}) is None


def test_a_transaction_is_decided_once() -> None:
    desk = Desk()
    asked = half(desk)
    decide(desk, asked, COMMIT)
    assert decide(desk, asked, COMMIT).code == 1
    assert decide(desk, asked, ROLLBACK).code == 1
    assert found(desk) == [b"half"]


def test_a_producer_is_checked_back_about_its_undecided_messages() -> None:
    desk = Desk()
    produce(desk)
    half(desk)
    desk.advance(29_999)
    assert heard(desk) == []
    desk.advance(1)
    (question,) = heard(desk)
    assert question.is_one_way
    assert (question.fields["msgId"], question.fields["topic"]) == ("U", "RMQ_SYS_TRANS_HALF_TOPIC")
    (unit,) = units_of(question)
    assert (unit.topic, unit.queue_id, unit.body) == (b"t", 1, b"half")
    assert read_properties(unit.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    asked = {
        "producerGroup": "pg",
        **{name: question.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")},
    }
    assert decide(desk, asked, COMMIT, fromTransactionCheck=True).code == 0
    assert found(desk) == [b"half"]
    desk.advance(100_000)
    assert len(heard(desk)) == 1


def test_after_its_last_check_back_a_half_message_is_set_aside() -> None:
    desk = Desk(transaction_check_max=3)
    produce(desk)
    half(desk)
    for _ in range(5):
        desk.advance(30_000)
        produce(desk)
    times = [read_properties(units_of(question)[0].properties)["TRANSACTION_CHECK_TIMES"] for question in heard(desk)]
    assert times == ["1", "2", "3"]
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"half"]
    assert found(desk) == []


def test_without_a_producer_there_is_no_check_back() -> None:
    desk = Desk()
    half(desk)
    desk.advance(300_000)
    produce(desk)
    desk.advance(30_000)
    (question,) = heard(desk)
    assert read_properties(units_of(question)[0].properties)["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_producer_may_delay_the_first_check_back() -> None:
    desk = Desk()
    produce(desk)
    asked = half(desk, more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
    desk.advance(90_000)
    assert heard(desk) == []
    desk.advance(30_000)
    assert len(heard(desk)) == 1
    assert decide(desk, asked, COMMIT).code == 1  # the check-back named another position


def test_a_decision_that_cannot_be_written_may_be_made_again() -> None:
    desk = Desk()
    asked = half(desk)
    desk.fail_writes()
    assert decide(desk, asked, COMMIT).code == 1
    desk.files.before = lambda operation, name: None
    assert decide(desk, asked, COMMIT).code == 0
    assert found(desk) == [b"half"]


@pytest.mark.parametrize("ends", ["restart", "kill"])
def test_a_transaction_outlives_a_crash_in_every_phase(ends: str) -> None:
    desk = Desk()
    first, second = half(desk, b"first", "U1"), half(desk, b"second", "U2")
    desk = getattr(desk, ends)()
    assert decide(desk, first, COMMIT).code == 0
    desk = getattr(desk, ends)()
    assert decide(desk, first, COMMIT).code == 1
    produce(desk)
    desk.advance(30_000)
    (question,) = heard(desk)
    desk = getattr(desk, ends)()
    assert decide(desk, second, COMMIT).code == 1
    again = {name: question.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    assert decide(desk, {"producerGroup": "pg", **again}, ROLLBACK).code == 0
    desk = getattr(desk, ends)()
    produce(desk)
    desk.advance(100_000)
    assert (found(desk), heard(desk)) == ([b"first"], [])


def test_a_half_message_whose_marker_was_lost_in_a_power_cut_is_delivered_once() -> None:
    has_lost_a_marker = False
    for percent in PERCENTS:
        desk = Desk(commit_file_bytes=1 << 16)
        desk.broker.begin(37, {**half(desk), "commitOrRollback": COMMIT})
        desk = torn(desk, percent)
        has_lost_a_marker = has_lost_a_marker or (found(desk) == [b"half"] and not markers_stored(desk))
        commit_checked_messages(desk)
        assert found(desk) == [b"half"]
    assert has_lost_a_marker


def test_a_half_message_rewritten_during_a_power_cut_is_delivered_once() -> None:
    has_lost_a_marker = False
    for percent in PERCENTS:
        desk = Desk(commit_file_bytes=1 << 16)
        produce(desk)
        half(desk)
        desk.advance(29_999)
        assert desk.message_time.step(desk.message_time.now_ms() + 1)  # the check-back is being written
        desk = torn(desk, percent)
        half_messages = len(units_of(desk.broker.pull("RMQ_SYS_TRANS_HALF_TOPIC")))
        has_lost_a_marker = has_lost_a_marker or (half_messages == 2 and not markers_stored(desk))
        commit_checked_messages(desk)
        assert found(desk) == [b"half"]
    assert has_lost_a_marker


def test_a_half_message_set_aside_during_a_power_cut_is_set_aside_once() -> None:
    has_lost_a_marker = False
    for percent in PERCENTS:
        desk = Desk(commit_file_bytes=1 << 16, transaction_check_max=1)
        produce(desk)
        half(desk)
        desk.advance(59_999)
        assert (len(heard(desk)), markers_stored(desk)) == (1, 1)
        assert desk.message_time.step(desk.message_time.now_ms() + 1)  # the move to TRANS_CHECK_MAX_TIME is pending
        desk = torn(desk, percent)
        letters = bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC"))
        has_lost_a_marker = has_lost_a_marker or (len(letters) == 1 and markers_stored(desk) == 1)
        produce(desk)
        desk.advance(120_000)
        assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"half"]
        (failure,) = desk.core.broker.failures.all(SYSTEM)
        desk.core.broker.failures.redrive(SYSTEM, failure.id)
        desk.runner.settle()
        assert found(desk) == [b"half"]
    assert has_lost_a_marker


def test_a_half_message_that_was_set_aside_is_in_the_ledger_and_can_be_redriven() -> None:
    desk = Desk(transaction_check_max=1)
    produce(desk)
    half(desk)
    for _ in range(3):
        desk.advance(30_000)
        produce(desk)
    desk = desk.kill()
    (failure,) = desk.core.broker.failures.all(SYSTEM)
    entry = failure.entry
    assert (entry.record.body, entry.reason, entry.attempts) == (b"half", Reason.UNDECIDED, 1)
    assert (entry.origin.topic.name, entry.origin.stream.number, entry.origin.group) == ("t", 1, "pg")
    desk.core.broker.failures.redrive(SYSTEM, failure.id)
    desk.runner.settle()
    (unit,) = units_of(desk.broker.pull("t", queue=1))
    kept = read_properties(unit.properties)
    assert (bytes(unit.body), kept["TAGS"], "TRAN_MSG" in kept, "REAL_TOPIC" in kept) == (b"half", "A", False, False)


# -- a new check-back of expired half messages


def test_a_half_message_that_was_set_aside_is_checked_back_again_and_delivered_after_its_commit() -> None:
    desk = Desk(transaction_timeout_ms=1000, transaction_check_interval_ms=1000, transaction_check_max=1)
    id, before = set_aside(desk), len(heard(desk))
    assert desk.broker.ask(323, {"topic": "t", "msgId": id}).code == 0
    desk = desk.restart()
    produce(desk)
    desk.advance(1000)
    assert (before, len(heard(desk))) == (1, 1)
    fields = heard(desk)[0].fields
    asked = {name: fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    assert decide(desk, {"producerGroup": "pg", **asked}, COMMIT, fromTransactionCheck=True).code == 0
    assert found(desk) == [b"half"]


@pytest.mark.parametrize("ends", ["", "restart", "kill"])
def test_a_half_message_that_was_set_aside_is_put_back_once(ends: str) -> None:
    desk = Desk(transaction_timeout_ms=1000, transaction_check_interval_ms=1000, transaction_check_max=1)
    id = set_aside(desk)
    first = desk.broker.begin(323, {"topic": "t", "msgId": id})
    assert desk.broker.ask(323, {"topic": "t", "msgId": id}).code == 1  # although the first request is not durable yet
    assert first is not None
    assert desk.take(first).code == 0
    desk = getattr(desk, ends)() if ends else desk
    desk.broker.way.sent.clear()
    assert desk.broker.ask(323, {"topic": "t", "msgId": id}).code == 1
    produce(desk)
    desk.advance(1000)
    for question in heard(desk):
        decide(desk, place_of(question), COMMIT, fromTransactionCheck=True)
    assert found(desk) == [b"half"]


def test_a_failed_put_back_may_be_retried() -> None:
    desk = Desk(transaction_timeout_ms=1000, transaction_check_interval_ms=1000, transaction_check_max=1)
    id = set_aside(desk)
    desk.fail_writes()
    assert desk.broker.ask(323, {"topic": "t", "msgId": id}).code == 1
    desk.files.before = lambda operation, name: None
    assert desk.broker.ask(323, {"topic": "t", "msgId": id}).code == 0


@pytest.mark.parametrize("id", ["zz", "", "7F00000100002A9F0000000000000000", "7F00000100002A9F00000000FFFFFFFF"])
def test_a_message_that_was_not_set_aside_is_not_checked_back_again(id: str) -> None:
    desk = Desk()
    desk.broker.send("t")
    assert desk.broker.ask(323, {"topic": "t", "msgId": id}).code == 1
