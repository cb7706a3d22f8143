"""Topics of the commit log: definitions, queues, and the state after a refused change or a crash."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from core.core_bench import CoreBench

from trimq.config import Address, RocketMQ, Settings
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.errors import (
    InvalidCount,
    InvalidName,
    MessageTooLong,
    NameTooLong,
    OtherHome,
    TopicExists,
    UnknownStream,
    UnknownTopic,
)
from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.unit import UnitDraft
from trimq.model import SYSTEM, Layout
from trimq.storage.tables.records import PUT, iterate_frames

HOST = pack_host("127.0.0.1", 1)
SETTINGS = Settings(
    rocketmq=RocketMQ(broker_listen=Address("127.0.0.1", 0), commit_file_bytes=1 << 16, message_bytes=1000)
)


def bench() -> CoreBench:
    return CoreBench(SETTINGS)


def commit_log_of(opened: CoreBench) -> CommitLogApi:
    assert opened.core.commit_log_service is not None
    return opened.core.commit_log_service.commit_log


def create(opened: CoreBench, name: str = "t", streams: int = 2) -> CommitLogTopic:
    topic, _ = commit_log_of(opened).topics.create(SYSTEM, CommitLogTopicDefinition("", name, streams, streams))
    opened.settle()
    return topic


def append(opened: CoreBench, topic: CommitLogTopic, body: bytes = b"x", number: int = 0) -> int:
    draft = UnitDraft(topic.raw_name, number, body, b"", 0, 0, 5, HOST)
    placed = commit_log_of(opened).messages.append(SYSTEM, topic, topic.stream(number), draft, 7, HOST)
    opened.settle()
    return placed.queue_offset


def bodies(opened: CoreBench, name: str = "t", number: int = 0) -> list[bytes | None]:
    topic = commit_log_of(opened).topics.get(SYSTEM, name)
    return [record.body for record in topic.stream(number).records(0)]


def test_without_a_rocketmq_listener_there_is_no_commit_log() -> None:
    opened = CoreBench()
    assert opened.core.commit_log_service is None
    assert opened.memory.names("store") == []


def test_units_are_read_as_neutral_records() -> None:
    opened = bench()
    topic = create(opened)
    assert [append(opened, topic, b"%d" % number) for number in range(3)] == [0, 1, 2]
    (first, *_) = topic.stream(0).records(0)
    assert (first.body, first.offset, first.timestamp_ms) == (b"0", 0, 5)
    assert [record.offset for record in topic.stream(0).records(1)] == [1, 2]
    assert list(topic.stream(1).records(0)) == []


def test_stored_messages_are_readable_after_the_rocketmq_listeners_are_turned_off() -> None:
    opened = bench()
    append(opened, create(opened), b"kept")
    opened.core.stop_writes()
    opened.core.close()
    opened.settle()
    opened.settings = Settings(
        rocketmq=RocketMQ(listen=None, broker_listen=None, grpc_listen=None, commit_file_bytes=1 << 16)
    )
    opened.open()
    assert bodies(opened) == [b"kept"]


@pytest.mark.parametrize("ends", ["restart", "kill", "crash"])
def test_topics_and_messages_survive_restart_kill_and_crash(ends: str) -> None:
    opened = bench()
    topic = create(opened)
    append(opened, topic, b"kept", 1)
    getattr(opened, ends)()
    assert bodies(opened, number=1) == [b"kept"]
    assert commit_log_of(opened).topics.get(SYSTEM, "t").id == topic.id


def test_names_are_unique_across_layouts() -> None:
    opened = bench()
    create(opened, "ours")
    opened.core.broker.topics.create(SYSTEM, "theirs", Layout.PARTITION_LOG, 1, {})
    with pytest.raises(OtherHome):
        create(opened, "theirs")
    with pytest.raises(OtherHome):
        commit_log_of(opened).topics.get(SYSTEM, "theirs")
    with pytest.raises(OtherHome):
        opened.core.broker.topics.create(SYSTEM, "ours", Layout.PARTITION_LOG, 1, {})
    with pytest.raises(TopicExists):
        create(opened, "ours")


@pytest.mark.parametrize(
    ("definition", "refusal"),
    [
        (CommitLogTopicDefinition("", "a.b", 1, 1), InvalidName),
        (CommitLogTopicDefinition("", "", 1, 1), InvalidName),
        (CommitLogTopicDefinition("", "t" * 256, 1, 1), NameTooLong),
        (CommitLogTopicDefinition("", "t", -1, 1), InvalidCount),
        (CommitLogTopicDefinition("", "t", 1, 10_001), InvalidCount),
    ],
)
def test_an_invalid_topic_definition_is_refused(definition: CommitLogTopicDefinition, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        commit_log_of(bench()).topics.create(SYSTEM, definition)


def test_an_unknown_queue_and_a_message_that_is_too_long_are_refused() -> None:
    opened = bench()
    topic = create(opened)
    for number in (-1, 2):
        with pytest.raises(UnknownStream):
            topic.stream(number)
    with pytest.raises(MessageTooLong):
        append(opened, topic, b"x" * 1001)
    with pytest.raises(UnknownTopic):
        commit_log_of(opened).topics.get(SYSTEM, "none")


def test_a_refused_creation_leaves_nothing() -> None:
    opened = bench()
    opened.fail_writes("tables/")
    _, ticket = commit_log_of(opened).topics.create(SYSTEM, CommitLogTopicDefinition("", "t", 1, 1))
    opened.settle()
    assert ticket.refusal is not None
    assert commit_log_of(opened).topics.find(SYSTEM, "t") is None
    opened.mend()
    create(opened)


def test_a_refused_deletion_leaves_everything() -> None:
    opened = bench()
    topic = create(opened)
    append(opened, topic, b"kept")
    opened.fail_writes("tables/")
    commit_log_of(opened).topics.delete(SYSTEM, topic)
    opened.settle()
    opened.mend()
    assert bodies(opened) == [b"kept"]
    opened.kill()
    assert bodies(opened) == [b"kept"]


@pytest.mark.parametrize("ends", ["restart", "kill", "crash"])
def test_a_deleted_topic_stays_deleted(ends: str) -> None:
    opened = bench()
    topic = create(opened)
    append(opened, topic, b"old")
    commit_log_of(opened).groups.commit(SYSTEM, "g", topic, 0, 1)
    commit_log_of(opened).topics.delete(SYSTEM, topic)
    opened.settle()
    getattr(opened, ends)()
    assert commit_log_of(opened).topics.find(SYSTEM, "t") is None
    again = create(opened)
    assert append(opened, again, b"new") == 0
    assert bodies(opened) == [b"new"]
    assert commit_log_of(opened).groups.cursor(SYSTEM, "g", again, 0) is None


def test_a_topic_that_the_broker_needs_is_created_once_and_grows() -> None:
    opened = bench()
    commit_log = commit_log_of(opened)
    for count in (2, 2, 5, 3):
        commit_log.topics.prepare(CommitLogTopicDefinition("", "own", count, count))
    opened.settle()
    assert commit_log.topics.get(SYSTEM, "own").definition.read_streams == 5


def test_a_change_takes_effect_at_once_and_is_stored() -> None:
    opened = bench()
    topic = create(opened)
    changed = msgspec.structs.replace(topic.definition, read_streams=5, is_ordered=True)
    commit_log_of(opened).topics.change(SYSTEM, topic, changed)
    assert len(topic.streams()) == 5
    opened.settle()
    opened.kill()
    assert commit_log_of(opened).topics.get(SYSTEM, "t").definition == changed


def test_old_messages_are_deleted_by_retention() -> None:
    opened = bench()
    topic = create(opened)
    for _ in range(200):
        append(opened, topic, b"x" * 900)
    opened.restart()
    topic = commit_log_of(opened).topics.get(SYSTEM, "t")
    assert topic.stream(0).start == 0
    opened.advance((72 + 24) * 3_600_000)  # every day has an hour in which files are deleted
    assert topic.stream(0).start > 0
    assert topic.stream(0).end == 200


def test_topic_ids_are_those_of_the_catalogue() -> None:
    assert isinstance(create(bench()).id, UUID)


def test_a_topic_whose_definition_is_lost_is_defined_again(caplog: pytest.LogCaptureFixture) -> None:
    opened = bench()
    create(opened, "kept", 1)
    commit_log_of(opened).config.finish_import()
    opened.settle()
    lost = create(opened, "lost", 3)
    append(opened, lost, b"message", 2)
    file = opened.memory.open("tables/catalogue.0.log")
    last = next(frame for frame in reversed(list(iterate_frames(file.read(0, file.size())))) if frame.payload[1] == PUT)
    file.resize(last.end - 1)
    opened.kill()
    opened.settle()
    assert bodies(opened, "lost", 2) == [b"message"]
    assert "topic lost: definition lost in a crash, defined again with 3 queues" in caplog.text
    opened.restart()
    assert bodies(opened, "lost", 2) == [b"message"]
