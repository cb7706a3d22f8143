"""Preallocation: the files that get zeros after their data, and that readers never see them."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence

import pytest
from doubles import FaultyFiles, PassRunner
from storage.log_bench import FOLDER, LogBench
from storage.queue_logs import QueueLogs, bodies

from trimq.errors import WriteFailed
from trimq.model import Buffer
from trimq.storage.group_commit.flusher import Dirty
from trimq.storage.group_commit.journal import Journal
from trimq.storage.group_commit.segment import Segment
from trimq.storage.inspection.partitions import verify
from trimq.storage.inspection.queues import verify as verify_queues
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFile, MemoryFiles, MemoryNode

FIRST = "00000000000000000000.log"


class Owner:
    def pass_written(self, number: int, dirty: Dirty) -> None: ...

    def pass_undone(self) -> None: ...

    def pass_durable(self, number: int) -> None: ...


class ShortFile(MemoryFile):
    """A file on a disk with room for 4,500 bytes."""

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        super().write(position, [data[: max(4500 - position, 0)]])
        if position + len(data) > 4500:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SmallDisk(MemoryFiles):
    def _file(self, name: str, node: MemoryNode) -> MemoryFile:
        return ShortFile(name, node)


def journals(
    count: int, full_bytes: int = 0, syncfs_threshold: int = 1, disk: MemoryFiles | None = None
) -> tuple[PassRunner, list[Journal]]:
    """Opens journals in a folder each, with one segment."""
    files: Files = FaultyFiles(disk or MemoryFiles())
    runner = PassRunner(files, syncfs_threshold)
    made = []
    for number in range(count):
        files.make_folder(str(number))
        made.append(Journal(files, str(number), ".log", runner.passes, Owner(), full_bytes))
        made[-1].roll(0)
    runner.settle()
    return runner, made


def append(runner: PassRunner, made: list[Journal], size: int, passes: int = 1) -> None:
    for _ in range(passes):
        for journal in made:
            journal.append(b"x" * size, size)
        runner.settle()


def room_of(journal: Journal) -> int:
    segment = journal.active
    data = segment.file.read(0, segment.file.size())
    assert data == b"x" * segment.size + bytes(len(data) - segment.size)
    return len(data) - segment.size


# -- files that get preallocation


def test_a_growing_file_is_preallocated_by_as_much_as_was_appended_and_not_again_before_it_is_full() -> None:
    runner, made = journals(1)
    append(runner, made, 1000, passes=3)
    assert room_of(made[0]) == 0
    append(runner, made, 1000)
    assert room_of(made[0]) == 8192 - 4000
    append(runner, made, 1000, passes=4)
    assert room_of(made[0]) == 8192 - 8000
    append(runner, made, 1000)
    assert room_of(made[0]) == 20480 - 9000


def test_preallocation_is_bounded() -> None:
    runner, made = journals(1)
    append(runner, made, 10_000, passes=200)
    assert 0 < room_of(made[0]) < 260 * 1024


@pytest.mark.parametrize(("end", "room"), [(2**31 - 8192, 4096), (2**31 - 4096, 0), (2**31 + 4096, 0)])
def test_preallocation_does_not_make_a_file_too_long_for_kafka(end: int, room: int) -> None:
    segment = Segment(0, MemoryFiles().open("log", create=True), end - 4096)
    segment.size = end
    assert len(segment.preallocation_after(end - 100, full_bytes=0)) == room
    assert segment.preallocated_to == (end + room if room else 0)


def test_a_pass_that_would_fill_the_preallocation_soon_preallocates_nothing() -> None:
    runner, made = journals(1)
    append(runner, made, 1000, passes=2)
    append(runner, made, 100_000, passes=3)
    assert room_of(made[0]) == 0


def test_many_writers_preallocate_nothing() -> None:
    runner, made = journals(3, syncfs_threshold=2)
    append(runner, made, 1000, passes=8)
    assert [room_of(journal) for journal in made] == [0, 0, 0]
    append(runner, made[:2], 1000, passes=8)
    assert [room_of(journal) > 0 for journal in made] == [True, True, False]


def test_a_disk_without_space_for_preallocation_takes_the_data() -> None:
    runner, made = journals(1, disk=SmallDisk())
    append(runner, made, 1000, passes=4)
    assert made[0].active.size == made[0].active.file.size() == 4000
    assert room_of(made[0]) == 0
    refused = made[0].append(b"x" * 1000, 1000)
    runner.settle()
    assert refused.refusal is not None
    append(runner, made, 500)
    assert made[0].active.size == made[0].active.file.size() == 4500


def test_files_of_fixed_size_are_preallocated_within_that_size_and_keep_it_when_sealed() -> None:
    runner, made = journals(1, full_bytes=10_000)
    append(runner, made, 1000, passes=8)
    sealed = made[0].active
    assert sealed.preallocated_to == 8192
    append(runner, made, 500)
    assert sealed.preallocated_to == sealed.file.size() == 10_000
    made[0].roll(10_000)
    append(runner, made, 1000)
    assert (sealed.size, sealed.file.size()) == (8500, 10_000)


def test_an_undone_pass_in_a_file_of_fixed_size_leaves_zeros() -> None:
    runner, made = journals(1, full_bytes=100_000)
    append(runner, made, 1000, passes=8)
    made[0].append(b"y" * 500, 500)
    made[0].undo_pass(WriteFailed("no space"), Dirty())
    active = made[0].active
    assert (active.size, active.preallocated_to, active.file.size()) == (8000, 0, 100_000)
    assert bytes(active.file.view(8000, 1000)) == bytes(1000)


# -- removal of preallocation


def test_a_sealed_file_ends_with_its_data() -> None:
    runner, made = journals(1)
    append(runner, made, 1000, passes=4)
    sealed = made[0].active
    made[0].append(b"x" * 500, 500)
    made[0].roll(4500)
    append(runner, made, 1000)
    assert sealed.file.size() == sealed.size == 4500


def test_a_file_that_is_sealed_before_anything_is_appended_ends_with_its_data_too() -> None:
    runner, made = journals(1)
    append(runner, made, 1000, passes=4)
    sealed = made[0].active
    made[0].roll(4000)
    runner.settle()
    assert sealed.file.size() == sealed.size == 4000


def test_a_stopped_log_has_no_preallocation_on_disk() -> None:
    bench = LogBench()
    bench.fill(10)
    assert bench.contents(FIRST).endswith(bytes(1000))
    bench.close()
    bench.log.close()  # a second call finds nothing to do
    bench.memory.crash()
    assert len(bench.contents(FIRST)) == bench.log.size_bytes


def test_a_log_without_unsaved_state_is_truncated_to_its_data_when_it_stops() -> None:
    bench = LogBench()
    bench.fill(10)
    bench.log.checkpoint()
    bench.settle()
    bench.close()
    assert len(bench.contents(FIRST)) == bench.log.size_bytes


# -- after a crash


def test_preallocation_is_cut_at_a_restart_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = LogBench()
    bench.fill(10)
    kept = bench.batches()
    with caplog.at_level(logging.WARNING):
        bench.crash()
    assert not caplog.records
    assert bench.batches() == kept
    assert len(bench.contents(FIRST)) == bench.log.size_bytes


def test_a_torn_batch_within_the_preallocation_is_cut_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = LogBench()
    bench.fill(10)
    kept, end = bench.batches(), bench.log.size_bytes
    bench.damage(FIRST, lambda data: data.__setitem__(end + 300, 7))
    with caplog.at_level(logging.WARNING):
        bench.kill()
    assert "cutting torn tail" in caplog.text
    assert bench.batches() == kept


def test_verify_accepts_preallocation() -> None:
    bench = LogBench()
    bench.fill(10)
    assert list(verify(bench.memory, lambda done, total: None)) == []


def test_preallocation_in_a_file_that_was_about_to_be_sealed_is_no_damage() -> None:
    """A process that is killed at the end of a pass may have created the next file without truncating the last."""
    bench = LogBench()
    bench.fill(10)
    bench.memory.open(f"{FOLDER}/{bench.log.end:020d}.log", create=True)
    machine = QueueLogs(segment_bytes=100_000)
    log = machine.make()
    for number in range(12):
        machine.append(log, b"%d" % number + bytes(200))
    machine.memory.open(f"{log.folder}/{log.end:020d}.contents", create=True)
    (found,) = verify(bench.memory, lambda done, total: None)
    (found_in_queue,) = verify_queues(machine.memory, lambda done, total: None)
    assert found.remedy.startswith("Start the broker")
    assert found_in_queue.remedy.startswith("Start the broker")
    kept, messages = bench.batches(), bodies(log)
    bench.kill()
    machine.kill()
    assert (bench.batches(), bodies(machine.logs["q"])) == (kept, messages)


def test_verify_finds_zeros_in_place_of_durable_data() -> None:
    bench = LogBench()
    bench.fill(10)
    bench.log.checkpoint()
    bench.settle()
    end = bench.log.size_bytes
    bench.damage(FIRST, lambda data: data.__setitem__(slice(end - 150, end), bytes(150)))
    findings = list(verify(bench.memory, lambda done, total: None))
    assert [finding.file for finding in findings] == [f"{FOLDER}/{FIRST}"]
    assert "restore it from a copy" in findings[0].remedy


def test_a_queue_log_is_truncated_to_its_data_after_a_stop_and_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    machine = QueueLogs(segment_bytes=100_000)
    log = machine.make()
    for again in (machine.stop, machine.crash, machine.kill):
        for number in range(12):
            machine.append(log, b"%d" % number + bytes(200))
        segment = log.journal.active
        assert segment.file.size() > segment.size
        assert list(verify_queues(machine.memory, lambda done, total: None)) == []
        kept = bodies(log)
        with caplog.at_level(logging.WARNING):
            again()
        log = machine.logs["q"]
        assert bodies(log) == kept
        segment = log.journal.active
        assert segment.file.size() == segment.size
    assert not caplog.records


def test_a_volatile_queue_preallocates_nothing() -> None:
    machine = QueueLogs(segment_bytes=100_000)
    log = machine.make(is_volatile=True)
    for number in range(12):
        machine.append(log, b"%d" % number + bytes(200))
    segment = log.journal.active
    assert segment.file.size() == segment.size
