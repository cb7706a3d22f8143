"""Opens what is kept in one shared log, where somebody asks for it: the store, its topics, groups and cursors, and the
round in which old messages go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from trimq.clock import Clock, Timeline, Timer
from trimq.config import Settings
from trimq.core.access import Access
from trimq.core.appending import Appending
from trimq.core.catalogue import Catalogue
from trimq.core.cursors import Cursor, Cursors
from trimq.core.notes import Notes
from trimq.core.shared_groups import SharedGroups
from trimq.core.shared_topics import SharedTopics
from trimq.core.sharing import Sharing
from trimq.core.topics import Topics
from trimq.errors import Refusal
from trimq.formats.unit_schedule import parse_levels, queue_code
from trimq.model import Home
from trimq.offload import Offload
from trimq.storage.commit_checkpoint import CommitCheckpoints
from trimq.storage.commit_settings import CommitSettings
from trimq.storage.commit_store import ROOT, CommitStore
from trimq.storage.files import Files
from trimq.storage.passes import Passes
from trimq.storage.table import open_table

log = logging.getLogger(__name__)

# A name has to fit its length field, and those of topics that are made of it.
_NAME_LENGTH = 255


def is_wanted(settings: Settings, files: Files) -> bool:
    """Whether anybody can use the shared log, or something is kept in it."""
    rocketmq = settings.rocketmq
    return any((rocketmq.listen, rocketmq.broker_listen)) or bool(files.names(f"{ROOT}/commitlog"))


class SharedLog:
    """The parts that the broker starts and stops."""

    def __init__(self, sharing: Sharing, store: CommitStore, timeline: Timeline, interval_ms: int) -> None:
        self.sharing = sharing
        self._store = store
        self._timeline = timeline
        self._interval_ms = interval_ms
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._expire)

    def stop(self) -> None:
        self.sharing.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._store.close()

    def _expire(self) -> None:
        try:
            self._store.expire(self._timeline.now_ms())
        except (Refusal, OSError) as error:
            log.warning("expiry of the commit log failed, it is tried again: %s", error)
        self.start()


def _open_store(
    settings: Settings, files: Files, passes: Passes, offload: Offload, tables: str, now_ms: Callable[[], int]
) -> CommitStore:
    rocketmq = settings.rocketmq
    checkpoints = CommitCheckpoints(open_table(files, tables, "commit", passes, list, offload))
    kept = CommitSettings(
        file_bytes=rocketmq.commit_file_bytes,
        index_slots=rocketmq.index_keys // 4,  # as RocketMQ has it by default
        index_entries=rocketmq.index_keys,
        checkpoint_bytes=settings.storage.checkpoint_bytes,
        retention_ms=rocketmq.retention_ms,
    )
    levels_ms = parse_levels(rocketmq.delay_levels)
    store = CommitStore(files, passes, checkpoints, kept, now_ms, lambda unit: queue_code(unit, levels_ms))
    store.open()
    return store


def open_shared_log(
    settings: Settings,
    files: Files,
    passes: Passes,
    clock: Clock,
    offload: Offload,
    catalogue: Catalogue,
    topics: Topics,
    access: Access,
    appending: Appending,
    tables: str,
    new_id: Callable[[], UUID],
) -> SharedLog | None:
    """None: nobody can use it, and nothing is kept in it."""
    if not is_wanted(settings, files):
        return None
    now_ms = clock.message.now_ms
    store = _open_store(settings, files, passes, offload, tables, now_ms)
    shared = SharedTopics(
        catalogue,
        store,
        passes,
        lambda name: topics.other_home(name) if (found := topics.find(name)) is None else found.home,
        now_ms,
        new_id,
        _NAME_LENGTH,
        settings.limits.streams_per_topic,
    )
    shared.open()
    topics.shared_home = lambda name: Home.COMMIT_LOG if name in shared else None
    cursors = Cursors(open_table(files, tables, "shared-cursors", passes, Cursor, offload), clock.message)
    shared.on_deleted(cursors.delete_topic)
    cursors.delete_strays({topic.id for topic in shared})
    sharing = Sharing(
        shared,
        store,
        cursors,
        SharedGroups(catalogue),
        Notes(catalogue),
        access,
        appending,
        settings.rocketmq.message_bytes,
        passes.afterwards,
    )
    return SharedLog(sharing, store, clock.message, settings.storage.retention_check_ms)
