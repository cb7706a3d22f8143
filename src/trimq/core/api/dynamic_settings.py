"""Verbs on broker settings that can be changed live, reached as `broker.dynamic_settings`. All need the right to
see or change the broker's settings."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.partitions.dynamic_settings import DynamicSettings, Level
from trimq.core.security.access import BROKER, Access, Action
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class DynamicSettingsApi:
    def __init__(self, dynamic: DynamicSettings, access: Access) -> None:
        self._dynamic = dynamic
        self._access = access

    def values(self, caller: Caller, level: Level) -> Mapping[str, str]:
        self._access.require(caller, Action.DESCRIBE_CONFIGS, BROKER)
        return self._dynamic.values(level)

    def topic_defaults(self, level: Level) -> Mapping[str, str]:
        """Values that topics without a value of their own have. Whoever may describe a topic may see them."""
        return self._dynamic.values(level)

    def check(self, caller: Caller, settings: Mapping[str, str]) -> None:
        """Raises as `change` would."""
        self._access.require(caller, Action.ALTER_CONFIGS, BROKER)
        self._dynamic.check(settings)

    def change(self, caller: Caller, level: Level, settings: Mapping[str, str]) -> Ticket | None:
        """Replaces the settings of a level. Returns None if nothing changed."""
        self._access.require(caller, Action.ALTER_CONFIGS, BROKER)
        ticket = self._dynamic.change(level, settings)
        if ticket is not None:
            self._access.audit.changed(caller, "alter-configs", "broker", level.value, settings=sorted(settings))
        return ticket
