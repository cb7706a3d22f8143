"""Builds what queues stand on: exchanges, routes, dead letters, delays, policies. The only place that knows which of
these parts needs which."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from trimq.clock import Clock
from trimq.config import Settings
from trimq.core.api.queues import QueueingParts
from trimq.core.failures.ledger import Failures, LetterSource
from trimq.core.failures.ledger_log import FailureLedger
from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.namespaces import Namespaces
from trimq.core.partitions.topics import Topics
from trimq.core.queues.dead_letter_publisher import Burying
from trimq.core.queues.delayed_exchange import Delays
from trimq.core.queues.dispatcher import Pump
from trimq.core.queues.maintenance import QueueUpkeep
from trimq.core.queues.policies import Policies
from trimq.core.queues.publisher import Publishing
from trimq.core.queues.queue import Around
from trimq.core.queues.queue_timers import DELIVERY_TIMEOUT, HEAD_EXPIRY, HELD, LETTERS, QUEUE_EXPIRY, RETRY, Alarms
from trimq.core.queues.registry import Queues
from trimq.core.routing.exchanges import Exchanges
from trimq.core.routing.router import Routing
from trimq.metrics import Metrics
from trimq.model import Home, TopicName
from trimq.offload import Offload
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.damages import Damages
from trimq.storage.io.files import Files
from trimq.storage.queue_log.compaction import SegmentCompaction
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.segment import QueueSegment
from trimq.storage.queue_log.shared_bodies import Blobs
from trimq.storage.queue_log.store import ROOT, VOLATILE_ROOT, QueueStore

QUEUE_ROOTS = (ROOT, VOLATILE_ROOT)

# These logs stand beside those of queues, whose ids are random and never so small.
_DELAYS = UUID(int=0)
_DELAYS_LOG = f"{_DELAYS.hex}-0"
_LEDGER_LOG = f"{UUID(int=1).hex}-0"

OTHER_LOGS = {_DELAYS_LOG: "(delayed messages)", _LEDGER_LOG: "(failures)"}
"""Logs that are no queue's, and what is in them."""


@dataclass(slots=True)
class OpenQueues:
    parts: QueueingParts
    upkeep: QueueUpkeep
    ledger: FailureLedger
    letters: LetterSource
    blobs: Blobs

    def start(self) -> None:
        self.upkeep.start()

    def stop(self) -> None:
        self.upkeep.stop()

    def close(self) -> None:
        """What was settled reaches the disk with the pass that this begins."""
        for log in self.parts.queues.logs():
            log.close()
        for log in (*self.parts.delays.logs, *self.ledger.logs, *self.blobs.logs):
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
    offload: Offload,
    damages: Damages,
) -> OpenQueues:
    now_ms = clock.message.now_ms
    segment_bytes, memory_bytes = settings.storage.queue_segment_bytes, settings.storage.queue_memory_bytes
    store = QueueStore(files, passes, checkpoints, segment_bytes, memory_bytes, damages)
    queues = Queues(catalogue, store, passes, chance.randbytes, lambda: UUID(int=chance.getrandbits(128), version=4))
    exchanges = Exchanges(catalogue, queues.is_durable)
    routing = Routing(exchanges)
    publishing = Publishing(routing, queues.find, store.blobs, settings.amqp.shared_body_bytes, now_ms)
    ledger = _make_ledger(settings, store, now_ms)
    failures = Failures(clock.message, metrics, ledger.keep, ledger.read, passes.afterwards)
    burying = Burying(exchanges, routing, publishing, ledger, failures, clock.message)
    publishing.overflowed = burying.give_up
    pump = Pump(passes.soon)
    alarms = Alarms(clock.message, lambda id, kind: _ring(queues, pump, id, kind))
    queues.around = Around(
        passes,
        pump,
        alarms,
        now_ms,
        burying.give_up,
        burying.send_letters,
        queues.make_log,
        queues.delete,
        settings.amqp.consumer_timeout_ms,
        offload,
    )
    policies = Policies(catalogue, exchanges)
    queues.apply_policy = policies.apply
    queues.gone = lambda queue: exchanges.unbind_queue(queue.namespace, queue.name)
    make_log = partial(store.make, _DELAYS_LOG, is_volatile=False)
    delays = Delays(exchanges, publishing, passes, clock.message, _DELAYS, make_log, offload)
    publishing.hold = delays.hold
    _find_again(store, queues, exchanges, policies, delays, ledger)
    _share_names(topics, queues)
    namespaces = Namespaces(catalogue, partial(_empty, queues, exchanges, policies))
    compact = partial(SegmentCompaction, files, passes, checkpoints, offload=offload)
    upkeep = _make_upkeep(settings, compact, queues, delays, store.blobs, ledger, clock)
    parts = QueueingParts(
        exchanges, queues, publishing, failures, ledger, passes, delays, policies, namespaces, pump, offload
    )
    return OpenQueues(parts, upkeep, ledger, burying, store.blobs)


def _make_ledger(settings: Settings, store: QueueStore, now_ms: Callable[[], int]) -> FailureLedger:
    kept = settings.failures
    return FailureLedger(
        lambda: store.make(_LEDGER_LOG, is_volatile=False), now_ms, kept.retention_bytes, kept.retention_ms
    )


def _make_upkeep(
    settings: Settings,
    compact: Callable[[QueueLog, QueueSegment], SegmentCompaction],
    queues: Queues,
    delays: Delays,
    blobs: Blobs,
    ledger: FailureLedger,
    clock: Clock,
) -> QueueUpkeep:
    interval_ms = settings.storage.retention_check_ms
    return QueueUpkeep(compact, queues, lambda: [*delays.logs, *blobs.logs], ledger, clock.message, interval_ms)


def _find_again(
    store: QueueStore,
    queues: Queues,
    exchanges: Exchanges,
    policies: Policies,
    delays: Delays,
    ledger: FailureLedger,
) -> None:
    """Everything that is on disk."""
    found = store.names()
    queues.open(others=[_DELAYS_LOG, _LEDGER_LOG])
    exchanges.open()
    policies.apply_to_exchanges()
    policies.changed = queues.apply_policies
    delays.open(store.recover(_DELAYS_LOG) if _DELAYS_LOG in found else None)
    ledger.open(store.recover(_LEDGER_LOG) if _LEDGER_LOG in found else None)
    store.sweep()  # they were the last


def _empty(queues: Queues, exchanges: Exchanges, policies: Policies, namespace: str) -> None:
    """A namespace goes, with everything in it."""
    for queue in queues:
        if queue.namespace == namespace:
            queues.delete(queue)
    exchanges.delete_all(namespace)
    for policy in policies.all(namespace):
        policies.delete(namespace, policy.name)


def _ring(queues: Queues, pump: Pump, id: UUID, kind: int) -> None:
    queue = queues.find_by_id(id)
    if queue is None:
        return
    if kind in (HEAD_EXPIRY, HELD, LETTERS):
        pump.due(queue)
    elif kind == QUEUE_EXPIRY:
        queue.expire()
    elif kind == DELIVERY_TIMEOUT:
        queue.time_out()
    elif kind == RETRY:
        queue.retry()


def _share_names(topics: Topics, queues: Queues) -> None:
    """A name is unique in its namespace, whatever it is the name of."""

    def of_topic(name: TopicName) -> Home | None:
        found = topics.find(name)
        return topics.shared_home(name) if found is None else found.home

    def of_queue(name: TopicName) -> Home | None:
        return None if queues.find(*name) is None else Home.QUEUE_LOG

    queues.other_home = of_topic
    topics.other_home = of_queue
