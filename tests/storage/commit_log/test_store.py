"""The commit-log store: RocketMQ's files, append order and queue offsets, stops, crashes, rebuilding, keys and
expiry."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from storage.commit_bench import HOST, START_MS, CommitBench, TornPages, draft_of, unit_of

from trimq.errors import Damage, DamagedSegment, MessageTooLong, OffsetOutOfRange, WriteFailed
from trimq.formats.rocketmq_unit.properties import java_hash, tags_code
from trimq.formats.rocketmq_unit.unit import FILLER_BYTES, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, filler
from trimq.storage.commit_log import key_index, store
from trimq.storage.commit_log.key_index import MAX_KEYS_PER_WRITE
from trimq.storage.commit_log.lookup import find_time
from trimq.storage.commit_log.store import ROOT
from trimq.storage.io.memory_files import NameChange


def test_units_are_stored_in_the_order_of_appends() -> None:
    bench = CommitBench()
    placed = bench.append("a", 0, b"one"), bench.append("b", 1, b"two"), bench.append("a", 0, b"three")
    bench.settle()
    assert [(each.queue_offset, each.store_ms) for each in placed] == [(0, START_MS), (0, START_MS), (1, START_MS)]
    drafts = draft_of("a", 0, b"one"), draft_of("b", 1, b"two"), draft_of("a", 0, b"three")
    written = b"".join(unit_of(draft, place) for draft, place in zip(drafts, placed, strict=True))
    assert bench.read("commitlog/00000000000000000000") == written.ljust(4096, b"\0")
    assert bench.bodies("a", 0) == [b"one", b"three"]


def test_nothing_is_read_before_it_is_durable() -> None:
    bench = CommitBench()
    placed = bench.append("a", 0, b"one")
    bench.runner.end_pass()
    queue = bench.store.queue("a", 0)
    assert (queue.end, queue.durable_end) == (1, 0)
    with pytest.raises(OffsetOutOfRange):
        bench.store.log.view(placed.position, placed.size)
    with pytest.raises(OffsetOutOfRange):
        bench.store.log.unit_at(placed.position)
    bench.settle()
    assert queue.durable_end == 1
    assert bench.store.log.unit_at(placed.position).body == b"one"


def test_a_full_file_is_padded_and_the_next_begins() -> None:
    bench = CommitBench()
    placed = bench.put("a", 0, *(bytes([48 + number]) * 700 for number in range(8)))
    assert bench.names("commitlog") == ["00000000000000000000", "00000000000000004096"]
    first = bench.read("commitlog/00000000000000000000")
    end = sum(each.size for each in placed if each.position < 4096)
    assert len(first) == 4096
    assert first[end : end + FILLER_BYTES] == filler(4096 - end)
    assert next(each.position for each in placed if each.position >= 4096) == 4096
    assert [body[:1] for body in bench.bodies("a", 0)] == [b"%d" % number for number in range(8)]


def test_a_unit_that_fits_no_file_is_refused() -> None:
    bench = CommitBench()
    with pytest.raises(MessageTooLong):
        bench.append("a", 0, b"x" * 4096)
    bench.put("a", 0, b"x" * 3950)
    assert len(bench.bodies("a", 0)) == 1


def test_a_failed_pass_leaves_nothing_behind() -> None:
    bench = CommitBench()
    bench.put("a", 0, b"kept")
    refused = [bench.append("a", 0, bytes([66]) * 900, keys="k") for _ in range(7)]
    refused.append(bench.append("b", 0, b"new"))
    bench.files.room_bytes = 1000
    bench.runner.end_pass()
    bench.files.room_bytes = None
    bench.settle()
    assert all(isinstance(each.ticket.refusal, WriteFailed) for each in refused)
    assert bench.names("commitlog") == ["00000000000000000000"]
    assert (bench.store.queue("a", 0).end, bench.store.queue("b", 0).end) == (1, 0)
    assert bench.find("a", "k") == []
    assert bench.put("a", 0, b"next")[0].queue_offset == 1
    bench.kill()
    assert bench.bodies("a", 0) == [b"kept", b"next"]


def test_a_stop_leaves_the_files_that_rocketmq_expects() -> None:
    bench = CommitBench()
    assert "abort" in bench.names("")
    bench.put("a", 2, b"one", tags="TagA", keys="k1")
    bench.stop()
    assert bench.names("") == ["checkpoint", "commitlog", "consumequeue", "index", "lock"]
    assert struct.unpack_from(">qqqqq", bench.read("checkpoint")) == (START_MS, START_MS, START_MS, 0, 127)
    assert len(bench.read("checkpoint")) == 4096
    queue = bench.read("consumequeue/a/2/00000000000000000000")
    assert queue == struct.pack(">qiq", 0, 127, tags_code("TagA")).ljust(8 * 20, b"\0")
    (name,) = bench.names("index")
    assert len(name) == 17
    index = bench.read(f"index/{name}")
    assert len(index) == 40 + 7 * 4 + 16 * 20
    assert struct.unpack_from(">qqqqii", index) == (START_MS, START_MS, 0, 0, 2, 3)
    hashed = abs(java_hash("a#k1"))
    (number,) = struct.unpack_from(">i", index, 40 + hashed % 7 * 4)
    assert struct.unpack_from(">iqii", index, 40 + 28 + number * 20) == (hashed, 0, 0, 0)


def test_a_restart_reads_nothing_before_the_checkpoint() -> None:
    bench = CommitBench()
    bench.put("a", 0, b"one", b"two")
    bench.stop()
    # Damage before the checkpoint is not found at the start, but when the unit is read.
    bench.memory.open(f"{ROOT}/commitlog/00000000000000000000").write(88, [b"x"])
    bench.open()
    with pytest.raises(DamagedSegment):
        bench.bodies("a", 0)
    queue = bench.store.queue("a", 0)
    assert bench.store.log.view(*queue.entry(1)[:2]).nbytes == queue.entry(1).size


@pytest.mark.parametrize("ends", ["stop", "kill", "crash"])
def test_acknowledged_units_survive(ends: str) -> None:
    bench = CommitBench()
    for number in range(30):
        bench.put("a", number % 3, b"%d" % number * 20, keys=f"k{number % 4}")
        if number == 12:
            bench.store.checkpoint()
    getattr(bench, ends)()
    if ends == "stop":
        bench.open()
    assert [len(bench.bodies("a", queue)) for queue in range(3)] == [10, 10, 10]
    assert bench.put("a", 1, b"next")[0].queue_offset == 10
    found = bench.find("a", "k2")
    assert [body[:2] for body in found] == [b"26", b"22", b"18", b"14", b"10", b"66", b"22"]


@pytest.mark.parametrize("seed", range(12))
def test_a_torn_tail_is_cut_and_overwritten(seed: int) -> None:
    bench = CommitBench()
    bench.put("a", 0, b"kept" * 30)
    for number in range(9):
        bench.append("a", 0, b"%d" % number * 500)
    bench.runner.end_pass()
    bench.crash(TornPages(seed))
    found = bench.bodies("a", 0)
    assert found[0] == b"kept" * 30
    assert found[1:] == [b"%d" % number * 500 for number in range(len(found) - 1)]
    bench.put("a", 0, b"next")
    bench.crash(TornPages(seed))
    assert bench.bodies("a", 0) == [*found, b"next"]


def test_a_missing_file_before_the_checkpoint_is_damage() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"x" * 700 for _ in range(8)))
    bench.stop()
    bench.memory.remove(f"{ROOT}/commitlog/00000000000000000000")
    with pytest.raises(Damage, match="00000000000000000000: file is missing"):
        bench.open()


def test_a_missing_tail_before_the_checkpoint_is_damage() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"x" * 700 for _ in range(8)))
    bench.stop()
    bench.memory.open(f"{ROOT}/commitlog/00000000000000004096").write(0, [bytes(4096)])
    bench.memory.remove(f"{ROOT}/consumequeue/a/0/00000000000000000000")
    with pytest.raises(Damage, match="is damaged at byte 0"):
        bench.open()


def test_deleted_consume_queues_are_rebuilt() -> None:
    bench = CommitBench()
    for number in range(20):
        bench.put("a", number % 2, b"%d" % number)
    bench.stop()
    for name in bench.names("consumequeue/a/1"):
        bench.memory.remove(f"{ROOT}/consumequeue/a/1/{name}")
    bench.memory.remove(f"{ROOT}/consumequeue/a/1")
    bench.open()
    assert bench.bodies("a", 1) == [b"%d" % number for number in range(1, 20, 2)]
    assert bench.names("consumequeue/a/1") == ["00000000000000000000", "00000000000000000160"]
    bench.stop()
    bench.open()
    assert bench.bodies("a", 0) == [b"%d" % number for number in range(0, 20, 2)]


def test_consume_queues_with_another_file_size_are_rebuilt() -> None:
    bench = CommitBench(queue_file_entries=8)
    bodies = [b"%d" % number for number in range(30)]
    bench.put("t", 0, *bodies)
    bench.stop()
    bench.settings = replace(bench.settings, queue_file_entries=5)
    bench.open()
    assert bench.bodies("t", 0) == bodies
    bench.stop()
    bench.open()
    assert bench.bodies("t", 0) == bodies


def test_a_deleted_index_is_rebuilt() -> None:
    bench = CommitBench()
    for number in range(20):
        bench.put("a", 0, b"%d" % number, keys=f"k{number % 5}")
    bench.stop()
    for name in bench.names("index"):
        bench.memory.remove(f"{ROOT}/index/{name}")
    bench.open()
    assert len(bench.names("index")) == 3
    assert bench.find("a", "k3") == [b"18", b"13", b"8", b"3"]


def test_keys_are_found_by_time_and_only_in_their_topic() -> None:
    bench = CommitBench()
    for number in range(40):
        bench.now_ms = START_MS + number * 100
        bench.put("a", 0, b"%d" % number, keys=f"k{number % 3} shared")
    found = bench.find("a", "shared", START_MS + 1000, START_MS + 1250)
    assert found == [b"12", b"11", b"10"]
    assert bench.find("a", "U7") == [b"7"]
    assert bench.find("b", "shared") == []
    assert bench.find("a", "k") == []
    bench.store.checkpoint()
    bench.settle()
    assert len(bench.names("index")) == 8
    assert bench.find("a", "k1", START_MS + 3500, 2 * START_MS) == [b"37"]


@pytest.mark.parametrize("seed", range(6))
def test_an_index_that_was_partly_written_at_a_crash_finds_everything(seed: int) -> None:
    bench = CommitBench(index_entries=1000)
    for number in range(10):
        bench.put("a", 0, b"%d" % number, keys="k")
    bench.store.checkpoint()
    bench.settle()
    for number in range(10, 20):
        bench.put("a", 0, b"%d" % number, keys="k")
    bench.store.checkpoint()
    bench.runner.end_pass()
    for _ in range(seed):
        bench.runner.offload.run_one()
        bench.runner.end_pass()
    bench.crash(TornPages(seed))
    expected = [b"%d" % number for number in reversed(range(20))]
    assert bench.find("a", "k") == expected
    bench.stop()
    bench.open()
    assert bench.find("a", "k") == expected


def test_keys_are_found_at_any_slot_position() -> None:
    """Several changed slots of one block are written as a block, a single one alone."""
    bench = CommitBench(index_slots=5000, index_entries=4000, file_bytes=1 << 20)
    for first in (0, 1500, 1501, 2900):
        bodies = [b"%04d" % number for number in range(first, {0: 1500, 1500: 1501, 1501: 2900, 2900: 3000}[first])]
        bench.put("t", 0, *bodies)
        bench.store.checkpoint()
        bench.settle()
    bench.stop()
    bench.open()
    assert all(bench.find("t", f"U{number:04d}") == [b"%04d" % number] for number in range(3000))


@pytest.mark.parametrize("ends", ["stop", "crash", "kill"])
def test_keys_beyond_the_limit_of_a_pass_are_written_by_later_passes(ends: str) -> None:
    bench = CommitBench(index_slots=5000, index_entries=20_000, file_bytes=1 << 21)
    count = 2 * MAX_KEYS_PER_WRITE + 100
    bodies = [b"%05d" % number for number in range(count)]
    for body in bodies:
        bench.append("t", 0, body)
    left = []
    for number in range(count, count + 3):
        bench.append("t", 0, b"%05d" % number)
        bench.runner.end_pass()
        left.append(len(bench.store.keys))
    assert left == [
        count + 1 - MAX_KEYS_PER_WRITE,
        count + 2 - 2 * MAX_KEYS_PER_WRITE,
        count + 3 - 2 * MAX_KEYS_PER_WRITE,
    ]
    bench.settle()
    getattr(bench, ends)()
    if ends == "stop":
        bench.open()
    for number in (0, MAX_KEYS_PER_WRITE - 1, MAX_KEYS_PER_WRITE, 2 * MAX_KEYS_PER_WRITE, count - 1, count, count + 2):
        assert bench.find("t", f"U{number:05d}") == [b"%05d" % number]


def test_a_checkpoint_waits_a_bounded_time_for_keys_that_are_written_in_parts() -> None:
    bench = CommitBench(index_slots=5000, index_entries=50_000, file_bytes=1 << 21, checkpoint_bytes=1000)
    for number in range(MAX_KEYS_PER_WRITE):
        bench.append("t", 0, b"%05d" % number)
    bench.settle()
    assert len(bench.store.keys) == 0, "the index is far behind, but not all keys were written"
    bench.stop()
    bench.open()
    assert bench.find("t", "U04000") == [b"04000"]


def test_a_rolled_back_unit_is_in_no_queue_and_no_index() -> None:
    bench = CommitBench()
    bench.append("a", 0, b"half", keys="k", sys_flag=TRANSACTION_PREPARED)
    bench.append("a", 0, b"gone", keys="k", sys_flag=TRANSACTION_ROLLBACK)
    bench.settle()
    for _ in range(2):
        assert bench.bodies("a", 0) == []
        assert bench.find("a", "k") == [b"half"]
        bench.kill()


def test_old_files_are_deleted_with_their_consume_queues_and_index() -> None:
    bench = CommitBench()
    for number in range(24):
        bench.now_ms = START_MS + number * 1000
        bench.put("a", number % 2, b"%02d" % number * 300, keys="k")
    bench.store.checkpoint()
    bench.settle()
    assert bench.store.expire(START_MS + 10_000) is None
    assert bench.store.expire(START_MS + 24_000) is not None
    bench.settle()
    (start,) = {bench.store.log.start}
    assert bench.names("commitlog")[0] == f"{start:020d}"
    assert start == 2 * 4096
    kept = {number for number in range(24) if START_MS + number * 1000 >= bench.store.log.unit_at(start).store_ms}
    for _ in range(2):
        for queue in range(2):
            found = bench.bodies("a", queue)
            assert found == [b"%02d" % number * 300 for number in sorted(kept) if number % 2 == queue]
        assert bench.store.queue("a", 0).start > 0
        assert len(bench.find("a", "k")) == len(kept)
        bench.kill()


def test_files_that_a_restart_needs_are_kept() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"x" * 700 for _ in range(12)))
    assert bench.store.expire(START_MS + 1_000_000) is None
    assert bench.names("commitlog")[0] == f"{0:020d}"


def test_expired_files_are_deleted_at_the_next_check_although_nothing_more_is_written() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"x" * 700 for _ in range(12)))
    bench.store.expire(START_MS + 1_000_000)
    bench.settle()
    assert bench.store.expire(START_MS + 1_000_001) is not None
    bench.settle()
    assert bench.names("commitlog")[0] == f"{bench.store.log.start:020d}" != f"{0:020d}"


def test_a_queue_is_searched_by_time() -> None:
    bench = CommitBench()
    for number in range(10):
        bench.now_ms = START_MS + number * 100
        bench.put("a", 0, b"%d" % number)
    queue = bench.store.queue("a", 0)
    wanted = {START_MS - 5: 0, START_MS: 0, START_MS + 1: 1, START_MS + 900: 9, START_MS + 901: 10}
    assert {time_ms: find_time(bench.store.log, queue, time_ms) for time_ms in wanted} == wanted


def test_store_timestamps_never_decrease() -> None:
    bench = CommitBench()
    bench.put("a", 0, b"one")
    bench.now_ms -= 1000
    assert bench.put("a", 0, b"two")[0].store_ms == START_MS
    bench.stop()
    bench.open()
    assert bench.put("a", 0, b"three")[0].store_ms == START_MS


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_deleted_topic_stays_deleted(is_saved: bool) -> None:
    bench = CommitBench()
    bench.put("a", 0, b"old", b"older")
    bench.put("b", 0, b"other")
    if is_saved:
        bench.store.checkpoint()
        bench.settle()
    bench.store.drop("a")
    bench.settle()
    assert bench.put("a", 0, b"new")[0].queue_offset == 0
    for _ in range(2):
        assert (bench.bodies("a", 0), bench.bodies("b", 0)) == ([b"new"], [b"other"])
        bench.crash()
    bench.stop()
    bench.open()
    assert (bench.bodies("a", 0), bench.bodies("b", 0)) == ([b"new"], [b"other"])


def test_a_checkpoint_whose_write_failed_is_retried() -> None:
    bench = CommitBench(checkpoint_bytes=1)

    def refuse(operation: str, name: str) -> None:
        if operation in ("write", "create") and "consumequeue" in name:
            raise OSError(errno.EIO, "no")

    bench.files.before = refuse
    placed = bench.put("a", 0, b"one")
    assert placed[0].ticket.refusal is None
    assert bench.store._point.position == 0
    bench.files.before = lambda operation, name: None
    bench.put("a", 0, b"two")
    assert bench.store._point.position == bench.store.log.end
    bench.kill()
    assert bench.bodies("a", 0) == [b"one", b"two"]


def test_a_log_with_another_file_size_is_not_opened() -> None:
    bench = CommitBench()
    bench.put("a", 0, *(b"x" * 700 for _ in range(8)))
    bench.stop()
    bench.settings = CommitBench(file_bytes=2048).settings
    with pytest.raises(Damage, match="has 4096 bytes"):
        bench.open()


def test_the_hosts_of_a_unit_are_stored() -> None:
    bench = CommitBench()
    placed = bench.put("a", 0, b"one")[0]
    unit = bench.store.log.unit_at(placed.position)
    assert (unit.born_host, unit.store_host, unit.born_ms) == (HOST, HOST, START_MS - 5)


def test_no_slot_refers_to_unwritten_entries_although_a_file_could_not_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_index, "_UNWRITTEN_SLOTS", 30)
    bench = CommitBench(index_slots=64, index_entries=2000, file_bytes=1 << 22)
    bodies = [b"%06d" % number for number in range(300)]
    bench.put("t", 0, *bodies)
    bench.store.checkpoint()
    bench.settle()

    def refuse(operation: str, name: str) -> None:
        if operation == "create" and "index/" in name:
            raise OSError(errno.ENOSPC, "the disk is full")

    bench.files.before = refuse
    for number in range(1000, 4500):  # more than the file has room for
        bench.append("t", 0, b"%06d" % number)
    bench.runner.end_pass()
    for number in range(9000, 9064):
        bench.append("t", 0, b"%06d" % number)
        bench.runner.end_pass()
    entries_at = key_index.HEADER.size + 64 * 4

    class SlotsAlone(TornPages):
        def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
            return ()

        def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
            if "/index/" in name:
                return versions[-1][:entries_at] + versions[0][entries_at:]
            return versions[0]

    bench.crash(SlotsAlone(1))
    assert [body for body in bodies if bench.find("t", f"U{body.decode()}") != [body]] == []


def test_a_header_of_the_key_index_whose_write_failed_is_retried() -> None:
    bench = CommitBench()
    bench.put("t", 0, b"one")
    failures = [OSError(errno.EIO, "not now")]

    def refuse_header(operation: str, name: str) -> None:
        if operation == "write" and "index/" in name and bench.store._slots_due is not None and failures:
            if failures[0].errno == errno.EIO:
                failures[0] = OSError(errno.ENOSPC, "the header")  # the writes of slots succeed
            else:
                raise failures.pop()

    bench.files.before = refuse_header
    bench.store.checkpoint()
    bench.settle()
    assert not failures
    bench.store.log.journal.join_pass()
    bench.settle()
    bench.crash()
    assert bench.find("t", "Uone") == [b"one"]
    (index,) = bench.names("index")
    assert struct.unpack_from(">i", bench.read(f"index/{index}"), 36) == (2,)


def test_keys_recovered_at_a_restart_are_written_without_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MAX_KEYS_PER_WRITE", 16)
    monkeypatch.setattr(store, "MAX_KEYS_PER_WRITE", 16)
    monkeypatch.setattr(store, "_KEYS_AT_ONCE", 8)
    bench = CommitBench(index_entries=2000, file_bytes=1 << 20, checkpoint_bytes=1 << 20)
    for number in range(200):
        bench.append("t", 0, b"%d" % number)
    bench.runner.end_pass()
    bench.kill()
    bench.settle()
    assert len(bench.store.keys) < 16
    assert bench.find("t", "U7") == [b"7"]
