from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles import FaultyFiles
from storage.keyed_logs import DAY_MS, FOLDER, SETTINGS, START_MS, Kept, KeyedLog, with_settings

from trimq.errors import DamagedSegment
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import empty_batch, read_header
from trimq.formats.kafka_batch.markers import control_batch
from trimq.formats.kafka_batch.records import iterate_records
from trimq.model import Record
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import DiskFiles
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.compaction import Compaction, CompactionLimits, plan_compaction
from trimq.storage.partition_log.reader import find_latest, find_time, read_batches


@pytest.fixture(params=["memory", "disk"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyedLog]:
    if request.param == "memory":
        yield KeyedLog(MemoryFiles())
        return
    files = DiskFiles(str(tmp_path))
    yield KeyedLog(files)
    files.close()


def in_memory(**settings: object) -> KeyedLog:
    return KeyedLog(MemoryFiles(), with_settings(**settings))


def names(keyed: KeyedLog) -> set[str]:
    return {name for name in keyed.files.names(FOLDER) if not name.endswith(".snapshot")}


# -- records that are kept


@pytest.mark.parametrize("codec", list(Codec))
def test_of_a_thousand_keys_in_fifty_versions_the_last_value_is_kept(codec: Codec) -> None:
    keyed = KeyedLog(MemoryFiles(), with_settings(segment_bytes=200_000), CompactionLimits(step_records=20_000))
    for version in range(50):
        for first in range(0, 1000, 250):
            keyed.append(((b"key-%d" % key, b"%d-%d" % (key, version)) for key in range(first, first + 250)), codec)
    keyed.roll()
    before = keyed.log.size_bytes
    keyed.compact()
    assert [record.offset for record in keyed.records()] == list(range(49_000, 50_000))
    assert keyed.table() == {b"key-%d" % key: b"%d-49" % key for key in range(1000)}
    assert {header.codec for header, _ in keyed.batches()} == {codec}
    assert keyed.log.size_bytes < before / 40
    keyed.restart()
    assert len(keyed.table()) == 1000


def test_offsets_order_and_bytes_of_kept_records_do_not_change(keyed: KeyedLog) -> None:
    for number in range(40):
        keyed.append([(b"%d" % (number % 7), b"value %d" % number), (b"only %d" % number, b"x")])
        if number % 10 == 9:
            keyed.roll()
    before = keyed.records()
    last = {key: offset for offset, key, _ in before}
    keyed.compact()
    assert keyed.records() == [record for record in before if last[record.key] == record.offset]
    keyed.restart()
    assert keyed.records() == [record for record in before if last[record.key] == record.offset]


def test_the_active_segment_is_not_compacted_before_it_is_sealed(keyed: KeyedLog) -> None:
    keyed.put(b"a", b"1")
    keyed.roll()
    keyed.put(b"a", b"2")
    keyed.compact()
    assert [record.offset for record in keyed.records()] == [0, 1]
    keyed.roll()
    keyed.compact()
    assert [record.offset for record in keyed.records()] == [1]


def test_records_without_a_key_are_removed(keyed: KeyedLog) -> None:
    keyed.append([(None, b"lost"), (b"a", b"1"), (None, None)])
    keyed.roll()
    keyed.compact()
    assert keyed.records() == [Kept(1, b"a", b"1")]


@pytest.mark.parametrize("length", [0, 15, 16, 17, 33, 5000])
def test_keys_of_any_length_are_distinguished(length: int) -> None:
    keyed = in_memory()
    for value in (b"old", b"new"):
        keyed.append([(b"k" * length + bytes((last,)), value) for last in range(5)])
        keyed.append([(b"k" * length, value)])
    keyed.roll()
    keyed.compact()
    assert [record.offset for record in keyed.records()] == list(range(6, 12))


def test_a_tombstone_is_kept_for_its_retention_after_the_first_compaction_and_then_removed(keyed: KeyedLog) -> None:
    keyed.append([(b"a", b"1"), (b"b", b"1")])
    keyed.put(b"a", None)
    keyed.roll()
    keyed.now_ms += 10 * DAY_MS  # however old it is by then
    keyed.compact()
    assert keyed.records() == [Kept(1, b"b", b"1"), Kept(2, b"a", None)]
    assert [header.delete_horizon_ms for header, _ in keyed.batches()] == [None, keyed.now_ms + DAY_MS]
    keyed.now_ms += DAY_MS - 1
    keyed.put(b"c", b"1")
    keyed.roll()
    keyed.compact()
    assert Kept(2, b"a", None) in keyed.records()
    keyed.now_ms += 1
    keyed.put(b"d", b"1")
    keyed.roll()
    keyed.compact()
    assert [record.key for record in keyed.records()] == [b"b", b"c", b"d"]


def test_an_idle_log_removes_its_last_tombstones(keyed: KeyedLog) -> None:
    keyed.append([(b"a", b"1"), (b"a", None)])
    keyed.roll()
    keyed.compact()
    assert plan_compaction(keyed.log, keyed.checkpoints, keyed.now_ms + DAY_MS - 1) is None
    keyed.now_ms += DAY_MS
    keyed.restart()
    keyed.compact()
    assert keyed.records() == []
    assert plan_compaction(keyed.log, keyed.checkpoints, keyed.now_ms + 10 * DAY_MS) is None


def test_a_key_written_again_after_its_tombstone_keeps_its_new_value(keyed: KeyedLog) -> None:
    for value in (b"1", None, b"2"):
        keyed.put(b"a", value)
        keyed.roll()
    keyed.compact()
    assert keyed.records() == [Kept(2, b"a", b"2")]


def test_the_timestamps_of_records_survive_a_delete_horizon_in_their_batch() -> None:
    keyed = in_memory()
    keyed.append([(b"a", b"1"), (b"b", None), (b"c", b"3")])
    keyed.roll()
    keyed.compact()
    assert [record.timestamp_ms for _, batch in keyed.batches() for record in iterate_records(batch)] == [
        START_MS,
        START_MS + 1,
        START_MS + 2,
    ]


# -- producers and transactions


def test_the_last_batch_of_a_producer_is_kept_without_records(keyed: KeyedLog) -> None:
    for sequence in range(0, 9, 3):
        keyed.append(
            [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
    keyed.append([(key, b"2") for key in (b"a", b"b", b"c")])
    keyed.roll()
    keyed.compact()
    (first, _), (second, _) = keyed.batches()
    assert (first.base_offset, first.last_sequence, first.record_count) == (6, 8, 0)
    assert second.base_offset == 9
    for name in keyed.files.names(FOLDER):
        if name.endswith(".snapshot"):
            keyed.files.remove(f"{FOLDER}/{name}")
    keyed.open()  # as after a crash: only the log is left
    state = keyed.log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 8


def test_the_empty_batch_of_an_expired_producer_is_removed(keyed: KeyedLog) -> None:
    keyed.append([(b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0)
    keyed.put(b"a", b"2")
    keyed.roll()
    keyed.compact()
    assert [header.record_count for header, _ in keyed.batches()] == [0, 1]
    keyed.log.producers.expire(keyed.now_ms + DAY_MS, DAY_MS)
    keyed.put(b"b", b"1")
    keyed.roll()
    keyed.compact()
    assert [header.base_offset for header, _ in keyed.batches()] == [1, 2]


def begin(keyed: KeyedLog, producer_id: int, sequence: int, *pairs: tuple[bytes, bytes | None]) -> int:
    return keyed.append(
        pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True, codec=Codec.LZ4
    )


def test_aborted_records_are_removed_and_never_replace_committed_ones(keyed: KeyedLog) -> None:
    begin(keyed, 1, 0, (b"a", b"committed"), (b"b", b"committed"))
    keyed.end_transaction(1, commit=True)
    begin(keyed, 2, 0, (b"a", b"aborted"))
    begin(keyed, 1, 2, (b"b", b"newer"))
    keyed.roll()
    begin(keyed, 2, 1, (b"b", None), (b"c", b"aborted"))
    keyed.end_transaction(2, commit=False)
    keyed.end_transaction(1, commit=True)
    keyed.roll()
    keyed.compact()
    assert keyed.records() == [Kept(0, b"a", b"committed"), Kept(4, b"b", b"newer")]
    assert not [batch for _, batch in keyed.batches() if any(r.value == b"aborted" for r in iterate_records(batch))]


def test_an_abort_marker_in_a_later_segment_is_respected(keyed: KeyedLog) -> None:
    keyed.put(b"a", b"1")
    begin(keyed, 2, 0, (b"a", b"aborted"))
    keyed.roll()
    keyed.end_transaction(2, commit=False)
    keyed.compact()  # the marker is in the active segment
    assert keyed.records() == [Kept(0, b"a", b"1")]


def test_records_committed_after_an_abort_are_kept(keyed: KeyedLog) -> None:
    begin(keyed, 1, 0, (b"a", b"aborted"))
    keyed.end_transaction(1, commit=False)
    begin(keyed, 1, 1, (b"a", b"committed"), (b"b", b"committed"))
    keyed.end_transaction(1, commit=True)
    keyed.put(b"b", b"newer")
    keyed.roll()
    keyed.compact()
    assert keyed.records() == [Kept(2, b"a", b"committed"), Kept(5, b"b", b"newer")]


def test_nothing_is_compacted_from_the_first_open_transaction_on(keyed: KeyedLog) -> None:
    keyed.append([(b"a", b"1"), (b"a", b"2")])
    keyed.roll()
    begin(keyed, 3, 0, (b"b", b"1"))
    keyed.roll()
    keyed.append([(b"c", b"1"), (b"c", b"2")])
    keyed.roll()
    keyed.compact()
    assert [header.record_count for header, _ in keyed.batches()] == [1, 1, 2]
    keyed.end_transaction(3, commit=True)
    keyed.compact()
    assert [record.offset for record in keyed.records()] == [1, 2, 4]


def control_offsets(keyed: KeyedLog) -> list[int]:
    return [header.base_offset for header, _ in keyed.batches() if header.is_control]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_removed_some_time_after_the_last_batch_of_its_transaction(commit: bool) -> None:
    keyed = in_memory()
    begin(keyed, 1, 0, (b"a", b"1"))
    marker = keyed.end_transaction(1, commit)
    keyed.put(b"a", b"2")
    begin(keyed, 1, 1, (b"z", b"1"))  # so that the first batch is not the producer's last
    later = keyed.end_transaction(1, commit=True)

    def round_after(wait_ms: int) -> list[int]:
        keyed.now_ms += wait_ms
        keyed.put(b"x", b"%d" % keyed.now_ms)
        keyed.roll()
        keyed.compact()
        return control_offsets(keyed)

    assert round_after(0) == [marker, later]  # the data is removed
    assert round_after(0) == [marker, later]  # the transaction has no records left: the delete horizon starts
    assert round_after(DAY_MS - 1) == [marker, later]
    assert round_after(1) == [later]
    keyed.restart()
    assert control_offsets(keyed) == [later]


def test_a_producer_known_by_its_marker_alone_keeps_it() -> None:
    keyed = in_memory(delete_retention_ms=0)
    marker = keyed.end_transaction(5, commit=False)
    for number in range(4):
        keyed.put(b"x", b"%d" % number)
        keyed.roll()
        keyed.compact()
    assert control_offsets(keyed) == [marker]
    keyed.log.producers.expire(keyed.now_ms + DAY_MS, DAY_MS)
    for number in range(3):
        keyed.put(b"x", b"%d" % number)
        keyed.roll()
        keyed.compact()
    assert control_offsets(keyed) == []


def test_an_aborted_transaction_stays_in_the_index_as_long_as_its_marker_is_needed() -> None:
    keyed = in_memory()
    begin(keyed, 1, 0, (b"a", b"1"))
    marker = keyed.end_transaction(1, commit=False)
    keyed.roll()
    keyed.compact()
    keyed.restart()  # the producer's last batch still exists, without records
    (transaction,) = keyed.log.segments[0].aborted_transactions(keyed.files)
    assert (transaction.first_offset, transaction.last_offset) == (0, marker)
    keyed.log.producers.expire(keyed.now_ms + DAY_MS, DAY_MS)
    for _ in range(2):
        keyed.put(b"x", b"1")
        keyed.roll()
        keyed.compact()
    keyed.restart()
    assert keyed.log.segments[0].aborted_transactions(keyed.files) == []
    assert keyed.records()[-1].key == b"x"


def test_an_empty_control_batch_written_by_kafka_is_accepted() -> None:
    """Kafka keeps one in place of a producer's last marker."""
    keyed = in_memory()
    empty = empty_batch(read_header(control_batch(9, 0, 0, True, keyed.now_ms, 0)))
    keyed.log.append(empty, read_header(empty), 0)
    keyed.put(b"a", b"1")
    keyed.roll()
    keyed.compact()
    assert [header.base_offset for header, _ in keyed.batches()] == [1]


# -- when a log is due


def test_only_a_compacted_log_is_compacted() -> None:
    keyed = in_memory(is_compacted=False)
    keyed.append([(b"a", b"1"), (b"a", b"2")])
    keyed.roll()
    assert not keyed.is_due
    assert keyed.compact() == 0


def test_a_log_below_the_dirty_ratio_is_not_compacted() -> None:
    keyed = in_memory(min_cleanable_dirty_ratio=0.5)
    keyed.append([(b"%d" % key, b"v" * 20) for key in range(20)])
    keyed.roll()
    assert keyed.is_due
    keyed.compact()
    keyed.append([(b"%d" % key, b"w" * 20) for key in range(10)])
    keyed.roll()
    assert not keyed.is_due
    assert keyed.compact() == 0
    keyed.append([(b"%d" % key, b"w" * 20) for key in range(15)])
    keyed.roll()
    assert keyed.is_due
    keyed.compact()
    assert len(keyed.records()) == 20


def test_young_records_wait_for_the_minimum_lag() -> None:
    keyed = in_memory(min_compaction_lag_ms=1000)
    keyed.append([(b"a", b"1"), (b"a", b"2")])
    keyed.roll()
    keyed.now_ms += 1000
    keyed.append([(b"b", b"1"), (b"b", b"2")])
    keyed.roll()
    assert not keyed.is_due
    assert keyed.compact() == 0
    keyed.now_ms += 1
    keyed.compact()
    assert [record.offset for record in keyed.records()] == [1, 2, 3]


def test_records_beyond_the_maximum_lag_are_compacted_at_any_ratio() -> None:
    keyed = in_memory(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    keyed.append([(b"a", b"1"), (b"a", b"2")])
    keyed.roll()
    keyed.now_ms += 1001
    assert not keyed.is_due
    keyed.now_ms += 1
    keyed.compact()
    assert [record.offset for record in keyed.records()] == [1]
    keyed.now_ms += 5000
    assert not keyed.is_due


def test_more_keys_than_fit_into_memory_take_several_rounds() -> None:
    keyed = KeyedLog(MemoryFiles(), SETTINGS, CompactionLimits(keys=10, step_records=3))
    for value in (b"1", b"2"):
        for first in range(0, 40, 4):
            keyed.append([(b"%d" % key, value) for key in range(first, first + 4)])
        keyed.roll()
    rounds = 0
    while keyed.is_due:
        keyed.compact()
        rounds += 1
        assert keyed.table() == {b"%d" % key: b"2" for key in range(40)}
    assert rounds == 10
    assert [record.offset for record in keyed.records()] == list(range(40, 80))


def test_records_beyond_the_keys_that_fit_into_memory_are_not_changed() -> None:
    keyed = KeyedLog(MemoryFiles(), SETTINGS, CompactionLimits(keys=1))
    keyed.append([(b"a", b"1"), (b"a", b"2")])
    keyed.append([(b"b", None), (None, b"no key")])
    before = [bytes(batch) for _, batch in keyed.batches()]
    keyed.roll()
    keyed.compact()
    after = [bytes(batch) for _, batch in keyed.batches()]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_batch_of_more_keys_than_fit_into_memory_is_compacted() -> None:
    keyed = KeyedLog(MemoryFiles(), SETTINGS, CompactionLimits(keys=3))
    for value in (b"1", b"2"):
        keyed.append([(b"%d" % key, value) for key in range(9)])
    keyed.roll()
    while keyed.is_due:
        keyed.compact()
    assert [record.offset for record in keyed.records()] == list(range(9, 18))


# -- segments


def test_small_segments_are_merged_up_to_the_segment_size() -> None:
    keyed = in_memory(segment_bytes=1000)
    for number in range(40):
        keyed.append([(b"%d" % number, b"v" * 100)])
        if number % 2:
            keyed.roll()
    assert len(keyed.log.segments) == 21
    keyed.compact()
    assert all(segment.segment.size <= 1000 for segment in keyed.log.segments)
    assert len(keyed.log.segments) < 13
    assert keyed.bases() == sorted(keyed.bases())
    assert len(keyed.table()) == 40


def test_a_merged_group_does_not_span_more_offsets_than_an_index_can_address() -> None:
    keyed = in_memory()
    for number in range(3):
        keyed.put(b"%d" % number, b"1")
        keyed.roll()
        keyed.log.end += 1 << 30  # as if compaction had left that few
        keyed.settle()
    keyed.roll()
    keyed.compact()
    assert keyed.bases()[:2] == [0, keyed.log.segments[0].end_offset]
    assert all(segment.end_offset - segment.segment.base <= 1 << 31 for segment in keyed.log.segments[:-1])
    assert len(keyed.table()) == 3


def test_a_segment_without_kept_records_is_empty_and_then_merged() -> None:
    keyed = in_memory(segment_bytes=210)
    for _ in range(6):
        keyed.append([(b"a", b"v" * 40)])
        keyed.roll()
    keyed.compact()
    assert [segment.segment.size > 0 for segment in keyed.log.segments] == [False] * 5 + [True, False]
    assert keyed.log.start == 0
    keyed.restart()
    assert keyed.log.start == 0
    assert keyed.records() == [Kept(5, b"a", b"v" * 40)]
    assert read_batches(keyed.log, 0, 1000, keyed.log.durable_end).next_offset == 6
    keyed.put(b"b", b"1")
    keyed.roll()
    keyed.compact()
    assert keyed.bases() == [0, 7]
    keyed.restart()
    assert [record.offset for record in keyed.records()] == [5, 6]


def test_a_segment_without_changes_is_not_rewritten() -> None:
    keyed = in_memory(segment_bytes=100)
    for number in range(3):
        keyed.append([(b"%d" % number, b"v" * 100)])
        keyed.roll()
    before = list(keyed.log.segments)
    keyed.compact()
    assert keyed.log.segments == before
    assert keyed.checkpoints.cleaned(FOLDER).offset == 3


def test_no_files_other_than_those_of_the_segments_are_left(keyed: KeyedLog) -> None:
    for number in range(30):
        begin(keyed, 1, number, (b"%d" % (number % 3), b"v" * 50))
        keyed.end_transaction(1, commit=number % 4 > 0)
        if number % 5 == 4:
            keyed.roll()
    keyed.compact()
    keyed.close()
    expected = {"partition.metadata", "leader-epoch-checkpoint"}
    for base in keyed.bases():
        expected |= {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
    assert {name for name in names(keyed) if not name.endswith(".txnindex")} == expected
    keyed.open()
    for segment in keyed.log.segments[:-1]:
        assert keyed.checkpoints.sealed(FOLDER, segment.segment.base) is not None


def test_the_indexes_are_written_and_used_after_a_restart(keyed: KeyedLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(60):
        keyed.append([(b"%d" % (number % 40), b"v" * 50)])
        if number % 20 == 19:
            keyed.roll()
    keyed.compact()
    keyed.restart()
    assert keyed.log.segments[0].index(keyed.files).lookup(45).position > 0
    assert len(keyed.records()) == 40
    assert "rebuilding the index" not in caplog.text


# -- readers


def test_views_taken_before_compaction_stay_valid(keyed: KeyedLog) -> None:
    for number in range(20):
        keyed.append([(b"%d" % (number % 3), b"value %d" % number)])
    keyed.roll()
    found = read_batches(keyed.log, 0, 1 << 20, keyed.log.durable_end)
    before = b"".join(found.parts)
    keyed.compact()
    keyed.restart()
    assert b"".join(found.parts) == before


def test_a_reader_continues_at_the_right_offset_through_every_step() -> None:
    keyed = KeyedLog(MemoryFiles(), with_settings(segment_bytes=600), CompactionLimits(step_records=1))
    for number in range(60):
        keyed.append([(b"%d" % (number % 7), b"value %d" % number)])
        if number % 6 == 5:
            keyed.roll()
    last = [record for record in keyed.records() if record.offset >= 53]

    class Reader:
        def __init__(self) -> None:
            self.offset = 0
            self.seen: list[int] = []

        def read(self) -> None:
            found = read_batches(keyed.log, self.offset, 100, keyed.log.durable_end)
            if found.size:
                headers = [read_header(part) for part in found.parts]
                self.seen += [header.base_offset for header in headers]
                assert headers[0].last_offset >= self.offset
            self.offset = found.next_offset

    reader = Reader()
    steps = keyed.compact(reader.read)
    while reader.offset < keyed.log.durable_end:
        reader.read()
    assert steps > 60
    assert reader.seen == sorted(set(reader.seen))
    assert reader.seen[-7:] == [record.offset for record in last]


def test_reading_a_removed_offset_returns_the_next_batch(keyed: KeyedLog) -> None:
    for number in range(30):
        keyed.append([(b"a" if number % 10 else b"%d" % number, b"v")])
        if number % 6 == 5:
            keyed.roll()
    keyed.compact()
    kept = [record.offset for record in keyed.records()]
    assert kept == [0, 10, 20, 29]
    for offset in range(30):
        found = read_batches(keyed.log, offset, 1, keyed.log.durable_end)
        assert read_header(found.parts[0]).base_offset == min(at for at in kept if at >= offset)


def test_timestamps_are_found_in_a_compacted_log(keyed: KeyedLog) -> None:
    for number in range(40):
        keyed.now_ms = START_MS + 1000 * number
        keyed.append([(b"%d" % (number % 9), b"v" * 30)], producer_id=3, producer_epoch=0, base_sequence=number)
        if number % 8 == 7:
            keyed.roll()
    keyed.append([(b"%d" % key, b"new") for key in range(0, 9, 2)])
    keyed.roll()
    keyed.compact()
    for _ in range(2):
        times = [(r.timestamp_ms, r.offset) for _, batch in keyed.batches() for r in iterate_records(batch)]
        for wanted in range(START_MS, keyed.now_ms + 6, 500):
            first = next(((offset, at) for at, offset in times if at >= wanted), None)
            assert find_time(keyed.log, wanted, keyed.log.durable_end, 1 << 20) == first
        at, offset = max(times)
        assert find_latest(keyed.log, keyed.log.durable_end, 1 << 20) == (offset, at)
        keyed.restart()


# -- concurrent changes


def test_appends_between_steps_are_kept_and_not_compacted_yet() -> None:
    keyed = KeyedLog(MemoryFiles(), with_settings(segment_bytes=500), CompactionLimits(step_records=1))
    for number in range(40):
        keyed.append([(b"%d" % (number % 3), b"old")])
    keyed.roll()
    keyed.compact(lambda: keyed.put(b"0", b"new") and None)
    assert keyed.table() == {b"0": b"new", b"1": b"old", b"2": b"old"}
    keyed.restart()
    assert keyed.table() == {b"0": b"new", b"1": b"old", b"2": b"old"}


@pytest.mark.parametrize("at_step", range(30))
def test_a_head_deleted_between_steps_stays_deleted(at_step: int) -> None:
    keyed = KeyedLog(MemoryFiles(), with_settings(segment_bytes=400), CompactionLimits(step_records=4))
    for number in range(24):
        keyed.append([(b"%d" % number if number % 4 == 3 else b"a", b"v" * 30)])
        if number % 4 == 3:
            keyed.roll()
    countdown = iter(range(at_step, -1000, -1))

    def cut() -> None:
        if next(countdown) == 0:
            keyed.log.cut_head(9)
            keyed.settle()

    try:
        keyed.compact(cut)
    except FileNotFoundError:
        assert keyed.files.names(FOLDER) == [name for name in keyed.files.names(FOLDER) if "cleaned" not in name]
    assert next(countdown) < 0, "compaction took fewer steps than this test needs"
    for _ in range(2):
        assert keyed.log.start == 9
        assert keyed.table() == dict.fromkeys((b"11", b"15", b"19", b"23", b"a"), b"v" * 30)
        keyed.restart()
        keyed.compact()


def test_a_pass_undone_around_a_swap_undoes_only_its_own_changes() -> None:
    files = FaultyFiles(MemoryFiles())
    keyed = KeyedLog(files)
    for number in range(9):
        keyed.put(b"a", b"%d" % number)
        keyed.roll()
    steps = Compaction(keyed.log, keyed.checkpoints, keyed.now_ms, keyed.effort).steps()
    for step in steps:
        keyed.do(step)
        if isinstance(step, Ticket):
            break
    batch = from_records([Record(b"refused", key=b"b")])
    ticket = keyed.log.append(batch, read_header(batch), 0)
    keyed.log.roll()
    swapping = next(steps)
    assert [segment.segment.file.name.endswith(".swap") for segment in keyed.log.segments] == [True, False, False]

    def fail(operation: str, name: str) -> None:
        if operation == "write" and name.endswith(".log"):
            raise OSError(errno.EIO, "disk error")

    files.before = fail
    keyed.settle()
    assert ticket.refusal is not None
    files.before = lambda operation, name: None
    for step in (swapping, *steps):
        keyed.do(step)
    keyed.settle()
    assert [segment.segment for segment in keyed.log.segments] == keyed.log.journal.segments
    assert keyed.bases() == [0, 9]
    for _ in range(2):
        assert keyed.records() == [Kept(8, b"a", b"8")]
        keyed.restart()


def test_a_log_that_is_no_longer_compacted_is_not_changed(keyed: KeyedLog) -> None:
    keyed.append([(b"a", b"1"), (b"a", b"2")])
    keyed.roll()
    keyed.compact(lambda: keyed.log.change_settings(with_settings(is_compacted=False)))
    assert [record.offset for record in keyed.records()] == [0, 1]
    assert not [name for name in names(keyed) if name.endswith((".cleaned", ".swap"))]
    assert keyed.checkpoints.cleaned(FOLDER).offset == 0


def test_damage_is_reported_and_not_rewritten_with_a_new_checksum() -> None:
    keyed = in_memory()
    keyed.append([(b"a", b"1"), (b"b", b"2")])
    keyed.put(b"a", b"3")
    keyed.roll()
    keyed.restart()
    file = keyed.files.open(f"{FOLDER}/{0:020d}.log")
    before = file.read(0, 1000)
    file.write(70, [bytes((before[70] ^ 1,))])
    with pytest.raises(DamagedSegment):
        keyed.compact()
    assert file.read(0, 1000)[:70] == before[:70]
    assert not [name for name in names(keyed) if name.endswith(".cleaned")]
    assert keyed.checkpoints.cleaned(FOLDER).offset == 0


def test_a_full_disk_leaves_the_log_unchanged() -> None:
    files = FaultyFiles(MemoryFiles())
    keyed = KeyedLog(files)
    for number in range(30):
        keyed.append([(b"%d" % number, b"v" * 50)])
    keyed.put(b"0", b"new")
    keyed.roll()
    before = keyed.records()
    files.room_bytes = 700
    with pytest.raises(OSError, match="space"):
        keyed.compact()
    files.room_bytes = None
    assert keyed.records() == before
    assert not [name for name in names(keyed) if name.endswith(".cleaned")]
    keyed.compact()
    assert len(keyed.records()) == 30


def test_compaction_runs_in_small_steps() -> None:
    keyed = KeyedLog(MemoryFiles(), SETTINGS, CompactionLimits(step_bytes=2000, step_records=1000))
    for number in range(100):
        keyed.append([(b"%d" % number, b"v" * 40)])
    keyed.roll()
    keyed.put(b"x", b"1")
    keyed.roll()
    steps = keyed.compact()
    assert steps >= 2 * 100 * 110 // 2000
