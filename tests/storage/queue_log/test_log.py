"""The queue log: appends, acknowledgements, restarts and crashes."""

from __future__ import annotations

import errno
import tracemalloc
from pathlib import Path

import pytest
from doubles import TornTails
from storage.queue_logs import NewestBytes, QueueLogs, bodies, content, numbered, roll_undone_and_repeated

from trimq.errors import Damage, DamagedSegment, WriteFailed
from trimq.formats.amqp_content.content import FOOTER_BYTES, TRANSIENT, encode_content
from trimq.storage.inspection.queues import heads, segments
from trimq.storage.io.files import DiskFiles
from trimq.storage.queue_log.reader import first_damage


def segment_files(machine: QueueLogs, folder: str = "queues/q") -> list[str]:
    return [name for name in machine.files.names(folder) if name.endswith(".contents")]


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_messages_are_read_in_the_order_of_appends(memory_bytes: int) -> None:
    machine = QueueLogs(memory_bytes=memory_bytes)
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    assert bodies(log) == numbered(0, 100)
    assert log.live == log.end == log.readable_end == 100
    assert len(log.segments) > 5


def test_nothing_is_readable_before_it_is_durable() -> None:
    machine = QueueLogs()
    log = machine.make()
    log.append(encode_content(content(b"a")))
    assert log.next_live(0) is None
    machine.runner.end_pass()
    assert log.next_live(0) is None
    machine.runner.settle()
    assert log.next_live(0) == 0


def test_transient_messages_are_readable_once_written_but_not_before_earlier_messages() -> None:
    machine = QueueLogs()
    log = machine.make()
    log.append(encode_content(content(b"a")), flags=TRANSIENT)
    log.append(encode_content(content(b"b")), flags=TRANSIENT)
    log.append(encode_content(content(b"c")))
    log.append(encode_content(content(b"d")), flags=TRANSIENT)
    machine.runner.end_pass()
    assert bodies(log) == [b"a", b"b"]
    machine.runner.settle()
    assert bodies(log) == [b"a", b"b", b"c", b"d"]


def test_transient_messages_are_lost_at_a_restart() -> None:
    machine = QueueLogs(segment_bytes=500)
    log = machine.make()
    for number in range(20):
        machine.append(log, b"%d" % number, is_transient=number % 2 == 0)
    assert len(log.segments) > 2
    machine.settle(log, 1)
    machine.stop()
    assert bodies(machine.logs["q"]) == [b"%d" % number for number in range(3, 20, 2)]
    assert machine.logs["q"].live == 9


def test_a_volatile_log_is_never_synced_and_lost_at_a_restart() -> None:
    machine = QueueLogs()
    log = machine.make("v", is_volatile=True)
    synced: list[str] = []
    machine.files.before = lambda operation, name: synced.append(name) if operation.startswith("sync") else None
    for body in numbered(0, 100):
        log.append(encode_content(content(body)))
    machine.runner.end_pass()
    assert bodies(log) == numbered(0, 100)
    machine.runner.settle()
    assert [name for name in synced if "volatile" in name] == []
    machine.stop()
    assert machine.files.names("volatile") == []


def test_segments_of_a_volatile_log_are_removed_without_live_messages() -> None:
    machine = QueueLogs()
    log = machine.make("v", is_volatile=True)
    machine.append(log, *numbered(0, 100))
    machine.settle(log, *range(100))
    assert segment_files(machine, "volatile/v") == [f"{log.segments[0].base:020d}.contents"]
    assert log.live == 0


def test_after_a_restart_only_unacked_messages_exist() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 50))
    machine.settle(log, 0, 1, 2, 7, 30, 49)
    expected = [body for number, body in enumerate(numbered(0, 50)) if number not in (0, 1, 2, 7, 30, 49)]
    assert bodies(log) == expected
    for restart in (machine.stop, machine.kill, machine.stop):
        restart()
        assert bodies(machine.logs["q"]) == expected
        assert machine.logs["q"].live == len(expected)
        assert machine.logs["q"].end == 50


def test_a_segment_without_live_messages_is_unlinked_with_its_acks() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    before = segment_files(machine)
    machine.settle(log, *range(1, 100))
    assert segment_files(machine) == [before[0], before[-1]]
    machine.settle(log, 0)
    assert segment_files(machine) == before[-1:]
    assert [name for name in machine.files.names("queues/q") if name.endswith(".acks")] != []
    machine.stop()
    assert bodies(machine.logs["q"]) == []
    machine.append(machine.logs["q"], b"next")
    assert machine.logs["q"].next_live(0) == 100


def test_acks_of_one_turn_are_written_together() -> None:
    machine = QueueLogs(segment_bytes=1 << 20)
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    writes: list[str] = []
    machine.files.before = lambda operation, name: writes.append(name) if operation == "write" else None
    machine.settle(log, *range(50))
    assert writes == ["queues/q/00000000000000000000.acks"]


def test_a_lost_ack_causes_only_a_redelivery() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 50))
    machine.settle(log, 3, 4, 5)
    machine.crash()
    assert bodies(machine.logs["q"]) == numbered(0, 50)


@pytest.mark.parametrize("kept_percent", [0, 1, 50, 99, 100])
@pytest.mark.parametrize("keeps_names", [True, False])
def test_a_torn_tail_is_cut(kept_percent: int, keeps_names: bool) -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 30))
    for body in numbered(30, 90):
        log.append(encode_content(content(body)))
    machine.runner.end_pass()
    machine.crash(TornTails(kept_percent, keeps_names))
    found = bodies(machine.logs["q"])
    assert found[:30] == numbered(0, 30)
    assert found == numbered(0, len(found))
    machine.append(machine.logs["q"], b"after")
    machine.crash()
    assert bodies(machine.logs["q"]) == [*found, b"after"]


def test_a_reused_offset_does_not_count_as_acked() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, b"kept")
    log.append(encode_content(content(b"lost")), flags=TRANSIENT)
    machine.runner.end_pass()
    log.acks.ack(1)
    machine.runner.end_pass()

    class AcksSurvive(TornTails):
        def contents(self, name: str, versions: object) -> bytes:
            return versions[-1] if name.endswith(".acks") else versions[0]  # type: ignore[index]

    machine.crash(AcksSurvive(0, keeps_names=True))
    log = machine.logs["q"]
    assert log.end == 1
    machine.append(log, b"another")
    machine.stop()
    assert bodies(machine.logs["q"]) == [b"kept", b"another"]


def test_acks_of_removed_segments_are_removed_with_them() -> None:
    machine = QueueLogs(segment_bytes=300)
    log = machine.make()
    machine.append(log, b"kept")
    for body in numbered(0, 20):
        log.append(encode_content(content(body)), flags=TRANSIENT)
    machine.runner.end_pass()
    for offset in range(2, 21, 2):
        log.acks.ack(offset)
    machine.runner.end_pass()

    class FirstIsLost(TornTails):
        def contents(self, name: str, versions: object) -> bytes:
            return versions[0] if "00.contents" in name else versions[-1]  # type: ignore[index]

    machine.crash(FirstIsLost(0, keeps_names=True))
    assert bodies(machine.logs["q"]) == [b"kept"]
    assert sorted(machine.files.names("queues/q"))[-1].startswith("0" * 20)


def test_a_pass_whose_write_fails_is_undone() -> None:
    machine = QueueLogs(memory_bytes=1 << 20)
    log = machine.make()
    machine.append(log, *numbered(0, 10))
    undone: list[int] = []
    log.undone = lambda: undone.append(log.end)
    machine.files.room_bytes = 700
    ticket = machine.append(log, *numbered(10, 60))
    assert isinstance(ticket.refusal, WriteFailed)
    assert (undone, log.end, log.live) == ([10], 10, 10)
    machine.files.room_bytes = None
    machine.append(log, *numbered(100, 130))
    expected = numbered(0, 10) + numbered(100, 130)
    assert bodies(log) == expected
    machine.crash()
    assert bodies(machine.logs["q"]) == expected


@pytest.mark.parametrize("kept_names", [(), (0,), (0, 1), (0, 1, 2), (0, 2), (1, 2), (2,)])
def test_a_segment_of_an_undone_pass_that_a_power_cut_brings_back_is_removed(kept_names: tuple[int, ...]) -> None:
    machine = QueueLogs(segment_bytes=400)
    roll_undone_and_repeated(machine)
    machine.crash(NewestBytes(*kept_names))
    log = machine.logs["q"]
    found = bodies(log)
    assert found == [*numbered(0, 2, size=100), b"short", *[b"long" * 60] * (2 in kept_names)]
    machine.append(log, b"after")
    assert bodies(log) == [*found, b"after"]
    machine.settle(log, log.end - 1)
    assert bodies(log) == found
    machine.append(log, b"last")
    for again in (machine.stop, machine.crash):
        again()
        assert bodies(machine.logs["q"]) == [*found, b"last"]


def test_overlapping_segments_are_damage_once_the_first_is_known_to_be_on_disk() -> None:
    machine = QueueLogs(segment_bytes=400)
    machine.append(machine.make(), *numbered(0, 8, size=100))
    first, second = machine.logs["q"].segments[:2]
    stray = f"queues/q/{second.base - 1:020}.contents"
    machine.files.open(stray, create=True).write(0, [second.segment.read(0, second.segment.size)])
    assert first.is_seal_durable
    with pytest.raises(Damage, match=rf"{stray} begins before the end of .*, offset {first.end}: "):
        machine.kill()


def test_a_segment_that_cannot_be_created_refuses_only_one_message() -> None:
    machine = QueueLogs(segment_bytes=400)
    log = machine.make()
    machine.append(log, *numbered(0, 2, size=100))

    def full(operation: str, name: str) -> None:
        if operation == "create" and name.endswith(".contents"):
            raise OSError(errno.ENOSPC, "full", name)

    machine.files.before = full
    for _ in range(2):
        with pytest.raises(WriteFailed):
            log.append(encode_content(content(b"." * 200)))
    log.append(encode_content(content(b"short")))
    machine.runner.settle()
    machine.files.before = lambda operation, name: None
    machine.append(log, *numbered(5, 9, size=100))
    machine.crash()
    assert bodies(machine.logs["q"]) == [*numbered(0, 2, size=100), b"short", *numbered(5, 9, size=100)]


def test_acks_whose_write_failed_are_written_later() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 10))

    def full(operation: str, name: str) -> None:
        if operation == "write" and name.endswith(".acks"):
            raise OSError(errno.ENOSPC, "full", name)

    machine.files.before = full
    machine.settle(log, 0, 1)
    machine.files.before = lambda operation, name: None
    machine.settle(log, 2)
    machine.kill()
    assert bodies(machine.logs["q"]) == numbered(3, 10)


def test_a_purge_removes_all_but_unacked_messages() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    machine.settle(log, 5)
    assert log.acks.ack_range(0, 100, but=[5, 40, 99]) == 97
    machine.runner.settle()
    assert bodies(log) == [numbered(0, 100)[40], numbered(0, 100)[99]]
    assert log.live == 2
    assert len(segment_files(machine)) <= 3
    machine.kill()
    assert bodies(machine.logs["q"]) == [numbered(0, 100)[40], numbered(0, 100)[99]]


def test_many_scattered_acks_become_a_bitmap() -> None:
    machine = QueueLogs(segment_bytes=1 << 20)
    log = machine.make()
    machine.append(log, *numbered(0, 3000, size=1))
    for offset in range(0, 3000, 2):
        log.acks.ack(offset)
        machine.runner.end_pass()
    (name,) = [name for name in machine.files.names("queues/q") if name.endswith(".acks")]
    assert machine.files.open(f"queues/q/{name}").size() < 5000
    machine.kill()
    assert len(bodies(machine.logs["q"])) == 1500


def test_delivery_counts_survive_a_restart() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, b"a", b"b")
    log.acks.note_attempts(1, 2)
    log.acks.note_attempts(1, 3)
    machine.stop()
    assert [machine.logs["q"].segments.attempts(offset) for offset in (0, 1)] == [0, 3]


def test_a_start_reads_footers_and_acks_and_the_tail_only() -> None:
    machine = QueueLogs(segment_bytes=20_000)
    log = machine.make()
    machine.append(log, *numbered(0, 2000, size=100))
    assert len(log.segments) > 10
    base = log.segments[3].base
    file = machine.memory.open(f"queues/q/{base:020d}.contents")
    file.write(100, [b"damage"])
    machine.kill()
    log = machine.logs["q"]
    assert log.live == 2000  # the damage was not read
    assert first_damage(log.segments[3]) is not None
    with pytest.raises(DamagedSegment):
        log.peek(base)
    assert log.peek(base + 1).content.body == numbered(base + 1, base + 2, size=100)[0]
    assert log.peek(base - 1).content.body == numbered(base - 1, base, size=100)[0]


@pytest.mark.parametrize("place", [0, 7, 60])
def test_a_damaged_message_is_logged_with_its_position_and_a_remedy(
    place: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = QueueLogs(segment_bytes=20_000)
    log = machine.make()
    machine.append(log, *numbered(0, 500, size=100))
    machine.stop()
    log = machine.logs["q"]
    base = log.segments[1].base
    name = f"queues/q/{base:020d}.contents"
    (segment,) = [found for found in segments(machine.memory, "queues/q") if found.base == base]
    position = next(at for at, head in heads(segment) if head.offset == base + place)
    file = machine.memory.open(name)
    (byte,) = file.read(position + 120, 1)
    file.write(position + 120, [bytes([byte ^ 1])])
    for _ in range(2):
        with pytest.raises(DamagedSegment, match=f"{name} is damaged at byte {position}$"):
            log.peek(base + place)
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert message.startswith(f"{name} is damaged at byte {position}; reads of it fail. Stop the broker, then restore")


@pytest.mark.parametrize("harm", ["shorter", "gone", "footer"])
def test_a_damaged_sealed_segment_is_reported(harm: str) -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    name = f"queues/q/{log.segments[2].base:020d}.contents"
    file = machine.memory.open(name)
    if harm == "gone":
        machine.memory.remove(name)
    elif harm == "shorter":
        file.resize(file.size() - 1)
    else:
        file.write(file.size() - 10, [b"\xff"])
    with pytest.raises(Damage, match=name):
        machine.kill()


def test_a_removed_log_leaves_nothing() -> None:
    machine = QueueLogs()
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    machine.remove("q")
    assert machine.files.names("queues") == []
    assert machine.checkpoints.marked("queues/q") == []
    machine.crash()
    assert machine.files.names("queues") == []


def test_a_log_that_cannot_be_created_leaves_nothing_and_affects_no_other() -> None:
    machine = QueueLogs()

    def full(operation: str, name: str) -> None:
        if operation == "create" and name.endswith(".contents"):
            raise OSError(errno.ENOSPC, "full", name)

    machine.files.before = full
    with pytest.raises(WriteFailed):
        machine.make()
    machine.files.before = lambda operation, name: None
    machine.runner.settle()
    assert machine.runner.failures == []
    assert machine.files.names("queues") == []


def test_memory_for_readers_that_keep_up_is_released() -> None:
    machine = QueueLogs(memory_bytes=2000)
    log = machine.make()
    machine.append(log, *numbered(0, 100))
    for offset in range(100):
        assert log.take(offset).content.body == numbered(offset, offset + 1)[0]
    machine.settle(log, *range(100))
    assert log._services.budget.left == 2000


def test_a_restart_reads_footers_and_acks_and_the_last_segment_only() -> None:
    machine = QueueLogs(segment_bytes=20_000)
    log = machine.make()
    machine.append(log, *numbered(0, 5000, size=100))
    machine.settle(log, *range(0, 5000, 3))
    machine.stop()
    reopened = machine.logs["q"]
    backlog = sum(segment.segment.size for segment in reopened.segments)
    machine.files.read_bytes = 0
    machine.stop()
    tail = machine.logs["q"].segments[-1]
    acks = sum(segment.acks_bytes for segment in machine.logs["q"].segments)
    footers = len(machine.logs["q"].segments) * FOOTER_BYTES
    tables = 100_000  # of checkpoints, and other files that are opened
    assert machine.files.read_bytes < tail.segment.size * 2 + acks + footers + tables
    assert backlog > 5 * machine.files.read_bytes


def test_a_backlog_uses_disk_and_not_memory(tmp_path: Path) -> None:
    machine = QueueLogs(segment_bytes=1 << 20, memory_bytes=0, files=DiskFiles(str(tmp_path)))
    log = machine.make()

    def pile_up(messages: int) -> None:
        for _ in range(messages // 1000):
            machine.append(log, *[b"x" * 100] * 1000)

    pile_up(10_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        pile_up(40_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log.segments) > 5
    assert (after - before) / 40_000 < 2, "bytes of memory for each message of 100 bytes"
