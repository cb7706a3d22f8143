"""Checks of the target of a send. Each path of sending has its own tests that it uses them."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk

from trimq.core.commit_log.topics import READABLE, WRITABLE, CommitLogTopicDefinition
from trimq.core.security.access import Right
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.message_ttl import ATTRIBUTE
from trimq.protocols.rocketmq.handlers.send_target import (
    Obstacle,
    TargetCache,
    find_obstacle,
    queue_count,
    resolve_plain,
)
from trimq.protocols.rocketmq.state.system_topics import BROKER_ONLY_TOPICS


def sender_of(desk: Desk) -> Context:
    return desk.broker.conversation._context


def create(desk: Desk, name: str, reads: int = 4, writes: int = 4, **more: Any) -> Context:
    """Creates a durable topic. Returns the context of a sender."""
    sender = sender_of(desk)
    definition = CommitLogTopicDefinition(DEFAULT_NAMESPACE, name, reads, writes, **more)
    sender.commit_log.topics.create(sender.caller, definition)
    desk.let_pass(0)
    desk.runner.settle()
    return sender


def obstacle(sender: Context, name: str) -> Obstacle | None:
    return find_obstacle(name, sender.commit_log.topics.get(sender.caller, name).definition)


def test_a_plain_topic_has_no_obstacle() -> None:
    sender = create(Desk(), "t")
    assert obstacle(sender, "t") is None
    assert resolve_plain(sender, "t") is sender.commit_log.topics.get(sender.caller, "t")


def test_an_unknown_topic_is_no_target() -> None:
    assert resolve_plain(sender_of(Desk()), "t") is None


@pytest.mark.parametrize("name", sorted(BROKER_ONLY_TOPICS))
def test_topics_of_the_broker_take_nothing_of_producers(name: str) -> None:
    sender = sender_of(Desk())
    assert obstacle(sender, name) is Obstacle.BROKER_ONLY
    assert resolve_plain(sender, name) is None


@pytest.mark.parametrize(("writes", "permissions", "expected"), [
    (4, READABLE, Obstacle.NOT_WRITABLE),
    (0, READABLE | WRITABLE, Obstacle.NO_QUEUE),
    (0, READABLE, Obstacle.NOT_WRITABLE),
    (1, WRITABLE, None),
])  # fmt: skip
def test_the_definition_may_forbid_a_send(writes: int, permissions: int, expected: Obstacle | None) -> None:
    sender = create(Desk(), "t", writes=writes, permissions=permissions)
    assert obstacle(sender, "t") is expected
    assert (resolve_plain(sender, "t") is None) == (expected is not None)


@pytest.mark.parametrize(("reads", "writes"), [(4, 2), (2, 4)])
def test_producers_may_name_the_queues_that_are_read_or_written(reads: int, writes: int) -> None:
    assert queue_count(CommitLogTopicDefinition(DEFAULT_NAMESPACE, "t", reads, writes)) == 4


def test_retry_topics_and_default_ttls_are_not_plain() -> None:
    desk = Desk()
    create(desk, "%RETRY%g", 1, 1)
    sender = create(desk, "t", attributes={ATTRIBUTE: "1000"})
    for name in ("%RETRY%g", "t"):
        assert obstacle(sender, name) is None
        assert resolve_plain(sender, name) is None


def test_a_topic_that_is_not_yet_durable_is_not_plain() -> None:
    sender = sender_of(Desk())
    sender.commit_log.topics.create(sender.caller, CommitLogTopicDefinition(DEFAULT_NAMESPACE, "t", 4, 4))
    assert sender.commit_log.topics.get(sender.caller, "t").creation is not None
    assert resolve_plain(sender, "t") is None


def test_nothing_is_plain_where_duplicates_are_looked_for() -> None:
    sender = create(Desk(remembered_ids=10), "t")
    assert obstacle(sender, "t") is None
    assert resolve_plain(sender, "t") is None


def test_a_right_to_write_is_needed_and_one_to_know_of_the_topic() -> None:
    desk = Desk()
    sender = create(desk, "t")
    access = desk.core.broker._access
    access.define_user("somebody", "secret")
    before = sender.commit_log.topics.revision
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write="u", read=".*"))
    desk.runner.settle()
    assert sender.commit_log.topics.revision != before
    assert obstacle(sender, "t") is None
    assert resolve_plain(sender, "t") is None
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write="u", read="u"))
    desk.runner.settle()
    assert resolve_plain(sender, "t") is None


def test_a_cache_forgets_when_something_changed_or_it_holds_too_much() -> None:
    cache: TargetCache[str, int] = TargetCache(2)
    cache.refresh(7)
    cache.update(a=1, b=2)
    cache.refresh(7)
    assert cache == {"a": 1, "b": 2}
    cache["c"] = 3
    cache.refresh(7)
    assert not cache
    cache["a"] = 1
    cache.refresh(8)
    assert not cache
