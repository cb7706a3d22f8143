"""Builds the core on top of storage: opens tables and topics, and closes them in order. The only place that knows which
part needs which."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast
from uuid import UUID

from trimq.clock import Clock
from trimq.config import Settings, is_login_required
from trimq.core.api.acl_entries import AclEntryApi
from trimq.core.api.broker import Broker
from trimq.core.api.commit_log_messages import OutgoingMessage
from trimq.core.api.dynamic_settings import DynamicSettingsApi
from trimq.core.api.exchanges import ExchangeApi
from trimq.core.api.failures import FailureApi
from trimq.core.api.firehose import FirehoseApi
from trimq.core.api.foreign_topics import ForeignTopicApi
from trimq.core.api.groups import GroupApi
from trimq.core.api.limits import LimitApi
from trimq.core.api.namespaces import NamespaceApi
from trimq.core.api.partition_topics import PartitionTopicApi
from trimq.core.api.partitions import PartitionApi
from trimq.core.api.policies import PolicyApi
from trimq.core.api.queues import QueueApi
from trimq.core.api.quotas import QuotaApi
from trimq.core.api.scram_credentials import ScramCredentialApi
from trimq.core.api.tenant_limits import TenantLimitApi
from trimq.core.api.transactions import TransactionApi
from trimq.core.api.users import UserApi
from trimq.core.assembly.commit_log import CommitLogService, open_commit_log_service
from trimq.core.assembly.queues import QUEUE_ROOTS, OpenQueues, open_queues
from trimq.core.crossing.groups import SharedGroups, Takers
from trimq.core.crossing.producers import ForeignProducers, ProducerRow
from trimq.core.crossing.targets import AppendUnits, CommitLogDraft, ForeignTargets
from trimq.core.crossing.topic_queues import TopicQueues
from trimq.core.crossing.topics import ForeignTopics
from trimq.core.groups.assignable_topics import AssignableTopics
from trimq.core.groups.coordinator import GroupCoordinator
from trimq.core.groups.rebalances import Rebalances
from trimq.core.groups.store import GroupStore
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.metadata.cluster import Cluster, ClusterFact, Node
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.core.metadata.names import NameRegistry
from trimq.core.partitions.append import PartitionAppender
from trimq.core.partitions.batch_validation import BatchValidator
from trimq.core.partitions.compaction_schedule import CompactionSchedule
from trimq.core.partitions.compactor import Compactor
from trimq.core.partitions.dynamic_settings import COMPACTION_CHECK_MS, DynamicSettings
from trimq.core.partitions.maintenance import PartitionMaintenance
from trimq.core.partitions.topics import Topics
from trimq.core.security.access import Access
from trimq.core.security.audit_log import AuditLog
from trimq.core.security.authentication import Authenticator
from trimq.core.security.bearer_tokens import BearerTokens, Expected
from trimq.core.security.credentials import Credentials
from trimq.core.security.login_log import LoginLog
from trimq.core.security.login_queue import LoginQueue
from trimq.core.security.quotas import Quotas
from trimq.core.security.scram_credentials import ScramCredentials
from trimq.core.security.signatures import Signatures
from trimq.core.security.signing_secrets import SecretKey, SigningSecrets, read_given_key
from trimq.core.security.tenant_limits import QUEUES, Tenant, TenantLimits
from trimq.core.transactions.coordinator import TransactionCoordinator
from trimq.core.transactions.marker_writer import MarkerWriter
from trimq.core.transactions.producer_ids import ProducerIds
from trimq.core.transactions.transaction import Transaction
from trimq.core.write_gate import WriteGate
from trimq.errors import StartupError
from trimq.metrics import Metrics
from trimq.model import Caller, Layout, StreamId
from trimq.offload import BoundedOffload, Offload
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.commit_log.log import AppendedUnit
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.guards.damages import DamageReports
from trimq.storage.guards.disk_space import DiskSpaceGuard
from trimq.storage.guards.memory import MemoryGuard
from trimq.storage.guards.slow_disk import SlowDiskGuard
from trimq.storage.io.files import Files, read_outside_file
from trimq.storage.partition_log.compaction import CompactionLimits
from trimq.storage.partition_log.segment_checksums import SegmentChecksums
from trimq.storage.partition_log.store import ROOT, PartitionStore
from trimq.storage.tables.table import Table
from trimq.storage.tables.tables import FOLDER, Tables

_FACT = cast("type[ClusterFact]", ClusterFact)


@dataclass(slots=True)
class Core:
    """Parts of an open broker that the server starts, queries and stops."""

    broker: Broker
    topics: Topics
    cursors: Cursors
    cluster: Cluster
    gate: WriteGate
    appender: PartitionAppender
    maintenance: PartitionMaintenance
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    queues: OpenQueues
    foreign_topics: ForeignTopics
    foreign_targets: ForeignTargets
    authenticator: Authenticator
    credentials: Credentials
    audit: AuditLog
    login_log: LoginLog
    signatures: Signatures
    bearer_tokens: BearerTokens | None
    commit_log_service: CommitLogService | None
    tables: Tables
    opened: Ticket
    """Ticket of the opening; its pass must be durable, and not refused, before any client is served."""

    def start(self) -> None:
        if self.opened.refusal is not None:
            raise StartupError(f"cannot write to the data folder: {self.opened.refusal}")
        self.tables.mark_synced()  # they may stay unchanged for long
        self.gate.is_running = True
        self.maintenance.start()
        self.queues.start()
        self.groups.start()
        self.transactions.start()
        if self.commit_log_service is not None:
            self.commit_log_service.start()

    def stop_writes(self) -> None:
        """Rejects new writes; requests already accepted are still answered."""
        self.audit.close()
        self.gate.stop()
        self.maintenance.stop()
        self.queues.stop()
        self.groups.stop()
        self.transactions.stop()
        if self.commit_log_service is not None:
            self.commit_log_service.stop()

    def close(self) -> None:
        """Checkpoints every stream. Everything is closed once the pass that this begins is durable."""
        for topic in self.topics:
            for stream in topic.streams:
                stream.log.close()
        self.queues.close()
        if self.commit_log_service is not None:
            self.commit_log_service.close()


def new_id(rng: random.Random) -> UUID:
    """Returns a random (version 4) id from the broker's own random source."""
    return UUID(int=rng.getrandbits(128), version=4)


def _open_gate(
    settings: Settings, files: Files, guard: DiskSpaceGuard, passes: Passes, clock: Clock, metrics: Metrics
) -> WriteGate:
    delay_ms = 0 if settings.flush == "sync" else settings.flush_interval_ms
    if settings.flush == "pooled":
        delay_ms += settings.rocketmq.commit_interval_ms
    return WriteGate(
        guard,
        MemoryGuard(files, clock.liveness, settings.limits.memory_percent, settings.limits.throttle_percent),
        SlowDiskGuard(passes, clock.liveness, settings.storage.busy_after_ms, lambda: passes.on_disk, delay_ms),
        metrics.counter("appended_batches", "Batches appended to streams."),
        metrics.counter("appended_bytes", "Bytes appended to streams."),
        metrics.counter("throttled_writes", "Requests of Kafka producers throttled because memory or disk is short."),
    )


def _open_appender(
    settings: Settings, gate: WriteGate, cluster: Cluster, clock: Clock, compaction: CompactionSchedule
) -> PartitionAppender:
    limits, checks_records = settings.limits, settings.kafka.record_validation == "full"
    admission = BatchValidator(
        clock.message.now_ms, limits.batch_expansion_bytes, checks_records, limits.records_per_batch
    )
    return PartitionAppender(gate, cluster, admission, compaction)


def _open_reviews(settings: Settings, offload: Offload, appender: PartitionAppender, metrics: Metrics) -> Offload:
    reviews = BoundedOffload(offload, settings.limits.queued_reviews, "large batches")
    help = "Large Kafka batches, and searches in them, that wait for a check in the thread for them."
    metrics.gauge_from("queued_reviews", help, lambda: reviews.count)
    help = "Uncompressed bytes of compressed Kafka batches that were checked."
    metrics.counters_from("expanded_bytes", help, (), lambda: [((), appender.expanded_bytes)])
    return reviews


def _open_compaction(
    settings: Settings,
    topics: Topics,
    checkpoints: Checkpoints,
    passes: Passes,
    offload: Offload,
    guard: DiskSpaceGuard,
    clock: Clock,
    dynamic: DynamicSettings,
) -> CompactionSchedule:
    effort = CompactionLimits(settings.limits.batch_expansion_bytes)
    compactor = Compactor(topics, checkpoints, passes, offload, guard, clock.message, effort)
    schedule = CompactionSchedule(topics, compactor, clock.message, settings.storage.compaction_check_ms)

    def set_interval() -> None:
        schedule.interval_ms = int(dynamic.value(COMPACTION_CHECK_MS) or settings.storage.compaction_check_ms)

    set_interval()
    dynamic.on_changed(set_interval)
    return schedule


def _open_catalogue(tables: Tables, passes: Passes) -> Catalogue:
    table = tables.open("catalogue", Definition)
    return Catalogue(table, lambda number: number <= passes.durable, table.was_truncated)


def open_groups(
    settings: Settings,
    catalogue: Catalogue,
    cursors: Cursors,
    topics: Topics,
    passes: Passes,
    clock: Clock,
    rng: random.Random,
    transactions: TransactionCoordinator,
    assignable: AssignableTopics,
) -> GroupCoordinator:
    def stream_end(id: StreamId) -> int | None:
        stream = topics.find_stream(id)
        return None if stream is None else stream.readable_end

    groups = GroupCoordinator(
        GroupStore(catalogue),
        cursors,
        passes,
        clock,
        assignable,
        lambda: new_id(rng),
        settings.kafka.group_initial_rebalance_delay_ms,
        settings.kafka.offsets_retention_ms,
        transactions.drop_cursors,
        Rebalances(stream_end),
        settings.limits.groups,
    )
    groups.open()
    return groups


def _assign_foreign(assignable: AssignableTopics, foreign_topics: ForeignTopics, catalogue: Catalogue) -> None:
    """Lets groups be assigned the topics of other layouts too."""
    for kind in ("topic", "shared-topic", "queue"):
        catalogue.watch(kind, lambda id, definition: assignable.changed())
    face = Layout.PARTITION_LOG
    assignable.add_foreign(partial(foreign_topics.shapes, face), partial(foreign_topics.count, face))


def _open_targets(
    access: Access,
    appender: PartitionAppender,
    service: CommitLogService | None,
    queues: OpenQueues,
    gate: WriteGate,
    passes: Passes,
) -> ForeignTargets:
    append_units: AppendUnits | None = None
    if service is not None:
        commit_log = service.commit_log

        def append(caller: Caller, drafts: Sequence[CommitLogDraft], store_host: bytes) -> list[AppendedUnit]:
            for each in drafts:
                if each.has_ttl:
                    commit_log.topics.enable_ttl(each.topic)
            outgoing = [OutgoingMessage(each.topic, each.stream, each.draft, each.code) for each in drafts]
            return commit_log.messages.append_all(caller, outgoing, store_host)

        append_units = append
    return ForeignTargets(
        access, appender.append_records, append_units, queues.parts.publisher, gate.admit, lambda: passes.current
    )


def _open_takers(groups: GroupCoordinator, cursors: Cursors, service: CommitLogService | None) -> Takers:
    """Groups whose AMQP consumers take messages of topics. Their committed offsets are those of Kafka's groups."""
    other = None if service is None else service.commit_log
    others = None if service is None else SharedGroups(service.cursors, lambda group: False, "")

    def protocol_of(group: str) -> str | None:
        if groups.has_members(group):
            return "Kafka"
        return "RocketMQ" if other is not None and other.group_admin.has_members(group) else None

    def fetch(group: str, stream: StreamId) -> Cursor | None:
        own = cursors.fetch(group, stream)
        return own if others is None else others.newest(group, stream, own)

    takers = Takers(fetch, protocol_of)
    groups.is_taken = takers.groups.__contains__
    if other is not None:
        other.groups.taken_by(takers)
    return takers


def _unbind_deleted_topics(topics: Topics, service: CommitLogService | None, queues: OpenQueues) -> None:
    """Removes the bindings of deleted topics, as those of deleted queues."""
    exchanges, registry = queues.parts.exchanges, queues.parts.queues

    def unbind(id: UUID | None = None) -> None:
        for namespace, name in exchanges.bound_queues():
            if registry.find_destination(namespace, name) is None:
                exchanges.unbind_queue(namespace, name)

    unbind()
    topics.on_deleted(unbind)
    if service is not None:
        service.topics.on_deleted(unbind)


def _share_groups(broker: Broker, groups: GroupCoordinator, cursors: Cursors, service: CommitLogService) -> None:
    """Lets a group move between Kafka and RocketMQ."""
    commit_log = service.commit_log
    broker.groups.share_with(SharedGroups(service.cursors, commit_log.group_admin.has_members, "RocketMQ"))
    commit_log.groups.share_with(SharedGroups(cursors, groups.has_members, "Kafka"))


def open_transactions(
    table: Table[Transaction],
    facts: Table[ClusterFact],
    topics: Topics,
    cluster: Cluster,
    cursors: Cursors,
    passes: Passes,
    clock: Clock,
) -> TransactionCoordinator:
    floor = max((known.producer_id for known in table.values()), default=-1) + 1
    now_ms = clock.message.now_ms
    marker_writer = MarkerWriter(topics.streams, topics.find_stream, cluster.leader_epoch, cursors, passes, now_ms)
    return TransactionCoordinator(table, ProducerIds(facts, floor), marker_writer, cursors, passes, clock)


def _make_folders(files: Files) -> None:
    for folder in (FOLDER, ROOT, *QUEUE_ROOTS):
        files.make_folder(folder)
    files.sync_folder("")


def _open_damages(metrics: Metrics) -> DamageReports:
    damages = DamageReports()
    help = "Places of stored files that were found damaged when they were read, since the start."
    metrics.gauge_from("damaged_places", help, lambda: len(damages))
    return damages


def _open_guard(settings: Settings, files: Files, clock: Clock) -> DiskSpaceGuard:
    storage = settings.storage
    throttle_percent = settings.limits.throttle_percent
    return DiskSpaceGuard(
        files, clock.liveness, storage.low_water_bytes, storage.disk_pressure_percent, throttle_percent
    )


def _open_commit_log(
    settings: Settings,
    files: Files,
    passes: Passes,
    clock: Clock,
    offload: Offload,
    catalogue: Catalogue,
    names: NameRegistry,
    access: Access,
    gate: WriteGate,
    queues: OpenQueues,
    tables: Tables,
    rng: random.Random,
    metrics: Metrics,
    foreign_ids: Callable[[], set[UUID]],
) -> CommitLogService | None:
    """Opens the commit log with the failure ledger of the queues: one ledger lists failures of both layouts."""
    return open_commit_log_service(
        settings,
        files,
        passes,
        clock,
        offload,
        catalogue,
        names,
        access,
        gate,
        queues.parts.failures,
        queues.ledger,
        tables,
        partial(new_id, rng),
        metrics.counter("passed_over_messages", "Expired messages that RocketMQ consumers skipped.").add,
        foreign_ids,
    )


def _open_credentials(settings: Settings, files: Files, catalogue: Catalogue, rng: random.Random) -> Credentials:
    path, given = settings.security.secrets_key_file, None
    if path is not None:
        try:
            given = read_given_key(read_outside_file(path, is_private=True))
        except (OSError, ValueError) as error:
            raise StartupError(f"security.secrets_key_file {path} cannot be used: {error}") from None
    secrets = SigningSecrets(catalogue, SecretKey(files, given, rng.randbytes), rng.randbytes)
    secrets.open()
    return Credentials(ScramCredentials(catalogue, rng.randbytes), secrets)


def _open_bearer_tokens(settings: Settings, offload: Offload, clock: Clock) -> BearerTokens | None:
    kafka = settings.kafka
    path = kafka.oauth_jwks_file
    if path is None:
        return None
    expected = Expected(kafka.oauth_issuer, kafka.oauth_audience, kafka.oauth_scope, kafka.oauth_principal_claim)
    return BearerTokens(partial(read_outside_file, path), expected, offload, clock)


def _open_broker(
    settings: Settings,
    topics: Topics,
    cursors: Cursors,
    cluster: Cluster,
    access: Access,
    gate: WriteGate,
    appender: PartitionAppender,
    catalogue: Catalogue,
    clock: Clock,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    offload: Offload,
    reviews: Offload,
    passwords: Offload,
    queues: OpenQueues,
    dynamic: DynamicSettings,
    credentials: Credentials,
    foreign_topics: ForeignTopicApi,
    topic_queues: TopicQueues,
) -> Broker:
    parts = queues.parts
    tenant_limits = TenantLimits(catalogue)
    parts.queues.own_limit = lambda namespace: tenant_limits.of(Tenant.VHOST, namespace, QUEUES)

    def is_running() -> bool:
        return gate.is_running

    return Broker(
        settings,
        cluster,
        access,
        gate,
        PartitionTopicApi(topics, access, gate),
        PartitionApi(appender, cursors, access, offload, reviews, settings.limits.batch_expansion_bytes),
        GroupApi(groups, cursors, access, is_running),
        TransactionApi(transactions, access, is_running),
        ExchangeApi(parts.exchanges, parts.queues, parts.publisher, access, gate),
        QueueApi(parts.queues, topic_queues, offload, access, gate),
        PolicyApi(parts.policies, access),
        NamespaceApi(parts.namespaces, access, tenant_limits),
        FailureApi(parts.failures, parts.ledger, parts.passes, access, gate),
        QuotaApi(Quotas(catalogue, clock.liveness.now_ms), access),
        ScramCredentialApi(credentials.scram, access),
        UserApi(access, credentials, tenant_limits, passwords, settings.limits.users),
        AclEntryApi(access),
        DynamicSettingsApi(dynamic, access),
        LimitApi(settings, gate, access),
        FirehoseApi(parts.exchanges, parts.publisher, parts.namespaces, access, gate),
        TenantLimitApi(tenant_limits, parts.namespaces, access),
        foreign_topics,
    )


def open_core(
    settings: Settings,
    files: Files,
    passes: Passes,
    clock: Clock,
    offload: Offload,
    rng: random.Random,
    metrics: Metrics,
    review_offload: Offload | None = None,
    password_offload: Offload | None = None,
) -> Core:
    """Opens everything stored. Usable once the passes so far are durable. `offload` does work on files; the others
    check large batches and passwords, by default in the same thread."""
    _make_folders(files)
    now_ms = clock.message.now_ms
    tables = Tables(files, passes, offload)
    checkpoints = Checkpoints(tables.open("checkpoints", list))
    catalogue = _open_catalogue(tables, passes)
    names = NameRegistry()
    cursors = Cursors(tables.open("cursors", Cursor), clock.message)
    facts = tables.open("cluster", _FACT)
    cluster = Cluster(facts, Node(settings.node_id), rng.randbytes)
    started = cluster.start()
    audit = AuditLog(metrics, clock.liveness, settings.log.audit_per_minute)
    access = Access(catalogue, rng.randbytes, audit, is_login_required(settings))
    store = PartitionStore(files, passes, checkpoints, now_ms)
    damages = _open_damages(metrics)
    dynamic = DynamicSettings(catalogue, settings)
    topics = Topics(catalogue, names, store, passes, settings, now_ms, partial(new_id, rng), damages, dynamic)
    topics.on_deleted(cursors.delete_topic)
    topics.open()
    queues = open_queues(settings, files, passes, clock, catalogue, names, checkpoints, rng, metrics, offload, damages)
    guard = _open_guard(settings, files, clock)
    gate = _open_gate(settings, files, guard, passes, clock, metrics)
    compaction = _open_compaction(settings, topics, checkpoints, passes, offload, guard, clock, dynamic)
    appender = _open_appender(settings, gate, cluster, clock, compaction)
    checksums = SegmentChecksums(checkpoints, offload)
    maintenance = PartitionMaintenance(
        topics, guard, compaction, checksums, clock.message, settings.storage.retention_check_ms
    )
    kept = tables.open("transactions", Transaction)
    transactions = open_transactions(kept, facts, topics, cluster, cursors, passes, clock)
    assignable = AssignableTopics(topics)
    groups = open_groups(settings, catalogue, cursors, topics, passes, clock, rng, transactions, assignable)
    passwords = password_offload or offload
    logins = LoginQueue(passwords, clock.liveness, settings.security.failed_login_delay_ms)
    help = "Logins that were refused without a check, because of too many failed or waiting ones."
    metrics.counters_from("unchecked_logins", help, (), lambda: [((), logins.refused)])
    metrics.gauge_from("groups", "Kafka consumer groups with members or state.", lambda: len(groups))
    metrics.gauge_from("users", "Users.", lambda: len(access.users()))
    loopback_users = frozenset(filter(None, settings.security.loopback_users.split(";")))
    authenticator = Authenticator(access, logins, rng.randbytes, loopback_users)
    credentials = _open_credentials(settings, files, catalogue, rng)
    login_log = LoginLog(metrics, audit)
    commit_log_service = _open_commit_log(
        settings,
        files,
        passes,
        clock,
        offload,
        catalogue,
        names,
        access,
        gate,
        queues,
        tables,
        rng,
        metrics,
        lambda: {*(topic.id for topic in topics), *(queue.id for queue in queues.parts.queues)},
    )
    if commit_log_service is not None:
        commit_log_service.report_damage(damages)
    # Readers of other layouts, such as Spark, have cursors too.
    cursors.delete_strays(
        {
            *(topic.id for topic in topics),
            *(queue.id for queue in queues.parts.queues),
            *(() if commit_log_service is None else commit_log_service.commit_log.group_admin.topic_ids()),
        }
    )
    queues.parts.failures.add_source(queues.letters)  # last: it owns entries that no other layout owns
    foreign_topics = ForeignTopics(
        topics,
        None if commit_log_service is None else commit_log_service.topics,
        queues.parts.queues,
        access,
        now_ms,
        settings.limits.batch_expansion_bytes,
        settings.cross.list,
    )
    _assign_foreign(assignable, foreign_topics, catalogue)
    targets = _open_targets(access, appender, commit_log_service, queues, gate, passes)
    producers = ForeignProducers(tables.open("foreign-producers", ProducerRow), foreign_topics.stream_of, now_ms)
    producers.open()
    takers = _open_takers(groups, cursors, commit_log_service)
    broker = _open_broker(
        settings,
        topics,
        cursors,
        cluster,
        access,
        gate,
        appender,
        catalogue,
        clock,
        groups,
        transactions,
        offload,
        _open_reviews(settings, review_offload or offload, appender, metrics),
        passwords,
        queues,
        dynamic,
        credentials,
        ForeignTopicApi(foreign_topics, targets, producers, settings.cross.batch_records),
        TopicQueues(foreign_topics, targets, queues.parts.queues, cursors, access, takers),
    )
    broker.groups.taken_by(takers)
    _unbind_deleted_topics(topics, commit_log_service, queues)
    if commit_log_service is not None and settings.cross.list != "off":
        _share_groups(broker, groups, cursors, commit_log_service)
    return Core(
        broker,
        topics,
        cursors,
        cluster,
        gate,
        appender,
        maintenance,
        groups,
        transactions,
        queues,
        foreign_topics,
        targets,
        authenticator,
        credentials,
        audit,
        login_log,
        Signatures(authenticator, access, credentials.secrets, login_log),
        _open_bearer_tokens(settings, offload, clock),
        commit_log_service,
        tables,
        started,
    )
