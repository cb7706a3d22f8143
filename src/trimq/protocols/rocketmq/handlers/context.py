"""Objects that handlers may use: the services shared by all connections, and caller and outlet of one connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from trimq.clock import Clock
from trimq.config import RocketMQ as RocketMQSettings
from trimq.core.api.acl_entries import AclEntryApi
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.api.foreign_topics import ForeignTopicApi
from trimq.core.api.users import UserApi
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopicDefinition
from trimq.core.crossing.units import UnitQueue, UnitTopic
from trimq.core.security.resources import Action, Resource
from trimq.core.security.signatures import Signatures
from trimq.model import Caller, TopicName
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import Reply, SessionControl
from trimq.protocols.rocketmq.clients.queue_locks import QueueLocks
from trimq.protocols.rocketmq.clients.registry import ClientRegistry
from trimq.protocols.rocketmq.clients.requests_to_clients import ClientRequests
from trimq.protocols.rocketmq.clients.sticky_assignments import StickyAssignments
from trimq.protocols.rocketmq.clients.subscriptions import FilterLimits
from trimq.protocols.rocketmq.name_server.broker_registry import BrokerRegistry
from trimq.protocols.rocketmq.name_server.own_routes import OwnRoutes
from trimq.protocols.rocketmq.schedule.fast_path import DelayedPropertyTemplates
from trimq.protocols.rocketmq.schedule.scheduler import DelayScheduler
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.state.incremental_search import IncrementalSearches
from trimq.protocols.rocketmq.state.offset_resets import OffsetResets
from trimq.protocols.rocketmq.state.put_times import PutTimes
from trimq.protocols.rocketmq.state.sent_ids import SentIds
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.transactions.transactions import Transactions
from trimq.protocols.rocketmq.waiting.flush_timeout import FlushTimeouts
from trimq.protocols.rocketmq.waiting.pop_requests import PopServices
from trimq.protocols.rocketmq.wire.fast_properties import PropertyTemplates
from trimq.wire.remoting import Command

AnyQueue = MessageQueue | UnitQueue


class AnyTopic(Protocol):
    """Topic of any layout, for a reader of message units."""

    id: UUID
    name: TopicName
    resource: Resource
    definition: CommitLogTopicDefinition

    def stream(self, number: int) -> AnyQueue:
        """Raises UnknownStream if there is none."""


@dataclass(slots=True)
class SendServices:
    """Used by handlers that store messages: sends, transactions, delayed messages, send-backs."""

    scheduler: DelayScheduler
    transactions: Transactions
    sent_ids: SentIds
    flush_timeouts: FlushTimeouts
    put_times: PutTimes
    property_templates: PropertyTemplates
    batch_templates: PropertyTemplates
    """Of the messages in a batch, to which the broker adds nothing."""
    delayed_templates: DelayedPropertyTemplates
    is_synced: bool
    """flush = sync"""
    is_pooled: bool
    """flush = pooled"""


@dataclass(slots=True)
class ConsumeServices:
    """Used by handlers of consumers: pull, POP, queue locks, offset resets, queries."""

    locks: QueueLocks
    offset_resets: OffsetResets
    sticky: StickyAssignments
    pop: PopServices
    searches: IncrementalSearches


@dataclass(slots=True)
class NamingServices:
    """Used by handlers of the name server."""

    registry: BrokerRegistry
    own_routes: OwnRoutes


@dataclass(slots=True)
class RocketMQServices:
    """Services shared by all connections: those that every handler may use, and those of one family of handlers."""

    commit_log: CommitLogApi
    clock: Clock
    counts: Counts
    settings: RocketMQSettings
    signatures: Signatures
    users: UserApi
    acl_entries: AclEntryApi
    identity: Identity
    rng: random.Random
    traffic: Traffic
    clients: ClientRegistry
    client_requests: ClientRequests
    sending: SendServices
    consuming: ConsumeServices
    naming: NamingServices
    foreign_topics: ForeignTopicApi
    started_ms: int
    config_changes: tuple[int, int] = (0, 0)
    """Number of changes of settings at run time, and the time of the last one."""


@dataclass(slots=True)
class Context:
    """Context of one connection. `host` is the client's address as messages store it (born host)."""

    services: RocketMQServices
    caller: Caller
    outlet: SessionControl
    host: bytes

    @property
    def commit_log(self) -> CommitLogApi:
        return self.services.commit_log

    @property
    def filter_limits(self) -> FilterLimits:
        settings = self.services.settings
        return FilterLimits(settings.filter_bytes, settings.filter_operators)

    def foreign_topic(self, name: str, action: Action = Action.DESCRIBE) -> UnitTopic | None:
        """Returns the topic of another layout that clients call `name`. For names that the commit log does not have."""
        services = self.services
        return services.foreign_topics.find_units(self.caller, name, services.identity.store_host, action)

    def readable_topic(self, name: str) -> AnyTopic | None:
        """Returns the topic of any layout; None if there is none."""
        found = self.commit_log.topics.find(self.caller, name)
        return self.foreign_topic(name) if found is None else found

    def get_or_create_group(self, name: str) -> CommitLogGroup:
        """Creates a group that reads for the first time."""
        return self.commit_log.groups.get_or_create(self.caller, name)


Handler = Callable[[Context, Command], Reply | None]
