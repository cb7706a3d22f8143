"""Topics with many streams are created, grown and deleted over several loop turns; after a crash in between, the change
is complete or undone."""

from __future__ import annotations

import pytest
from core.core_bench import CoreBench

from trimq.core.partitions.topic import Topic
from trimq.core.partitions.topic_creation import STREAMS_PER_TURN
from trimq.errors import Busy, UnknownTopic
from trimq.model import Layout, TopicName
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.partition_log.store import ROOT

NAME = TopicName("", "many")
MANY = 4 * STREAMS_PER_TURN + 3


class PendingCreation:
    """The creation of a topic with many streams, in progress."""

    def __init__(self, bench: CoreBench, streams: int = MANY, **settings: str) -> None:
        self.bench = bench
        self.streams = streams
        self.settings = settings
        self.ticket: Ticket | None = None
        self.is_done = False
        bench.topics.prepare([(NAME, streams, settings)], self._create)

    def _create(self) -> None:
        self.is_done = True
        _, self.ticket = self.bench.topics.create(NAME, Layout.PARTITION_LOG, self.streams, self.settings)

    def finish(self) -> None:
        self.bench.settle()
        assert self.ticket is not None
        assert self.ticket.refusal is None


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


def folders(bench: CoreBench) -> list[str]:
    return [name for name in bench.files.names(ROOT) if name.startswith("many-")]


def test_the_streams_of_a_large_topic_are_opened_a_few_in_each_turn(bench: CoreBench) -> None:
    pending = PendingCreation(bench)
    counts = [len(folders(bench))]
    while not pending.is_done:
        bench.runner.end_pass()
        counts.append(len(folders(bench)))
        assert bench.topics.find(NAME) is None or pending.is_done, "a partly created topic is visible"
    assert counts == [*range(STREAMS_PER_TURN, MANY, STREAMS_PER_TURN), MANY]
    pending.finish()
    assert len(bench.topic("many").streams) == MANY
    bench.append(bench.topic("many").stream(MANY - 1), b"last")
    bench.crash()
    topic = bench.topic("many")
    assert [stream.end for stream in topic.streams] == [0] * (MANY - 1) + [1]


@pytest.mark.parametrize("steps", range(8))
def test_a_crash_during_creation_leaves_the_whole_topic_or_nothing(steps: int) -> None:
    bench = CoreBench()
    pending = PendingCreation(bench)
    for _ in range(steps):
        bench.step()
    is_acknowledged = pending.ticket is not None and bench.runner.passes.durable >= pending.ticket.number
    bench.crash()
    bench.settle()
    found = bench.topics.find(NAME)
    if found is None:
        assert not is_acknowledged
        assert folders(bench) == []
    else:
        assert len(found.streams) == len(folders(bench)) == MANY


def test_the_name_of_a_topic_in_creation_is_refused_as_busy(bench: CoreBench) -> None:
    pending = PendingCreation(bench)
    with pytest.raises(Busy, match="topic many is being created"):
        bench.begin_create("many", 1)
    bench.create("other")
    pending.finish()
    assert len(bench.topic("many").streams) == MANY


@pytest.mark.parametrize("streams", [7, MANY])
def test_preparing_a_topic_in_creation_waits_until_it_exists(bench: CoreBench, streams: int) -> None:
    pending = PendingCreation(bench)
    found: list[Topic | None] = []
    bench.topics.prepare([(NAME, streams, {})], lambda: found.append(bench.topics.find(NAME)))
    assert not found
    pending.finish()
    assert found == [bench.topic("many")]


def test_a_topic_whose_preparation_was_not_used_can_be_created(bench: CoreBench) -> None:
    bench.topics.prepare([(NAME, MANY, {})], lambda: None)
    pending = PendingCreation(bench)
    assert not pending.is_done
    pending.finish()
    assert len(bench.topic("many").streams) == MANY


def test_prepared_streams_that_are_not_used_are_removed(bench: CoreBench) -> None:
    called: list[bool] = []
    bench.topics.prepare([(NAME, MANY, {})], lambda: called.append(True))
    bench.settle()
    assert called == [True]
    assert folders(bench) == []
    bench.create("many", 2)
    assert len(folders(bench)) == 2


def test_a_disk_error_during_creation_refuses_the_topic_and_leaves_nothing(bench: CoreBench) -> None:
    failures: list[Exception] = []

    def create() -> None:
        try:
            bench.begin_create("many", MANY)
        except Exception as error:
            failures.append(error)

    bench.topics.prepare([(NAME, MANY, {})], create)
    bench.runner.end_pass()

    def refuse(operation: str, name: str) -> None:
        if operation in ("create", "make_folder"):
            raise OSError(28, "No space left on device", name)

    bench.files.before = refuse
    bench.settle()
    assert len(failures) == 1
    bench.mend()
    bench.settle()
    assert folders(bench) == []
    bench.create("many")


def test_a_topic_grows_by_a_few_streams_in_each_turn(bench: CoreBench) -> None:
    topic = bench.create("many", 2)
    bench.append(topic.stream(1), b"kept")
    tickets: list[Ticket] = []
    bench.topics.prepare_growth([(topic, MANY)], lambda: tickets.append(bench.topics.grow(topic, MANY)))
    assert len(topic.streams) == 2
    with pytest.raises(Busy, match="topic many is being grown"):
        bench.topics.grow(topic, 5)
    bench.topics.change_settings(topic, {"retention_ms": "77"})
    bench.settle()
    assert [ticket.refusal for ticket in tickets] == [None]
    assert {stream.log.settings.retention_ms for stream in topic.streams} == {77}
    bench.crash()
    topic = bench.topic("many")
    assert [stream.end for stream in topic.streams] == [0, 1, *[0] * (MANY - 2)]


def test_deleting_a_topic_while_it_grows_removes_its_new_streams_too(bench: CoreBench) -> None:
    topic = bench.create("many", 2)
    refused: list[type[Exception]] = []

    def grow() -> None:
        try:
            bench.topics.grow(topic, MANY)
        except UnknownTopic as refusal:
            refused.append(type(refusal))

    bench.topics.prepare_growth([(topic, MANY)], grow)
    bench.topics.delete(topic)
    bench.settle()
    assert refused == [UnknownTopic]
    assert folders(bench) == []
    bench.restart()
    assert bench.topics.find(NAME) is None


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 100])
def test_a_large_topic_is_deleted_over_several_turns_and_the_deletion_is_completed_after_a_crash(steps: int) -> None:
    bench = CoreBench()
    PendingCreation(bench).finish()
    bench.topics.delete(bench.topic("many"))
    for _ in range(steps):
        bench.step()
    if bench.runner.passes.is_idle or steps == 100:
        assert folders(bench) == []
    bench.kill()
    bench.settle()
    assert bench.topics.find(NAME) is None
    bench.restart()
    assert bench.files.names(ROOT) == []
