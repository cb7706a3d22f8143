"""Metadata of all topics, made over several turns of the event loop."""

from __future__ import annotations

import pytest
from protocols.kafka.desk import Desk

from trimq.model import SYSTEM, Layout
from trimq.protocols.kafka.messages.metadata import MetadataRequest
from trimq.protocols.kafka.wire.apis import APIS

TOPICS = 250


def desk_with_topics() -> Desk:
    desk = Desk(limits={"topics": 10_000})
    for number in range(TOPICS):
        desk.core.broker.topics.create(SYSTEM, f"t{number}", Layout.PARTITION_LOG, 1, {})
    desk.core.broker.topics.create(SYSTEM, "wide", Layout.PARTITION_LOG, 1200, {})
    desk.runner.settle()
    return desk


@pytest.fixture(scope="module")
def desk() -> Desk:
    return desk_with_topics()


@pytest.mark.parametrize("version", range(APIS[MetadataRequest.API_KEY].max_version + 1))
def test_all_topics_are_listed_over_several_turns(desk: Desk, version: int) -> None:
    message = MetadataRequest(topics=[] if version == 0 else None)
    message.include_cluster_authorized_operations = 8 <= version <= 10
    reply = desk.begin(message, version)
    assert reply is not None
    assert not reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)
    desk.let_pass(0)
    answer = desk.read_answer(reply, message, version)
    assert sorted(topic.name for topic in answer.topics) == sorted(
        ["wide", *(f"t{number}" for number in range(TOPICS))]
    )
    assert {len(topic.partitions) for topic in answer.topics} == {1, 1200}
    assert [broker.port for broker in answer.brokers] == [9092]
    assert (answer.cluster_authorized_operations > 0) == (8 <= version <= 10)


def test_a_topic_that_is_deleted_meanwhile_is_left_out() -> None:
    desk = desk_with_topics()
    message = MetadataRequest(topics=None)
    version = APIS[MetadataRequest.API_KEY].max_version
    reply = desk.begin(message, version)
    assert reply is not None
    desk.core.broker.topics.delete(SYSTEM, desk.core.broker.topics.get(SYSTEM, "wide"))
    desk.runner.settle()
    desk.let_pass(0)
    answer = desk.read_answer(reply, message, version)
    assert "wide" not in {topic.name for topic in answer.topics}
    assert len(answer.topics) == TOPICS
