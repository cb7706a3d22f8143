"""Commands that wait for the creation of a topic."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import Desk

from trimq.core.commit_log.topics import CommitLogTopicDefinition
from trimq.model import SYSTEM
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.topic_creation import after_topic_creation


def test_a_command_that_stumbles_after_it_has_waited_ends_its_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    context = desk.broker.conversation._context
    topic, _ = context.commit_log.topics.create(SYSTEM, CommitLogTopicDefinition("", "new", 1, 1))

    def fail() -> Reply:
        raise ZeroDivisionError

    reply = after_topic_creation(context, topic, fail, lambda refusal: Reply.now(()))
    assert reply is not None
    assert not reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)
    assert desk.is_ready(reply)
    with pytest.raises(ZeroDivisionError):
        reply.take()  # the session would close the connection
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert desk.broker.send("new", b"alive").code == 0
