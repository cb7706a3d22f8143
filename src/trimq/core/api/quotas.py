"""Verbs on quotas, reached as `broker.quotas`. Definitions need the right to see or change the
broker's settings."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.security.access import BROKER, Access, Action
from trimq.core.security.quotas import Metered, Quota, QuotaEntity, Quotas
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class QuotaApi:
    def __init__(self, quotas: Quotas, access: Access) -> None:
        self._quotas = quotas
        self._access = access

    def wait_ms(self, caller: Caller, metered: Metered) -> int:
        """Milliseconds until the caller is within its quota again."""
        return self._quotas.wait_ms(caller, metered)

    def charge(self, caller: Caller, metered: Metered, size: int) -> int:
        """Counts `size` bytes of messages, or `size` partitions. Returns the milliseconds to wait afterwards."""
        return self._quotas.charge(caller, metered, size)

    def all(self, caller: Caller) -> Mapping[QuotaEntity, Quota]:
        self._access.require(caller, Action.DESCRIBE_CONFIGS, BROKER)
        return self._quotas.all()

    def check(self, caller: Caller, holder: QuotaEntity, rates: Mapping[Metered, float]) -> None:
        """Raises as `define` would."""
        self._access.require(caller, Action.ALTER_CONFIGS, BROKER)
        self._quotas.check(holder, rates)

    def define(self, caller: Caller, holder: QuotaEntity, rates: Mapping[Metered, float]) -> Ticket | None:
        """Replaces the quota of an entity. Returns None if nothing changed."""
        self._access.require(caller, Action.ALTER_CONFIGS, BROKER)
        ticket = self._quotas.define(holder, rates)
        if ticket is not None:
            named = {direction.name.lower(): rate for direction, rate in rates.items()}
            self._access.audit.changed(caller, "define", "quota", _name_of(holder), rates=named)
        return ticket


def _name_of(holder: QuotaEntity) -> str:
    named = {"user": holder.principal, "client-id": holder.client}
    return ", ".join(f"{kind} {found.name or 'by default'}" for kind, found in named.items() if found is not None)
