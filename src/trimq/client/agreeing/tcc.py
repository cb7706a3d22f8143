"""Try-confirm-cancel: all branches reserve, then all confirm, or all cancel. Nothing is locked in between."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from trimq.client.agreeing.journal import Decision, Journal
from trimq.client.databases import Database

log = logging.getLogger(__name__)


class Branch(Protocol):
    """A `TccBranch`, or one that calls a `TccBranch` in another process. All three may be called several times."""

    def try_(self, id: str, payload: Any) -> None:
        """Reserves. Raises an exception to refuse, or if it is not known whether it succeeded."""
        ...

    def confirm(self, id: str, payload: Any) -> None: ...

    def cancel(self, id: str, payload: Any) -> None: ...


class Tcc:
    """Coordinator with a journal in a database. Only one process may use a journal at a time."""

    def __init__(self, database: Database, branches: Mapping[str, Branch], table: str = "tcc") -> None:
        self._journal = Journal(database, table)
        self._branches = dict(branches)

    def prepare(self) -> None:
        """Creates the journal if it does not exist."""
        self._journal.prepare()

    def run(self, id: str, payload: Any) -> Decision:
        """Carries a change out, and returns what was decided. Raises the exception of a branch that cannot confirm or
        cancel now: `recover` finishes that later. `payload` must be JSON."""
        if not self._journal.begin(id, payload):
            raise ValueError(f"the change {id!r} has begun before: use recover")
        decision = Decision.COMMITTED
        for name, branch in self._branches.items():
            try:
                branch.try_(id, payload)
            except Exception as error:
                log.info("change %s: %s did not reserve (%s)", id, name, error)
                decision = Decision.ABORTED
                break
        decision = self._journal.decide(id, decision)
        self._follow(id, decision, payload)
        return decision

    def _follow(self, id: str, decision: Decision, payload: Any) -> None:
        """Tells all branches, also those whose try was not reached or not answered."""
        for branch in self._branches.values():
            if decision is Decision.COMMITTED:
                branch.confirm(id, payload)
            else:
                branch.cancel(id, payload)
        self._journal.end(id)

    def recover(self) -> dict[str, Decision]:
        """Finishes the changes that an earlier coordinator left: what was not decided is cancelled. Returns what became
        of each. Raises the exception of a branch that cannot follow now."""
        found: dict[str, Decision] = {}
        for id, _, payload in self._journal.unfinished():
            found[id] = self._journal.decide(id, Decision.ABORTED)
            self._follow(id, found[id], payload)
        return found
