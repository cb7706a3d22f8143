"""Compaction of queue segments that are pinned by a few live messages."""

from __future__ import annotations

import pytest
from storage.queue_logs import QueueLogs, bodies

from trimq.storage.queue_log.compaction import SegmentCompaction, is_worth_compacting
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.segment import QueueSegment


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d " % number + b"." * 40 for number in range(first, end)]


def pinned() -> tuple[QueueLogs, QueueLog, QueueSegment]:
    """Returns a first segment with two live messages, the second of them transient."""
    machine = QueueLogs(segment_bytes=3000)
    log = machine.make()
    machine.append(log, *numbered(0, 5))
    machine.append(log, *numbered(5, 6), is_transient=True)
    machine.append(log, *numbered(6, 100))
    segment = log.segments[0]
    machine.settle(log, *[offset for offset in range(segment.end) if offset not in (3, 5)])
    return machine, log, segment


def compact(machine: QueueLogs, log: QueueLog, segment: QueueSegment) -> SegmentCompaction:
    work = SegmentCompaction(
        machine.files, machine.runner.passes, machine.checkpoints, log, segment, machine.runner.offload
    )
    work.start()
    machine.runner.settle()
    return work


def expected(segment_end: int) -> list[bytes]:
    every = numbered(0, 100)
    return [every[3], every[5], *every[segment_end:]]


def test_live_messages_are_kept_in_less_space() -> None:
    machine, log, segment = pinned()
    assert is_worth_compacting(segment)
    before = segment.segment.size
    assert compact(machine, log, segment).is_finished
    assert segment.segment.size < before / 5
    assert segment.is_seal_durable
    assert not is_worth_compacting(segment)
    assert bodies(log) == expected(segment.end)
    machine.settle(log, 3)
    assert bodies(log) == expected(segment.end)[1:]


def test_a_compacted_segment_is_found_after_a_restart() -> None:
    machine, log, segment = pinned()
    compact(machine, log, segment)
    machine.stop()
    every = numbered(0, 100)
    assert bodies(machine.logs["q"]) == [every[3], *every[segment.end :]]
    machine.settle(machine.logs["q"], 3)
    machine.stop()
    assert bodies(machine.logs["q"]) == every[segment.end :]
    assert machine.logs["q"].segments[0].base > 0


@pytest.mark.parametrize("steps", range(14))
def test_a_power_cut_at_any_step_loses_nothing(steps: int) -> None:
    machine, log, segment = pinned()
    end = segment.end
    SegmentCompaction(
        machine.files, machine.runner.passes, machine.checkpoints, log, segment, machine.runner.offload
    ).start()
    for _ in range(steps):
        machine.runner.end_pass()
        machine.runner.offload.run_one()
    machine.crash()
    found = bodies(machine.logs["q"])
    every = numbered(0, 100)
    assert every[3] in found
    assert found[-len(every[end:]) :] == every[end:]
    assert not [name for name in machine.files.names("queues/q") if name.endswith(".tmp")]
    machine.append(machine.logs["q"], b"goes on")
    assert bodies(machine.logs["q"])[-1] == b"goes on"


def test_messages_acked_during_compaction_stay_acked() -> None:
    machine, log, segment = pinned()
    work = SegmentCompaction(
        machine.files, machine.runner.passes, machine.checkpoints, log, segment, machine.runner.offload
    )
    work.start()
    machine.runner.end_pass()
    log.acks.ack(3)
    machine.runner.settle()
    assert bodies(log) == expected(segment.end)[1:]
    machine.stop()
    assert numbered(3, 4)[0] not in bodies(machine.logs["q"])


def test_a_segment_whose_last_message_is_acked_in_between_is_not_compacted() -> None:
    machine, log, segment = pinned()
    work = SegmentCompaction(
        machine.files, machine.runner.passes, machine.checkpoints, log, segment, machine.runner.offload
    )
    work.start()
    machine.settle(log, 3, 5)
    assert work.is_finished
    assert segment not in log.segments
    assert [name for name in machine.files.names("queues/q") if name.startswith("0" * 20)] == []


def test_a_full_disk_leaves_the_segment_unchanged() -> None:
    machine, log, segment = pinned()
    machine.files.room_bytes = 10
    work = compact(machine, log, segment)
    machine.files.room_bytes = None
    assert work.is_finished
    assert bodies(log) == expected(segment.end)


def test_a_damaged_segment_is_not_compacted() -> None:
    machine, log, segment = pinned()
    machine.memory.open(segment.segment.file.name).write(50, [b"damage"])
    size = segment.segment.size
    assert compact(machine, log, segment).is_finished
    assert segment.segment.size == size


def test_only_sealed_segments_with_few_live_messages_are_compacted() -> None:
    machine = QueueLogs(segment_bytes=3000)
    log = machine.make()
    machine.append(log, *numbered(0, 60))
    first = log.segments[0]
    assert not is_worth_compacting(first)
    machine.settle(log, *range(first.end - 1))
    assert is_worth_compacting(first)
    machine.settle(log, *range(log.segments[-1].base, log.end - 1))
    assert not is_worth_compacting(log.segments[-1])
