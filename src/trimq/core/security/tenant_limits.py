"""Limits of what one tenant, a virtual host (namespace) or a user, may hold at once: AMQP connections, channels and
queues. Stores the limits in the catalogue, and counts connections and channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.errors import InvalidSetting
from trimq.errors.queues import TooManyChannels, TooManyConnections
from trimq.storage.group_commit.passes import Ticket

CONNECTIONS, CHANNELS, QUEUES = "max-connections", "max-channels", "max-queues"


class Tenant(StrEnum):
    VHOST = "vhost"
    USER = "user"


LIMITS = {Tenant.VHOST: (CONNECTIONS, QUEUES), Tenant.USER: (CONNECTIONS, CHANNELS)}

_LARGEST = 2**31 - 1


class TenantLimits:
    """As in RabbitMQ, a negative limit is none, and 0 allows nothing."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._limits: dict[tuple[Tenant, str], Mapping[str, int]] = {}
        self._connections: Counter[tuple[Tenant, str]] = Counter()
        self._channels: Counter[str] = Counter()
        for tenant in Tenant:
            kind = _kind(tenant)
            for key, definition in catalogue.all(kind):
                self._changed(tenant, key, definition)
            catalogue.watch(kind, partial(self._changed, tenant))

    # -- limits

    def all(self, tenant: Tenant) -> dict[str, dict[str, int]]:
        return {name: dict(limits) for (kind, name), limits in self._limits.items() if kind is tenant and limits}

    def of_tenant(self, tenant: Tenant, name: str) -> dict[str, int]:
        return dict(self._limits.get((tenant, name), {}))

    def of(self, tenant: Tenant, name: str, limit: str) -> int | None:
        """Returns None without a limit."""
        found = self._limits.get((tenant, name))
        value = None if found is None else found.get(limit)
        return None if value is None or value < 0 else value

    def change(self, tenant: Tenant, name: str, changes: Mapping[str, int | None]) -> Ticket | None:
        """Sets limits, and removes those that are None; all others stay. Returns None if nothing changes."""
        for limit, value in changes.items():
            if limit not in LIMITS[tenant]:
                known = " and ".join(LIMITS[tenant])
                raise InvalidSetting(limit, f"the limits of a {tenant.value} are {known}")
            if value is not None and not -1 <= value <= _LARGEST:
                raise InvalidSetting(limit, f"{value} is not a number from -1 (no limit) to {_LARGEST}")
        found = self._catalogue.get(_kind(tenant), name)
        before: Mapping[str, int] = {} if found is None else found.value
        after = {limit: value for limit, value in {**before, **changes}.items() if value is not None}
        if after == before:
            return None
        version = None if found is None else found.version
        if after:
            return self._catalogue.put(_kind(tenant), name, after, version)
        assert version is not None, "nothing was removed from nothing"
        return self._catalogue.delete(_kind(tenant), name, version)

    def forget(self, tenant: Tenant, name: str) -> Ticket | None:
        """Removes all limits of a tenant that is deleted."""
        return self.change(tenant, name, dict.fromkeys(self._limits.get((tenant, name), ())))

    def _changed(self, tenant: Tenant, name: str, definition: Definition | None) -> None:
        if definition is None:
            self._limits.pop((tenant, name), None)
        else:
            self._limits[tenant, name] = msgspec.convert(definition.value, dict[str, int])

    # -- counts

    def open_connection(self, namespace: str, user: str) -> None:
        """Counts a connection. Raises TooManyConnections if its virtual host or its user has too many."""
        holders = ((Tenant.VHOST, namespace), (Tenant.USER, user))
        for holder in holders:
            limit = self.of(*holder, CONNECTIONS)
            if limit is not None and self._connections[holder] >= limit:
                raise TooManyConnections(holder[0] is Tenant.VHOST, user, namespace, limit)
        for holder in holders:
            self._connections[holder] += 1

    def close_connection(self, namespace: str, user: str) -> None:
        for holder in ((Tenant.VHOST, namespace), (Tenant.USER, user)):
            _subtract(self._connections, holder)

    def open_channel(self, user: str) -> None:
        """Counts a channel. Raises TooManyChannels if the user has too many."""
        limit = self.of(Tenant.USER, user, CHANNELS)
        if limit is not None and self._channels[user] >= limit:
            raise TooManyChannels(user, limit)
        self._channels[user] += 1

    def close_channel(self, user: str) -> None:
        _subtract(self._channels, user)


def _subtract(counts: Counter[Any], holder: object) -> None:
    counts[holder] -= 1
    if not counts[holder]:
        del counts[holder]


def _kind(tenant: Tenant) -> str:
    return f"{tenant.value}_limit"
