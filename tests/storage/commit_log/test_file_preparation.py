"""Commit-log files that are created ahead, warmed and locked in memory."""

from __future__ import annotations

import errno
import logging
import os

import pytest
from storage.commit_bench import CommitBench, TornPages

from trimq.errors import StartupError
from trimq.storage.commit_log.file_preparation import MemoryLockedFile

NEXT = "store/next"
BODY = b"x" * 1000


def watched(bench: CommitBench, refused: str = "") -> list[tuple[str, str]]:
    """Records the operations on log files from now on, except writes."""
    seen: list[tuple[str, str]] = []

    def before(operation: str, name: str) -> None:
        if operation == refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        if operation not in ("write", "sync") and (name == NEXT or name.startswith("store/commitlog/")):
            seen.append((operation, name))

    bench.files.before = before
    return seen


def log_file(number: int) -> str:
    return f"store/commitlog/{number * 4096:020d}"


def test_the_next_file_is_created_before_it_is_needed() -> None:
    bench = CommitBench(["preallocates"])
    seen = watched(bench)
    bench.put("t", 0, BODY)
    assert seen == []
    bench.put("t", 0, BODY)
    assert seen == [("create", NEXT), ("reserve", NEXT)]
    del seen[:]
    bench.put("t", 0, BODY, BODY)
    assert seen == [("rename", NEXT)]
    assert [len(body) for body in bench.bodies("t", 0)] == [1000] * 4
    assert (NEXT.removeprefix("store/") in bench.memory.names("store"), bench.memory.open(log_file(1)).size()) == (
        False,
        4096,
    )


def test_a_warmed_file_was_written_from_end_to_end() -> None:
    bench = CommitBench(["warms"])
    seen = watched(bench)
    bench.put("t", 0, BODY, BODY)
    assert seen == [("create", NEXT), ("reserve", NEXT), ("fill", NEXT)]
    bench.put("t", 0, BODY, BODY)
    assert seen[-1] == ("rename", NEXT)


def test_a_file_that_is_not_ready_in_time_is_created_at_once() -> None:
    bench = CommitBench(["preallocates", "warms"])
    bench.append("t", 0, BODY)
    bench.append("t", 0, BODY)
    bench.runner.end_pass()  # the preparation of the next file begins
    bench.append("t", 0, BODY)
    bench.append("t", 0, BODY)
    bench.runner.end_pass()
    assert bench.memory.names("store/commitlog") == ["0" * 20, f"{4096:020d}"]
    bench.settle()
    assert [len(body) for body in bench.bodies("t", 0)] == [1000] * 4
    seen = watched(bench)
    bench.put("t", 0, BODY)
    bench.put("t", 0, BODY, BODY)
    assert seen[0] == ("rename", NEXT)
    assert [len(body) for body in bench.bodies("t", 0)] == [1000] * 7


@pytest.mark.parametrize("refused", ["create", "reserve", "fill"])
def test_the_log_continues_where_no_file_can_be_created_ahead(refused: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = CommitBench(["warms"])
    watched(bench, refused)
    with caplog.at_level(logging.WARNING):
        bench.put("t", 0, BODY, BODY)
        bench.put("t", 0, BODY)
    assert len([record for record in caplog.records if "cannot prepare the next file" in record.message]) == 1
    assert "next" not in bench.memory.names("store")
    seen = watched(bench)
    bench.put("t", 0, BODY, BODY, BODY)
    assert ("create", log_file(1)) in seen
    assert ("fill", NEXT) in seen  # and the file after that is prepared again
    assert len(bench.bodies("t", 0)) == 6


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_moment_loses_nothing(seed: int) -> None:
    bench = CommitBench(["preallocates", "warms", "locks"])
    stored = []
    for number in range(12):
        stored.append(b"%d" % number + b"x" * 900)
        bench.put("t", 0, stored[-1])
        if number % 4 == seed % 4:
            bench.append("t", 0, b"not acknowledged" + b"x" * 500)
            for _ in range(seed % 3):
                bench.runner.end_pass()
            bench.crash(TornPages(seed, keeps_names=seed % 2 == 0))
            found = bench.bodies("t", 0)
            assert [body for body in found if not body.startswith(b"not")] == stored


def test_a_clean_stop_leaves_no_unused_file() -> None:
    bench = CommitBench(["preallocates"])
    bench.put("t", 0, BODY, BODY)
    assert "next" in bench.memory.names("store")
    bench.stop()
    assert "next" not in bench.memory.names("store")
    bench.open()
    assert len(bench.bodies("t", 0)) == 2


def test_a_partly_prepared_file_is_not_used_after_a_crash() -> None:
    bench = CommitBench(["preallocates"])
    bench.memory.open(NEXT, create=True).write(0, [b"rubbish" * 500])
    bench.open()
    assert "next" not in bench.memory.names("store")
    bench.put("t", 0, BODY, BODY)
    bench.put("t", 0, BODY, BODY)
    assert b"rubbish" not in bench.memory.open(log_file(1)).read(0, 4096)


def test_only_the_active_file_is_locked_in_memory() -> None:
    bench = CommitBench(["locks"])
    seen = watched(bench)
    bench.put("t", 0, BODY, BODY, BODY)
    assert seen == []
    bench.put("t", 0, BODY)
    assert [each for each in seen if "lock" in each[0]] == [("unlock", log_file(0)), ("lock", log_file(1))]


def test_a_failed_memory_lock_is_logged_and_the_log_continues(caplog: pytest.LogCaptureFixture) -> None:
    bench = CommitBench(["locks"])
    watched(bench, "lock")
    with caplog.at_level(logging.WARNING):
        bench.put("t", 0, BODY, BODY, BODY, BODY)
    assert "cannot lock the current file in memory" in caplog.text
    assert len(bench.bodies("t", 0)) == 4


def test_a_failed_memory_lock_at_the_start_is_a_startup_error() -> None:
    bench = CommitBench()
    watched(bench, "lock")
    locked = MemoryLockedFile(4096, bench.runner.offload)
    with pytest.raises(StartupError, match=r"rocketmq.commit_lock_memory: cannot lock x .*ulimit -l"):
        locked.begin(bench.files.open("x", create=True))
