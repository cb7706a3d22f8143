"""Builds what queues stand on: exchanges, routes, dead letters, delays, policies. The only place that knows which of
these parts needs which."""

from __future__ import annotations

import random
from dataclasses import dataclass
from uuid import UUID

from trimq.clock import Clock
from trimq.config import Settings
from trimq.core.alarms import DELIVERY_TIMEOUT, HEAD_EXPIRY, QUEUE_EXPIRY, Alarms
from trimq.core.any_queue import Around
from trimq.core.burying import Burying
from trimq.core.catalogue import Catalogue
from trimq.core.delays import Delays
from trimq.core.exchanges import Exchanges
from trimq.core.namespaces import Namespaces
from trimq.core.policies import Policies
from trimq.core.publishing import Publishing
from trimq.core.pump import Pump
from trimq.core.queue_upkeep import QueueUpkeep
from trimq.core.queueing import QueueingParts
from trimq.core.queues import Queues
from trimq.core.routing import Routing
from trimq.core.topics import Topics
from trimq.metrics import Metrics
from trimq.model import Home, TopicName
from trimq.storage.checkpoints import Checkpoints
from trimq.storage.files import Files
from trimq.storage.passes import Passes
from trimq.storage.queue_store import ROOT, VOLATILE_ROOT, QueueStore

QUEUE_ROOTS = (ROOT, VOLATILE_ROOT)

# The log of delayed messages stands beside those of queues, whose ids are random and never this.
_DELAYS = UUID(int=0)
_DELAYS_LOG = f"{_DELAYS.hex}-0"


@dataclass(slots=True)
class OpenQueues:
    parts: QueueingParts
    upkeep: QueueUpkeep

    def start(self) -> None:
        self.upkeep.start()

    def stop(self) -> None:
        self.upkeep.stop()

    def close(self) -> None:
        """What was settled reaches the disk with the pass that this begins."""
        for log in self.parts.queues.logs():
            log.close()
        for log in self.parts.delays.logs:
            log.close()


def open_queues(
    settings: Settings,
    files: Files,
    passes: Passes,
    clock: Clock,
    catalogue: Catalogue,
    checkpoints: Checkpoints,
    topics: Topics,
    chance: random.Random,
    metrics: Metrics,
) -> OpenQueues:
    now_ms = clock.message.now_ms
    storage = settings.storage
    store = QueueStore(files, passes, checkpoints, storage.queue_segment_bytes, storage.queue_memory_bytes)
    queues = Queues(catalogue, store, passes, chance.randbytes, lambda: UUID(int=chance.getrandbits(128), version=4))
    exchanges = Exchanges(catalogue, queues.is_durable)
    routing = Routing(exchanges)
    publishing = Publishing(routing, queues.find, now_ms)
    burying = Burying(exchanges, routing, publishing, queues.find_by_id, passes, clock.message, metrics)
    publishing.overflowed = burying.give_up
    pump = Pump(passes.soon)
    alarms = Alarms(clock.message, lambda id, kind: _ring(queues, pump, id, kind))
    queues.around = Around(
        passes,
        pump,
        alarms,
        now_ms,
        burying.give_up,
        queues.make_log,
        queues.delete,
        settings.amqp.consumer_timeout_ms,
    )
    policies = Policies(catalogue, exchanges)
    queues.apply_policy = policies.apply
    queues.gone = lambda queue: exchanges.unbind_queue(queue.namespace, queue.name)
    delays = Delays(
        exchanges, publishing, passes, clock.message, _DELAYS, lambda: store.make(_DELAYS_LOG, is_volatile=False)
    )
    has_delayed = _DELAYS_LOG in store.names()
    queues.open(others=[_DELAYS_LOG])
    exchanges.open()
    policies.apply_to_exchanges()
    policies.changed = queues.apply_policies
    delays.open(store.recover(_DELAYS_LOG) if has_delayed else None)
    _share_names(topics, queues)
    upkeep = QueueUpkeep(
        files, passes, checkpoints, queues, lambda: delays.logs, clock.message, storage.retention_check_ms
    )
    parts = QueueingParts(exchanges, queues, publishing, delays, policies, Namespaces(catalogue), pump)
    return OpenQueues(parts, upkeep)


def _ring(queues: Queues, pump: Pump, id: UUID, kind: int) -> None:
    queue = queues.find_by_id(id)
    if queue is None:
        return
    if kind == HEAD_EXPIRY:
        pump.due(queue)
    elif kind == QUEUE_EXPIRY:
        queue.expire()
    elif kind == DELIVERY_TIMEOUT:
        queue.time_out()


def _share_names(topics: Topics, queues: Queues) -> None:
    """A name is unique in its namespace, whatever it is the name of."""

    def of_topic(name: TopicName) -> Home | None:
        found = topics.find(name)
        return topics.shared_home(name) if found is None else found.home

    def of_queue(name: TopicName) -> Home | None:
        return None if queues.find(*name) is None else Home.QUEUE_LOG

    queues.other_home = of_topic
    topics.other_home = of_queue
