"""Quotas: the bytes per second that a client may send and receive, and the partitions per second that it may create
and delete. Definitions are stored in the catalogue, the usage only in memory. Computes how long a client has to wait;
callers do the throttling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.errors import InvalidSetting
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket

_KIND = "quota"
_MAX_METERS = 10_000


class Metered(Enum):
    """Kinds of quotas: bytes to and from the broker, partitions created and deleted."""

    IN = "in"
    OUT = "out"
    MUTATIONS = "mutations"


# A client below its rate may use this much of it in one burst: for mutations as in Kafka, whose windows are longer.
_BURST_MS = {Metered.IN: 1000, Metered.OUT: 1000, Metered.MUTATIONS: 11_000}


class QuotaEntityName(msgspec.Struct, frozen=True, array_like=True):
    """`name` None: default for each name without a quota of its own."""

    name: str | None


class QuotaEntity(msgspec.Struct, frozen=True, array_like=True):
    """Entity that a quota applies to: a principal, a client id, or a client id of a principal. None: any."""

    principal: QuotaEntityName | None = None
    client: QuotaEntityName | None = None


class Quota(msgspec.Struct, frozen=True):
    """Rates per second of all connections of an entity together."""

    rates: dict[str, float] = {}

    def rate(self, metered: Metered) -> float | None:
        return self.rates.get(metered.value)


class _Meter:
    """Time at which everything so far would have been done at exactly the allowed rate."""

    __slots__ = ("_burst_ms", "_paid_until_ms")

    def __init__(self, burst_ms: int) -> None:
        self._burst_ms = burst_ms
        self._paid_until_ms = 0.0

    def wait_ms(self, now_ms: int) -> int:
        return max(round(self._paid_until_ms - now_ms), 0)

    def charge(self, size: int, rate: float, now_ms: int) -> None:
        self._paid_until_ms = max(self._paid_until_ms, now_ms - self._burst_ms) + size * 1000 / rate


class _AppliedQuota(NamedTuple):
    meter: _Meter
    rate: float


_NO_QUOTA: _AppliedQuota | None = None
_MeterKey = tuple[Metered, str | None, str | None]


class Quotas:
    def __init__(self, catalogue: Catalogue, now_ms: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._now_ms = now_ms
        self._quotas: dict[QuotaEntity, Quota] = {}
        self._meters: dict[_MeterKey, _Meter] = {}
        for key, definition in catalogue.all(_KIND):
            self._changed(key, definition)
        catalogue.watch(_KIND, self._changed)

    # -- definitions

    def all(self) -> Mapping[QuotaEntity, Quota]:
        return self._quotas

    def define(self, entity: QuotaEntity, rates: Mapping[Metered, float]) -> Ticket | None:
        """Replaces the entity's quota; without rates, deletes it. Returns None if nothing had to change."""
        self.check(entity, rates)
        key = msgspec.json.encode(entity).decode("utf-8")
        found = self._catalogue.get(_KIND, key)
        if not rates:
            return None if found is None else self._catalogue.delete(_KIND, key, found.version)
        quota = Quota({metered.value: rate for metered, rate in rates.items()})
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(quota), None if found is None else found.version)

    @staticmethod
    def check(entity: QuotaEntity, rates: Mapping[Metered, float]) -> None:
        """Raises the refusal that `define` would raise."""
        if entity == QuotaEntity():
            raise InvalidSetting("quota", "a quota needs a principal or a client id")
        for metered, rate in rates.items():
            if metered is Metered.MUTATIONS and rate <= 0:
                raise InvalidSetting("partitions created and deleted a second", f"{rate} is not positive")
            if metered is not Metered.MUTATIONS and rate < 1:
                raise InvalidSetting(f"bytes {metered.value} a second", f"{rate} is below 1")

    def _changed(self, key: str, definition: Definition | None) -> None:
        entity = msgspec.json.decode(key, type=QuotaEntity)
        if definition is None:
            self._quotas.pop(entity, None)
        else:
            self._quotas[entity] = msgspec.convert(definition.value, Quota)

    # -- use

    def wait_ms(self, caller: Caller, metered: Metered) -> int:
        """Returns how long the caller has to wait until it is within its quota again; 0 if it is, or has no quota."""
        found = self._find(caller, metered) if self._quotas else _NO_QUOTA
        return 0 if found is None else found.meter.wait_ms(self._now_ms())

    def charge(self, caller: Caller, metered: Metered, size: int) -> int:
        """Charges `size` bytes that are transferred now, or `size` partitions. Returns how long the caller has to wait
        afterwards."""
        found = self._find(caller, metered) if self._quotas else _NO_QUOTA
        if found is None:
            return 0
        now_ms = self._now_ms()
        found.meter.charge(size, found.rate, now_ms)
        return found.meter.wait_ms(now_ms)

    def _find(self, caller: Caller, metered: Metered) -> _AppliedQuota | None:
        """Returns the most specific quota. A default quota is metered separately for each client that it applies to."""
        for entity in _closest_first(caller):
            quota = self._quotas.get(entity)
            rate = None if quota is None else quota.rate(metered)
            if rate is not None:
                principal = None if entity.principal is None else caller.principal
                client = None if entity.client is None else caller.client_id
                return _AppliedQuota(self._meter((metered, principal, client)), rate)
        return None

    def _meter(self, key: _MeterKey) -> _Meter:
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= _MAX_METERS:
                self._forget_idle()
            meter = self._meters[key] = _Meter(_BURST_MS[key[0]])
        return meter

    def _forget_idle(self) -> None:
        """Drops meters without debt, which are as good as new: clients can invent any number of client ids."""
        now_ms = self._now_ms()
        self._meters = {key: meter for key, meter in self._meters.items() if meter.wait_ms(now_ms) > 0}


def _closest_first(caller: Caller) -> list[QuotaEntity]:
    """Kafka's precedence: a named principal before the default one, and within that a named client before the default
    one."""
    principal, client, any_one = (
        QuotaEntityName(caller.principal),
        QuotaEntityName(caller.client_id),
        QuotaEntityName(None),
    )
    return [
        QuotaEntity(principal, client),
        QuotaEntity(principal, any_one),
        QuotaEntity(principal),
        QuotaEntity(any_one, client),
        QuotaEntity(any_one, any_one),
        QuotaEntity(any_one),
        QuotaEntity(None, client),
        QuotaEntity(None, any_one),
    ]
