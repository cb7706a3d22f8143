"""Folders of partition logs: creation, lookup, ownership, deletion, and folders of unknown topics."""

from __future__ import annotations

import errno
import os
from uuid import UUID

import pytest
from doubles import FaultyFiles, PassRunner, TornTails
from storage.log_bench import SETTINGS, batch_of, read_all

from trimq.errors import Damage, UnknownTopic, WriteFailed
from trimq.formats.kafka_batch.header import read_header
from trimq.formats.kafka_batch.records import iterate_records
from trimq.storage.checkpoints.leader_epochs import format_partition_metadata, parse_partition_metadata
from trimq.storage.checkpoints.log_checkpoints import Checkpoints, RecoveryPoint, SealedMark
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.log import PartitionLog
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import open_table

ONE, TWO = UUID(int=1), UUID(int=2)


class Bench:
    def __init__(self) -> None:
        self.memory = MemoryFiles()
        self.open()

    def open(self) -> None:
        self.files = FaultyFiles(self.memory)
        self.runner = PassRunner(self.files)
        for folder in ("tables", ROOT):
            self.files.make_folder(folder)
        self.files.sync_folder("")
        table = open_table(self.files, "tables", "checkpoints", self.runner.passes, list, self.runner.offload)
        self.checkpoints = Checkpoints(table)
        self.store = PartitionStore(self.files, self.runner.passes, self.checkpoints, lambda: 0)

    def settle(self) -> None:
        self.runner.settle()
        assert self.runner.failures == []

    def make(self, topic: str = "t", index: int = 0, id: UUID = ONE) -> PartitionLog:
        """Creates a log and confirms its topic."""
        log = self.store.open(topic, index, id, SETTINGS, is_new=True)
        self.settle()
        self.store.write_topic_ids(id, [log])
        self.settle()
        return log

    def find(self, topic: str = "t", index: int = 0, id: UUID = ONE, is_adopted: bool = False) -> PartitionLog:
        log = self.store.open(topic, index, id, SETTINGS, is_adopted=is_adopted)
        self.settle()
        return log

    def append(self, log: PartitionLog, body: bytes) -> None:
        batch = batch_of(body)
        log.append(batch, read_header(batch), 0)
        self.settle()

    def put(self, name: str, data: bytes) -> None:
        self.memory.make_folder(f"{ROOT}/{name}".rpartition("/")[0])
        file = self.memory.open(f"{ROOT}/{name}", create=True)
        file.resize(0)
        file.write(0, [data])
        self.memory.sync_all()

    def owner(self, folder: str) -> UUID:
        return parse_partition_metadata(self.memory.open(f"{ROOT}/{folder}/partition.metadata").read(0, 100))


def bodies(log: PartitionLog) -> list[bytes | None]:
    return [record.value for stored in read_all(log, None, 1000) for record in iterate_records(stored.data)]


# -- creation


def test_a_new_log_survives_a_crash_with_its_topic_id() -> None:
    bench = Bench()
    bench.append(bench.make(), b"x")
    bench.memory.crash()
    bench.open()
    assert bodies(bench.find()) == [b"x"]
    assert bench.owner("t-0") == ONE


def test_records_left_by_an_earlier_topic_are_not_served() -> None:
    bench = Bench()
    log = bench.make(id=ONE)
    for number in range(5):
        bench.append(log, b"old %d" % number)
    log.checkpoint()
    bench.settle()
    new = bench.make(id=TWO)  # although the old one was never deleted
    assert (new.start, new.end) == (0, 0)
    bench.append(new, b"new")
    bench.memory.crash()
    bench.open()
    assert bodies(bench.find(id=TWO)) == [b"new"]


@pytest.mark.parametrize("operation", ["make_folder", "create"])
def test_a_log_that_cannot_be_created_leaves_nothing_behind(operation: str) -> None:
    bench = Bench()

    def refuse(asked: str, name: str) -> None:
        if asked == operation and name.startswith(f"{ROOT}/t-0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    bench.files.before = refuse
    with pytest.raises(WriteFailed):
        bench.store.open("t", 0, ONE, SETTINGS, is_new=True)
    bench.settle()
    assert bench.memory.names(ROOT) == []
    bench.files.before = lambda asked, name: None
    bench.append(bench.make(), b"x")


def test_a_folder_that_was_lost_with_its_records_is_reported() -> None:
    bench = Bench()
    log = bench.make()
    bench.append(log, b"x")
    log.close()
    bench.settle()
    for name in bench.memory.names(f"{ROOT}/t-0"):
        bench.memory.remove(f"{ROOT}/t-0/{name}")
    bench.memory.remove(f"{ROOT}/t-0")
    with pytest.raises(Damage, match="t-0"):
        bench.find()


def test_a_folder_that_was_lost_in_a_crash_is_created() -> None:
    bench = Bench()
    log = bench.find()
    bench.append(log, b"x")
    bench.memory.crash()
    bench.open()
    assert bodies(bench.find()) == [b"x"]
    assert bench.owner("t-0") == ONE


# -- ownership


@pytest.mark.parametrize("damaged", [b"", b"garbage", None])
def test_unreadable_metadata_is_rewritten(damaged: bytes | None) -> None:
    bench = Bench()
    bench.append(bench.make(), b"x")
    if damaged is None:
        bench.memory.remove(f"{ROOT}/t-0/partition.metadata")
    else:
        bench.put("t-0/partition.metadata", damaged)
    bench.open()
    assert bodies(bench.find()) == [b"x"]
    assert bench.owner("t-0") == ONE


def test_the_folder_of_another_topic_is_refused() -> None:
    bench = Bench()
    bench.append(bench.make(id=ONE), b"x")
    with pytest.raises(Damage, match=r"t-0/partition\.metadata names topic .*01.*02"):
        bench.find(id=TWO)


def test_the_remedy_for_a_folder_of_another_topic_works() -> None:
    bench = Bench()
    bench.append(bench.make(id=ONE), b"x")
    bench.memory.remove(f"{ROOT}/t-0/partition.metadata")
    assert bodies(bench.find(id=TWO)) == [b"x"]
    assert bench.owner("t-0") == TWO


def test_an_adopted_folder_gets_its_new_topic_id() -> None:
    bench = Bench()
    bench.append(bench.make(id=ONE), b"x")
    bench.checkpoints.forget(f"{ROOT}/t-0")
    assert bodies(bench.find(id=TWO, is_adopted=True)) == [b"x"]
    assert bench.owner("t-0") == TWO


# -- deletion


def test_a_deleted_folder_stays_deleted() -> None:
    bench = Bench()
    log = bench.make()
    bench.append(log, b"x")
    log.checkpoint()
    bench.settle()
    ticket = bench.store.remove(ONE, [log])
    assert "t-0" not in bench.memory.names(ROOT)
    bench.settle()
    assert ticket is not None
    assert bench.memory.names(ROOT) == []
    assert not bench.checkpoints.knows(f"{ROOT}/t-0")
    bench.memory.crash()
    bench.open()
    assert list(bench.store.unknown_topics(set())) == []
    bench.store.finish_removals([])
    assert bench.memory.names(ROOT) == []


def test_a_deleted_log_refuses_appends() -> None:
    bench = Bench()
    log = bench.make()
    batch = batch_of(b"x")
    ticket = log.append(batch, read_header(batch), 0)
    bench.store.remove(ONE, [log])
    bench.settle()
    assert isinstance(ticket.refusal, UnknownTopic)
    with pytest.raises(UnknownTopic):
        log.append(batch, read_header(batch), 0)
    bench.settle()
    assert bench.memory.names(ROOT) == []


def test_a_pending_checkpoint_of_a_deleted_log_does_not_affect_the_next_in_its_folder() -> None:
    bench = Bench()
    log = bench.make()
    for number in range(9):
        bench.append(log, b"%d" % number)
    log.checkpoint()
    bench.runner.end_pass()
    bench.store.remove(ONE, [log])
    new = bench.store.open("t", 0, TWO, SETTINGS, is_new=True)
    bench.settle()
    bench.store.write_topic_ids(TWO, [new])
    bench.append(new, b"new")
    assert bench.checkpoints.point(f"{ROOT}/t-0") is None
    bench.memory.crash()
    bench.open()
    assert bodies(bench.find(id=TWO)) == [b"new"]


@pytest.mark.parametrize("keeps_names", [False, True])
@pytest.mark.parametrize("rounds", range(5))
def test_after_a_crash_a_folder_is_complete_or_absent(rounds: int, keeps_names: bool) -> None:
    bench = Bench()
    log = bench.make()
    bench.append(log, b"x")
    bench.store.remove(ONE, [log])
    for _ in range(rounds):
        bench.runner.end_pass()
        bench.runner.offload.run_one()
    bench.memory.crash(TornTails(0, keeps_names))
    bench.open()
    if "t-0" in bench.memory.names(ROOT):
        assert bodies(bench.find()) == [b"x"]
        bench.store.finish_removals([ONE])
    else:
        bench.store.finish_removals([])
    bench.settle()
    assert bench.memory.names(ROOT) == []


def test_a_failed_deletion_is_logged_and_retried() -> None:
    bench = Bench()
    log = bench.make()

    def refuse(asked: str, name: str) -> None:
        if asked == "rename":
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    bench.files.before = refuse
    assert bench.store.remove(ONE, [log]) is None
    bench.settle()
    bench.open()
    assert bench.store.finish_removals([ONE]) is not None
    bench.settle()
    assert bench.memory.names(ROOT) == []


# -- folders of unknown topics


def test_folders_of_unknown_topics_are_listed_as_strangers() -> None:
    bench = Bench()
    for topic, count, id in (("known", 1, ONE), ("a-b", 3, TWO)):
        for index in range(count):
            bench.append(bench.make(topic, index, id), b"x")
    bench.put("README-1.txt/nothing", b"")
    bench.put("x-²/nothing", b"")
    bench.put("y-007/nothing", b"")
    bench.put("backup-20240101123456/nothing", b"")
    assert list(bench.store.unknown_topics({"known"})) == [("a-b", TWO, 3)]


def test_a_folder_left_by_an_interrupted_creation_is_deleted_and_not_listed_as_a_stranger() -> None:
    bench = Bench()
    bench.store.open("t", 0, ONE, SETTINGS, is_new=True)
    bench.settle()  # but never confirmed
    bench.open()
    assert list(bench.store.unknown_topics(set())) == []
    bench.settle()
    assert bench.memory.names(ROOT) == []


def test_an_empty_kafka_topic_is_listed_as_a_stranger() -> None:
    bench = Bench()
    for name in (f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", "leader-epoch-checkpoint"):
        bench.put(f"t-0/{name}", b"")
    bench.put("t-0/partition.metadata", format_partition_metadata(ONE))
    assert list(bench.store.unknown_topics(set())) == [("t", ONE, 1)]


def test_no_old_checkpoint_is_used_for_a_log_that_is_created_again() -> None:
    bench = Bench()
    bench.checkpoints.save(f"{ROOT}/t-0", RecoveryPoint(9, 0, 100, 0, 0))
    bench.checkpoints.seal(f"{ROOT}/t-0", 0, SealedMark(100, None))
    bench.make()
    assert not bench.checkpoints.knows(f"{ROOT}/t-0")


def test_a_checkpoint_of_an_earlier_topic_that_could_not_be_deleted_is_not_used() -> None:
    bench = Bench()
    old = bench.make(id=ONE)
    for number in range(5):
        bench.append(old, b"old %d" % number)
    old.roll()
    old.cut_head(3)
    old.checkpoint()
    bench.settle()

    def refuse(operation: str, name: str) -> None:
        if operation == "write" and name.endswith("checkpoints.0.log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    bench.files.before = refuse
    bench.store.remove(ONE, [old])
    bench.settle()
    new = bench.make(id=TWO)
    folder = f"{ROOT}/t-0"
    assert bench.checkpoints.knows(folder)
    assert (bench.checkpoints.point(folder), bench.checkpoints.marked(folder)) == (None, [])
    bench.append(new, b"new")
    bench.memory.crash()
    bench.open()
    found = bench.find(id=TWO)
    assert (found.start, bodies(found)) == (0, [b"new"])
    found.checkpoint()
    bench.settle()
    bench.memory.crash()
    bench.open()
    assert bodies(bench.find(id=TWO)) == [b"new"]
    point = bench.checkpoints.point(folder)
    assert point is not None
    assert point.offset == 1
