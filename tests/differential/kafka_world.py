"""State of a Kafka sequence while it is generated: the names in use, the next sequence numbers of producers, and
choices that depend on them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from differential.sequences import Step

CONNECTIONS = 3
# Versions that both brokers serve.
VERSIONS = {
    "Produce": (3, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 3),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "WriteTxnMarkers": (1, 1),
    "TxnOffsetCommit": (0, 5),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 2),
    "OffsetDelete": (0, 0),
    "ElectLeaders": (0, 2),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "DescribeClientQuotas": (0, 1),
    "AlterClientQuotas": (0, 1),
    "DescribeUserScramCredentials": (0, 0),
    "AlterUserScramCredentials": (0, 0),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
    "DescribeLogDirs": (1, 5),
    "AlterReplicaLogDirs": (1, 2),
    "DescribeCluster": (0, 2),
    "DescribeQuorum": (0, 2),
    "DescribeAcls": (1, 3),
    "SaslHandshake": (0, 1),
}
Fields = dict[str, Any]


class World:
    """Steps so far, with the names that they used. Whether the broker accepted a step is not known here."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.steps: list[Step] = []
        self.topics: dict[str, int] = {}
        self.deleted: list[str] = []
        self.sequences: dict[tuple[str, str], int] = {}

    def add(self, request: str, fields: Fields, save: str | None = None, connection: int | None = None) -> None:
        fields.setdefault("version", self.source.randint(*VERSIONS[request]))
        if save is not None:
            fields["save"] = save
        number = self.source.randrange(CONNECTIONS) if connection is None else connection
        self.steps.append(Step(number, request, fields))

    def chance(self, probability: float) -> bool:
        return self.source.random() < probability

    def pick(self, usual: Sequence[Any], odd: Sequence[Any] = (), probability: float = 0.12) -> Any:
        """One of the usual values, seldom one of the odd ones."""
        if odd and (not usual or self.chance(probability)):
            return self.source.choice(odd)
        return self.source.choice(usual)

    def several(self, most: int = 3) -> int:
        return self.source.choice([1, 1, 1, *range(2, most + 1)])

    def topic(self, odd: float = 0.08) -> str:
        """Name of a topic without the unique part; seldom one that does not exist."""
        if not self.topics or self.chance(odd):
            return self.source.choice(["t8", "t9", *self.deleted])
        return self.source.choice(list(self.topics))

    def any_topic(self, odd: float = 0.08, internal: bool = True) -> Fields:
        """Name and id of a topic, for requests that take either. Seldom an invalid name or an internal topic: these are
        the same ones for all sequences, and Kafka lets clients delete and change them."""
        if self.chance(odd / 2):
            names = ["__consumer_offsets", "__transaction_state"] if internal else []
            name = self.source.choice([*names, "", ".", "%a b", "%" + "l" * 250])
            return {"name": name, "topic_id": {"$": f"topic.{name}" if name in names else "topic.t8"}}
        short = self.topic(odd)
        return {"name": f"%{short}", "topic_id": {"$": f"topic.{short}"}}

    def partition(self, topic: str, odd: float = 0.08) -> int:
        partitions = self.topics.get(topic.removeprefix("%"), 1)
        if self.chance(odd):
            return self.source.choice([partitions, -1, 1000, -(2**31)])
        return self.source.randrange(partitions)

    def partitions(self, topic: str, odd: float = 0.08) -> list[int]:
        """Some partitions of a topic; seldom one of them twice."""
        chosen = [self.partition(topic, odd) for _ in range(self.several())]
        return chosen if self.chance(0.3) else list(dict.fromkeys(chosen))

    def some_topics(self, odd: float = 0.08, internal: bool = True) -> list[Fields]:
        chosen = [self.any_topic(odd, internal) for _ in range(self.several())]
        if self.chance(0.3):
            return chosen
        return list({each["name"]: each for each in chosen}.values())
