"""Recovery of a partition log: trusted and scanned parts, truncation of torn tails, and reports of damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles import PassRunner, TornTails
from storage.kafka_folders import FOLDERS, batches_of
from storage.log_bench import FOLDER, SETTINGS, TOPIC, CountingFiles, LogBench, batch_of, read_all

from trimq.errors import Damage
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import read_header
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.io.files import DiskFiles
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

FIRST = f"{0:020d}"


def flip(position: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[position] ^= 1

    return change


def cut(size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        del data[size:]

    return change


def extend(extra: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data.extend(extra)

    return change


# -- torn tails


@pytest.mark.parametrize("kept_percent", [0, 1, 30, 50, 99, 100])
def test_a_torn_tail_is_cut_and_acknowledged_records_are_kept(kept_percent: int) -> None:
    bench = LogBench()
    bench.fill(5)
    for number in range(5):
        bench.begin_append(batch_of(b"unacknowledged %d" % number))
    bench.runner.end_pass()
    bench.crash(TornTails(kept_percent, keeps_names=True))
    offsets = bench.offsets()
    assert offsets == list(range(len(offsets)))
    assert 5 <= len(offsets) <= 10
    assert len(bench.contents(f"{FIRST}.log")) == sum(len(stored.data) for stored in bench.batches())
    bench.append(b"next")
    bench.crash()
    assert bench.bodies()[-1] == b"next"


@pytest.mark.parametrize("garbage", [bytes(200), b"\xff" * 200, bytes(range(200)), b"x"])
def test_bytes_that_are_no_batch_are_cut(garbage: bytes) -> None:
    bench = LogBench()
    bench.fill(3)
    bench.damage(f"{FIRST}.log", extend(garbage))
    bench.kill()
    assert bench.offsets() == [0, 1, 2]
    assert len(bench.contents(f"{FIRST}.log")) == sum(len(stored.data) for stored in bench.batches())


def test_a_duplicate_batch_is_cut() -> None:
    bench = LogBench()
    bench.fill(3)
    bench.damage(f"{FIRST}.log", extend(bench.batches()[-1].data))
    bench.kill()
    assert bench.offsets() == [0, 1, 2]


def test_a_batch_with_a_wrong_offset_is_cut() -> None:
    """The offset has no checksum: a flipped bit in it must not leave a gap of thousands of records."""
    bench = LogBench()
    bench.fill(3)
    size = len(bench.contents(f"{FIRST}.log"))
    bench.fill(1)
    bench.damage(f"{FIRST}.log", flip(size + 5))
    bench.kill()
    assert bench.offsets() == [0, 1, 2]
    assert bench.log.end == 3


def test_a_segment_after_a_lost_tail_is_removed() -> None:
    class LosesTheFirst:
        def names(self, folder: str, changes: Any) -> Any:
            return changes

        def contents(self, name: str, versions: Any) -> bytes:
            return versions[0] if name.endswith(f"{FIRST}.log") else versions[-1]

    bench = LogBench(segment_bytes=400)
    bench.append(b"acknowledged")
    for _ in range(6):
        bench.begin_append(batch_of(bytes(100)))
    bench.runner.end_pass()
    bench.crash(LosesTheFirst())
    assert bench.offsets() == [0]
    assert bench.names(".log") == [f"{FIRST}.log"]
    bench.fill(6)
    assert bench.offsets() == list(range(7))


# -- trusted parts


def test_a_stopped_log_is_opened_without_reading_its_records() -> None:
    bench = LogBench(segment_bytes=5000)
    bench.fill(200)
    bench.close()
    counting = CountingFiles(bench.memory)
    bench.memory = counting  # type: ignore[assignment]
    bench.open()
    read = sum(count for name, count in counting.read_bytes.items() if name.endswith(".log") and ROOT in name)
    assert len(bench.log.segments) > 4
    assert read < 1000  # the end of the active segment, after its last index entry


def test_after_a_crash_only_the_part_after_the_checkpoint_is_read() -> None:
    bench = LogBench(segment_bytes=100_000)
    bench.fill(200)
    bench.restart()
    before = len(bench.contents(f"{FIRST}.log"))
    bench.fill(5)
    after = len(bench.contents(f"{FIRST}.log"))
    counting = CountingFiles(bench.memory)
    bench.memory.crash()
    bench.memory = counting  # type: ignore[assignment]
    bench.open()
    assert after > before > 20_000
    assert counting.read_bytes[f"{FOLDER}/{FIRST}.log"] < after - before + 1000
    assert bench.offsets() == list(range(205))


def test_a_part_scanned_after_a_crash_is_not_scanned_again_after_the_next_stop() -> None:
    bench = LogBench()
    bench.fill(50)
    bench.crash()
    bench.close()
    counting = CountingFiles(bench.memory)
    bench.memory = counting  # type: ignore[assignment]
    bench.open()
    assert counting.read_bytes.get(f"{FOLDER}/{FIRST}.log", 0) < 1000


def test_bytes_left_in_the_page_cache_by_a_killed_process_are_synced_before_they_are_read() -> None:
    bench = LogBench()
    bench.append(b"durable")
    bench.begin_append(batch_of(b"written"))
    bench.runner.end_pass()
    bench.begin_open()
    assert bench.log.end == 2
    assert bench.log.durable_end == 0
    bench.settle()
    assert bench.bodies() == [b"durable", b"written"]
    bench.crash()
    assert bench.bodies() == [b"durable", b"written"]


def test_a_tail_cut_by_a_killed_process_is_synced_before_the_segment_is_marked_as_sealed() -> None:
    bench = LogBench()
    bench.fill(5)
    bench.log.checkpoint()
    bench.settle()
    segment = bench.log.segments[-1].segment
    segment.file.write(segment.size, [bytes(4096)])  # space allocated ahead
    segment.file.begin_sync()()
    bench.memory.crash()
    bench.begin_open()  # cuts the zeros
    bench.kill()
    bench.roll()
    bench.fill(1)
    bench.crash()
    assert bench.log.durable_end == 6


def test_the_name_of_a_segment_created_by_a_killed_process_is_synced_before_it_is_used() -> None:
    bench = LogBench()
    bench.append(b"one")
    bench.log.roll()
    bench.runner.end_pass()  # not synced
    bench.kill()
    bench.append(b"two")
    bench.crash()
    assert bench.bodies() == [b"one", b"two"]


def test_the_names_of_a_log_created_by_a_killed_process_are_synced_before_it_is_used() -> None:
    bench = LogBench(is_settled=False)
    bench.runner.end_pass()
    bench.kill()
    bench.append(b"one")
    bench.crash()
    assert bench.bodies() == [b"one"]


# -- rebuilt files


def producers_and_epochs(bench: LogBench) -> None:
    """Fills a log with producers and epochs of all kinds over some segments; the last snapshot has only the last batch
    of each."""
    for number in range(30):
        bench.begin_append(
            batch_of(bytes(60), producer_id=1, producer_epoch=0, base_sequence=number), leader_epoch=number // 10
        )
        if number % 5 == 0:
            fields = {"producer_id": 2, "producer_epoch": 0, "base_sequence": number // 5}
            bench.begin_append(batch_of(b"t", transactional=True, **fields), leader_epoch=number // 10)
            if number < 25:
                bench.begin_append(bench.marker(2, commit=number % 2 == 0), leader_epoch=number // 10)
        bench.settle()


def known(bench: LogBench) -> dict[str, Any]:
    log = bench.log
    return {
        "producers": {id: state._replace(batches=state.batches[-1:]) for id, state in log.producers.items()},
        "first open": log.producers.first_open_offset(),
        "epochs": list(log.epochs),
        "aborted": [list(segment.aborted_transactions(bench.files)) for segment in log.segments],
        "end": log.end,
    }


@pytest.mark.parametrize("segment_bytes", [1000, 100_000])
@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("change", [flip(3), cut(5), cut(0), extend(bytes(7))], ids=["flip", "cut", "empty", "extend"])
def test_damaged_companion_files_are_rebuilt(
    suffix: str, change: Callable[[bytearray], None], segment_bytes: int
) -> None:
    bench = LogBench(segment_bytes=segment_bytes)
    producers_and_epochs(bench)
    bench.restart()
    bench.fill(1)
    before = known(bench)
    bench.close()
    for name in bench.names(suffix):
        if bench.contents(name):
            bench.damage(name, change)
    bench.open()
    found = known(bench) if suffix != ".txnindex" else {**known_by_log(bench), "end": bench.log.end}
    for name in found:
        assert found[name] == before[name], name
    bench.restart()
    assert bench.offsets() == list(range(bench.log.end))


def known_by_log(bench: LogBench) -> dict[str, Any]:
    from trimq.storage.partition_log.reader import find_aborted

    return {"aborted": [list(find_aborted(bench.log, segment)) for segment in bench.log.segments]}


@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".timeindex", "leader-epoch-checkpoint"])
def test_missing_companion_files_are_rebuilt(suffix: str) -> None:
    bench = LogBench(segment_bytes=1000)
    producers_and_epochs(bench)
    before = known(bench)
    bench.close()
    for name in bench.names(suffix):
        bench.memory.remove(f"{FOLDER}/{name}")
    bench.open()
    assert known(bench) == before


def test_an_older_snapshot_is_used_if_the_newest_is_damaged() -> None:
    """The changes between the two snapshots are read from a part of the log that is otherwise trusted."""
    bench = LogBench()
    for number in range(20):
        bench.append(bytes(60), producer_id=number % 4, producer_epoch=0, base_sequence=number // 4)
        if number % 7 == 6:
            bench.log.checkpoint()
            bench.settle()
    before = known(bench)
    bench.close()
    assert len(bench.names(".snapshot")) > 1
    bench.damage(bench.names(".snapshot")[-1], flip(12))
    bench.open()
    assert known(bench) == before


def test_a_snapshot_of_records_lost_in_a_crash_is_never_used() -> None:
    bench = LogBench(checkpoint_bytes=1)
    bench.append(b"kept", producer_id=1, producer_epoch=0, base_sequence=0)

    class LosesTheLog:
        def names(self, folder: str, changes: Any) -> Any:
            return changes

        def contents(self, name: str, versions: Any) -> bytes:
            return versions[-1] if name.endswith(".snapshot") else versions[0]

    bench.begin_append(batch_of(b"lost", producer_id=1, producer_epoch=0, base_sequence=1))
    bench.runner.end_pass()
    bench.crash(LosesTheLog())
    bench.append(b"other", producer_id=2, producer_epoch=0, base_sequence=0)
    bench.close()
    bench.damage(f"{2:020d}.snapshot", flip(12))
    bench.open()
    assert sorted(id for id, _ in bench.log.producers.items()) == [1, 2]
    assert bench.log.producers.get(1).last_sequence == 0  # type: ignore[union-attr]


def test_expired_producers_are_not_restored_from_an_old_snapshot() -> None:
    bench = LogBench()
    bench.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    bench.restart()
    bench.log.producers.expire(bench.now_ms * 2, 0)
    bench.append(b"y")
    bench.restart()
    assert len(bench.log.producers) == 0


def test_a_marker_emptied_by_compaction_is_skipped() -> None:
    from trimq.formats.kafka_batch.header import empty_batch

    bench = LogBench()
    marker = empty_batch(read_header(bench.marker(7, commit=True)))
    bench.begin_append(marker)
    bench.settle()
    bench.crash()
    assert bench.log.end == 1


def test_the_transaction_index_drops_transactions_lost_in_a_crash() -> None:
    bench = LogBench(checkpoint_bytes=1)
    transaction = {"producer_id": 2, "producer_epoch": 0, "transactional": True}
    bench.append(b"x", base_sequence=0, **transaction)

    class LosesTheLog:
        def names(self, folder: str, changes: Any) -> Any:
            return changes

        def contents(self, name: str, versions: Any) -> bytes:
            return versions[-1] if name.endswith(".txnindex") else versions[0]

    bench.begin_append(bench.marker(2, commit=False))
    bench.runner.end_pass()
    bench.crash(LosesTheLog())
    assert bench.contents(f"{FIRST}.txnindex")
    bench.end_transaction(2, commit=True)
    bench.roll()
    bench.restart()
    assert [list(segment.aborted_transactions(bench.files)) for segment in bench.log.segments] == [[], []]


def test_indexes_after_recovery_equal_those_without_interruption() -> None:
    def grown(interrupt: Callable[[LogBench], None]) -> dict[str, bytes]:
        bench = LogBench(segment_bytes=3000, checkpoint_bytes=500)
        for number in range(60):
            bench.append(b"%d" % number + bytes(number * 7 % 90), timestamp_ms=bench.now_ms + number * 13 % 40)
            if number % 7 == 3:
                interrupt(bench)
        bench.close()
        return {name: bench.contents(name) for name in bench.names() if name.endswith(("index", ".log"))}

    undisturbed = grown(lambda bench: None)
    assert len(undisturbed) > 6
    for interrupt in (LogBench.restart, LogBench.crash, LogBench.kill):
        assert grown(interrupt) == undisturbed


# -- reported damage


@pytest.fixture
def stopped() -> LogBench:
    bench = LogBench(segment_bytes=1000)
    bench.fill(30)
    bench.restart()
    bench.close()
    return bench


def opening(bench: LogBench) -> str:
    with pytest.raises(Damage) as caught:
        bench.open()
    return str(caught.value)


@pytest.mark.parametrize("change", [cut(50), extend(b"more")], ids=["shorter", "longer"])
def test_a_sealed_segment_of_another_size_is_reported(stopped: LogBench, change: Callable[[bytearray], None]) -> None:
    stopped.damage(f"{FIRST}.log", change)
    assert f"{FOLDER}/{FIRST}.log" in opening(stopped)


def test_an_active_segment_that_lost_durable_bytes_is_reported(stopped: LogBench) -> None:
    name = stopped.names(".log")[-1]
    stopped.damage(name, cut(70))
    assert f"{FOLDER}/{name} ends at byte 70" in opening(stopped)


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "middle", "active"])
def test_a_missing_segment_is_reported(stopped: LogBench, place: int) -> None:
    name = stopped.names(".log")[place]
    stopped.memory.remove(f"{FOLDER}/{name}")
    assert f"{FOLDER}/{name} is missing" in opening(stopped)


def test_a_folder_that_lost_everything_is_reported(stopped: LogBench) -> None:
    for name in stopped.names():
        stopped.memory.remove(f"{FOLDER}/{name}")
    assert "is missing" in opening(stopped)


def test_a_damaged_header_in_the_scanned_part_is_reported(stopped: LogBench) -> None:
    name = stopped.names(".log")[-1]
    last = stopped.batches()[-1]
    stopped.damage(name, lambda data: flip(len(data) - len(last.data) + 10)(data))
    assert f"{FOLDER}/{name} is damaged at byte" in opening(stopped)


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "middle", "active"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_the_remedy_of_a_damaged_segment_works(stopped: LogBench, place: int, is_missing: bool) -> None:
    """A file created beside the segment gives up its records; the damaged file is kept."""
    held = [segment.segment.base for segment in stopped.log.segments] + [stopped.log.end]
    end = stopped.log.end
    name = stopped.names(".log")[place]
    if is_missing:
        stopped.memory.remove(f"{FOLDER}/{name}")
    else:
        stopped.damage(name, cut(70))
    lost = opening(stopped).rpartition(" create a file ")[2]
    stopped.memory.open(lost, create=True)
    stopped.memory.sync_all()
    number = place % (len(held) - 1)
    gone = range(held[number], held[number + 1])
    for again in (stopped.open, stopped.restart, stopped.kill, stopped.crash):
        again()
        assert stopped.offsets() == [offset for offset in range(end) if offset not in gone]
        assert stopped.log.end == end
    stopped.append(b"next")
    stopped.crash()
    assert stopped.records()[-1].offset == end
    assert stopped.names(".damaged") == ([] if is_missing else [f"{name}.damaged"])


def test_foreign_files_are_left_alone() -> None:
    bench = LogBench()
    for name in ("notes.txt", "my.index", "99999999999999999999.log"):
        bench.memory.open(f"{FOLDER}/{name}", create=True)
    bench.append(b"x")
    bench.restart()
    assert {"notes.txt", "my.index", "99999999999999999999.log"} <= set(bench.names())


# -- folders written by Kafka


def adopted(data_folder: Path) -> tuple[PartitionLog, PassRunner]:
    files = DiskFiles(str(data_folder))
    runner = PassRunner(files)
    checkpoints = Checkpoints(open_table(files, "tables", "checkpoints", runner.passes, list, runner.offload))
    store = PartitionStore(files, runner.passes, checkpoints, lambda: 0)
    log = store.open("t", 0, TOPIC, SETTINGS, is_adopted=True)
    runner.settle()
    return log, runner


@pytest.mark.parametrize("kafka", FOLDERS, ids=lambda folder: folder.name)
def test_a_damaged_kafka_folder_is_not_adopted_with_loss_of_its_later_segments(kafka: Path, tmp_path: Path) -> None:
    folder = tmp_path / ROOT / "t-0"
    shutil.copytree(kafka, folder)
    logs = sorted(folder.glob("*.log"))
    data = bytearray(logs[0].read_bytes())
    flip(len(data) // 2)(data)
    logs[0].write_bytes(data)
    sizes = [path.stat().st_size for path in logs]
    if len(logs) == 1:  # bytes after the damage in the last segment may be a torn tail
        adopted(tmp_path)
        return
    with pytest.raises(Damage, match=logs[0].name):
        adopted(tmp_path)
    assert [path.stat().st_size for path in logs] == sizes


def test_a_kafka_folder_with_an_unfinished_compaction_is_not_adopted(tmp_path: Path) -> None:
    folder = tmp_path / ROOT / "t-0"
    shutil.copytree(FOLDERS[0], folder)
    (folder / f"{FIRST}.log.swap").write_bytes(b"")
    with pytest.raises(Damage, match="swap"):
        adopted(tmp_path)


@pytest.mark.parametrize("kafka", FOLDERS, ids=lambda folder: folder.name)
def test_an_adopted_folder_is_opened_without_adoption_afterwards(kafka: Path, tmp_path: Path) -> None:
    shutil.copytree(kafka, tmp_path / ROOT / "t-0")
    adopted(tmp_path)
    files = DiskFiles(str(tmp_path))
    runner = PassRunner(files)
    checkpoints = Checkpoints(open_table(files, "tables", "checkpoints", runner.passes, list, runner.offload))
    log = PartitionStore(files, runner.passes, checkpoints, lambda: 0).open("t", 0, TOPIC, SETTINGS)
    runner.settle()
    read = b"".join(stored.data for stored in read_all(log, None, 500))
    assert read == b"".join(path.read_bytes() for path in sorted(kafka.glob("*.log")))
    assert log.end == max(header.next_offset for _, header, _ in batches_of(read))


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_survive_a_crash(codec: Codec) -> None:
    bench = LogBench()
    bench.append(b"a" * 500, b"b" * 500, codec=codec)
    bench.crash()
    assert bench.bodies() == [b"a" * 500, b"b" * 500]
