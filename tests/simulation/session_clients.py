"""Common parts of the clients of Kafka sessions in the simulation: API versions, topics, and refusals that lead to a
retry."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_clients import KafkaClient
from simulated_trace import SimulationFailure

from trimq.protocols.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from trimq.protocols.kafka.names.codes import Code

TOPICS = ("orders", "payments")
PARTITIONS = 3

Partition = tuple[str, int]
"""The name of a topic, and a partition number."""

ALL_PARTITIONS: tuple[Partition, ...] = tuple((name, number) for name in TOPICS for number in range(PARTITIONS))

NEWEST = {0: 13, 1: 15, 3: 12, 8: 9, 9: 9, 11: 9, 12: 4, 13: 5, 14: 5, 22: 5, 24: 3, 25: 4, 26: 5, 28: 5, 68: 1}

ASK_AGAIN = (
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.KAFKA_STORAGE_ERROR,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.REQUEST_TIMED_OUT,
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.CONCURRENT_TRANSACTIONS,
)


class SessionClient(KafkaClient):
    """Uses topics that are auto-created, and never deleted."""

    versions: Mapping[int, int] = NEWEST
    _ids: dict[str, bytes] | None = None

    async def find_topics(self) -> dict[str, bytes] | None:
        """Returns the topic ids by name; None if they cannot be created at the moment."""
        if self._ids is None:
            wanted = [MetadataRequestTopic(name=name) for name in TOPICS]
            response = await self.ask(MetadataResponse, MetadataRequest(wanted, allow_auto_topic_creation=True))
            if any(topic.error_code for topic in response.topics):
                return None
            self._ids = {topic.name or "": topic.topic_id for topic in response.topics}
        return self._ids

    def expect(self, code: int, *others: Code) -> None:
        if code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID):
            self._ids = None
        if code not in ASK_AGAIN and code not in others:
            raise SimulationFailure(f"{self.name} was refused: {Code(code).name}")
