"""Delays of logins after failed ones, for each user name and address. Knows no passwords and no queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

_FREE_FAILURES = 3
_FIRST_DELAY_MS = 100
_SECOND_FROM = 10
_SECOND_MS = 1000

# Names and addresses without a failure for this time are forgotten.
_FORGOTTEN_AFTER_MS = 900_000
_REMEMBERED = 10_000

# An IPv6 client usually has a whole /64.
_IPV6_PREFIX_BITS = 64


@dataclass(slots=True)
class _Record:
    used_ms: int
    failures: int = 0
    pending: int = 0
    next_ms: int = 0
    """Time from which the next login may be checked."""


class LoginDelays:
    """The delay grows with the failures since the last success: none after the first three, at least a second after
    ten, at most `max_delay_ms`. A login that is not checked yet counts as a failure: guesses that arrive together are
    delayed too."""

    def __init__(self, now_ms: Callable[[], int], max_delay_ms: int) -> None:
        self._now_ms = now_ms
        self._max_delay_ms = max_delay_ms
        self._records: dict[tuple[str, str], _Record] = {}

    def is_delayed(self, name: str, source: str) -> bool:
        record = self._find(name, source)
        return record is not None and self._delay_ms(record) > 0

    def reserve(self, name: str, source: str, max_wait_ms: int) -> int | None:
        """Returns the time at which this login may be checked, after which the next one may follow a delay later; None
        if that is more than `max_wait_ms` away."""
        now_ms = self._now_ms()
        record = self._find(name, source)
        if record is None:
            if len(self._records) >= _REMEMBERED:
                del self._records[next(iter(self._records))]
            record = self._records[name, source] = _Record(now_ms)
        due_ms = max(now_ms, record.next_ms)
        if due_ms > now_ms + max_wait_ms:
            return None
        record.used_ms = now_ms
        record.pending += 1
        record.next_ms = due_ms + self._delay_ms(record)
        return due_ms

    def failed(self, name: str, source: str) -> None:
        """Ends a reserved login that failed."""
        record = self._records.get((name, source))
        if record is not None:
            record.pending -= 1
            record.failures += 1
            record.used_ms = self._now_ms()
            record.next_ms = max(record.next_ms, record.used_ms + self._delay_ms(record))

    def succeeded(self, name: str, source: str) -> None:
        """Ends a reserved login that succeeded."""
        record = self._records.get((name, source))
        if record is not None:
            record.failures = record.next_ms = 0
            self._end(record, name, source)

    def dropped(self, name: str, source: str) -> None:
        """Ends a reserved login that was not checked."""
        record = self._records.get((name, source))
        if record is not None:
            self._end(record, name, source)

    def _end(self, record: _Record, name: str, source: str) -> None:
        record.pending -= 1
        if record.failures == 0 and record.pending <= 0:
            del self._records[name, source]

    def _find(self, name: str, source: str) -> _Record | None:
        record = self._records.get((name, source))
        if record is not None and not record.pending and self._now_ms() - record.used_ms > _FORGOTTEN_AFTER_MS:
            del self._records[name, source]
            return None
        return record

    def _delay_ms(self, record: _Record) -> int:
        count = record.failures + record.pending
        if count < _FREE_FAILURES:
            return 0
        if count < _SECOND_FROM:
            return min(_FIRST_DELAY_MS << count - _FREE_FAILURES, _SECOND_MS, self._max_delay_ms)
        return min(_SECOND_MS << min(count - _SECOND_FROM, 20), self._max_delay_ms)


def source_of(address: str) -> str:
    """Returns the part of `host:port` that stands for one client machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return f"{int(found) >> 128 - _IPV6_PREFIX_BITS:x}/64"
    return str(found)
