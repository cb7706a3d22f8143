"""Delayed messages are delivered exactly once across crashes, clocks that were set back, changed delay levels, and
disks that were full for a while."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of

from trimq.core.commit_log.stream import MessageQueue

SECOND = 1000
HOUR = 3600 * SECOND


def came(desk: Desk) -> list[bytes]:
    found: list[bytes] = []
    while (answer := desk.broker.pull("t", len(found), 1)).code == 0:
        found += bodies_of(answer)
    return found


def send(desk: Desk, body: bytes, properties: str = "") -> None:
    unique = f"UNIQ_KEY\x01K{body.decode()}\x02"
    assert desk.broker.send("t", body, 1, unique + properties).code == 0


def send_for(desk: Desk, body: bytes, due_ms: int) -> None:
    send(desk, body, f"TIMER_DELIVER_MS\x01{due_ms}\x02")


def send_by_level(desk: Desk, body: bytes, level: int) -> None:
    send(desk, body, f"DELAY\x01{level}\x02")


def fire_and_kill(desk: Desk, until_ms: int) -> Desk:
    """Writes the messages that are due, and kills the process before a checkpoint."""
    while desk.message_time.step(until_ms):
        """Nothing is made durable."""
    desk.runner.end_pass()
    return desk.kill()


def test_a_retried_message_beside_a_later_one_is_delivered_once() -> None:
    desk = Desk()
    send_for(desk, b"late", NOW_MS + HOUR)
    send_for(desk, b"refused", NOW_MS + 10 * SECOND)
    send_for(desk, b"beside", NOW_MS + 11 * SECOND)
    for number in range(300):
        send_for(desk, b"%d" % number, NOW_MS + 12 * SECOND)
    desk.advance(10 * SECOND - 1)
    desk.fail_writes("commitlog")
    desk.advance(1)
    desk.files.before = lambda operation, name: None
    desk.advance(SECOND)
    assert came(desk) == [b"beside", b"refused"]
    desk = desk.kill()
    desk.advance(5 * SECOND)
    assert came(desk) == [b"beside", b"refused", *(b"%d" % number for number in range(300))]


def test_levels_that_were_changed_deliver_nothing_twice_after_two_more_starts() -> None:
    desk = Desk(delay_levels="10m 1h", commit_file_bytes=1 << 20)
    send(desk, b"plain")
    for number in range(5):
        send_by_level(desk, b"%d" % number, 1)
        desk.advance(60 * SECOND)
    desk.core.stop_writes()
    desk = Desk(desk.files, desk.message_time.now_ms() + HOUR, desk.memory, **desk.given)  # due during the downtime
    desk.given["delay_levels"] = "3h 4h"
    desk = fire_and_kill(desk, desk.message_time.now_ms())
    desk.advance(2 * HOUR - 240 * SECOND - 1)
    desk.advance(120 * SECOND)
    desk = desk.restart()
    desk.advance(6 * HOUR)
    assert came(desk) == [b"plain", *(b"%d" % number for number in range(5))]


def test_a_clock_that_was_set_back_delivers_nothing_twice() -> None:
    desk = Desk()
    send(desk, b"plain")
    send_by_level(desk, b"first", 4)
    desk.advance(40 * SECOND)
    send(desk, b"another")
    desk = desk.restart()
    desk.core.stop_writes()
    desk = Desk(desk.files, desk.message_time.now_ms() - HOUR, desk.memory, **desk.given)
    for body in (b"0", b"1"):
        send_by_level(desk, body, 4)
    desk = fire_and_kill(desk, desk.message_time.now_ms() + 30 * SECOND)
    desk.advance(3 * HOUR)
    assert came(desk) == [b"plain", b"first", b"another", b"0", b"1"]


def test_a_message_that_could_not_be_read_when_due_is_delivered_after_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    send_for(desk, b"late", NOW_MS + HOUR)
    send(desk, b"unread", f"TIMER_DELIVER_MS\x01{NOW_MS + 10 * SECOND}\x02TIMER_ENQUEUE_MS\x011\x02")
    send_for(desk, b"read", NOW_MS + 10 * SECOND + 500)
    unit_of = MessageQueue.unit

    def fails(stream: MessageQueue, offset: int) -> object:
        if offset == 1:
            raise OSError(24, "too many open files")
        return unit_of(stream, offset)

    monkeypatch.setattr(MessageQueue, "unit", fails)
    desk.advance(10 * SECOND + 600)
    monkeypatch.undo()
    desk = desk.kill()
    desk.advance(5 * SECOND)
    assert came(desk) == [b"read", b"unread"]
