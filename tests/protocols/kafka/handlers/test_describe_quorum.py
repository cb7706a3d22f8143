"""The metadata quorum of one node, as tools read it to find out what kind of broker this is."""

from __future__ import annotations

import pytest
from protocols.kafka.desk import NOW_MS, Desk

from trimq.protocols.kafka.messages.quorum import AskedPartition, AskedTopic, DescribeQuorumRequest
from trimq.protocols.kafka.names.codes import Code


def asked(name: str = "__cluster_metadata", *partitions: int) -> DescribeQuorumRequest:
    indexes = [AskedPartition(partition_index=index) for index in partitions or (0,)]
    return DescribeQuorumRequest(topics=[AskedTopic(topic_name=name, partitions=indexes)])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_this_node_is_the_leader_and_the_only_voter(version: int) -> None:
    desk = Desk()
    answer = desk.ask(asked(), version)
    assert answer.error_code == Code.NONE
    (topic,) = answer.topics
    (partition,) = topic.partitions
    me = desk.core.cluster.my_id
    assert (topic.topic_name, partition.partition_index, partition.error_code) == ("__cluster_metadata", 0, 0)
    assert (partition.leader_id, partition.observers) == (me, [])
    assert partition.leader_epoch >= 1
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (me, partition.high_watermark)
    if version >= 1:
        assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (NOW_MS, NOW_MS)
    if version >= 2:
        (node,) = answer.nodes
        (listener,) = node.listeners
        assert (node.node_id, listener.name, listener.host, listener.port) == (me, "CONTROLLER", "127.0.0.1", 9092)


@pytest.mark.parametrize(
    "request_", [asked("orders"), asked("__cluster_metadata", 1), asked("__cluster_metadata", 0, 1)]
)
def test_other_partitions_have_no_quorum(request_: DescribeQuorumRequest) -> None:
    answer = Desk().ask(request_, 2)
    assert answer.error_code == Code.NONE
    found = {(each.error_code, each.error_message) for topic in answer.topics for each in topic.partitions}
    assert found == {(Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")}
    assert answer.nodes == []
