"""Creation, growth, change and deletion of topics; a change refused by a failing pass or lost in a crash leaves no
trace."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from core.core_bench import AnyChanges, CoreBench
from doubles import PowerCut, TornTails
from storage.kafka_folders import DATA, FOLDERS

from trimq.core.partitions.topics import Topic
from trimq.errors import (
    Busy,
    Damage,
    InvalidCount,
    InvalidName,
    InvalidSetting,
    NameTooLong,
    OtherHome,
    TopicExists,
    UnknownStream,
    UnknownTopic,
    WriteFailed,
)
from trimq.formats.kafka_batch.header import walk
from trimq.formats.kafka_batch.records import iterate_records
from trimq.model import Layout, TopicName
from trimq.storage.io.memory_files import MemoryFiles, Survivors
from trimq.storage.partition_log.store import ROOT

SURVIVORS: dict[str, Callable[[], Survivors | None]] = {
    "nothing": lambda: None,
    "names": lambda: TornTails(0, keeps_names=True),
    "some bytes": lambda: TornTails(60, keeps_names=False),
    "everything": lambda: TornTails(100, keeps_names=True),
    "any, 0": lambda: AnyChanges(0),
    "any, 1": lambda: AnyChanges(1),
}
each_survivor = pytest.mark.parametrize("survivors", SURVIVORS.values(), ids=SURVIVORS)


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


# -- lookup


def test_a_topic_is_found_by_its_name_and_its_id(bench: CoreBench) -> None:
    topic = bench.create("orders", 3, retention_ms="1000")
    assert bench.topic("orders") is topic
    assert bench.topics.by_id(topic.id) is topic
    assert bench.topics.find(TopicName("", "none")) is None
    assert len(topic.streams) == 3
    assert topic.streams[2].log.settings.retention_ms == 1000
    assert topic.stream(1).id.number == 1


def test_an_unknown_topic_or_stream_is_refused(bench: CoreBench) -> None:
    topic = bench.create("orders", 2)
    with pytest.raises(UnknownTopic):
        bench.topic("other")
    with pytest.raises(UnknownTopic):
        bench.topics.by_id(type(topic.id)(int=1))
    for index in (-1, 2):
        with pytest.raises(UnknownStream):
            topic.stream(index)
    with pytest.raises(OtherHome):
        bench.topics.get(topic.name, Layout.QUEUE_LOG)


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("", InvalidName),
        (".", InvalidName),
        ("..", InvalidName),
        ("a/b", InvalidName),
        ("a b", InvalidName),
        ("ü", InvalidName),
        ("x" * 250, NameTooLong),
    ],
)
def test_a_name_that_cannot_be_a_folder_is_refused(bench: CoreBench, name: str, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        bench.begin_create(name)


def test_another_namespace_is_refused_for_its_folders_would_be_shared(bench: CoreBench) -> None:
    with pytest.raises(InvalidName, match="namespace"):
        bench.topics.create(TopicName("other", "orders"), Layout.PARTITION_LOG, 1, {})


def test_counts_and_settings_are_checked_before_anything_is_created(bench: CoreBench) -> None:
    for streams in (0, -1, 10**6):
        with pytest.raises(InvalidCount):
            bench.begin_create("orders", streams)
    with pytest.raises(InvalidSetting):
        bench.begin_create("orders", 1, nonsense="1")
    bench.create("orders", 2)
    with pytest.raises(TopicExists):
        bench.begin_create("orders")
    for streams in (1, 2, 10**6):
        with pytest.raises(InvalidCount):
            bench.topics.grow(bench.topic("orders"), streams)
    bench.settle()
    assert bench.folders() == ["orders-0", "orders-1"]


# -- changes that are stored


def test_all_changes_survive_a_restart(bench: CoreBench) -> None:
    topic = bench.create("orders", 2)
    bench.append(topic.stream(0), b"before")
    bench.topics.grow(topic, 4)
    bench.topics.change_settings(topic, {"retention_ms": "5"})
    bench.settle()
    bench.append(topic.stream(3), b"new")
    for again in (bench.crash, bench.kill, bench.restart):
        again()
        found = bench.topic("orders")
        assert found.id == topic.id
        assert found.settings == {"retention_ms": "5"}
        assert [stream.log.settings.retention_ms for stream in found.streams] == [5] * 4
        assert bench.bodies("orders", 0) == [b"before"]
        assert bench.bodies("orders", 3) == [b"new"]


def test_a_deleted_topic_stays_deleted_after_a_restart(bench: CoreBench) -> None:
    topic = bench.create("orders", 2)
    bench.append(topic.stream(0), b"x")
    ticket = bench.topics.delete(topic)
    assert bench.names() == []
    with pytest.raises(UnknownTopic):
        bench.topics.by_id(topic.id)
    bench.settle()
    assert ticket.refusal is None
    assert bench.memory.names(ROOT) == []
    for again in (bench.crash, bench.kill, bench.restart):
        again()
        assert bench.names() == []
        assert bench.memory.names(ROOT) == []


def test_the_name_of_a_deleted_topic_is_free_again(bench: CoreBench) -> None:
    old = bench.create("orders", 2)
    bench.append(old.stream(0), b"old")
    bench.topics.delete(old)
    with pytest.raises(Busy):
        bench.begin_create("orders")
    bench.settle()
    new = bench.create("orders", 1)
    assert new.id != old.id
    assert bench.bodies("orders") == []
    assert bench.append(new.stream(0), b"new") == 0
    for again in (bench.crash, bench.kill, bench.restart):
        again()
        assert bench.topic("orders").id == new.id
        assert bench.bodies("orders") == [b"new"]


def test_operations_on_a_deleted_topic_are_refused(bench: CoreBench) -> None:
    topic = bench.create("orders")
    bench.topics.delete(topic)
    change: Callable[[], object]
    for change in (
        lambda: bench.topics.delete(topic),
        lambda: bench.topics.grow(topic, 3),
        lambda: bench.topics.change_settings(topic, {}),
    ):
        with pytest.raises(UnknownTopic):
            change()
    bench.settle()
    with pytest.raises(UnknownTopic):
        bench.append(topic.stream(0), b"x")
    bench.settle()
    assert bench.memory.names(ROOT) == []


def test_listeners_are_notified_of_deleted_topics(bench: CoreBench) -> None:
    deleted: list[object] = []
    bench.topics.on_deleted(deleted.append)
    topic = bench.create("orders")
    bench.topics.delete(topic)
    assert deleted == []
    bench.settle()
    assert deleted == [topic.id]


# -- changes that are refused


def everything(bench: CoreBench) -> dict[str, object]:
    return {
        topic.name.name: (topic.id, len(topic.streams), dict(topic.settings), [s.log.settings for s in topic.streams])
        for topic in bench.topics
    }


CHANGES: dict[str, Callable[[CoreBench], list[object]]] = {
    "create": lambda bench: [bench.begin_create("new", 3)[1]],
    "grow": lambda bench: [bench.topics.grow(bench.topic("orders"), 5)],
    "grow twice": lambda bench: [bench.topics.grow(bench.topic("orders"), count) for count in (4, 5)],
    "change": lambda bench: [bench.topics.change_settings(bench.topic("orders"), {"retention_ms": "7"})],
    "change twice": lambda bench: [
        bench.topics.change_settings(bench.topic("orders"), {"retention_ms": time}) for time in ("7", "8")
    ],
    "delete": lambda bench: [bench.topics.delete(bench.topic("orders"))],
    "change, then delete": lambda bench: [
        bench.topics.change_settings(bench.topic("orders"), {"retention_ms": "7"}),
        bench.topics.delete(bench.topic("orders")),
    ],
    "create, grow and change": lambda bench: [
        bench.begin_create("new", 1)[1],
        bench.topics.grow(bench.topic("new"), 3),
        bench.topics.change_settings(bench.topic("new"), {"retention_ms": "7"}),
    ],
    "create, then delete": lambda bench: [bench.begin_create("new")[1], bench.topics.delete(bench.topic("new"))],
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_failing_pass_are_undone_exactly(change: str, bench: CoreBench) -> None:
    topic = bench.create("orders", 2, segment_ms="1000")
    bench.append(topic.stream(0), b"kept")
    before = everything(bench)
    bench.fail_writes("tables/catalogue")
    tickets = CHANGES[change](bench)
    assert everything(bench) != before or change == "create, then delete"
    bench.runner.end_pass()
    assert everything(bench) == before, "not undone before the pass was reported"
    bench.settle()
    assert all(isinstance(ticket.refusal, WriteFailed) for ticket in tickets)  # type: ignore[attr-defined]
    assert everything(bench) == before
    assert bench.folders() == ["orders-0", "orders-1"]
    bench.mend()
    bench.append(bench.topic("orders").stream(1), b"goes on")
    bench.crash()
    assert everything(bench) == before
    assert bench.bodies("orders", 0) == [b"kept"]
    CHANGES[change](bench)
    bench.settle()
    after = everything(bench)
    bench.crash()
    assert everything(bench) == after


@pytest.mark.parametrize("operation", ["make_folder", "create"])
@pytest.mark.parametrize("change", ["create", "grow"])
def test_streams_that_cannot_be_created_leave_nothing_behind(change: str, operation: str, bench: CoreBench) -> None:
    bench.create("orders", 2)
    before = everything(bench)
    made = 0

    def refuse(asked: str, name: str) -> None:
        nonlocal made
        if asked == operation and name.startswith(ROOT):
            made += 1
            if made == 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    bench.files.before = refuse
    with pytest.raises(WriteFailed):
        CHANGES[change](bench)
    bench.mend()
    bench.settle()
    assert everything(bench) == before
    assert bench.folders() == ["orders-0", "orders-1"]
    bench.kill()
    assert everything(bench) == before


# -- crashes


def cut_at(bench: CoreBench, operations: int, action: Callable[[], object]) -> bool:
    """Runs an action while the power fails at the n-th operation. Returns False if the action needs fewer
    operations."""
    left = operations

    def count(operation: str, name: str) -> None:
        nonlocal left
        if left == 0:
            raise PowerCut(operation, name)
        left -= 1

    bench.files.before = count
    try:
        action()
    except PowerCut:
        return True
    finally:
        bench.mend()
    return False


def acknowledged(bench: CoreBench, ticket: object) -> bool:
    return ticket is not None and bench.runner.passes.durable >= ticket.number and ticket.refusal is None  # type: ignore[attr-defined]


@each_survivor
def test_a_crash_at_any_moment_of_a_creation(survivors: Callable[[], Survivors | None]) -> None:
    for operations in range(200):
        bench = CoreBench()
        ticket = None

        def create(bench: CoreBench = bench) -> None:
            nonlocal ticket
            topic, ticket = bench.begin_create("orders", 2)
            bench.settle()
            bench.append(topic.stream(1), b"acknowledged")

        was_truncated = cut_at(bench, operations, create)
        was_acknowledged = acknowledged(bench, ticket)
        bench.memory.crash(survivors())
        bench.open()
        assert bench.names() in ([["orders"]] if was_acknowledged else [[], ["orders"]])
        if bench.names():
            assert len(bench.topic("orders").streams) == 2
            assert bench.bodies("orders", 1) in ([], [b"acknowledged"])
        if not was_truncated:
            assert bench.bodies("orders", 1) == [b"acknowledged"]
            assert operations > 10
            return
        if not bench.names():
            assert bench.bodies(bench.create("orders", 1).name.name) == []
    pytest.fail("the operation did not end")


@each_survivor
def test_a_crash_at_any_moment_of_a_deletion_and_a_new_creation(survivors: Callable[[], Survivors | None]) -> None:
    for operations in range(200):
        bench = CoreBench()
        old = bench.create("orders", 2)
        for number in range(5):
            bench.append(old.stream(0), b"old %d" % number)
        old.stream(0).log.checkpoint()
        bench.settle()
        deleted = created = None

        def replace(bench: CoreBench = bench, old: Topic = old) -> None:
            nonlocal deleted, created
            deleted = bench.topics.delete(old)
            bench.settle()
            topic, created = bench.begin_create("orders", 1)
            bench.settle()
            bench.append(topic.stream(0), b"new")

        was_truncated = cut_at(bench, operations, replace)
        was_deleted, was_created = acknowledged(bench, deleted), acknowledged(bench, created)
        bench.memory.crash(survivors())
        bench.open()
        if bench.names() == ["orders"] and bench.topic("orders").id == old.id:
            assert not was_deleted, "a deleted topic exists again"
            assert bench.bodies("orders") == [b"old %d" % number for number in range(5)]
        elif bench.names():
            assert bench.bodies("orders") in ([], [b"new"])
        else:
            assert not was_created, "a topic is lost"
        if not was_truncated:
            assert bench.bodies("orders") == [b"new"]
            assert operations > 20
            return
        bench.restart()
    pytest.fail("the operation did not end")


@each_survivor
def test_a_crash_at_any_moment_of_growing_a_topic(survivors: Callable[[], Survivors | None]) -> None:
    for operations in range(200):
        bench = CoreBench()
        topic = bench.create("orders", 1)
        bench.append(topic.stream(0), b"kept")
        ticket = None

        def grow(bench: CoreBench = bench, topic: Topic = topic) -> None:
            nonlocal ticket
            ticket = bench.topics.grow(topic, 3)
            bench.settle()
            bench.append(topic.stream(2), b"new")

        was_truncated = cut_at(bench, operations, grow)
        was_acknowledged = acknowledged(bench, ticket)
        bench.memory.crash(survivors())
        bench.open()
        count = len(bench.topic("orders").streams)
        assert count == 3 if was_acknowledged else count in (1, 3)
        assert bench.bodies("orders") == [b"kept"]
        if not was_truncated:
            assert bench.bodies("orders", 2) == [b"new"]
            return
        if count == 1:
            bench.topics.grow(bench.topic("orders"), 3)
            bench.settle()
            assert bench.bodies("orders", 2) == []
    pytest.fail("the operation did not end")


# -- folders written by Kafka


def with_folders(*sources: Path, rename: Callable[[str], str] = lambda name: name) -> MemoryFiles:
    memory = MemoryFiles()
    for source in sources:
        folder = f"{ROOT}/{rename(source.name)}"
        memory.make_folder(folder)
        for path in source.iterdir():
            memory.open(f"{folder}/{path.name}", create=True).write(0, [path.read_bytes()])
    memory.sync_all()
    return memory


def records_of(kafka: Path) -> list[tuple[int, bytes | None]]:
    found = []
    for path in sorted(kafka.glob("*.log")):
        data = path.read_bytes()
        for position, header in walk(data, 0, len(data)):
            if not header.is_control:
                found += [(record.offset, record.value) for record in iterate_records(data, position)]
    return found


def test_kafkas_folders_are_adopted_with_every_record_and_kept() -> None:
    bench = CoreBench(memory=with_folders(*FOLDERS))
    for again in (lambda: None, bench.kill, bench.restart, bench.crash):
        again()
        assert bench.names() == [folder.name.removesuffix("-0") for folder in FOLDERS]
        for folder in FOLDERS:
            topic = bench.topic(folder.name.removesuffix("-0"))
            stream = topic.stream(0)
            read = [(record.offset, record.body) for record in stream.records(stream.start, 1 << 24)]
            assert read == records_of(folder)
    orders = bench.topic("orders")
    end = orders.stream(0).end
    assert bench.append(orders.stream(0), b"ours") == end
    bench.crash()
    assert bench.bodies("orders")[-1] == b"ours"


@each_survivor
def test_a_crash_at_any_moment_of_an_adoption_loses_nothing(survivors: Callable[[], Survivors | None]) -> None:
    for operations in range(0, 400, 3):
        bench = CoreBench()
        bench.memory = with_folders(DATA / "profiles-0", DATA / "payments-0")
        left = operations

        def count(operation: str, name: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerCut(operation, name)
            left -= 1

        was_truncated = open_with(bench, count)
        bench.memory.crash(survivors())
        bench.open()
        for name in ("profiles", "payments"):
            stream = bench.topic(name).stream(0)
            read = [(record.offset, record.body) for record in stream.records(stream.start, 1 << 24)]
            assert read == records_of(DATA / f"{name}-0")
        if not was_truncated:
            return
    pytest.fail("the operation did not end")


def open_with(bench: CoreBench, before: Callable[[str, str], None]) -> bool:
    """Returns whether the power failed while the core was opened."""
    try:
        bench.open(before)
    except PowerCut:
        return True
    return False


def test_a_copied_folder_gets_an_id_of_its_own() -> None:
    memory = with_folders(DATA / "orders-0")
    copied = with_folders(DATA / "orders-0", rename=lambda name: "copy-0")
    for name in copied.names(f"{ROOT}/copy-0"):
        memory.make_folder(f"{ROOT}/copy-0")
        file = copied.open(f"{ROOT}/copy-0/{name}")
        memory.open(f"{ROOT}/copy-0/{name}", create=True).write(0, [file.read(0, file.size())])
    memory.sync_all()
    bench = CoreBench(memory=memory)
    assert bench.names() == ["copy", "orders"]
    assert bench.topic("copy").id != bench.topic("orders").id
    bench.crash()
    assert bench.names() == ["copy", "orders"]
    assert len(bench.bodies("copy")) == len(bench.bodies("orders")) == len(records_of(DATA / "orders-0"))


def test_missing_partitions_of_an_adopted_topic_are_created() -> None:
    bench = CoreBench(memory=with_folders(DATA / "orders-0", rename=lambda name: "orders-2"))
    assert len(bench.topic("orders").streams) == 3
    assert len(bench.bodies("orders", 2)) == len(records_of(DATA / "orders-0"))
    assert bench.append(bench.topic("orders").stream(0), b"x") == 0
    bench.crash()
    assert bench.bodies("orders", 0) == [b"x"]


@pytest.mark.parametrize("name", ["bad name-0", "backup-20240101", "x-99999999", "notes"])
def test_a_folder_that_cannot_be_a_topic_is_left_alone(name: str) -> None:
    memory = with_folders(DATA / "orders-0", rename=lambda _: name)
    bench = CoreBench(memory=memory)
    assert bench.names() == []
    assert memory.names(ROOT) == [name]


def test_a_damaged_folder_is_reported_and_not_adopted() -> None:
    memory = with_folders(DATA / "orders-0")
    file = memory.open(f"{ROOT}/orders-0/{0:020d}.log")
    file.write(200, [b"\xff"])
    sizes = {name: memory.open(f"{ROOT}/orders-0/{name}").size() for name in memory.names(f"{ROOT}/orders-0")}
    with pytest.raises(Damage, match="orders-0"):
        CoreBench(memory=memory)
    assert {name: memory.open(f"{ROOT}/orders-0/{name}").size() for name in sizes} == sizes
