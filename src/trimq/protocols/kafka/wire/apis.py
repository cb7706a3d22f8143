"""Table of the APIs and versions that the codec knows. Knows no handlers; imports the schemas of an API's messages on
first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple, cast

from trimq.errors import ProtocolError
from trimq.protocols.kafka.messages.schema import RequestMessage, ResponseMessage

NEVER_FLEXIBLE = 32767
API_VERSIONS = 18


class Api(NamedTuple):
    """One row of the table. Versions from `flexible_from` on have compact lengths, tagged fields and the newer headers.
    `family` is the module of `messages` with the schemas."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    family: str


class UnsupportedRequest(ProtocolError):
    """The API or its version is not served. As in Apache Kafka the connection is closed, except for ApiVersions."""

    def __init__(self, api_key: int, api_version: int) -> None:
        api = APIS.get(api_key)
        if api is None:
            super().__init__(f"API key {api_key} is unknown")
        else:
            versions = f"{api.min_version} to {api.max_version}"
            super().__init__(f"{api.name} version {api_version} is not served, only {versions}")
        self.api_key = api_key
        self.api_version = api_version


ROWS = (
    Api(0, "Produce", 3, 13, 9, "produce"),
    Api(1, "Fetch", 4, 18, 12, "fetch"),
    Api(2, "ListOffsets", 1, 11, 6, "logs"),
    Api(3, "Metadata", 0, 13, 9, "metadata"),
    Api(8, "OffsetCommit", 2, 10, 8, "group_offsets"),
    Api(9, "OffsetFetch", 1, 10, 6, "group_offsets"),
    Api(10, "FindCoordinator", 0, 6, 3, "classic_groups"),
    Api(11, "JoinGroup", 0, 9, 6, "classic_groups"),
    Api(12, "Heartbeat", 0, 4, 4, "classic_groups"),
    Api(13, "LeaveGroup", 0, 5, 4, "classic_groups"),
    Api(14, "SyncGroup", 0, 5, 4, "classic_groups"),
    Api(15, "DescribeGroups", 0, 6, 5, "classic_groups"),
    Api(16, "ListGroups", 0, 5, 3, "classic_groups"),
    Api(17, "SaslHandshake", 0, 1, NEVER_FLEXIBLE, "handshakes"),
    Api(18, "ApiVersions", 0, 4, 3, "handshakes"),
    Api(19, "CreateTopics", 2, 7, 5, "topics"),
    Api(20, "DeleteTopics", 1, 6, 4, "topics"),
    Api(21, "DeleteRecords", 0, 2, 2, "logs"),
    Api(22, "InitProducerId", 0, 5, 2, "transactions"),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4, "logs"),
    Api(24, "AddPartitionsToTxn", 0, 3, 3, "transactions"),
    Api(25, "AddOffsetsToTxn", 0, 4, 3, "transactions"),
    Api(26, "EndTxn", 0, 5, 3, "transactions"),
    Api(27, "WriteTxnMarkers", 1, 1, 1, "transactions"),
    Api(28, "TxnOffsetCommit", 0, 5, 3, "transactions"),
    Api(29, "DescribeAcls", 1, 3, 2, "acls"),
    Api(30, "CreateAcls", 1, 3, 2, "acls"),
    Api(31, "DeleteAcls", 1, 3, 2, "acls"),
    Api(32, "DescribeConfigs", 1, 4, 4, "configs"),
    Api(33, "AlterConfigs", 0, 2, 2, "configs"),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2, "logs"),
    Api(35, "DescribeLogDirs", 1, 5, 2, "logs"),
    Api(36, "SaslAuthenticate", 0, 2, 2, "handshakes"),
    Api(37, "CreatePartitions", 0, 3, 2, "topics"),
    Api(42, "DeleteGroups", 0, 2, 2, "classic_groups"),
    Api(43, "ElectLeaders", 0, 2, 2, "replicas"),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1, "configs"),
    Api(45, "AlterPartitionReassignments", 0, 1, 0, "replicas"),
    Api(46, "ListPartitionReassignments", 0, 0, 0, "replicas"),
    Api(47, "OffsetDelete", 0, 0, NEVER_FLEXIBLE, "group_offsets"),
    Api(48, "DescribeClientQuotas", 0, 1, 1, "quotas"),
    Api(49, "AlterClientQuotas", 0, 1, 1, "quotas"),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0, "credentials"),
    Api(51, "AlterUserScramCredentials", 0, 0, 0, "credentials"),
    Api(55, "DescribeQuorum", 0, 2, 0, "quorum"),
    Api(60, "DescribeCluster", 0, 2, 0, "metadata"),
    Api(61, "DescribeProducers", 0, 0, 0, "transactions"),
    Api(65, "DescribeTransactions", 0, 0, 0, "transactions"),
    Api(66, "ListTransactions", 0, 2, 0, "transactions"),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, "consumer_groups"),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0, "consumer_groups"),
    Api(74, "ListConfigResources", 0, 1, 0, "configs"),
    Api(75, "DescribeTopicPartitions", 0, 0, 0, "metadata"),
)
APIS: dict[int, Api] = {row.key: row for row in ROWS}


@cache
def request_class(api_key: int) -> type[RequestMessage]:
    """Returns the class of the API's request."""
    api = APIS[api_key]
    return cast("type[RequestMessage]", getattr(messages_of(api), f"{api.name}Request"))


@cache
def response_class(api_key: int) -> type[ResponseMessage]:
    """Returns the class of the API's response."""
    api = APIS[api_key]
    return cast("type[ResponseMessage]", getattr(messages_of(api), f"{api.name}Response"))


def messages_of(api: Api) -> object:
    return import_module(f"trimq.protocols.kafka.messages.{api.family}")
