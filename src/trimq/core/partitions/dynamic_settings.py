"""Settings of the broker that can be changed while it runs: defaults of topics, and a few of its own. Stored in the
catalogue, for this node and for the whole cluster; the node's value takes precedence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

import msgspec

from trimq.config import Settings
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.partitions.topic_settings import check_topic_settings, check_whole, is_topic_setting
from trimq.storage.group_commit.passes import Ticket

_KIND = "broker-settings"

COMPACTION_CHECK_MS = "compaction_check_ms"

# Settings of the broker itself. The rates have no effect: there is no replication, so none exceeds its limit.
_OWN: dict[str, Callable[[str, str], None]] = {
    COMPACTION_CHECK_MS: partial(check_whole, least=0),
    "leader_replication_rate": partial(check_whole, least=0),
    "follower_replication_rate": partial(check_whole, least=0),
    "folder_move_rate": partial(check_whole, least=0),
}


class Level(Enum):
    NODE = "node"
    CLUSTER = "cluster"


class DynamicSettings:
    def __init__(self, catalogue: Catalogue, broker: Settings) -> None:
        self._catalogue = catalogue
        self._broker = broker
        self._values: dict[Level, Mapping[str, str]] = {level: {} for level in Level}
        self._listeners: list[Callable[[], None]] = []
        self.topic_defaults: dict[str, str] = {}
        """Settings of topics that have no value of their own."""
        for key, definition in catalogue.all(_KIND):
            self._values[Level(key)] = msgspec.convert(definition.value, dict[str, str])
        self._merge()
        catalogue.watch(_KIND, self._changed)

    def values(self, level: Level) -> Mapping[str, str]:
        return self._values[level]

    def value(self, name: str) -> str | None:
        return self._values[Level.NODE].get(name, self._values[Level.CLUSTER].get(name))

    def check(self, settings: Mapping[str, str]) -> None:
        """Raises the refusal that `change` would raise."""
        for name, value in settings.items():
            if name in _OWN:
                _OWN[name](name, value)
        check_topic_settings({name: value for name, value in settings.items() if name not in _OWN}, self._broker)

    def change(self, level: Level, settings: Mapping[str, str]) -> Ticket | None:
        """Replaces the settings of a level. Returns None if nothing had to change."""
        self.check(settings)
        if settings == self._values[level]:
            return None
        found = self._catalogue.get(_KIND, level.value)
        return self._catalogue.put(_KIND, level.value, dict(settings), None if found is None else found.version)

    def on_changed(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _changed(self, key: str, definition: Definition | None) -> None:
        self._values[Level(key)] = {} if definition is None else msgspec.convert(definition.value, dict[str, str])
        self._merge()
        for listener in self._listeners:
            listener()

    def _merge(self) -> None:
        merged = {**self._values[Level.CLUSTER], **self._values[Level.NODE]}
        self.topic_defaults = {name: value for name, value in merged.items() if is_topic_setting(name)}
