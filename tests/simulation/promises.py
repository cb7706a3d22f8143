"""Expected state of a stream: records that must, may and must not exist."""

from __future__ import annotations

from collections.abc import Sequence

from simulated_trace import SimulationFailure


class Promises:
    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[int, bytes] = {}  # acknowledged, read by a client, or found by a recovery
        self._possible: dict[int, list[bytes]] = {}  # requested in this run of the broker, outcome unknown
        self._start = 0
        self._latest_start = 0
        self._durable_end = 0

    def asked(self, offset: int, record: bytes) -> None:
        self._possible.setdefault(offset, []).append(record)

    def acknowledged(self, offset: int, record: bytes) -> None:
        if self._known.setdefault(offset, record) != record:
            self._fail(f"offset {offset} was assigned to two records")

    def refused(self, offset: int, record: bytes) -> None:
        self._possible[offset].remove(record)

    def trimmed(self, start: int) -> None:
        """Records before `start` may be deleted now."""
        self._latest_start = max(self._latest_start, start)

    def seen(self, offset: int, records: Sequence[bytes]) -> None:
        """A reader got these."""
        for at, record in enumerate(records, offset):
            self._check_legal(at, record, "a reader saw")
            self._known[at] = record

    def check_ends(self, durable_end: int, end: int) -> None:
        if not self._durable_end <= durable_end <= end:
            self._fail(f"its ends went from {self._durable_end} durable to {durable_end} durable, {end} appended")
        self._durable_end = durable_end

    def check_recovered(self, start: int, records: Sequence[bytes]) -> None:
        """A recovery found these records. They must exist from now on, and the others must never exist again."""
        if not self._start <= start <= self._latest_start:
            self._fail(f"it starts at {start} after recovery, not between {self._start} and {self._latest_start}")
        end = start + len(records)
        for at in sorted(self._known):
            if at >= end:
                self._fail(f"record {at} is lost, recovery ends at {end}: {self._known[at][:40]!r}")
        for at, record in enumerate(records, start):
            self._check_legal(at, record, "recovery found")
        self._start = start
        self._known = dict(enumerate(records, start))
        self._possible = {}
        self._durable_end = end

    def _check_legal(self, at: int, record: bytes, observer: str) -> None:
        if at in self._known:
            if self._known[at] != record:
                self._fail(f"{observer} {record[:40]!r} at {at}, which was {self._known[at][:40]!r}")
        elif record not in self._possible.get(at, ()):
            self._fail(f"{observer} {record[:40]!r} at {at}, which was never appended there or was refused")

    def _fail(self, reason: str) -> None:
        raise SimulationFailure(f"{self._name}: {reason}")
