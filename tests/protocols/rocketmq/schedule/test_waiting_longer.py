"""Messages that are pending for longer than the retention of files: delayed ones, and undecided half messages."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of

from trimq.core.failures.ledger import Failure, Reason
from trimq.model import SYSTEM

HOUR_MS = 3_600_000
FILE_BYTES = 1 << 16


def opened(**settings: Any) -> Desk:
    """Desk with a retention of one hour."""
    given = {"commit_file_bytes": FILE_BYTES, "message_bytes": 20_000, "retention_ms": HOUR_MS, "delete_when": ""}
    return Desk(**{**given, "dead_letter_retention_ms": HOUR_MS, "max_delay_ms": 100 * HOUR_MS, **settings})


def fill(desk: Desk, files: int = 2) -> None:
    for _ in range(5 * files):
        assert desk.broker.send("filling", bytes(15_000)).code == 0


def files(desk: Desk) -> int:
    return len(desk.memory.names("store/commitlog"))


def found(desk: Desk) -> list[bytes]:
    return sorted(bodies_of(desk.broker.pull("t")))


def failures(desk: Desk) -> list[Failure]:
    return list(desk.core.broker.failures.all(SYSTEM))


def press(desk: Desk, size: int = FILE_BYTES) -> None:
    """Reports a disk that is too full at the next check."""
    assert desk.core.commit_log_service is not None
    desk.core.commit_log_service._pressure = lambda: size
    desk.advance(desk.settings.storage.retention_check_ms)
    desk.core.commit_log_service._pressure = lambda: 0


def half(desk: Desk, body: bytes, unique: str, more: str = "") -> dict[str, Any]:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01{unique}\x02{more}"
    answer = desk.broker.send("t", body, 0, properties, f=4)
    place = {"tranStateTableOffset": answer.fields["queueOffset"]}
    return {"producerGroup": "pg", "commitLogOffset": int(answer.fields["msgId"][16:], 16), **place}


def produce(desk: Desk) -> None:
    desk.broker.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "pg"}]})


def questions(desk: Desk) -> set[str]:
    return {sent.fields["transactionId"] for sent in desk.broker.way.sent if sent.code == 39}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_stays_for_as_long_as_a_message_waits_in_it(restarts: bool) -> None:
    desk = opened()
    desk.broker.send("t", b"by time", 0, f"TIMER_DELAY_MS\x01{5 * HOUR_MS}\x02")
    desk.broker.send("t", b"by level", 0, "DELAY\x0118\x02")  # two hours
    fill(desk)
    desk.advance(3 * HOUR_MS)
    assert found(desk) == [b"by level"]
    fill(desk)
    if restarts:
        desk = desk.restart()
    desk.advance(2 * HOUR_MS + 1)
    assert bodies_of(desk.broker.pull("t", offset=1)) == [b"by time"]
    desk.advance(2 * HOUR_MS)
    assert files(desk) == 1


def test_deleting_old_files_on_request_does_not_drop_pending_messages() -> None:
    desk = opened(delete_when="04")
    desk.broker.send("t", b"late", 0, f"TIMER_DELAY_MS\x01{2 * HOUR_MS}\x02")
    fill(desk)
    desk.advance(HOUR_MS + 1)
    for _ in range(3):
        assert desk.broker.ask(329).code == 0
    desk.advance(HOUR_MS)
    assert found(desk) == [b"late"]


def test_pending_messages_on_a_nearly_full_disk_are_dropped_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    desk = opened()
    desk.broker.send("t", b"late", 0, f"TIMER_DELAY_MS\x01{5 * HOUR_MS}\x02UNIQ_KEY\x01U\x02")
    undecided = half(desk, b"half", "H")
    fill(desk)
    desk.broker.send("t", b"later", 0, f"TIMER_DELAY_MS\x01{5 * HOUR_MS}\x02UNIQ_KEY\x01V\x02")
    desk = desk.restart()  # so that the checkpoint covers everything
    with caplog.at_level(logging.WARNING):
        press(desk)
    assert "delayed messages: deleted" in caplog.text
    entries = {failure.entry.record.body: failure.entry for failure in failures(desk)}
    assert {body: entry.reason for body, entry in entries.items()} == {
        b"late": Reason.EXPIRED,
        b"half": Reason.UNDECIDED,
    }
    assert {(entry.origin.topic.name, entry.origin.stream.number) for entry in entries.values()} == {("t", 0)}
    assert desk.broker.ask(37, {**undecided, "commitOrRollback": 8}).code == 1
    desk.advance(6 * HOUR_MS)
    assert found(desk) == [b"later"]


def test_a_message_dropped_by_a_full_disk_can_be_redriven() -> None:
    desk = opened()
    desk.broker.send("t", b"late", 1, f"TIMER_DELAY_MS\x01{5 * HOUR_MS}\x02UNIQ_KEY\x01U\x02TAGS\x01A\x02")
    fill(desk)
    desk = desk.restart()
    press(desk)
    (failure,) = failures(desk)
    desk.core.broker.failures.redrive(SYSTEM, failure.id)
    desk.runner.settle()
    assert bodies_of(desk.broker.pull("t", queue=1, subscription="A")) == [b"late"]
    assert failures(desk)[0].is_redriven


@pytest.mark.parametrize("more", ["", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01999999999\x02"])
def test_a_half_message_without_a_producer_for_the_retention_time_is_set_aside(more: str) -> None:
    desk = opened()
    half(desk, b"old", "OLD", more)
    fill(desk)
    desk.advance(HOUR_MS // 2)
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == []
    desk.advance(HOUR_MS)
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"old"]
    assert [failure.entry.reason for failure in failures(desk)] == [Reason.UNDECIDED]
    desk.advance(2 * HOUR_MS)
    assert files(desk) == 1
    produce(desk)
    half(desk, b"new", "NEW")
    desk.advance(61_000)
    assert questions(desk) == {"NEW"}


def test_a_lost_half_message_blocks_no_other() -> None:
    desk = opened()
    half(desk, b"old", "OLD")
    fill(desk)
    half(desk, b"new", "NEW")
    desk = desk.restart()
    press(desk)
    produce(desk)
    desk.advance(61_000)
    assert questions(desk) == {"NEW"}
