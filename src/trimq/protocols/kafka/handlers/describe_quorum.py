"""DescribeQuorum, versions 0 to 2: describes the metadata quorum as a broker that is its own controller does: this node
is the leader and the only voter.

The metadata is no log here. Its end offset counts half seconds, as the records do that an idle controller of Kafka
writes.
"""

from __future__ import annotations

from trimq.core.security.access import BROKER, Action
from trimq.errors import AccessDenied
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.connection import Request, encode_response

_METADATA = ("__cluster_metadata", 0)
_RECORD_EVERY_MS = 500
_LEADER_EPOCH = 1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeQuorumRequest)
    try:
        context.broker.require(context.caller, Action.DESCRIBE, BROKER)
    except AccessDenied:
        response = DescribeQuorumResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
        return Reply.now(encode_response(request, response))
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in message.topics]
    is_known = asked == [(_METADATA[0], [_METADATA[1]])]
    topics = [
        QuorumTopic(
            topic_name=name,
            partitions=[_describe(context, index) if is_known else _unknown(index) for index in partitions],
        )
        for name, partitions in asked
    ]
    nodes = [_node(context)] if is_known else []
    return Reply.now(encode_response(request, DescribeQuorumResponse(topics=topics, nodes=nodes)))


def _describe(context: Context, index: int) -> QuorumPartition:
    now_ms = context.clock.message.now_ms()
    me, end = context.broker.cluster.my_id, now_ms // _RECORD_EVERY_MS
    voter = ReplicaState(
        replica_id=me, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    return QuorumPartition(
        partition_index=index, leader_id=me, leader_epoch=_LEADER_EPOCH, high_watermark=end, current_voters=[voter]
    )


def _unknown(index: int) -> QuorumPartition:
    return QuorumPartition(
        partition_index=index,
        error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",  # Kafka's words
    )


def _node(context: Context) -> QuorumNode:
    me = context.broker.cluster.me
    address = me.addresses.get("kafka")
    listeners = [] if address is None else [QuorumListener(name="CONTROLLER", host=address.host, port=address.port)]
    return QuorumNode(node_id=me.id, listeners=listeners)


HANDLERS = {"DescribeQuorum": handle}
