from __future__ import annotations

import errno
import logging
import os

import pytest
from storage.commit_bench import START_MS, PooledBench

from trimq.storage.commit_log.commit_pool import COMMIT_BYTES
from trimq.storage.commit_log.store import ROOT

LOG_FILE = "commitlog/00000000000000000000"
SPACIOUS = 1 << 20


def settled() -> PooledBench:
    """A store with one message on disk."""
    bench = PooledBench(file_bytes=SPACIOUS)
    bench.append("t", 0, b"before")
    bench.sync()
    return bench


def test_messages_are_in_memory_until_the_interval_has_passed() -> None:
    bench = settled()
    placed = bench.append("t", 0, b"one")
    bench.end_turn()
    bench.pass_time(bench.COMMIT_MS - 1)
    bench.append("t", 0, b"two")
    bench.end_turn()
    assert b"one" not in bench.read(LOG_FILE)
    assert bench.bodies("t", 0) == [b"before"]
    assert placed.ticket.refusal is None
    bench.pass_time(1)
    assert bench.bodies("t", 0) == [b"before", b"one", b"two"]
    assert bench.runner.passes.is_idle is False  # it is not synced
    bench.sync()
    assert bench.runner.passes.is_idle


@pytest.mark.parametrize(("passed_ms", "after_kill", "after_power_cut"), [
    (0, [b"before"], [b"before"]),
    (PooledBench.COMMIT_MS, [b"before", b"one"], [b"before"]),
    (PooledBench.COMMIT_MS + PooledBench.SYNC_MS, [b"before", b"one"], [b"before", b"one"]),
])  # fmt: skip
def test_a_crash_loses_what_was_not_committed_or_not_synced(
    passed_ms: int, after_kill: list[bytes], after_power_cut: list[bytes]
) -> None:
    for crash, kept in ((PooledBench.kill, after_kill), (PooledBench.crash, after_power_cut)):
        bench = settled()
        bench.append("t", 0, b"one")
        bench.end_turn()
        bench.pass_time(passed_ms)
        if passed_ms > bench.COMMIT_MS:
            bench.runner.offload.run_all()  # the sync that is due by now
        crash(bench)
        assert bench.bodies("t", 0) == kept
        placed = bench.append("t", 0, b"next")
        assert placed.queue_offset == len(kept)
        bench.pass_time(bench.COMMIT_MS)
        assert bench.bodies("t", 0) == [*kept, b"next"]


def test_enough_messages_are_committed_at_the_end_of_their_turn() -> None:
    bench = settled()
    body = b"x" * 1000
    while bench.store.log.end - bench.store.log.durable_end < COMMIT_BYTES - 1200:
        bench.append("t", 0, body)
        bench.end_turn()
        assert bench.bodies("t", 0) == [b"before"]
    bench.append("t", 0, body)
    bench.append("t", 0, body)
    bench.end_turn()
    assert bench.store.log.end == bench.store.log.durable_end


def test_a_writer_that_does_not_wait_ends_the_pass() -> None:
    bench = settled()
    bench.append("t", 0, b"one")
    bench.end_turn()
    bench.append("t", 0, b"two")
    other = bench.store.drop("u")  # a change of a table
    bench.end_turn()
    assert bench.runner.passes.written == other.number
    assert bench.bodies("t", 0) == [b"before", b"one", b"two"]


def test_a_stop_keeps_everything() -> None:
    bench = settled()
    bench.append("t", 0, b"one")
    bench.end_turn()
    bench.store.close()
    bench.pass_time(10_000)
    for _ in range(5):
        bench.settle()
        bench.pass_time(10_000)
    assert "abort" not in bench.names("")
    bench.crash()
    assert bench.bodies("t", 0) == [b"before", b"one"]


def test_messages_of_one_commit_have_the_times_of_their_turns() -> None:
    bench = settled()
    for number in range(3):
        bench.now_ms = START_MS + 1000 + number
        bench.append("t", 0, b"%d" % number)
        bench.end_turn()
    bench.pass_time(bench.COMMIT_MS)
    assert [unit.store_ms for unit in bench.units("t", 0)[1:]] == [START_MS + 1000 + number for number in range(3)]


def test_a_file_that_is_full_is_followed_by_another_within_a_commit() -> None:
    bench = PooledBench()
    bodies = [b"%d" % number * 300 for number in range(10)]
    for body in bodies:
        bench.append("t", 0, body)
        bench.end_turn()
    bench.pass_time(bench.COMMIT_MS)
    assert bench.bodies("t", 0) == bodies
    bench.kill()
    assert bench.bodies("t", 0) == bodies
    assert len(bench.names("commitlog")) == 2


def test_a_commit_that_fails_is_undone_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = settled()
    placed = bench.append("t", 0, b"one")
    bench.end_turn()

    def refuse(operation: str, name: str) -> None:
        if operation == "write" and name.startswith(f"{ROOT}/commitlog"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    bench.files.before = refuse
    with caplog.at_level(logging.WARNING):
        bench.pass_time(bench.COMMIT_MS)
    assert placed.ticket.refusal is not None
    assert "lost 109 bytes of acknowledged messages" in caplog.text
    bench.files.before = lambda operation, name: None
    assert bench.append("t", 0, b"next").queue_offset == 1
    bench.pass_time(bench.COMMIT_MS)
    assert bench.bodies("t", 0) == [b"before", b"next"]
