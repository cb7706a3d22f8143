"""Deletion of commit-log files: after their retention, in the `deleteWhen` hours, and early on a nearly full disk."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.core_bench import CoreBench

from trimq.config import Address, RocketMQ, Settings, Storage
from trimq.core.commit_log.topics import CommitLogTopicDefinition
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.unit import UnitDraft
from trimq.model import SYSTEM
from trimq.storage.io.files import Space

HOST = pack_host("127.0.0.1", 1)
HOUR_MS = 3_600_000
FILE_BYTES = 1 << 16


def opened(
    delete_when: str, retention_ms: int = 72 * HOUR_MS, checkpoint_bytes: int = 1000, **fields: Any
) -> CoreBench:
    rocketmq = RocketMQ(
        broker_listen=Address("127.0.0.1", 0),
        commit_file_bytes=FILE_BYTES,
        queue_file_entries=100,
        index_keys=1000,
        delete_when=delete_when,
        retention_ms=retention_ms,
        **fields,
    )
    return CoreBench(Settings(rocketmq=rocketmq, storage=Storage(checkpoint_bytes=checkpoint_bytes)))


def fill(bench: CoreBench, files: int) -> None:
    """Writes the given number of full files, and something into the next."""
    assert bench.core.commit_log_service is not None
    commit_log = bench.core.commit_log_service.commit_log
    topic = (
        commit_log.topics.find(SYSTEM, "t")
        or commit_log.topics.create(SYSTEM, CommitLogTopicDefinition("", "t", 1, 1))[0]
    )
    bench.settle()
    for _ in range(4 * files + 1):
        draft = UnitDraft(topic.raw_name, 0, bytes(FILE_BYTES // 4 - 200), b"", 0, 0, 5, HOST)
        commit_log.messages.append(SYSTEM, topic, topic.stream(0), draft, 0, HOST)
        bench.settle()


def add_dead_letter(bench: CoreBench) -> None:
    """Writes a dead letter of the group `g`."""
    assert bench.core.commit_log_service is not None
    commit_log = bench.core.commit_log_service.commit_log
    topic = (
        commit_log.topics.find(SYSTEM, "%DLQ%g")
        or commit_log.topics.create(SYSTEM, CommitLogTopicDefinition("", "%DLQ%g", 1, 1))[0]
    )
    bench.settle()
    draft = UnitDraft(topic.raw_name, 0, b"dead", b"", 0, 0, 5, HOST)
    commit_log.messages.append(SYSTEM, topic, topic.stream(0), draft, 0, HOST)
    bench.settle()


def files(bench: CoreBench) -> int:
    return len(bench.memory.names("store/commitlog"))


def start(bench: CoreBench) -> int:
    assert bench.core.commit_log_service is not None
    return bench.core.commit_log_service.commit_log.topics.get(SYSTEM, "t").stream(0).start


def hour(bench: CoreBench) -> int:
    return bench.time.now_ms() // HOUR_MS % 24


def advance_to(bench: CoreBench, wanted: int) -> None:
    """Moves the clock to the beginning of that hour."""
    bench.advance(HOUR_MS - bench.time.now_ms() % HOUR_MS)
    while hour(bench) != wanted:
        bench.advance(HOUR_MS)


def test_files_are_deleted_after_seventy_two_hours() -> None:
    bench = opened(delete_when="")
    fill(bench, 2)
    bench.advance(71 * HOUR_MS)
    assert (files(bench), start(bench)) == (3, 0)
    bench.advance(2 * HOUR_MS)
    assert files(bench) == 1
    assert start(bench) > 0


def test_files_past_their_retention_are_deleted_only_in_the_delete_when_hour() -> None:
    bench = opened(delete_when="04;16", retention_ms=HOUR_MS)
    advance_to(bench, 5)
    fill(bench, 2)
    bench.advance(10 * HOUR_MS)
    assert (hour(bench), files(bench)) == (15, 3)
    bench.advance(HOUR_MS + HOUR_MS // 2)
    assert files(bench) == 1


@pytest.mark.parametrize("excess_files", [1, 2])
def test_on_a_nearly_full_disk_the_oldest_files_are_deleted_early(
    excess_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened(delete_when="04")
    fill(bench, 4)
    total = 100 * FILE_BYTES
    free = 5 * FILE_BYTES - excess_files * FILE_BYTES + 1  # five percent must be free
    monkeypatch.setattr(bench.memory, "space", lambda: Space(free, total))
    bench.advance(bench.settings.storage.retention_check_ms)
    monkeypatch.setattr(bench.memory, "space", lambda: Space(total, total))
    assert files(bench) == 5 - excess_files
    assert start(bench) > 0
    bench.restart()
    assert files(bench) == 5 - excess_files


def test_a_full_disk_deletes_no_file_that_a_restart_would_need(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = opened(delete_when="04", checkpoint_bytes=1 << 30)
    fill(bench, 3)
    monkeypatch.setattr(bench.memory, "space", lambda: Space(0, 100 * FILE_BYTES))
    bench.advance(bench.settings.storage.retention_check_ms)
    assert (files(bench), start(bench)) == (4, 0)


def test_delete_when_takes_only_two_digit_hours() -> None:
    for good in ("", "00", "04;23"):
        assert msgspec.convert({"delete_when": good}, RocketMQ).delete_when == good
    for bad in ("24", "4", "04,05", "04;", "x"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"delete_when": bad}, RocketMQ)


def test_files_with_dead_letters_are_kept_for_the_retention_of_dead_letters() -> None:
    bench = opened("", retention_ms=HOUR_MS, dead_letter_retention_ms=5 * HOUR_MS)
    fill(bench, 1)
    add_dead_letter(bench)
    fill(bench, 2)
    assert files(bench) == 4
    bench.advance(2 * HOUR_MS)
    assert files(bench) == 3  # files before the dead letter are deleted, files after it are not
    assert bench.core.commit_log_service is not None
    dead = bench.core.commit_log_service.commit_log.topics.get(SYSTEM, "%DLQ%g").stream(0)
    assert bytes(dead.unit(0).body) == b"dead"
    bench.advance(4 * HOUR_MS)
    assert files(bench) == 1
    assert dead.start == dead.end == 1


def test_a_dead_letter_does_not_keep_its_file_on_a_nearly_full_disk() -> None:
    bench = opened("", retention_ms=HOUR_MS, dead_letter_retention_ms=500 * HOUR_MS)
    add_dead_letter(bench)
    fill(bench, 2)
    bench.advance(2 * HOUR_MS)
    assert files(bench) == 3
    assert bench.core.commit_log_service is not None
    bench.core.commit_log_service._pressure = lambda: FILE_BYTES
    bench.advance(HOUR_MS)
    assert files(bench) < 3


def test_a_shorter_retention_of_dead_letters_does_not_shorten_that_of_their_file() -> None:
    bench = opened("", retention_ms=5 * HOUR_MS, dead_letter_retention_ms=HOUR_MS)
    add_dead_letter(bench)
    fill(bench, 2)
    bench.advance(4 * HOUR_MS)
    assert files(bench) == 3
