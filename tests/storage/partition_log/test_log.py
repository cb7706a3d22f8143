"""Ends, undone passes, rolls, checkpoints and deletion of the head of a partition log."""

from __future__ import annotations

from typing import Any

import pytest
from doubles import TornTails
from storage.keyed_logs import AsyncPassRunner
from storage.log_bench import FOLDER, START_MS, LogBench, batch_of, bodies_of

from trimq.errors import OffsetOutOfRange, WriteFailed
from trimq.storage.partition_log.index import MAX_POSITION
from trimq.storage.partition_log.reader import read_batches

# -- ends


def test_appends_are_readable_when_durable_and_not_before() -> None:
    bench = LogBench()
    bench.begin_append(batch_of(b"a", b"b"))
    assert (bench.log.end, bench.log.durable_end) == (2, 0)
    assert bench.batches() == []
    bench.runner.end_pass()
    assert (bench.log.end, bench.log.durable_end) == (2, 0)
    bench.settle()
    assert (bench.log.end, bench.log.durable_end) == (2, 2)
    assert bench.bodies() == [b"a", b"b"]


def test_nothing_beyond_the_durable_end_is_read_while_a_later_pass_is_under_way() -> None:
    bench = LogBench(segment_bytes=300)
    bench.append(b"one")
    for number in range(6):
        bench.begin_append(batch_of(b"%d" % number + bytes(100)))  # rolls more than once
    bench.runner.end_pass()
    assert bench.bodies() == [b"one"]
    assert len(bench.log.segments) > 2
    bench.settle()
    assert bench.offsets() == list(range(7))


def test_a_batch_gets_its_offsets_and_epoch_in_any_kind_of_buffer() -> None:
    bench = LogBench()
    batch = batch_of(b"a", b"b", b"c")
    for given in (bytes(batch), memoryview(bytes(batch)), bytearray(batch), memoryview(bytearray(batch))):
        bench.begin_append(given, leader_epoch=7)
    bench.settle()
    assert [(stored.header.base_offset, stored.header.leader_epoch) for stored in bench.batches()] == [
        (0, 7),
        (3, 7),
        (6, 7),
        (9, 7),
    ]
    assert bench.bodies() == [b"a", b"b", b"c"] * 4


# -- passes with failing writes


def append_of_every_kind(bench: LogBench) -> list[Any]:
    return [
        bench.begin_append(batch_of(b"plain")),
        bench.begin_append(batch_of(b"new", producer_id=9, producer_epoch=0, base_sequence=0), leader_epoch=3),
        bench.begin_append(batch_of(b"more", producer_id=1, producer_epoch=0, base_sequence=1)),
        bench.begin_append(
            batch_of(b"open", producer_id=2, producer_epoch=0, base_sequence=1, transactional=True), leader_epoch=4
        ),
        bench.begin_append(bench.marker(2, commit=False)),
        bench.begin_append(
            batch_of(b"open again", producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
        ),
    ]


@pytest.fixture
def bench() -> LogBench:
    """A log with producers, an open transaction, an aborted one and index entries."""
    bench = LogBench(segment_bytes=2000)
    bench.append(b"first", producer_id=1, producer_epoch=0, base_sequence=0)
    bench.append(b"aborted", producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
    bench.end_transaction(2, commit=False)
    bench.append(b"undecided", producer_id=2, producer_epoch=0, base_sequence=1, transactional=True)
    bench.fill(3)
    return bench


@pytest.mark.parametrize("roll", [False, True], ids=["", "after a roll"])
@pytest.mark.parametrize("room_bytes", [0, 1, 100, 400])
def test_a_pass_with_a_short_write_is_undone(bench: LogBench, room_bytes: int, roll: bool) -> None:
    before = bench.state()
    if roll:
        bench.log.roll()
    tickets = append_of_every_kind(bench)
    assert bench.state() != before
    bench.files.room_bytes = room_bytes
    bench.settle()
    assert bench.state() == before
    assert all(isinstance(ticket.refusal, WriteFailed) for ticket in tickets)
    bench.mend()
    read = bench.bodies()
    append_of_every_kind(bench)
    bench.settle()
    after = bench.state()
    bench.crash()
    assert bench.bodies()[: len(read)] == read
    sent = [body for stored in bench.batches() if not stored.header.is_control for body in bodies_of(stored)]
    assert sent[-5:] == [
        b"plain",
        b"new",
        b"more",
        b"open",
        b"open again",
    ]
    for name in ("end", "files", "producers", "first open", "epochs", "aborted"):
        assert bench.state()[name] == after[name], name


def test_recovered_state_is_kept_when_the_first_pass_is_undone(bench: LogBench) -> None:
    bench.begin_open()
    before = bench.state()
    append_of_every_kind(bench)
    bench.fail_writes()
    bench.settle()
    assert bench.state() == before


def test_a_pass_that_rolled_is_undone() -> None:
    bench = LogBench(segment_bytes=400)
    bench.append(b"kept")
    before = bench.state()
    for number in range(9):
        bench.begin_append(batch_of(b"%d" % number + bytes(100)))
    bench.fail_writes()
    bench.settle()
    assert bench.state() == before
    bench.mend()
    bench.fill(9)
    bench.crash()
    assert bench.offsets() == list(range(10))


def test_a_log_whose_first_segment_was_created_in_an_undone_pass_is_empty_and_accepts_records() -> None:
    bench = LogBench(is_settled=False)
    ticket = bench.begin_append(batch_of(b"refused"))
    bench.fail_writes()
    bench.settle()
    assert isinstance(ticket.refusal, WriteFailed)
    assert (bench.log.end, bench.log.durable_end, bench.bodies()) == (0, 0, [])
    bench.mend()
    bench.append(b"kept")
    bench.crash()
    assert bench.bodies() == [b"kept"]


def test_the_pass_before_an_undone_one_still_becomes_durable() -> None:
    bench = LogBench()
    kept = bench.begin_append(batch_of(b"kept"))
    bench.runner.end_pass()
    refused = bench.begin_append(batch_of(b"refused"))
    bench.fail_writes()
    bench.settle()
    assert kept.refusal is None
    assert refused.refusal is not None
    assert bench.bodies() == [b"kept"]


def test_a_failed_roll_refuses_only_its_append() -> None:
    bench = LogBench(segment_bytes=200)
    bench.append(bytes(100))
    before = bench.state()

    def refuse(operation: str, name: str) -> None:
        if operation == "create":
            raise OSError(28, "no room", name)

    bench.files.before = refuse
    with pytest.raises(WriteFailed):
        bench.begin_append(batch_of(bytes(100)))
    bench.settle()
    assert bench.state() == before
    bench.mend()
    bench.append(bytes(100))
    assert bench.offsets() == [0, 1]


# -- rolls


def test_a_segment_exceeds_its_size_only_for_a_single_larger_batch() -> None:
    bench = LogBench(segment_bytes=500)
    for size in (100, 300, 100, 900, 10, 10):
        bench.append(bytes(size))
    sizes = [len(bench.contents(name)) for name in bench.names(".log")]
    assert [size > 500 for size in sizes].count(True) == 1
    assert bench.offsets() == list(range(6))


def test_a_segment_is_no_larger_than_its_index_can_address_whatever_the_setting() -> None:
    bench = LogBench(segment_bytes=1 << 40)
    bench.append(b"small")
    bench.log.active.segment.size = MAX_POSITION - 10  # as if that much had been written
    bench.begin_append(batch_of(b"next"))
    assert len(bench.log.segments) == 2


def test_a_segment_rolls_when_its_first_record_is_old_enough() -> None:
    bench = LogBench(segment_ms=1000)
    bench.now_ms += 5000  # an empty segment does not age
    bench.append(b"a")
    bench.append(b"b")
    assert len(bench.log.segments) == 1
    bench.now_ms += 999
    bench.append(b"c")
    assert len(bench.log.segments) == 1
    bench.now_ms += 1
    bench.append(b"d")
    assert [each.segment.base for each in bench.log.segments] == [0, 3]


def test_the_age_of_a_segment_survives_a_restart() -> None:
    bench = LogBench(segment_ms=1000)
    bench.append(b"a", timestamp_ms=bench.now_ms)
    bench.now_ms += 600
    bench.restart()
    bench.now_ms += 600
    bench.append(b"b")
    assert len(bench.log.segments) == 2


# -- memory


def test_the_index_of_a_sealed_segment_is_released_from_memory() -> None:
    bench = LogBench(segment_bytes=1000)
    bench.fill(60)
    assert len(bench.log.segments) > 5
    held = [segment for segment in bench.log.segments[:-1] if segment.is_index_loaded]
    assert len(held) <= 1


# -- deletion of the head


def test_a_deleted_head_is_unreadable_at_once_and_after_a_restart() -> None:
    bench = LogBench(segment_bytes=1000)
    bench.fill(30)
    ticket = bench.log.cut_head(17)
    assert bench.log.start == 17
    assert bench.offsets() == list(range(17, 30))
    bench.settle()
    assert ticket.refusal is None
    assert bench.log.segments[0].segment.base <= 17 < bench.log.segments[1].segment.base
    for again in (bench.restart, bench.kill, bench.crash):
        again()
        assert bench.log.start == 17
        assert bench.offsets() == list(range(17, 30))


@pytest.mark.parametrize("offset", [-1, 16, 31])
def test_a_head_is_deleted_only_within_the_durable_records(offset: int) -> None:
    bench = LogBench()
    bench.fill(30, 10)
    bench.log.cut_head(17)
    bench.begin_append(batch_of(b"not durable"))
    with pytest.raises(OffsetOutOfRange):
        bench.log.cut_head(offset)


def test_a_refused_deletion_of_the_head_is_undone() -> None:
    bench = LogBench(segment_bytes=1000)
    bench.fill(30)
    bench.fail_writes("")
    ticket = bench.log.cut_head(17)
    bench.settle()
    assert ticket.refusal is not None
    bench.mend()
    bench.settle()
    assert bench.log.start == 0
    assert bench.offsets() == list(range(30))
    bench.crash()
    assert bench.offsets() == list(range(30))


def test_a_checkpoint_does_not_complete_a_refused_deletion_of_the_head() -> None:
    bench = LogBench()
    bench.fill(3)
    bench.fail_writes("checkpoints.0.log")
    bench.log.roll()
    ticket = bench.log.cut_head(3)
    bench.runner.end_pass()
    bench.mend()
    bench.settle()
    assert ticket.refusal is not None
    assert (bench.log.start, bench.log.segments[0].segment.base) == (0, 0)
    assert bench.offsets() == [0, 1, 2]
    bench.crash()
    assert bench.offsets() == [0, 1, 2]


def test_a_deletion_of_the_head_without_a_checkpoint_keeps_producer_states() -> None:
    bench = LogBench()
    bench.append(b"first", producer_id=7, producer_epoch=0, base_sequence=0)
    bench.log.checkpoint()
    bench.settle()
    bench.append(b"second", producer_id=7, producer_epoch=0, base_sequence=1)
    bench.fail_writes(".snapshot")
    bench.roll()
    bench.log.cut_head(2)
    bench.settle()
    bench.crash()
    assert (bench.log.start, bench.offsets()) == (2, [])
    known = bench.log.producers.get(7)
    assert known is not None
    assert known.last_sequence == 1


def test_segments_before_the_start_are_deleted_when_a_failed_checkpoint_is_retried() -> None:
    bench = LogBench()
    bench.fill(3)
    bench.fail_writes(".timeindex")
    bench.roll()
    bench.log.cut_head(3)
    bench.settle()
    assert bench.names(".log") == [f"{0:020d}.log", f"{3:020d}.log"]
    bench.mend()
    bench.log.cut_head(3)
    bench.settle()
    assert bench.names(".log") == [f"{3:020d}.log"]


@pytest.mark.parametrize("keeps_names", [False, True])
@pytest.mark.parametrize("kept_percent", [0, 50, 100])
@pytest.mark.parametrize("rounds", range(6))
def test_a_crash_at_any_moment_of_a_head_deletion_leaves_the_old_start_or_the_new(
    rounds: int, kept_percent: int, keeps_names: bool
) -> None:
    bench = LogBench(segment_bytes=1000)
    bench.fill(30)
    bench.log.roll()
    ticket = bench.log.cut_head(30)
    for _ in range(rounds):
        bench.runner.end_pass()
        bench.runner.offload.run_one()
    is_acknowledged = bench.runner.passes.durable >= ticket.number
    bench.crash(TornTails(kept_percent, keeps_names))
    assert bench.log.start in ((30,) if is_acknowledged else (0, 30))
    assert bench.offsets() == list(range(bench.log.start, 30))
    bench.append(b"next")
    assert bench.offsets()[-1] == 30


def test_a_pending_checkpoint_does_not_restore_a_head_that_was_deleted_in_between() -> None:
    bench = LogBench()
    bench.fill(9)
    bench.log.checkpoint()
    bench.runner.end_pass()
    bench.log.cut_head(5)
    bench.settle()
    bench.crash()
    assert bench.log.start == 5


def test_no_cached_read_position_outlives_its_segment() -> None:
    bench = LogBench(segment_bytes=500)
    bench.fill(20)
    assert bench.offsets() == list(range(20))
    bench.log.cut_head(15)
    bench.settle()
    assert all(place.segment in bench.log.segments for place in bench.log.read_positions.values())


def test_a_view_stays_valid_when_its_segment_is_deleted() -> None:
    bench = LogBench(segment_bytes=500)
    bench.fill(20)
    found = read_batches(bench.log, 0, 400, 20)
    before = bytes(found.parts[0])
    bench.log.cut_head(20)
    bench.settle()
    assert bytes(found.parts[0]) == before


def test_an_emptied_log_continues_its_offsets() -> None:
    bench = LogBench()
    bench.fill(7)
    bench.log.roll()
    bench.log.cut_head(7)
    bench.settle()
    for again in (bench.restart, bench.kill, bench.crash):
        again()
        assert (bench.log.start, bench.log.end, bench.bodies()) == (7, 7, [])
    bench.append(b"next")
    assert bench.offsets() == [7]
    assert bench.names(".log") == [f"{7:020d}.log"]


def test_epochs_before_the_start_are_removed() -> None:
    bench = LogBench()
    for epoch in range(5):
        bench.begin_append(batch_of(b"x"), leader_epoch=epoch)
    bench.settle()
    bench.log.cut_head(3)
    bench.settle()
    assert list(bench.log.epochs) == [(3, 3), (4, 4)]


# -- checkpoints


def test_a_failed_checkpoint_is_replaced_by_the_next() -> None:
    bench = LogBench(segment_bytes=1000)
    bench.fail_writes("index")
    bench.fill(30)
    assert len(bench.log.segments) > 3
    bench.mend()
    bench.restart()
    for segment in bench.log.segments:
        name = segment.segment.file.name.removeprefix(f"{FOLDER}/").removesuffix(".log")
        assert bench.contents(f"{name}.index")
        assert bench.contents(f"{name}.timeindex")


def test_checkpoints_are_saved_under_a_load_that_never_pauses() -> None:
    bench = LogBench(checkpoint_bytes=1)
    for number in range(9):
        bench.begin_append(batch_of(b"%d" % number))
        bench.runner.end_pass()
        bench.runner.offload.run_one()
    point = bench.checkpoints.point(FOLDER)
    assert point is not None
    assert point.offset > 0


def test_old_producer_snapshots_are_deleted() -> None:
    bench = LogBench(segment_bytes=300)
    for number in range(20):
        bench.append(bytes(50), producer_id=number % 3, producer_epoch=0, base_sequence=number // 3)
    assert len(bench.names(".snapshot")) <= 4  # of 20 records in 10 segments


def test_a_foreign_file_that_looks_like_a_snapshot_does_not_stop_a_checkpoint() -> None:
    bench = LogBench()
    bench.memory.open(f"{FOLDER}/mine.snapshot", create=True)
    bench.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    bench.restart()
    assert bench.bodies() == [b"x"]


# -- asynchronous flush


@pytest.mark.parametrize("kept_percent", [0, 100])
def test_without_syncs_a_crash_loses_records_but_never_the_log(kept_percent: int) -> None:
    class Survivors(TornTails):
        """Survivors with newer versions of the tables than of the logs."""

        def contents(self, name: str, versions: Any) -> bytes:
            return versions[-1] if name.startswith("tables/") else super().contents(name, versions)

    bench = LogBench(make_runner=AsyncPassRunner, segment_bytes=1000, checkpoint_bytes=100)
    bench.runner.sync()  # type: ignore[attr-defined]
    bench.fill(30)
    bench.log.cut_head(12)
    bench.settle()
    bench.crash(Survivors(kept_percent, keeps_names=True))
    assert bench.offsets() == list(range(bench.log.start, bench.log.end))
    bench.append(b"next")


def test_without_syncs_head_segments_are_removed_only_when_the_new_start_is_on_disk() -> None:
    bench = LogBench(make_runner=AsyncPassRunner, segment_bytes=1000)
    bench.fill(30)
    bench.runner.sync()  # type: ignore[attr-defined]
    bench.runner.sync()  # type: ignore[attr-defined]
    bench.log.cut_head(12)
    bench.settle()
    bench.crash(TornTails(0, keeps_names=True))
    assert bench.log.start in (0, 12)
    assert bench.offsets() == list(range(bench.log.start, 30))


def test_a_timestamp_in_the_future_is_kept() -> None:
    bench = LogBench()
    bench.append(b"later", timestamp_ms=START_MS + 10**9)
    bench.restart()
    assert bench.records()[0].timestamp_ms == START_MS + 10**9
