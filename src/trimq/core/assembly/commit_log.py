"""Opens the commit log if it is used: store, topics, groups, cursors, POP, and the periodic deletion of old files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from trimq.clock import Clock, Timeline, Timer
from trimq.config import Settings
from trimq.core.api.commit_log import CommitLogApi, CommitLogLifecycle
from trimq.core.api.commit_log_admin import CommitLogAdminApi
from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin
from trimq.core.api.commit_log_groups import CommitLogGroupApi
from trimq.core.api.commit_log_lookup import CommitLogLookupApi
from trimq.core.api.commit_log_messages import CommitLogMessageApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.api.kv_config import KvConfigApi
from trimq.core.commit_log.config_sync import ConfigSync
from trimq.core.commit_log.dead_letters import ClosedCommitLog, CommitLogDeadLetters
from trimq.core.commit_log.groups import CommitLogGroups
from trimq.core.commit_log.kv_config import KvConfig
from trimq.core.commit_log.retention import CommitLogRetention
from trimq.core.commit_log.topics import CommitLogTopics
from trimq.core.failures.ledger import FailedMessageLedger
from trimq.core.failures.ledger_log import LedgerLog
from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.cursors import Cursor, Cursors
from trimq.core.metadata.durable_map import DurableMap
from trimq.core.metadata.names import NameRegistry
from trimq.core.pop.in_flight import InFlightRecord
from trimq.core.pop.pop import PopService
from trimq.core.security.access import Access
from trimq.core.write_gate import WriteGate
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.schedule import consume_queue_code, parse_levels
from trimq.offload import Offload
from trimq.storage.commit_log.checkpoint import CommitCheckpoints
from trimq.storage.commit_log.commit_pool import CommitPool
from trimq.storage.commit_log.config_files import ConfigFiles
from trimq.storage.commit_log.file_preparation import FilePreparation, prepare_files
from trimq.storage.commit_log.lookup import find_key
from trimq.storage.commit_log.settings import CommitSettings
from trimq.storage.commit_log.store import ROOT, CommitStore
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.damages import DamageReports
from trimq.storage.guards.slow_disk import SlowDiskGuard
from trimq.storage.io.files import Files
from trimq.storage.tables.tables import Tables

log = logging.getLogger(__name__)

# A topic name must fit its length field, and so must the names of retry and dead-letter topics derived from it.
_NAME_LENGTH = 255

# The in-flight table changes twice per message: a snapshot every few hundred messages would cost more than the
# messages.
_TAKEN_LOG_BYTES = 1024 * 1024


def is_commit_log_needed(settings: Settings, files: Files) -> bool:
    """Whether a RocketMQ listener is configured, or the commit log has files."""
    rocketmq = settings.rocketmq
    return any((rocketmq.listen, rocketmq.broker_listen, rocketmq.grpc_listen)) or bool(
        files.names(f"{ROOT}/commitlog")
    )


class CommitLogService:
    """Starts and stops the parts of the commit log, and deletes old files periodically."""

    def __init__(
        self,
        commit_log: CommitLogApi,
        topics: CommitLogTopics,
        cursors: Cursors,
        store: CommitStore,
        care: FilePreparation | None,
        stalls: SlowDiskGuard,
        pressure: Callable[[], int],
        timeline: Timeline,
        settings: Settings,
    ) -> None:
        self.commit_log = commit_log
        self.topics = topics
        self.cursors = cursors
        self._store = store
        self._preparation = care
        self._stalls = stalls
        self._pressure = pressure
        self._timeline = timeline
        self._interval_ms = settings.storage.retention_check_ms
        self._timer: Timer | None = None

    def start(self) -> None:
        self.commit_log.dead_letters.start()
        self.commit_log.lifecycle.start()
        self._arm()

    def _arm(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._expire)

    def stop(self) -> None:
        self.commit_log.pop_service.stop()
        self.commit_log.lifecycle.stop()
        self._stalls.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def report_damage(self, damages: DamageReports) -> None:
        """Reports damage that readers find to `damages`."""
        self._store.log.damaged = lambda damage: damages.found(damage, "restore the file from a copy")

    def close(self) -> None:
        self._store.close()
        if self._preparation is not None:
            self._preparation.close()

    def _expire(self) -> None:
        """Deletes files past their retention in the configured hours; on a nearly full disk deletes the oldest at any
        time."""
        now_ms = self._timeline.now_ms()
        try:
            if self.commit_log.retention.is_hour(now_ms):
                self._store.expire(now_ms, self.commit_log.retention.oldest_held_position(now_ms))
            if (excess_bytes := self._pressure()) > 0:
                freed = self._store.expire_oldest(excess_bytes, self.commit_log.retention.release)
                if freed:
                    log.warning("commit log: deleted the oldest files, %d bytes (disk nearly full)", freed)
        except (Refusal, OSError) as error:
            log.warning("commit log: deletion of old files failed, will be retried (%s)", error)
        self._arm()


def _open_store(
    settings: Settings, files: Files, passes: Passes, offload: Offload, tables: Tables, clock: Clock
) -> tuple[CommitStore, FilePreparation | None]:
    rocketmq = settings.rocketmq
    checkpoints = CommitCheckpoints(tables.open("commit", list))
    kept = CommitSettings(
        file_bytes=rocketmq.commit_file_bytes,
        queue_file_entries=rocketmq.queue_file_entries,
        index_slots=rocketmq.index_keys // 4,  # the ratio of Apache RocketMQ's defaults
        index_entries=rocketmq.index_keys,
        checkpoint_bytes=settings.storage.checkpoint_bytes,
        retention_ms=rocketmq.retention_ms,
    )
    levels_ms = parse_levels(rocketmq.delay_levels)
    pool = CommitPool(passes, clock.liveness, rocketmq.commit_interval_ms) if settings.flush == "pooled" else None
    store = CommitStore(
        files,
        passes,
        checkpoints,
        kept,
        clock.message.now_ms,
        lambda unit: consume_queue_code(unit, levels_ms),
        pool,
    )
    care = prepare_files(
        files,
        ROOT,
        rocketmq.commit_file_bytes,
        offload,
        preallocates=rocketmq.commit_preallocate,
        warms=rocketmq.commit_warm,
        locks=rocketmq.commit_lock_memory,
    )
    if care is not None:
        store.log.use_preparation(care)
        care.open()
    store.open()
    if care is not None:
        care.begin(store.log.journal.active.file)
    return store, care


def _open_topics(
    settings: Settings,
    catalogue: Catalogue,
    names: NameRegistry,
    store: CommitStore,
    passes: Passes,
    now_ms: Callable[[], int],
    new_id: Callable[[], UUID],
    on_expired: Callable[[], None],
) -> CommitLogTopics:
    shared = CommitLogTopics(
        catalogue,
        names,
        store,
        passes,
        now_ms,
        new_id,
        _NAME_LENGTH,
        settings.limits.streams_per_topic,
        on_expired,
        settings.limits.topics,
    )
    shared.open()
    return shared


def open_commit_log_service(
    settings: Settings,
    files: Files,
    passes: Passes,
    clock: Clock,
    offload: Offload,
    catalogue: Catalogue,
    names: NameRegistry,
    access: Access,
    gate: WriteGate,
    failures: FailedMessageLedger,
    ledger: LedgerLog,
    tables: Tables,
    new_id: Callable[[], UUID],
    on_expired: Callable[[], None],
    foreign_ids: Callable[[], set[UUID]],
) -> CommitLogService | None:
    """Returns None if no listener uses the commit log and it is empty. `foreign_ids` returns the topics of other
    layouts, which the groups of RocketMQ may read."""
    if not is_commit_log_needed(settings, files):
        failures.add_source(ClosedCommitLog())
        return None
    message, rocketmq = clock.message, settings.rocketmq
    store, care = _open_store(settings, files, passes, offload, tables, clock)
    shared = _open_topics(settings, catalogue, names, store, passes, message.now_ms, new_id, on_expired)
    cursors = _open_cursors(tables.open("shared-cursors", Cursor), message, shared, foreign_ids())
    groups = CommitLogGroups(catalogue)
    letters = CommitLogDeadLetters(shared, store.log.unit_at, failures.give_up, ledger)
    failures.add_source(letters)
    taken = tables.open("taken", InFlightRecord, _TAKEN_LOG_BYTES)
    pop_service = _open_popping(settings, shared, cursors, taken, access, gate, message, passes, store, groups, letters)
    config = _open_config(files, catalogue, shared, cursors, passes)
    retention = CommitLogRetention(
        shared, rocketmq.retention_ms, rocketmq.dead_letter_retention_ms, rocketmq.delete_when
    )
    delay_ms = rocketmq.commit_interval_ms if settings.flush == "pooled" else 0
    stalls = SlowDiskGuard(
        passes, clock.liveness, rocketmq.busy_after_ms, lambda: passes.durable, delay_ms, "messages of RocketMQ clients"
    )
    commit_log = CommitLogApi(
        topics=CommitLogTopicApi(shared, cursors, access, gate),
        messages=CommitLogMessageApi(
            store, access, gate, stalls, rocketmq.message_bytes, passes.on_durable_guarded, offload
        ),
        lookup=CommitLogLookupApi(store, access),
        groups=CommitLogGroupApi(groups, cursors, pop_service, access),
        group_admin=CommitLogGroupAdmin(shared, groups, cursors, access, pop_service.forget_group),
        kv_config=KvConfigApi(KvConfig(catalogue), access),
        admin=CommitLogAdminApi(shared, store, retention, access, gate),
        pop_service=pop_service,
        dead_letters=letters,
        retention=retention,
        config=config,
        lifecycle=CommitLogLifecycle(),
    )
    return CommitLogService(commit_log, shared, cursors, store, care, stalls, gate.pressure, message, settings)


def _open_popping(
    settings: Settings,
    shared: CommitLogTopics,
    cursors: Cursors,
    taken: DurableMap[InFlightRecord],
    access: Access,
    gate: WriteGate,
    timeline: Timeline,
    passes: Passes,
    store: CommitStore,
    groups: CommitLogGroups,
    failures: CommitLogDeadLetters,
) -> PopService:
    return PopService(
        shared,
        cursors,
        taken,
        access,
        gate,
        timeline,
        passes.on_durable_guarded,
        settings.rocketmq.pop_out_limit,
        partial(find_key, store.log, store.keys),
        groups.retry_limit,
        failures,
    )


def _open_cursors(
    table: DurableMap[Cursor], timeline: Timeline, shared: CommitLogTopics, foreign_ids: set[UUID]
) -> Cursors:
    cursors = Cursors(table, timeline)
    shared.on_deleted(cursors.delete_topic)
    cursors.delete_strays({topic.id for topic in shared} | foreign_ids)
    return cursors


def _open_config(
    files: Files, catalogue: Catalogue, shared: CommitLogTopics, cursors: Cursors, passes: Passes
) -> ConfigSync:
    config = ConfigSync(ConfigFiles(files, ROOT), catalogue, shared, cursors, passes)
    if config.is_imported:
        shared.drop_or_redefine_strays()
    return config
