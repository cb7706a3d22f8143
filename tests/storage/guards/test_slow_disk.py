from __future__ import annotations

import pytest
from doubles import AsyncPassRunner, FaultyFiles, PassRunner

from trimq.clock import ManualTime
from trimq.errors import DiskStalled
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.slow_disk import RECHECK_AFTER_MS, SlowDiskGuard
from trimq.storage.io.memory_files import MemoryFiles

BUSY_AFTER_MS = 1000
INTERVAL_MS = 200  # of AsyncPassRunner


class Writer:
    """Writes one byte in each pass that it joins."""

    def __init__(self, files: FaultyFiles, passes: Passes) -> None:
        self._passes = passes
        self._file = files.open("data", create=True)

    def append(self) -> None:
        self._passes.join(self)

    def write_pass(self, dirty: Dirty) -> None:
        self._file.write(0, [b"x"])
        dirty.files.add(self._file)

    def undo_pass(self, refusal: object, dirty: Dirty) -> None:
        raise AssertionError("no write fails here")

    def mark_pass_durable(self, number: int) -> None:
        """Keeps no state."""


def is_accepting(guard: SlowDiskGuard) -> bool:
    try:
        guard.check()
    except DiskStalled:
        return False
    return True


def pass_time(time: ManualTime, milliseconds: int) -> None:
    until_ms = time.now_ms() + milliseconds
    while time.step(until_ms):
        pass


def test_writes_are_refused_while_a_pass_waits_too_long_for_the_disk() -> None:
    time, runner = ManualTime(5), PassRunner(files := FaultyFiles(MemoryFiles()))
    guard = SlowDiskGuard(runner.passes, time, BUSY_AFTER_MS, lambda: runner.passes.durable)
    assert is_accepting(guard)
    Writer(files, runner.passes).append()
    runner.end_pass()
    pass_time(time, BUSY_AFTER_MS + RECHECK_AFTER_MS - 1)
    assert is_accepting(guard)
    pass_time(time, 1)
    with pytest.raises(DiskStalled, match="the disk has not synced for more than 1000 ms"):
        guard.check()
    runner.settle()
    assert is_accepting(guard)


def test_a_hanging_sync_is_seen_although_messages_are_acknowledged_before_it() -> None:
    runner = AsyncPassRunner(files := FaultyFiles(MemoryFiles()))
    time, passes = runner.time, runner.passes
    for_promises = SlowDiskGuard(passes, time, BUSY_AFTER_MS, lambda: passes.durable)
    for_the_disk = SlowDiskGuard(passes, time, BUSY_AFTER_MS, lambda: passes.on_disk, INTERVAL_MS)
    assert (is_accepting(for_promises), is_accepting(for_the_disk)) == (True, True)
    Writer(files, passes).append()
    runner.end_pass()
    pass_time(time, INTERVAL_MS + BUSY_AFTER_MS + RECHECK_AFTER_MS - 1)
    assert (is_accepting(for_promises), is_accepting(for_the_disk)) == (True, True)
    pass_time(time, 1)
    assert (is_accepting(for_promises), is_accepting(for_the_disk)) == (True, False)
    runner.settle()
    assert is_accepting(for_the_disk)


def test_syncs_in_the_background_that_make_progress_refuse_no_writes() -> None:
    runner = AsyncPassRunner(files := FaultyFiles(MemoryFiles()))
    time, passes = runner.time, runner.passes
    guard, writer = SlowDiskGuard(passes, time, 300, lambda: passes.on_disk, INTERVAL_MS), Writer(files, passes)
    for _ in range(20):
        assert is_accepting(guard)
        writer.append()
        runner.end_pass()
        pass_time(time, 400)
        runner.settle()
