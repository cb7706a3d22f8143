"""What a handler may use: the verbs, who asks, the connection's way out, and what is kept for all connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from trimq.clock import Clock
from trimq.config import RocketMQ as RocketMQSettings
from trimq.core.api.commit_log import Sharing
from trimq.core.commit_log.groups import SharedGroup
from trimq.model import Caller
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import Outlet, Reply
from trimq.protocols.rocketmq.clients.queue_locks import QueueLocks
from trimq.protocols.rocketmq.clients.registry import Clients
from trimq.protocols.rocketmq.clients.requests_to_clients import ClientCalls
from trimq.protocols.rocketmq.clients.subscriptions import FilterLimits
from trimq.protocols.rocketmq.name_server.broker_registry import BrokerRegistry
from trimq.protocols.rocketmq.name_server.own_routes import OwnRoutes
from trimq.protocols.rocketmq.schedule.fast_path import DelayedShapes
from trimq.protocols.rocketmq.schedule.scheduler import Delays
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.state.incremental_search import Searches
from trimq.protocols.rocketmq.state.offset_resets import Resets
from trimq.protocols.rocketmq.state.sent_ids import Repeats
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.transactions.transactions import Transactions
from trimq.protocols.rocketmq.waiting.flush_timeout import FlushWatch
from trimq.protocols.rocketmq.waiting.pop_requests import PopServices
from trimq.protocols.rocketmq.wire.fast_properties import PropertyShapes
from trimq.protocols.rocketmq.wire.remoting import Command


@dataclass(slots=True)
class Shared:
    """Of all connections."""

    sharing: Sharing
    clock: Clock
    counts: Counts
    settings: RocketMQSettings
    identity: Identity
    clients: Clients
    locks: QueueLocks
    delays: Delays
    transactions: Transactions
    chance: random.Random
    calls: ClientCalls
    registry: BrokerRegistry
    own_routes: OwnRoutes
    started_ms: int
    is_synced: bool
    repeats: Repeats
    flushes: FlushWatch
    shapes: PropertyShapes
    delayed: DelayedShapes
    searches: Searches
    traffic: Traffic
    resets: Resets
    pop: PopServices
    config_changes: tuple[int, int] = (0, 0)
    """How often settings were changed while the broker ran, and when last."""


@dataclass(slots=True)
class Context:
    """Of one connection. `host` is where the client is, as messages carry it."""

    shared: Shared
    caller: Caller
    outlet: Outlet
    host: bytes

    @property
    def sharing(self) -> Sharing:
        return self.shared.sharing

    @property
    def filter_limits(self) -> FilterLimits:
        settings = self.shared.settings
        return FilterLimits(settings.filter_bytes, settings.filter_operators)

    def known_group(self, name: str) -> SharedGroup:
        """A group that reads for the first time is made."""
        found = self.sharing.group(self.caller, name)
        if found is None:
            self.sharing.define_group(self.caller, SharedGroup(name))
            found = SharedGroup(name)
        return found


Handler = Callable[[Context, Command], Reply | None]
