"""Messages about the metadata quorum: DescribeQuorum. Schemas only, derived from the message definitions of Apache
Kafka 4.3.1 (see NOTICE)."""

from __future__ import annotations

from trimq.protocols.kafka.messages.schema import (
    RequestMessage,
    ResponseMessage,
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    uint16,
    uuid,
)


class AskedPartition(Struct):
    partition_index: int = int32()


class AskedTopic(Struct):
    topic_name: str = string()
    partitions: list[AskedPartition] = array(AskedPartition)


class DescribeQuorumRequest(RequestMessage, api_key=55):
    topics: list[AskedTopic] = array(AskedTopic)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class QuorumPartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string("2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class QuorumTopic(Struct):
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


class QuorumListener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class QuorumNode(Struct):
    node_id: int = int32("2+")
    listeners: list[QuorumListener] = array(QuorumListener, "2+")


class DescribeQuorumResponse(ResponseMessage, api_key=55):
    error_code: int = int16()
    error_message: str | None = nullable_string("2+")
    topics: list[QuorumTopic] = array(QuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, "2+")
