"""Compaction that the broker starts by itself, by its clock, while it serves."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest
from doubles import FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ

from trimq.clock import Clock, ManualTime
from trimq.config import Settings
from trimq.core.assembly.core import open_core
from trimq.core.partitions.stream import Stream
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Layout, Record, TopicName
from trimq.server.node import Node
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.partition_log.log import PartitionLog
from trimq.testing import Broker

SMALL: dict[str, Any] = {"cleanup": "compact", "segment_bytes": 1024, "min_cleanable_dirty_ratio": 0}


def log_of(node: Node, topic: str = "profiles") -> PartitionLog:
    return node.core.topics.get(TopicName("", topic)).stream(0).log


def keep_busy(broker: Broker, topic: str = "profiles", versions: int = 30) -> None:
    for version in range(versions):
        for key in range(3):
            broker.send(topic, b"%d" % version * 20, key=b"%d" % key)


def files_of(broker: Broker) -> list[str]:
    return broker.on_loop(lambda node: log_of(node).files.names(log_of(node).folder))


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_compacted_topic_is_compacted_when_it_is_due(flush: str) -> None:
    with Broker(flush=flush) as broker:
        broker.create_topic("profiles", **SMALL)
        keep_busy(broker)
        assert len(broker.records("profiles")) == 90
        broker.advance("6m")
        records = broker.records("profiles")
        assert len(records) < 20
        assert {record.key: record.body for record in records} == {b"%d" % key: b"29" * 20 for key in range(3)}
        assert not [name for name in files_of(broker) if name.endswith((".cleaned", ".swap"))]
        broker.restart()
        assert broker.records("profiles") == records


def test_a_record_is_compacted_soon_after_its_maximum_lag() -> None:
    with Broker() as broker:
        lagging = {"cleanup": "compact", "min_cleanable_dirty_ratio": 1, "max_compaction_lag_ms": 20_000}
        broker.create_topic("profiles", **lagging)
        keep_busy(broker)
        broker.advance("25s")
        broker.send("profiles", b"end", key=b"end")  # closes the segment, as in Kafka
        broker.advance("16s")
        assert len(broker.records("profiles")) == 4


def test_a_topic_without_anything_to_compact_needs_no_timer() -> None:
    with Broker() as broker:
        broker.create_topic("profiles", **SMALL)
        keep_busy(broker)
        broker.advance("1m")
        assert broker.on_loop(lambda node: node.core.maintenance._compaction._timer) is None
        broker.send("profiles", b"more", key=b"0")
        assert broker.on_loop(lambda node: node.core.maintenance._compaction._timer) is not None


def test_topics_without_compaction_are_not_compacted() -> None:
    with Broker() as broker:
        broker.create_topic("profiles", segment_bytes=1024)
        keep_busy(broker)
        broker.advance("6m")
        assert len(broker.records("profiles")) == 90


def test_several_streams_are_compacted_in_turn() -> None:
    with Broker() as broker:
        for number in range(4):
            broker.create_topic(f"profiles-{number}", **SMALL)
            keep_busy(broker, f"profiles-{number}", 20)
        broker.advance("6m")
        for number in range(4):
            assert len(broker.records(f"profiles-{number}")) < 20


def test_a_tombstone_is_removed_although_nothing_more_is_written() -> None:
    with Broker() as broker:
        broker.create_topic("profiles", delete_retention_ms=3_600_000, **SMALL)
        broker.send("profiles", b"1", key=b"a")
        broker.send("profiles", None, key=b"a")
        keep_busy(broker)
        broker.advance("6m")
        assert (b"a", None) in [(record.key, record.body) for record in broker.records("profiles")]
        broker.advance("50m")
        assert (b"a", None) in [(record.key, record.body) for record in broker.records("profiles")]
        broker.advance("20m")
        assert b"a" not in [record.key for record in broker.records("profiles")]


def test_a_topic_that_is_recreated_during_compaction_keeps_its_new_records() -> None:
    with Broker() as broker:
        broker.create_topic("profiles", **SMALL)
        keep_busy(broker)
        broker.on_loop(lambda node: node.core.maintenance._begin_round())
        broker.on_loop(lambda node: node.core.topics.delete(node.core.topics.get(TopicName("", "profiles"))))
        broker.advance("1s")
        broker.create_topic("profiles", **SMALL)
        broker.send("profiles", b"new", key=b"0")
        broker.advance("6m")
        assert [record.body for record in broker.records("profiles")] == [b"new"]
        broker.restart()
        assert [record.body for record in broker.records("profiles")] == [b"new"]


@pytest.mark.parametrize("value", ["1.5", "-0.1", "nan", "half"])
def test_an_invalid_dirty_ratio_is_refused(value: str) -> None:
    with Broker() as broker, pytest.raises(Exception, match="min_cleanable_dirty_ratio"):
        broker.create_topic("profiles", min_cleanable_dirty_ratio=value)


# -- step by step


class SteppedBroker:
    """A core that runs timers, passes and work off the loop one at a time."""

    def __init__(self, files: FaultyFiles) -> None:
        self.files = files
        self.runner = PassRunner(files)
        self.time = ManualTime(1_800_000_000_000)
        self.core = open_core(
            Settings(rocketmq=NO_ROCKETMQ),
            files,
            self.runner.passes,
            Clock(self.time, self.time),
            self.runner.offload,
            random.Random(1),
            Metrics(),
        )
        self.runner.settle()
        self.core.start()

    def create(self, name: str = "profiles") -> None:
        settings = {key: str(value) for key, value in SMALL.items()}
        self.core.broker.topics.create(SYSTEM, name, Layout.PARTITION_LOG, 1, settings)
        self.runner.settle()

    def stream(self, name: str = "profiles") -> Stream:
        return self.core.topics.get(TopicName("", name)).stream(0)

    def fill(self, name: str = "profiles") -> None:
        for number in range(60):
            topic = self.core.topics.get(TopicName("", name))
            record = Record(b"%d" % number * 20, key=b"%d" % (number % 3), timestamp_ms=self.time.now_ms())
            self.core.broker.partitions.append_records(SYSTEM, topic, topic.stream(0), [record])
            self.runner.settle()

    def begin_compacting(self) -> None:
        while not any(name.endswith(".cleaned") for name in self.names()):
            self.step()

    def step(self) -> None:
        """Runs pending work, or else the next timer."""
        if len(self.runner.offload) or not self.runner.passes.is_idle:
            self.runner.end_pass()
            self.runner.offload.run_one()
        else:
            self.time.step(self.time.now_ms() + 600_000)

    def names(self) -> list[str]:
        return self.files.names("partitions/profiles-0")

    def finish(self) -> None:
        until_ms = self.time.now_ms() + 600_000
        while self.time.now_ms() < until_ms and not self.runner.failures:
            self.step()

    def keys(self, name: str = "profiles") -> list[bytes | None]:
        return [record.key for record in self.stream(name).records(0, 1 << 20)]


@pytest.fixture
def stepped() -> SteppedBroker:
    broker = SteppedBroker(FaultyFiles(MemoryFiles()))
    broker.create()
    broker.fill()
    return broker


def test_compaction_ends_by_itself(stepped: SteppedBroker) -> None:
    stepped.begin_compacting()
    stepped.finish()
    assert len(stepped.keys()) < 20
    assert not [name for name in stepped.names() if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("steps", range(25))
def test_compaction_stops_when_its_topic_is_deleted_at_any_step(stepped: SteppedBroker, steps: int) -> None:
    stepped.begin_compacting()
    for _ in range(steps):
        stepped.step()
    stepped.core.topics.delete(stepped.core.topics.get(TopicName("", "profiles")))
    stepped.runner.settle()
    stepped.create()
    stepped.fill()
    names = stepped.names()
    for _ in range(20):
        stepped.runner.settle()
        stepped.time.step(stepped.time.now_ms())
    assert stepped.names() == names
    assert len(stepped.keys()) == 60
    assert stepped.runner.failures == []


def test_compaction_that_was_stopped_continues_after_the_next_start(stepped: SteppedBroker) -> None:
    stepped.begin_compacting()
    while not any(name.endswith(".swap") for name in stepped.names()):
        stepped.step()
    stepped.core.stop_writes()
    for _ in range(30):
        stepped.step()
    assert any(name.endswith(".swap") for name in stepped.names())
    stepped.core.close()
    stepped.runner.settle()
    again = SteppedBroker(stepped.files)
    assert not [name for name in again.names() if name.endswith((".cleaned", ".swap"))]
    assert set(again.keys()) == {b"0", b"1", b"2"}


def fail_on(operation: str, suffix: str) -> Callable[[str, str], None]:
    def before(found: str, name: str) -> None:
        if found == operation and name.endswith(suffix):
            raise OSError(errno.EIO, "disk error", name)

    return before


def test_a_failed_write_is_retried_in_the_next_round(stepped: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    stepped.files.before = fail_on("write", ".cleaned")
    stepped.finish()
    assert "compaction failed, will be retried" in caplog.text
    assert len(stepped.keys()) == 60
    stepped.files.before = lambda operation, name: None
    stepped.finish()
    assert len(stepped.keys()) < 20
    assert stepped.runner.failures == []


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("sync", ".cleaned"), ("sync_folder", "profiles-0"), ("remove", ".log"), ("rename", ".swap")],
)
def test_a_failed_sync_or_rename_stops_the_broker(stepped: SteppedBroker, operation: str, suffix: str) -> None:
    stepped.begin_compacting()
    stepped.files.before = fail_on(operation, suffix)
    stepped.finish()
    assert len(stepped.runner.failures) == 1
    stepped.files.before = lambda operation, name: None
    again = SteppedBroker(stepped.files)
    assert set(again.keys()) == {b"0", b"1", b"2"}


def test_a_disk_without_room_is_not_filled_by_compaction(
    stepped: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    full = SteppedBroker(FaultyFiles(MemoryFiles(total_bytes=(256 << 20) + 100_000)))
    full.create()
    full.fill()
    full.files.open("ballast", create=True).write(0, [bytes(100_000)])
    full.finish()
    assert "the disk has" in caplog.text
    assert len(full.keys()) == 60
