"""Two-phase commit: all participants prepare, the coordinator decides, all participants follow.

A participant that has prepared must wait for the decision: while the coordinator is down, what it prepared stays
locked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from trimq.client.agreeing.journal import Decision, Journal
from trimq.client.databases import Database

log = logging.getLogger(__name__)


class Participant(Protocol):
    """`commit` and `rollback` are called again until they return, and must then do nothing more. `rollback` is also
    called for a change that was never prepared here."""

    def prepare(self, id: str, payload: Any) -> None:
        """Makes sure that both a commit and a rollback are possible from now on. Raises an exception to refuse."""
        ...

    def commit(self, id: str) -> None: ...

    def rollback(self, id: str) -> None: ...


class TwoPhase:
    """Coordinator with a journal in a database. Only one process may use a journal at a time."""

    def __init__(self, database: Database, participants: Mapping[str, Participant], table: str = "two_phase") -> None:
        self._journal = Journal(database, table)
        self._participants = dict(participants)

    def prepare(self) -> None:
        """Creates the journal if it does not exist."""
        self._journal.prepare()

    def run(self, id: str, payload: Any) -> Decision:
        """Carries a change out, and returns what was decided. Raises the exception of a participant that cannot follow
        the decision now: `recover` finishes that later. `payload` must be JSON."""
        if not self._journal.begin(id, payload):
            raise ValueError(f"the change {id!r} has begun before: use recover")
        decision = Decision.COMMITTED
        for name, participant in self._participants.items():
            try:
                participant.prepare(id, payload)
            except Exception as error:
                log.info("change %s: %s refuses (%s)", id, name, error)
                decision = Decision.ABORTED
                break
        self._follow(id, self._journal.decide(id, decision))
        return decision

    def _follow(self, id: str, decision: Decision) -> None:
        for participant in self._participants.values():
            if decision is Decision.COMMITTED:
                participant.commit(id)
            else:
                participant.rollback(id)
        self._journal.end(id)

    def recover(self) -> dict[str, Decision]:
        """Finishes the changes that an earlier coordinator left: what was not decided is aborted. Returns what became
        of each. Raises the exception of a participant that cannot follow now."""
        found: dict[str, Decision] = {}
        for id, _, _ in self._journal.unfinished():
            found[id] = self._journal.decide(id, Decision.ABORTED)
            self._follow(id, found[id])
        return found
