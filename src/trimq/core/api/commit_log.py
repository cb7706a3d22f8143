"""The verbs on the commit log that front-ends may call, grouped by subject. Apart from `broker`, since the commit log
may be closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimq.core.api.commit_log_admin import CommitLogAdminApi
from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin
from trimq.core.api.commit_log_groups import CommitLogGroupApi
from trimq.core.api.commit_log_lookup import CommitLogLookupApi
from trimq.core.api.commit_log_messages import CommitLogMessageApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.api.kv_config import KvConfigApi
from trimq.core.commit_log.config_sync import ConfigSync
from trimq.core.commit_log.dead_letters import CommitLogDeadLetters
from trimq.core.commit_log.retention import CommitLogRetention
from trimq.core.pop.pop import PopService


class CommitLogLifecycle:
    """Background writers of the front-end, which start and stop with the commit log."""

    def __init__(self) -> None:
        self._start_listeners: list[Callable[[], None]] = []
        self._stop_listeners: list[Callable[[], None]] = []

    def on_start(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the broker accepts writes: background writers may start."""
        self._start_listeners.append(listener)

    def on_stop(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the broker accepts no more writes: background writers must stop."""
        self._stop_listeners.append(listener)

    def start(self) -> None:
        for listener in self._start_listeners:
            listener()

    def stop(self) -> None:
        for listener in self._stop_listeners:
            listener()


@dataclass(frozen=True, slots=True)
class CommitLogApi:
    """One field per subject. The front-end passes each of its services the subjects that the service needs."""

    topics: CommitLogTopicApi
    messages: CommitLogMessageApi
    lookup: CommitLogLookupApi
    groups: CommitLogGroupApi
    group_admin: CommitLogGroupAdmin
    """Groups as operators see them; checks rights itself."""
    kv_config: KvConfigApi
    admin: CommitLogAdminApi
    pop_service: PopService
    """POP consumption; checks rights itself."""
    dead_letters: CommitLogDeadLetters
    """Records failed messages."""
    retention: CommitLogRetention
    """Owners of pending messages in the log register here."""
    config: ConfigSync
    """Import and export of RocketMQ's config files."""
    lifecycle: CommitLogLifecycle
