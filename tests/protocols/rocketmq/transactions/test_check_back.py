"""Transaction check-back: a bounded number per loop turn, and none to producers that do not read."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, units_of
from protocols.rocketmq.transaction_desk import (
    COMMIT,
    checked_times,
    decide,
    found,
    half,
    half_messages_stored,
    heard,
    place_of,
    produce,
)

SHARE = 256
COMPRESSED = 1
INTERVAL_MS = 30_000


def begin_half(desk: Desk, number: int, body: bytes = b"half") -> None:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U{number}\x02"
    fields = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 1, "f": 4, "g": 77, "h": 0, "i": properties}
    desk.broker.begin(310, fields, body)


def with_half_messages(count: int, **settings: int) -> Desk:
    """Desk with this many undecided half messages, just before the check-back."""
    desk = Desk(**settings)
    produce(desk)
    for number in range(count):
        begin_half(desk, number)
    desk.runner.settle()
    assert half_messages_stored(desk) == count
    desk.advance(INTERVAL_MS - 1)
    return desk


def step(desk: Desk, milliseconds: int = 0) -> None:
    """Runs one turn of the loop and everything that it caused."""
    assert desk.message_time.step(desk.message_time.now_ms() + milliseconds)
    desk.runner.settle()


def uniques(desk: Desk) -> list[str]:
    return sorted({question.fields["msgId"] for question in heard(desk)})


def test_other_clients_are_served_during_many_check_backs() -> None:
    desk = with_half_messages(3 * SHARE)
    asked = []
    step(desk, 1)
    while len(heard(desk)) < 3 * SHARE:
        asked.append(len(heard(desk)))
        assert desk.broker.send("other").code == 0
        step(desk)
    assert asked == [SHARE, 2 * SHARE]
    assert len(uniques(desk)) == 3 * SHARE


def test_all_are_checked_back_when_time_stands_still_again() -> None:
    desk = with_half_messages(3 * SHARE)
    desk.advance(1)
    assert len(heard(desk)) == len(uniques(desk)) == 3 * SHARE
    desk.advance(INTERVAL_MS - 1)
    assert len(heard(desk)) == 3 * SHARE
    desk.advance(1)
    assert len(heard(desk)) == 6 * SHARE


def test_long_half_messages_are_checked_back_one_after_the_other() -> None:
    desk = Desk(commit_file_bytes=1 << 26)
    produce(desk)
    for number in range(5):
        begin_half(desk, number, bytes(800_000))
    desk.runner.settle()
    desk.advance(INTERVAL_MS - 1)
    step(desk, 1)
    assert len(heard(desk)) == 2
    desk.advance(0)
    assert len(heard(desk)) == 5


def test_a_half_message_decided_before_its_turn_is_not_checked_back() -> None:
    desk = Desk()
    produce(desk)
    for number in range(SHARE):
        begin_half(desk, number)
    last = half(desk, b"last", "last")
    desk.advance(INTERVAL_MS - 1)
    step(desk, 1)
    assert decide(desk, last, COMMIT).code == 0
    desk.advance(0)
    assert found(desk) == [b"last"]
    assert (len(heard(desk)), "last" in uniques(desk)) == (SHARE, False)


@pytest.mark.parametrize("ends", ["restart", "kill", "cut_power"])
def test_a_broker_that_ends_amid_its_questions_asks_the_rest_after_the_next_start(ends: str) -> None:
    desk = with_half_messages(2 * SHARE)
    step(desk, 1)
    before = uniques(desk)
    again = getattr(desk, ends)()
    desk.advance(3 * INTERVAL_MS)
    assert uniques(desk) == before  # a stopped broker sends no check-backs
    produce(again)
    again.advance(INTERVAL_MS)
    assert len(heard(again)) == len(uniques(again)) == 2 * SHARE


def test_a_disk_that_takes_nothing_amid_the_questions_ends_them_until_the_next_look() -> None:
    desk = with_half_messages(3 * SHARE)
    step(desk, 1)
    desk.fail_writes()
    desk.advance(0)
    assert len(heard(desk)) == SHARE
    desk.files.before = lambda operation, name: None
    desk.advance(INTERVAL_MS)
    assert len(uniques(desk)) == 3 * SHARE
    assert {checked_times(question) for question in heard(desk)[SHARE:]} == {"1", "2"}


# -- producers that do not read


def test_a_producer_that_does_not_read_is_not_asked_and_no_question_is_counted() -> None:
    desk = Desk()
    produce(desk)
    half(desk)
    desk.broker.way.is_congested = True
    desk.advance(10 * INTERVAL_MS)
    assert (heard(desk), half_messages_stored(desk)) == ([], 1)
    desk.broker.way.is_congested = False
    desk.advance(1000)
    (question,) = heard(desk)
    assert checked_times(question) == "1"


def test_a_producer_that_reads_slowly_is_asked_the_rest_before_the_next_look() -> None:
    desk = with_half_messages(3)
    desk.broker.way.is_congested = True
    desk.advance(5000)
    assert heard(desk) == []
    desk.broker.way.is_congested = False
    desk.advance(1000)
    assert [checked_times(question) for question in heard(desk)] == ["1", "1", "1"]
    desk.advance(INTERVAL_MS - 6000)
    assert len(heard(desk)) == 3
    desk.advance(1)
    assert len(heard(desk)) == 6  # at the next scheduled check of all half messages


def test_of_several_producers_one_that_reads_is_asked() -> None:
    desk = with_half_messages(20)
    slow = desk.connect()
    produce(desk, slow)
    slow.way.is_congested = True
    desk.advance(1)
    assert (len(heard(desk)), heard(desk, slow)) == (20, [])


def test_a_producer_that_stops_reading_before_its_question_is_ready_is_not_sent_it() -> None:
    desk = with_half_messages(3)
    assert desk.message_time.step(desk.message_time.now_ms() + 1)
    desk.broker.way.is_congested = True
    desk.runner.settle()
    assert heard(desk) == []
    desk.broker.way.is_congested = False
    desk.advance(INTERVAL_MS)
    assert len(heard(desk)) == 3


def test_another_producer_is_asked_when_the_chosen_one_stops_reading() -> None:
    desk = with_half_messages(3)
    assert desk.message_time.step(desk.message_time.now_ms() + 1)
    other = desk.connect()
    produce(desk, other)
    desk.broker.way.is_congested = True
    desk.runner.settle()
    assert len(heard(desk)) + len(heard(desk, other)) == 3


# -- check-back of the message as it was sent


def test_a_compressed_half_message_stays_compressed_when_checked_back_or_set_aside() -> None:
    desk = Desk(transaction_check_max=1)
    produce(desk)
    sent = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01{}\x02"
    desk.broker.send("t", b"packed", 1, sent.format("U1"), f=4 | COMPRESSED)
    desk.broker.send("t", b"left", 1, sent.format("U2"), f=4 | COMPRESSED)
    desk.advance(INTERVAL_MS)
    first, second = heard(desk)
    assert [units_of(question)[0].sys_flag for question in (first, second)] == [COMPRESSED, COMPRESSED]
    assert decide(desk, place_of(first), COMMIT, fromTransactionCheck=True).code == 0
    (unit,) = units_of(desk.broker.pull("t", queue=1))
    assert (bytes(unit.body), unit.sys_flag) == (b"packed", 8 | COMPRESSED)
    desk.advance(INTERVAL_MS)
    letters = desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")
    assert (bodies_of(letters), units_of(letters)[0].sys_flag) == ([b"left"], COMPRESSED)
