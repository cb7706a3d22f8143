"""Lookup of stored messages by log position, key or tag, reached as `commit_log.lookup`. Each verb checks the caller's
rights, then delegates."""

from __future__ import annotations

from collections.abc import Iterator

from trimq.core.commit_log.tag_search import search_tag
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.model import Caller
from trimq.storage.commit_log.lookup import find_key, search_key, units_between
from trimq.storage.commit_log.store import CommitStore


class CommitLogLookupApi:
    def __init__(self, store: CommitStore, access: Access) -> None:
        self._store = store
        self._access = access

    # -- by log position

    def unit_at(self, caller: Caller, position: int) -> Unit:
        """Returns the message at this log position. Raises OffsetOutOfRange if there is none."""
        unit = self._store.log.unit_at(position)
        self._access.require(caller, Action.READ, _resource(caller, unit.topic.decode("utf-8", "replace")))
        return unit

    def units_from(self, caller: Caller, position: int) -> Iterator[Unit]:
        """Messages of all topics in log order, up to the current durable end. Raises OffsetOutOfRange if one cannot be
        read."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return units_between(self._store.log, position, self._store.log.durable_end)

    def log_ends(self) -> tuple[int, int, int]:
        """Log positions: first byte kept, end of the durable part, end."""
        log = self._store.log
        return log.start, log.durable_end, log.end

    @property
    def last_store_ms(self) -> int:
        """Store time of the last message. No message has a later one."""
        return self._store.log.last_store_ms

    # -- by key

    def find_key(self, caller: Caller, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Unit]:
        """Messages of a topic with this key, stored between these times, newest first."""
        self._access.require(caller, Action.READ, _resource(caller, topic))
        return find_key(self._store.log, self._store.keys, topic, key, begin_ms, end_ms)

    def search_key(self, caller: Caller, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Unit | None]:
        """As `find_key`, in steps. Yields None between steps, so that the caller can continue in a later turn."""
        self._access.require(caller, Action.READ, _resource(caller, topic))
        return search_key(self._store.log, self._store.keys, topic, key, begin_ms, end_ms)

    # -- by tag

    def search_tag(
        self, caller: Caller, topic: CommitLogTopic, tag: str, begin_ms: int, end_ms: int
    ) -> Iterator[Unit | None]:
        """Messages of a topic with this tag, in steps as `search_key`."""
        self._access.require(caller, Action.READ, _resource(caller, topic.name.name))
        count = max(topic.definition.read_streams, topic.definition.write_streams)
        return search_tag([topic.stream(number) for number in range(count)], tag, begin_ms, end_ms)


def _resource(caller: Caller, topic: str) -> Resource:
    return Resource(ResourceKind.TOPIC, caller.namespace, topic)
