"""Builds the parts of AMQP queues: exchanges, routing, dead letters, delays, policies. The only place that knows which
of these parts needs which."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from trimq.clock import Clock
from trimq.config import Settings
from trimq.core.failures.ledger import FailedMessageLedger, LetterSource
from trimq.core.failures.ledger_log import LedgerLog
from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.names import NameRegistry
from trimq.core.metadata.namespaces import Namespaces
from trimq.core.queues.dead_letter_publisher import DeadLetterPublisher
from trimq.core.queues.delayed_exchange import DelayedMessageStore
from trimq.core.queues.dispatcher import Dispatcher
from trimq.core.queues.maintenance import QueueMaintenance
from trimq.core.queues.policies import Policies
from trimq.core.queues.publisher import Publisher
from trimq.core.queues.queue import QueueServices
from trimq.core.queues.queue_timers import QueueTimers
from trimq.core.queues.registry import QueueRegistry
from trimq.core.routing.exchanges import Exchanges
from trimq.core.routing.router import Router
from trimq.metrics import Metrics
from trimq.offload import Offload
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.damages import DamageReports
from trimq.storage.io.files import Files
from trimq.storage.queue_log.compaction import SegmentCompaction
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.segment import QueueSegment
from trimq.storage.queue_log.shared_bodies import SharedBodyStore
from trimq.storage.queue_log.store import ROOT, VOLATILE_ROOT, QueueStore

QUEUE_ROOTS = (ROOT, VOLATILE_ROOT)

# Ids of logs beside those of queues. Ids of queues are random and never this small.
_DELAYS = UUID(int=0)
_DELAYS_LOG = f"{_DELAYS.hex}-0"
_LEDGER_LOG = f"{UUID(int=1).hex}-0"

OTHER_LOGS = {_DELAYS_LOG: "(delayed messages)", _LEDGER_LOG: "(failures)"}
"""Logs that belong to no queue, with a description of their contents."""


class QueueParts(NamedTuple):
    """The parts from which the APIs on exchanges, queues, policies, namespaces and failures are made."""

    exchanges: Exchanges
    queues: QueueRegistry
    publisher: Publisher
    failures: FailedMessageLedger
    ledger: LedgerLog
    passes: Passes
    delayed_messages: DelayedMessageStore
    policies: Policies
    namespaces: Namespaces
    dispatch: Dispatcher
    offload: Offload


@dataclass(slots=True)
class OpenQueues:
    parts: QueueParts
    maintenance: QueueMaintenance
    ledger: LedgerLog
    letters: LetterSource
    blobs: SharedBodyStore

    def start(self) -> None:
        self.maintenance.start()

    def stop(self) -> None:
        self.maintenance.stop()

    def close(self) -> None:
        """Closes all logs. Acknowledgements are written with the pass that this begins."""
        for log in self.parts.queues.logs():
            log.close()
        for log in (*self.parts.delayed_messages.logs, *self.ledger.logs, *self.blobs.logs):
            log.close()


def open_queues(
    settings: Settings,
    files: Files,
    passes: Passes,
    clock: Clock,
    catalogue: Catalogue,
    names: NameRegistry,
    checkpoints: Checkpoints,
    rng: random.Random,
    metrics: Metrics,
    offload: Offload,
    damages: DamageReports,
) -> OpenQueues:
    now_ms = clock.message.now_ms
    segment_bytes, memory_bytes = settings.storage.queue_segment_bytes, settings.storage.queue_memory_bytes
    store = QueueStore(files, passes, checkpoints, segment_bytes, memory_bytes, damages)
    queues = QueueRegistry(
        catalogue,
        names,
        store,
        passes,
        rng.randbytes,
        lambda: UUID(int=rng.getrandbits(128), version=4),
        settings.limits.queues_per_vhost,
    )
    metrics.gauge_from("queues", "AMQP queues.", lambda: len(queues))
    exchanges = Exchanges(catalogue, queues.is_durable)
    router = Router(exchanges)
    publisher = Publisher(router, queues.find_destination, store.blobs, settings.amqp.shared_body_bytes, now_ms)
    ledger = _make_ledger(settings, store, now_ms)
    failures = FailedMessageLedger(clock.message, metrics, ledger.append_entry, ledger.read, passes.on_durable)
    dead_letter_publisher = DeadLetterPublisher(exchanges, router, publisher, ledger, failures, clock.message)
    publisher.on_overflow = dead_letter_publisher.give_up
    dispatch = Dispatcher(passes.call_soon)
    queue_timers = QueueTimers(clock.message, lambda id, kind: _on_queue_timer(queues, id, kind))
    queues.services = QueueServices(
        passes,
        dispatch,
        queue_timers,
        now_ms,
        dead_letter_publisher,
        queues.make_log,
        queues.delete,
        settings.amqp.consumer_timeout_ms,
        offload,
    )
    policies = Policies(catalogue, exchanges)
    queues.apply_policy = policies.apply
    queues.on_deleted = lambda queue: exchanges.unbind_queue(queue.namespace, queue.name)
    make_log = partial(store.make, _DELAYS_LOG, is_volatile=False)
    delayed_messages = DelayedMessageStore(exchanges, publisher, passes, clock.message, _DELAYS, make_log, offload)
    publisher.delay_message = delayed_messages.delay_message
    _recover(store, queues, exchanges, policies, delayed_messages, ledger)
    namespaces = Namespaces(catalogue, partial(_delete_namespace_contents, queues, exchanges, policies))
    compact = partial(SegmentCompaction, files, passes, checkpoints, offload=offload)
    maintenance = _make_maintenance(settings, compact, queues, delayed_messages, store.blobs, ledger, clock)
    parts = QueueParts(
        exchanges,
        queues,
        publisher,
        failures,
        ledger,
        passes,
        delayed_messages,
        policies,
        namespaces,
        dispatch,
        offload,
    )
    return OpenQueues(parts, maintenance, ledger, dead_letter_publisher, store.blobs)


def _make_ledger(settings: Settings, store: QueueStore, now_ms: Callable[[], int]) -> LedgerLog:
    kept = settings.failures
    return LedgerLog(
        lambda: store.make(_LEDGER_LOG, is_volatile=False), now_ms, kept.retention_bytes, kept.retention_ms
    )


def _make_maintenance(
    settings: Settings,
    compact: Callable[[QueueLog, QueueSegment], SegmentCompaction],
    queues: QueueRegistry,
    delayed_messages: DelayedMessageStore,
    blobs: SharedBodyStore,
    ledger: LedgerLog,
    clock: Clock,
) -> QueueMaintenance:
    interval_ms = settings.storage.retention_check_ms
    return QueueMaintenance(
        compact, queues, lambda: [*delayed_messages.logs, *blobs.logs], ledger, clock.message, interval_ms
    )


def _recover(
    store: QueueStore,
    queues: QueueRegistry,
    exchanges: Exchanges,
    policies: Policies,
    delayed_messages: DelayedMessageStore,
    ledger: LedgerLog,
) -> None:
    """Loads everything stored."""
    found = store.names()
    queues.open(others=[_DELAYS_LOG, _LEDGER_LOG])
    exchanges.open()
    policies.apply_to_exchanges()
    policies.changed = queues.apply_policies
    delayed_messages.open(store.recover(_DELAYS_LOG) if _DELAYS_LOG in found else None)
    ledger.open(store.recover(_LEDGER_LOG) if _LEDGER_LOG in found else None)
    store.sweep()  # all logs are recovered: delete unused shared bodies


def _delete_namespace_contents(queues: QueueRegistry, exchanges: Exchanges, policies: Policies, namespace: str) -> None:
    """Deletes the contents of a deleted namespace."""
    for queue in queues:
        if queue.namespace == namespace:
            queues.delete(queue)
    exchanges.delete_all(namespace)
    for policy in policies.all(namespace):
        policies.delete(namespace, policy.name)


def _on_queue_timer(queues: QueueRegistry, id: UUID, kind: int) -> None:
    queue = queues.find_timed(id)
    if queue is not None:
        queue.on_timer(kind)
