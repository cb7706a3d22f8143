"""The log that stores the failure ledger."""

from __future__ import annotations

import pytest
from storage.queue_logs import QueueLogs

from trimq.core.failures.ledger_log import LedgerLog
from trimq.errors import InvalidRecords
from trimq.formats.amqp_content.content import Content
from trimq.model import Record


def ledger_on(logs: QueueLogs, max_bytes: int, max_ms: int = 1000, now_ms: int = 0) -> LedgerLog:
    return LedgerLog(lambda: logs.make("ledger"), lambda: now_ms, max_bytes, max_ms)


def test_a_record_is_read_as_it_was_appended() -> None:
    logs = QueueLogs()
    ledger = ledger_on(logs, 1000)
    records = [
        Record(b"body", b"key", (("name", b"\0\xff"), ("name", None)), 5),
        Record(None, None, (), -1),
    ]
    for record in records:
        ledger.append(record)
    assert list(ledger.read(0)) == []  # not durable yet
    logs.runner.settle()
    found = list(ledger.read(0))
    assert [(one.body, one.key, one.headers, one.timestamp_ms) for one in found] == [
        (one.body, one.key, one.headers, one.timestamp_ms) for one in records
    ]
    assert [one.offset for one in ledger.read(1)] == [1]


def test_the_oldest_entries_are_deleted_when_the_log_is_too_large() -> None:
    logs = QueueLogs(segment_bytes=100_000)
    ledger = ledger_on(logs, 10_000)
    for number in range(200):
        ledger.append(Record(b"%03d" % number * 30))
        logs.runner.settle()
    found = [record.offset for record in ledger.read(0)]
    assert found == list(range(found[0], 200))
    assert 40 < len(found) < 100
    sizes = [file.size() for log in ledger.logs for file in (part.segment.file for part in log.segments)]
    assert sum(sizes) < 13_000


def test_entries_that_are_too_old_are_deleted() -> None:
    logs = QueueLogs()
    ledger = ledger_on(logs, 10_000_000)
    for _ in range(30):
        ledger.append(Record(b"x" * 100))
    logs.runner.settle()
    later = ledger_on(logs, 10_000_000, now_ms=5000)
    later.open(ledger.logs[0])
    later.trim()
    logs.runner.settle()
    assert 0 < len(list(later.read(0))) < 10  # the last segment is kept


def test_with_a_size_limit_of_zero_nothing_is_stored() -> None:
    logs = QueueLogs()
    assert ledger_on(logs, 0).append(Record(b"x")) is None
    assert logs.logs == {}


def test_a_full_disk_at_creation_of_the_log_raises_no_error() -> None:
    logs = QueueLogs()
    logs.files.room_bytes = 0
    ledger = LedgerLog(lambda: logs.store.make("ledger", False), lambda: 0, 1000, 1000)
    ticket = ledger.append(Record(b"x"))
    logs.runner.settle()
    assert ticket is None or ticket.refusal is not None
    assert list(ledger.read(0)) == []


def test_a_damaged_batch_of_entries_raises_invalid_records() -> None:
    logs = QueueLogs()
    ledger = ledger_on(logs, 1000)
    for body in (b"", b"\1\0\0" + bytes(16) + b"\x90", b"\2\0\1" + bytes(16) + b"\x90"):
        ledger.append_batch([Content(b"", b"", b"\0\0", body, 5)])
    logs.runner.settle()
    for offset in range(3):
        with pytest.raises(InvalidRecords):
            next(ledger.read(offset))
