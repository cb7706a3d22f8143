"""How many bytes a second a client may send and be sent. Definitions live in the catalogue; what was used is known to
this run alone. Decides how long a client has to wait, and leaves the waiting to others."""

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

# Who kept within the rate may use up to so much of it at once.
_BURST_MS = 1000


class Direction(Enum):
    IN = "in"
    OUT = "out"


class QuotaEntityName(msgspec.Struct, frozen=True, array_like=True):
    """`name` None: each one that has no quota of its own."""

    name: str | None


class QuotaEntity(msgspec.Struct, frozen=True, array_like=True):
    """Whom a quota is for: a principal, a client id, or a client id of a principal. None: whatever it is."""

    principal: QuotaEntityName | None = None
    client: QuotaEntityName | None = None


class Quota(msgspec.Struct, frozen=True):
    """Bytes a second that the broker takes in from, and sends out to, all connections of a holder together."""

    rates: dict[str, int] = {}

    def rate(self, direction: Direction) -> int | None:
        return self.rates.get(direction.value)


class _Meter:
    """The time at which all that was sent so far would have been sent, at the rate and without a pause."""

    __slots__ = ("_paid_until_ms",)

    def __init__(self) -> None:
        self._paid_until_ms = 0.0

    def wait_ms(self, now_ms: int) -> int:
        return max(round(self._paid_until_ms - now_ms), 0)

    def charge(self, size: int, rate: int, now_ms: int) -> None:
        self._paid_until_ms = max(self._paid_until_ms, now_ms - _BURST_MS) + size * 1000 / rate


class _AppliedQuota(NamedTuple):
    meter: _Meter
    rate: int


_NO_QUOTA: _AppliedQuota | None = None
_MeterKey = tuple[Direction, str | None, str | None]


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

    def define(self, entity: QuotaEntity, rates: Mapping[Direction, int]) -> Ticket | None:
        """Take the place of the holder's quota; without rates it has none. None: nothing had to change."""
        self.check(entity, rates)
        key = msgspec.json.encode(entity).decode("utf-8")
        found = self._catalogue.get(_KIND, key)
        if not rates:
            return None if found is None else self._catalogue.delete(_KIND, key, found.version)
        quota = Quota({direction.value: rate for direction, rate in rates.items()})
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(quota), None if found is None else found.version)

    @staticmethod
    def check(entity: QuotaEntity, rates: Mapping[Direction, int]) -> None:
        """Refuse what `define` would refuse."""
        if entity == QuotaEntity():
            raise InvalidSetting("quota", "a quota needs a principal or a client that it is for")
        for direction, rate in rates.items():
            if rate < 1:
                raise InvalidSetting(f"bytes {direction.value} a second", f"{rate} is below 1")

    def _changed(self, key: str, definition: Definition | None) -> None:
        entity = msgspec.json.decode(key, type=QuotaEntity)
        if definition is None:
            self._quotas.pop(entity, None)
        else:
            self._quotas[entity] = msgspec.convert(definition.value, Quota)

    # -- use

    def wait_ms(self, caller: Caller, direction: Direction) -> int:
        """How long the caller has to wait until it is within its quota again; 0: it is, or has none."""
        found = self._find(caller, direction) if self._quotas else _NO_QUOTA
        return 0 if found is None else found.meter.wait_ms(self._now_ms())

    def charge(self, caller: Caller, direction: Direction, size: int) -> int:
        """`size` bytes pass now. How long the caller has to wait afterwards."""
        found = self._find(caller, direction) if self._quotas else _NO_QUOTA
        if found is None:
            return 0
        now_ms = self._now_ms()
        found.meter.charge(size, found.rate, now_ms)
        return found.meter.wait_ms(now_ms)

    def _find(self, caller: Caller, direction: Direction) -> _AppliedQuota | None:
        """The closest quota counts. One for everybody is each one's own."""
        for entity in _closest_first(caller):
            quota = self._quotas.get(entity)
            rate = None if quota is None else quota.rate(direction)
            if rate is not None:
                principal = None if entity.principal is None else caller.principal
                client = None if entity.client is None else caller.client_id
                return _AppliedQuota(self._meter((direction, principal, client)), rate)
        return None

    def _meter(self, key: _MeterKey) -> _Meter:
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= _MAX_METERS:
                self._forget_idle()
            meter = self._meters[key] = _Meter()
        return meter

    def _forget_idle(self) -> None:
        """Client ids are the clients' to invent: those that owe nothing are as good as new."""
        now_ms = self._now_ms()
        self._meters = {key: meter for key, meter in self._meters.items() if meter.wait_ms(now_ms) > 0}


def _closest_first(caller: Caller) -> list[QuotaEntity]:
    """As Kafka ranks them: a named principal beats any, and with it a named client beats any."""
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
