"""Limits that can be changed while the broker runs, reached as `broker.limits`. A restart restores the settings."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trimq.config import Settings
from trimq.core.security.access import BROKER, Access, Action
from trimq.core.write_gate import WriteGate
from trimq.model import Caller


class RuntimeLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named as the settings `limits.memory_percent`, `storage.low_water_bytes` and `amqp.channel_max`.
    `memory_percent` 0 refuses all writes. None: unchanged."""

    memory_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    low_water_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    channel_max: Annotated[int, Meta(ge=0, le=65535)] | None = None


class LimitApi:
    def __init__(self, settings: Settings, gate: WriteGate, access: Access) -> None:
        self._gate = gate
        self._access = access
        self._memory_percent = settings.limits.memory_percent
        self._low_water_bytes = settings.storage.low_water_bytes
        self.channel_max = settings.amqp.channel_max
        """Channels per AMQP connection, for connections that are opened from now on."""

    def get(self, caller: Caller) -> RuntimeLimits:
        """Returns the limits in effect."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return RuntimeLimits(
            memory_percent=self._memory_percent, low_water_bytes=self._low_water_bytes, channel_max=self.channel_max
        )

    def change(self, caller: Caller, limits: RuntimeLimits) -> None:
        """Changes the limits that are not None. They hold from the next write and the next connection on."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if limits.memory_percent is not None:
            self._memory_percent = limits.memory_percent
            self._gate.change_memory_limit(limits.memory_percent)
        if limits.low_water_bytes is not None:
            self._low_water_bytes = limits.low_water_bytes
            self._gate.change_low_water(limits.low_water_bytes)
        if limits.channel_max is not None:
            self.channel_max = limits.channel_max
        changed = {name: value for name, value in msgspec.to_builtins(limits).items() if value is not None}
        self._access.audit.changed(caller, "alter-configs", "broker", "limits", limits=changed)
