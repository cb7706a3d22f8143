"""Objects that handlers use: the broker, the caller, control of the connection, and state of all connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from trimq.clock import Clock
from trimq.core.api.broker import Broker
from trimq.core.crossing.partitions import BatchedStream, BatchedTopic
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topic
from trimq.core.security.access import Action, Resource, ResourceKind
from trimq.core.security.authentication import Authenticator
from trimq.core.security.quotas import Metered
from trimq.errors import Refusal, UnknownTopic
from trimq.model import SYSTEM, Caller, Layout, TopicName
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import SessionControl
from trimq.protocols.kafka.handlers.fetch_sessions import FetchSessions
from trimq.protocols.kafka.logins.mechanisms import Mechanisms
from trimq.protocols.kafka.logins.session import LoginSession
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal
from trimq.protocols.kafka.names.internal_topics import INTERNAL, NAMES, OFFSETS, PARTITIONS, TRANSACTIONS
from trimq.protocols.kafka.names.topic_configs import BrokerLevels

ReadableStream = Stream | BatchedStream


class ReadableTopic(Protocol):
    """Topic of any layout, for a reader of batches."""

    id: UUID
    name: TopicName
    resource: Resource
    layout: Layout

    @property
    def streams(self) -> Sequence[ReadableStream]: ...

    def stream(self, index: int) -> ReadableStream:
        """Raises UnknownStream if there is none."""


@dataclass(slots=True)
class Context:
    broker: Broker
    caller: Caller
    clock: Clock
    outlet: SessionControl
    counts: Counts
    fetch_sessions: FetchSessions
    authenticator: Authenticator
    mechanisms: Mechanisms
    login: LoginSession
    logged_conflicts: set[str] = field(default_factory=set)
    """Names of other protocols that this connection asked for; each is logged once."""

    def charge(self, direction: Metered, size: int) -> int:
        """Counts `size` bytes of records against the caller's quota. Returns the throttle time for the response; the
        broker stops reading from the connection for that long."""
        throttle_ms = self.broker.quotas.charge(self.caller, direction, size)
        if throttle_ms:
            self.outlet.throttle_reading(throttle_ms)
        return throttle_ms

    def require_mutations(self, is_strict: bool) -> None:
        """Raises KafkaRefusal if the caller is over its quota of created and deleted partitions, and `is_strict`."""
        if is_strict and self.broker.quotas.wait_ms(self.caller, Metered.MUTATIONS):
            raise KafkaRefusal(Code.THROTTLING_QUOTA_EXCEEDED, "the quota of partitions per second is exceeded")

    def charge_mutations(self, partitions: int) -> None:
        self.broker.quotas.charge(self.caller, Metered.MUTATIONS, partitions)

    def throttle_mutations(self, is_strict: bool, codes: Iterable[int]) -> int:
        """Returns the throttle time of a response with these error codes, as for `charge`. A strict request that was
        not refused is not throttled."""
        if is_strict and Code.THROTTLING_QUOTA_EXCEEDED not in codes:
            return 0
        throttle_ms = self.broker.quotas.wait_ms(self.caller, Metered.MUTATIONS)
        if throttle_ms:
            self.outlet.throttle_reading(throttle_ms)
        return throttle_ms

    def charge_write(self, size: int) -> int:
        """Same as `charge` for records of a producer, which also waits while memory or disk space is short."""
        throttle_ms = self.charge(Metered.IN, size)
        shortage_ms = self.broker.partitions.throttle_ms()
        if shortage_ms <= throttle_ms:
            return throttle_ms
        self.outlet.throttle_reading(shortage_ms)
        return shortage_ms

    @property
    def broker_levels(self) -> BrokerLevels:
        """Values that topics without a value of their own have."""
        return BrokerLevels.of(self.broker.settings, self.broker.dynamic_settings)

    def internal_topics(self) -> list[str]:
        """Returns Kafka's internal topics that are in use and that the caller may see."""
        used = [OFFSETS] if self.broker.groups.is_used else []
        used += [TRANSACTIONS] if self.broker.transactions.is_used else []
        return [name for name in used if self._may_describe(name)]

    def require_topic(self, action: Action, name: str) -> None:
        """Raises AccessDenied unless the caller may perform this action on a topic of this name, which need not
        exist."""
        self.broker.require(self.caller, action, self._topic_resource(name))

    def may_see_settings(self, name: str) -> bool:
        return self.broker.allowed(self.caller, Action.DESCRIBE_CONFIGS, self._topic_resource(name))

    def _may_describe(self, name: str) -> bool:
        return self.broker.allowed(self.caller, Action.DESCRIBE, self._topic_resource(name))

    def _topic_resource(self, name: str) -> Resource:
        return Resource(ResourceKind.TOPIC, self.caller.namespace, name)

    def any_topic(self, name: str) -> Topic:
        """Returns the topic for a caller that has a right on the broker, which covers all topics."""
        return self.broker.topics.get(SYSTEM, name, Layout.PARTITION_LOG)

    def require_partition(self, topic: str, index: int) -> None:
        """Raises a refusal if the partition does not exist. For a caller as that of `any_topic`."""
        if topic not in INTERNAL:
            self.any_topic(topic).stream(index)
        elif not 0 <= index < PARTITIONS:
            raise KafkaRefusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {index}")

    def readable_topic(self, name: str, id: bytes, action: Action = Action.DESCRIBE) -> ReadableTopic:
        """As `topic`, and for topics of other layouts too. Not for the fetch path, which saves this call: see
        `foreign_topic`."""
        try:
            return self.topic(name, id, action)
        except Refusal as refusal:
            return self.foreign_topic(name, id, action, refusal)

    def foreign_topic(self, name: str, id: bytes, action: Action, refusal: Refusal) -> BatchedTopic:
        """Returns the topic of another layout, after `topic` has raised this refusal; raises it if there is none."""
        uuid = UUID(bytes=id) if id and not name else None
        found = self.broker.foreign_topics.find_batched(self.caller, name, uuid, action)
        if found is None:
            raise refusal
        return found

    def own_topic(self, name: str, id: bytes, action: Action = Action.DESCRIBE) -> Topic:
        """As `topic`, for a change or a deletion: a topic of another layout is changed through its own protocol."""
        try:
            return self.topic(name, id, action)
        except Refusal as refusal:
            found = self.foreign_topic(name, id, Action.DESCRIBE, refusal)
        reason = f"{found.name.name} is a topic of another protocol: change or delete it through that, HTTP or trimq"
        raise KafkaRefusal(Code.INVALID_TOPIC, reason)

    def topic(self, name: str, id: bytes, action: Action = Action.DESCRIBE) -> Topic:
        """Returns the topic with this name or, in newer request versions, this id, if the caller may perform `action`
        on it. Raises a Refusal if unknown."""
        if name or not id:
            try:
                return self.broker.topics.get(self.caller, name, Layout.PARTITION_LOG, action)
            except UnknownTopic:
                refuse_internal(name)
                raise
        try:
            topic = self.broker.topics.by_id(self.caller, UUID(bytes=id), action)
        except UnknownTopic as refusal:
            refuse_internal(NAMES.get(id, ""))
            raise KafkaRefusal(Code.UNKNOWN_TOPIC_ID, str(refusal)) from None
        if topic.layout is not Layout.PARTITION_LOG:
            raise KafkaRefusal(Code.UNKNOWN_TOPIC_ID, f"topic {topic.name} is not a Kafka topic")
        return topic


def refuse_internal(name: str) -> None:
    """Raises KafkaRefusal if this is the name of an internal topic, whose records cannot be read."""
    if name in INTERNAL:
        reason = f"{name} has no records here: the state is in tables; read committed offsets with OffsetFetch"
        raise KafkaRefusal(Code.TOPIC_AUTHORIZATION_FAILED, reason)
