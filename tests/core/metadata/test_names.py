"""A name belongs to one layout, whichever it is and whatever happened to it since."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from core.core_bench import CoreBench

from trimq.config import Address, RocketMQ, Settings
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.topics import CommitLogTopicDefinition
from trimq.core.metadata.names import NameRegistry
from trimq.errors import OtherHome, UnknownTopic
from trimq.errors.queues import InvalidArgument
from trimq.model import SYSTEM, Caller, Layout, TopicName

SETTINGS = Settings(rocketmq=RocketMQ(broker_listen=Address("127.0.0.1", 0), commit_file_bytes=1 << 16))
OWNER = "connection"
NAME = TopicName("", "n")

PARTITION_LOG, COMMIT_LOG, QUEUE_LOG = Layout.PARTITION_LOG, Layout.COMMIT_LOG, Layout.QUEUE_LOG
PAIRS = list(permutations((PARTITION_LOG, COMMIT_LOG, QUEUE_LOG), 2))


# -- the registry alone


def test_a_name_that_no_layout_has_is_free() -> None:
    names = NameRegistry()
    assert names.find(NAME) is None
    names.add(QUEUE_LOG, set[TopicName]().__contains__)
    assert names.find(NAME) is None


def test_a_name_is_found_in_the_layout_that_has_it_now() -> None:
    names, queues, topics = NameRegistry(), set[TopicName](), set[TopicName]()
    names.add(QUEUE_LOG, queues.__contains__)
    names.add(COMMIT_LOG, topics.__contains__)
    topics.add(NAME)
    assert names.find(NAME) is COMMIT_LOG
    assert names.find(TopicName("other", NAME.name)) is None
    topics.remove(NAME)
    queues.add(NAME)
    assert names.find(NAME) is QUEUE_LOG


def test_a_layout_is_not_asked_about_its_own_names() -> None:
    names = NameRegistry()
    names.add(QUEUE_LOG, {NAME}.__contains__)
    assert names.find(NAME, other_than=QUEUE_LOG) is None
    assert names.find(NAME, other_than=COMMIT_LOG) is QUEUE_LOG


# -- the layouts


def commit_log_of(bench: CoreBench) -> CommitLogApi:
    assert bench.core.commit_log_service is not None
    return bench.core.commit_log_service.commit_log


def _create_topic(bench: CoreBench, name: str) -> None:
    bench.core.broker.topics.create(SYSTEM, name, PARTITION_LOG, 1, {})


def _create_commit_log_topic(bench: CoreBench, name: str) -> None:
    commit_log_of(bench).topics.create(SYSTEM, CommitLogTopicDefinition("", name, 1, 1))


def _declare_queue(bench: CoreBench, name: str, caller: Caller = SYSTEM) -> None:
    # With an argument that no topic meets: a topic answers a plain declaration of its name.
    bench.core.broker.queues.declare_queue(caller, name, True, False, False, {"x-max-length": 5}, OWNER)


CREATE: dict[Layout, Callable[[CoreBench, str], None]] = {
    PARTITION_LOG: _create_topic,
    COMMIT_LOG: _create_commit_log_topic,
    QUEUE_LOG: _declare_queue,
}


def delete(bench: CoreBench, layout: Layout, name: str) -> None:
    broker = bench.core.broker
    if layout is PARTITION_LOG:
        broker.topics.delete(SYSTEM, broker.topics.get(SYSTEM, name))
    elif layout is COMMIT_LOG:
        topics = commit_log_of(bench).topics
        topics.delete(SYSTEM, topics.get(SYSTEM, name))
    else:
        broker.queues.delete_queue(SYSTEM, name, False, False, OWNER)


def require_taken(bench: CoreBench, owner: Layout, other: Layout) -> None:
    """A topic also refuses, as a queue would, a declaration that it does not meet."""
    with pytest.raises((OtherHome, InvalidArgument)) as caught:
        CREATE[other](bench, "n")
    if isinstance(caught.value, OtherHome):
        assert (caught.value.topic, caught.value.home) == ("n", owner.value)
    else:
        assert other is QUEUE_LOG
        assert "not for a topic of another protocol" in str(caught.value)


@pytest.mark.parametrize(("owner", "other"), PAIRS)
@pytest.mark.parametrize("ends", ["settle", "restart", "kill", "crash"])
def test_a_name_of_one_layout_is_refused_by_the_others(owner: Layout, other: Layout, ends: str) -> None:
    bench = CoreBench(SETTINGS)
    CREATE[owner](bench, "n")
    require_taken(bench, owner, other)
    bench.settle()
    getattr(bench, ends)()
    require_taken(bench, owner, other)


@pytest.mark.parametrize(("owner", "other"), PAIRS)
@pytest.mark.parametrize("ends", ["settle", "restart", "crash"])
def test_the_name_of_what_is_deleted_is_free_for_the_others(owner: Layout, other: Layout, ends: str) -> None:
    bench = CoreBench(SETTINGS)
    CREATE[owner](bench, "n")
    bench.settle()
    delete(bench, owner, "n")
    bench.settle()
    getattr(bench, ends)()
    CREATE[other](bench, "n")
    require_taken(bench, other, owner)


@pytest.mark.parametrize(("owner", "other"), PAIRS)
def test_a_creation_that_cannot_be_written_leaves_the_name_free(owner: Layout, other: Layout) -> None:
    bench = CoreBench(SETTINGS)
    bench.fail_writes("catalogue")
    CREATE[owner](bench, "n")
    require_taken(bench, owner, other)
    bench.settle()
    bench.files.before = lambda operation, name: None
    CREATE[other](bench, "n")


@pytest.mark.parametrize("other", [PARTITION_LOG, QUEUE_LOG])
def test_a_commit_log_topic_keeps_its_name_until_its_deletion_is_on_disk(other: Layout) -> None:
    bench = CoreBench(SETTINGS)
    _create_commit_log_topic(bench, "n")
    bench.settle()
    delete(bench, COMMIT_LOG, "n")
    require_taken(bench, COMMIT_LOG, other)
    with pytest.raises(UnknownTopic):
        commit_log_of(bench).topics.get(SYSTEM, "n")
    bench.settle()
    CREATE[other](bench, "n")


@pytest.mark.parametrize("owner", [PARTITION_LOG, QUEUE_LOG])
def test_a_system_topic_does_not_take_a_name_of_another_layout(owner: Layout) -> None:
    bench = CoreBench(SETTINGS)
    CREATE[owner](bench, "n")
    with pytest.raises(OtherHome, match=owner.value):
        commit_log_of(bench).topics.prepare(CommitLogTopicDefinition("", "n", 1, 1))
    with pytest.raises(OtherHome, match=owner.value):
        commit_log_of(bench).topics.get(SYSTEM, "n")
    assert commit_log_of(bench).topics.find(SYSTEM, "n") is None


def test_a_name_of_one_namespace_is_free_in_another() -> None:
    bench = CoreBench(SETTINGS)
    _create_topic(bench, "n")
    _declare_queue(bench, "n", Caller("guest", "client", "", "amqp", "other"))


def test_without_a_commit_log_the_other_two_keep_their_names_apart() -> None:
    bench = CoreBench()
    assert bench.core.commit_log_service is None
    _create_topic(bench, "n")
    require_taken(bench, PARTITION_LOG, QUEUE_LOG)
    _declare_queue(bench, "q")
    with pytest.raises(OtherHome):
        _create_topic(bench, "q")
