"""Expected results of transactions: readers of committed records see a transaction as a whole or not at all, once, and
never an aborted one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from session_clients import Partition
from simulated_trace import SimulationFailure


class Outcome(Enum):
    OPEN = "its commit was not requested"
    UNKNOWN = "its commit was requested"
    COMMITTED = "its commit was acknowledged"


class TransactionAttempt:
    """One transaction: its records, and the cursor of its group after a commit."""

    def __init__(self, serial: int, name: str) -> None:
        self.serial = serial
        self.name = name
        self.outcome = Outcome.OPEN
        self.bodies: list[bytes] = []
        self.moves_cursor = False

    def __str__(self) -> str:
        return f"transaction {self.serial} of {self.name}"


class TransactionPromises:
    def __init__(self) -> None:
        self._attempts: list[TransactionAttempt] = []
        self._of: dict[bytes, TransactionAttempt] = {}
        self._places: dict[Partition, dict[int, bytes]] = {}  # offsets of acknowledged or read records
        self._where: dict[bytes, tuple[Partition, int]] = {}
        self._stable: dict[Partition, int] = {}
        self._reported: dict[str, int] = {}
        self.open_producers: set[str] = set()

    # -- requests and responses of producers

    def begin(self, name: str) -> TransactionAttempt:
        """Begins a transaction after the producer id is known: transactions of one transactional id are committed in
        this order."""
        attempt = TransactionAttempt(len(self._attempts) + 1, name)
        self._attempts.append(attempt)
        return attempt

    def asked(self, attempt: TransactionAttempt, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            attempt.bodies.append(body)
            self._of[body] = attempt

    def acknowledged(self, partition: Partition, offset: int, bodies: Iterable[bytes]) -> None:
        for at, body in enumerate(bodies, offset):
            self._place(partition, at, body, "acknowledged")

    def _place(self, partition: Partition, at: int, body: bytes, how: str) -> None:
        known = self._places.setdefault(partition, {}).setdefault(at, body)
        where = self._where.setdefault(body, (partition, at))
        if known != body or where != (partition, at):
            raise SimulationFailure(f"{body!r} was {how} at {at} of {partition}, where {known!r} is, and is at {where}")

    # -- readers of committed records

    def stable_end(self, partition: Partition) -> int:
        return self._stable.get(partition, 0)

    def read(
        self, partition: Partition, first: int, end: int, records: Sequence[tuple[int, bytes]], stable: int, least: int
    ) -> None:
        """A reader got these records from `first` to `end`, and `stable` as the last stable offset, which was `least`
        before the request."""
        if stable < least or end > stable:
            raise SimulationFailure(f"{partition}: all before {least} was decided, now {stable}, shown up to {end}")
        self._stable[partition] = max(self._stable.get(partition, 0), stable)
        for at, body in records:
            attempt = self._of.get(body)
            if attempt is None:
                raise SimulationFailure(f"{partition}: {body!r} is visible at {at}, but was never sent")
            if attempt.outcome is Outcome.OPEN:
                raise SimulationFailure(f"{partition}: {body!r} is shown, of {attempt}: {attempt.outcome.value}")
            self._place(partition, at, body, "shown")
        shown = {at for at, _ in records}
        for at, body in self._places.get(partition, {}).items():
            if first <= at < end and at not in shown and self._of[body].outcome is Outcome.COMMITTED:
                raise SimulationFailure(f"{partition}: {body!r} is not shown at {at}, of {self._of[body]}")

    # -- cursors moved by transactions

    def check_cursor(self, name: str, offset: int, least: int) -> None:
        """The group of this transactional id has this stable cursor; before the request it was at least `least`."""
        attempt = self._attempts[offset - 1] if 0 < offset <= len(self._attempts) else None
        if offset > 0 and (
            attempt is None or attempt.name != name or not attempt.moves_cursor or attempt.outcome is Outcome.OPEN
        ):
            raise SimulationFailure(f"the group of {name} has read to {offset}, which was not committed")
        if offset < least:
            raise SimulationFailure(f"the group of {name} went back from {least} to {offset}")
        self._reported[name] = max(offset, self._reported.get(name, 0))

    def min_cursor(self, name: str) -> int:
        """Returns the lowest possible cursor of the group, from acknowledgements and earlier fetches."""
        serials = (attempt.serial for attempt in self._of_name(name) if attempt.outcome is Outcome.COMMITTED)
        return max(self._reported.get(name, 0), *serials, 0)

    def _of_name(self, name: str) -> list[TransactionAttempt]:
        return [attempt for attempt in self._attempts if attempt.name == name and attempt.moves_cursor]

    # -- at the end

    def check_all(self, shown: set[bytes], cursors: dict[str, int]) -> None:
        """Checks all records of committed transactions, and the cursors of all groups."""
        for attempt in self._attempts:
            seen = [body for body in attempt.bodies if body in shown]
            is_whole = len(seen) == len(attempt.bodies)
            if (seen and not is_whole) or (attempt.outcome is Outcome.COMMITTED and not is_whole):
                raise SimulationFailure(f"{len(seen)} of {len(attempt.bodies)} records are shown of {attempt}")
        for name, offset in cursors.items():
            committed = [
                attempt.serial for attempt in self._of_name(name) if attempt.bodies and attempt.bodies[0] in shown
            ]
            if offset != max(committed, default=0):
                raise SimulationFailure(f"the group of {name} has read to {offset}, of {committed}")
