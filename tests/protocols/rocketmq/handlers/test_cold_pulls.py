"""Pulls of cold messages: they are read off the event loop, and no other client waits for the disk."""

from __future__ import annotations

import errno

from protocols.rocketmq.rocketmq_desk import Desk, bodies_of

from trimq.core.commit_log.stream import MessageQueue
from trimq.model import SYSTEM

BODIES = [b"%d" % number for number in range(40)]
POP = {"consumerGroup": "g", "topic": "t", "queueId": 0, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 0}


def cold_desk() -> Desk:
    """Desk with a queue of messages and entries that this process has never read."""
    desk = Desk()
    for number, body in enumerate(BODIES):
        desk.broker.send("t", body, properties=f"TAGS\x01{'AB'[number % 2]}\x02")
    desk = desk.restart()
    desk.files.is_cold = True
    desk.files.waits = 0
    return desk


def stream_of(desk: Desk) -> MessageQueue:
    assert desk.core.commit_log_service is not None
    return desk.core.commit_log_service.commit_log.topics.get(SYSTEM, "t").stream(0)


def test_a_pull_is_answered_from_the_disk_off_the_loop() -> None:
    desk = cold_desk()
    reply = desk.broker.begin(11, desk.broker.pull_fields("t"))
    assert reply is not None
    assert reply.is_open
    answer = desk.take(reply)
    assert (answer.code, bodies_of(answer), desk.files.waits) == (0, BODIES[:32], 0)


def test_a_pop_is_answered_from_the_disk_off_the_loop() -> None:
    desk = cold_desk()
    reply = desk.broker.begin(200050, POP)
    assert reply is not None
    assert reply.is_open
    assert bodies_of(desk.take(reply)) == BODIES[:32]
    assert desk.files.waits == 0


def test_a_pop_that_the_disk_does_not_serve_is_refused_and_takes_nothing() -> None:
    desk = cold_desk()

    def before(operation: str, name: str) -> None:
        if operation == "warm":
            raise OSError(errno.EIO, "Input/output error")

    desk.files.before = before
    assert desk.broker.ask(200050, POP).code == 1
    desk.files.before = lambda operation, name: None
    assert bodies_of(desk.broker.ask(200050, POP)) == BODIES[:32]


def test_others_are_served_meanwhile() -> None:
    desk = cold_desk()
    held = desk.broker.begin(11, desk.broker.pull_fields("t"))
    assert held is not None
    other = desk.connect()
    reply = other.begin(30, {"topic": "t", "queueId": 0})
    assert reply is not None
    assert reply.is_ready(0, 0)
    assert not held.is_ready(0, 0)


def test_a_filter_reads_off_the_loop_too() -> None:
    desk = cold_desk()
    fields = {"subscription": "TAGS = 'B'", "expressionType": "SQL92"}
    answer = desk.broker.pull("t", 1, **fields)
    assert (bodies_of(answer), desk.files.waits) == (BODIES[1::2], 0)


def test_data_found_in_memory_is_not_looked_for_again() -> None:
    desk = cold_desk()
    assert len(bodies_of(desk.broker.pull("t"))) == 32
    desk.files.is_cold = True
    assert stream_of(desk).find_cold(32) is None
    assert stream_of(desk).find_cold(0) is None


def test_recently_written_data_is_taken_to_be_in_memory() -> None:
    desk = Desk()
    desk.broker.send("t", b"new")
    desk.files.is_cold = True
    assert stream_of(desk).find_cold(0) is None


def test_the_commit_of_a_pull_counts_once_though_it_is_looked_at_twice() -> None:
    desk = cold_desk()
    desk.broker.pull("t", 8, sysFlag=5, commitOffset=8)
    committed = desk.broker.ask(14, {"consumerGroup": "g", "topic": "t", "queueId": 0})
    assert committed.fields["offset"] == "8"


def test_where_memory_is_too_short_the_loop_reads_for_itself_in_the_end() -> None:
    desk = cold_desk()
    warmings = 0

    def before(operation: str, name: str) -> None:
        nonlocal warmings
        if operation == "warm":
            warmings += 1
            desk.files.is_cold = True  # evicted at once

    desk.files.before = before
    answer = desk.broker.pull("t")
    assert (bodies_of(answer), warmings) == (BODIES[:32], 3)
    assert desk.files.waits > 0


def test_a_failed_read_is_refused_and_never_read_on_the_loop() -> None:
    desk = cold_desk()

    def before(operation: str, name: str) -> None:
        if operation == "warm":
            desk.files.is_cold = True
            raise OSError(errno.EIO, "Input/output error")

    desk.files.before = before
    answer = desk.broker.pull("t")
    assert (answer.code, desk.files.waits) == (1, 0)
    assert "damaged" in (answer.remark or "")


def test_a_connection_that_ends_meanwhile_leaves_nothing_behind() -> None:
    desk = cold_desk()
    reply = desk.broker.begin(11, desk.broker.pull_fields("t"))
    assert reply is not None
    assert reply.on_abandon is not None
    reply.on_abandon()
    desk.runner.settle()
    assert reply.is_open
    assert desk.files.waits == 0


def test_a_topic_deleted_meanwhile_is_reported() -> None:
    desk = cold_desk()
    reply = desk.broker.begin(11, desk.broker.pull_fields("t"))
    assert reply is not None
    deleted = desk.connect().begin(215, {"topic": "t"})
    assert deleted is not None
    assert desk.take(reply).code == 17
