"""The verbs on the commit log: each asks whether the caller may, and writers of a front-end start and stop with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core.core_bench import CoreBench

from trimq.config import Address, RocketMQ, Settings
from trimq.core.api.commit_log import CommitLogApi, CommitLogLifecycle
from trimq.core.api.commit_log_messages import OutgoingMessage
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.core.security.access import User
from trimq.errors import AccessDenied
from trimq.formats.rocketmq_unit.unit import UnitDraft
from trimq.model import SYSTEM, Caller

HOST = bytes(8)
SETTINGS = Settings(rocketmq=RocketMQ(broker_listen=Address("127.0.0.1", 0), commit_file_bytes=1 << 16))
STRANGER = Caller("stranger", "client", "", "rocketmq")
DRAFT = UnitDraft(b"t", 0, b"x", b"", 0, 0, 5, HOST)

Call = Callable[[CommitLogApi, CommitLogTopic], object]

REFUSED: dict[str, Call] = {
    "topics.get": lambda api, topic: api.topics.get(STRANGER, "t"),
    "topics.find": lambda api, topic: api.topics.find(STRANGER, "t"),
    "topics.create": lambda api, topic: api.topics.create(STRANGER, CommitLogTopicDefinition("", "u", 1, 1)),
    "topics.change": lambda api, topic: api.topics.change(STRANGER, topic, topic.definition),
    "topics.delete": lambda api, topic: api.topics.delete(STRANGER, topic),
    "messages.append": lambda api, topic: api.messages.append(STRANGER, topic, topic.stream(0), DRAFT, 0, HOST),
    "messages.append_all": lambda api, topic: api.messages.append_all(
        STRANGER, [OutgoingMessage(topic, topic.stream(0), DRAFT, 0)], HOST
    ),
    "messages.append_batch": lambda api, topic: api.messages.append_batch(
        STRANGER, [(topic, topic.stream(0), topic.stream(0).lane)], [], [], {}, HOST
    ),
    "messages.readable": lambda api, topic: api.messages.readable(STRANGER, topic, 0),
    "lookup.unit_at": lambda api, topic: api.lookup.unit_at(STRANGER, 0),
    "lookup.units_from": lambda api, topic: api.lookup.units_from(STRANGER, 0),
    "lookup.find_key": lambda api, topic: api.lookup.find_key(STRANGER, "t", "k", 0, 1),
    "lookup.search_key": lambda api, topic: api.lookup.search_key(STRANGER, "t", "k", 0, 1),
    "groups.define": lambda api, topic: api.groups.define(STRANGER, CommitLogGroup("g")),
    "groups.delete": lambda api, topic: api.groups.delete(STRANGER, "g", forgets_cursors=True),
    "groups.commit": lambda api, topic: api.groups.commit(STRANGER, "g", topic, 0, 1),
    "groups.cursor": lambda api, topic: api.groups.cursor(STRANGER, "g", topic, 0),
    "group_admin.describe": lambda api, topic: api.group_admin.describe(STRANGER, "g"),
    "group_admin.delete": lambda api, topic: api.group_admin.delete(STRANGER, "g"),
    "kv_config.put": lambda api, topic: api.kv_config.put(STRANGER, "n", "k", "text"),
    "kv_config.delete": lambda api, topic: api.kv_config.delete(STRANGER, "n", "k"),
    "admin.require_administrator": lambda api, topic: api.admin.require_administrator(STRANGER),
    "admin.expire": lambda api, topic: api.admin.expire(STRANGER, 0),
    "admin.set_retention": lambda api, topic: api.admin.set_retention(STRANGER, 1, "04"),
    "admin.drop_strays": lambda api, topic: api.admin.drop_strays(STRANGER),
}


def open_with_users() -> tuple[CommitLogApi, CommitLogTopic]:
    """A topic with a message, and a user: from now on callers need rights."""
    bench = CoreBench(SETTINGS)
    assert bench.core.commit_log_service is not None
    api = bench.core.commit_log_service.commit_log
    topic, _ = api.topics.create(SYSTEM, CommitLogTopicDefinition("", "t", 1, 1))
    api.messages.append(SYSTEM, topic, topic.stream(0), DRAFT, 0, HOST)
    bench.core.broker.users.restore(SYSTEM, [User("root", "", is_administrator=True)], [])
    bench.settle()
    return api, topic


@pytest.mark.parametrize("verb", REFUSED)
def test_a_verb_refuses_a_caller_without_the_right(verb: str) -> None:
    api, topic = open_with_users()
    with pytest.raises(AccessDenied):
        REFUSED[verb](api, topic)


def test_a_caller_without_rights_sees_no_topic_and_may_write_none() -> None:
    api, topic = open_with_users()
    assert api.topics.all(STRANGER) == []
    assert not api.messages.may_write(STRANGER, topic)
    assert api.topics.all(SYSTEM) == [topic]


def test_the_revision_changes_with_a_topic_and_with_a_right() -> None:
    bench = CoreBench(SETTINGS)
    assert bench.core.commit_log_service is not None
    topics = bench.core.commit_log_service.commit_log.topics
    seen = [topics.revision]
    topics.create(SYSTEM, CommitLogTopicDefinition("", "t", 1, 1))
    seen.append(topics.revision)
    bench.core.broker.users.restore(SYSTEM, [User("root", "", is_administrator=True)], [])
    seen.append(topics.revision)
    assert len(set(seen)) == 3


def test_listeners_of_the_life_cycle_are_called_in_order() -> None:
    lifecycle, calls = CommitLogLifecycle(), list[str]()
    for name in ("first", "second"):
        lifecycle.on_start(lambda name=name: calls.append(f"start {name}"))
        lifecycle.on_stop(lambda name=name: calls.append(f"stop {name}"))
    lifecycle.start()
    lifecycle.stop()
    assert calls == ["start first", "start second", "stop first", "stop second"]
