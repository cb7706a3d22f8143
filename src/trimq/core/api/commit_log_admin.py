"""Verbs on the commit log as a whole, reached as `commit_log.admin`: retention, disk space, messages of deleted topics.
All changes need the right to administer the broker."""

from __future__ import annotations

from dataclasses import replace

from trimq.core.commit_log.retention import CommitLogRetention
from trimq.core.commit_log.topics import CommitLogTopics
from trimq.core.security.access import BROKER, Access, Action
from trimq.core.write_gate import WriteGate
from trimq.model import Caller
from trimq.storage.commit_log.store import CommitStore
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import Space


class CommitLogAdminApi:
    def __init__(
        self,
        topics: CommitLogTopics,
        store: CommitStore,
        retention: CommitLogRetention,
        access: Access,
        gate: WriteGate,
    ) -> None:
        self._topics = topics
        self._store = store
        self._retention = retention
        self._access = access
        self._gate = gate

    def require_administrator(self, caller: Caller) -> None:
        self._access.require(caller, Action.ADMINISTER, BROKER)

    def require_known(self, caller: Caller) -> None:
        """Raises AccessDenied if the caller has no right at all."""
        self._access.require_known(caller)

    def record_change(self, caller: Caller, action: str, kind: str, name: str, **details: object) -> None:
        """Writes an audit record of a change that no verb makes: of the routes of other brokers."""
        self._access.audit.changed(caller, action, kind, name, **details)

    def space(self) -> Space:
        """Space on the disk, queried from the operating system."""
        return self._gate.space()

    def expire(self, caller: Caller, now_ms: int) -> Ticket | None:
        """Deletes files past their retention now. Returns None if there are none."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._store.expire(now_ms, self._retention.oldest_held_position(now_ms))
        if ticket is not None:
            self._access.audit.changed(caller, "delete", "commit-log-files", "expired")
        return ticket

    def set_retention(self, caller: Caller, retention_ms: int, hours: str) -> None:
        """Sets the retention time and the hours of deletion from now on."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self._retention.retention_ms = retention_ms
        self._retention.set_hours(hours)
        self._store.settings = replace(self._store.settings, retention_ms=retention_ms)

    def drop_strays(self, caller: Caller) -> None:
        """Drops the remaining messages of deleted topics."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self._topics.drop_strays()
        self._access.audit.changed(caller, "delete", "messages", "deleted-topics")
