"""States: a message moves a row from one state to the next one, which it can do once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trimq.client.databases import Database, check_name
from trimq.client.errors import GiveUp, Retry
from trimq.client.once.guard import Outcome, Work


class States:
    """`steps` names the states that follow a state: `{"new": "paid", "paid": ("sent", "refunded")}`. `of` returns the
    key of the row and the state that the message leads to. The row changes in the transaction in which the handler
    writes. A row that is there or beyond means that this message was handled before; one that cannot be there yet lets
    the message be delivered again; one that can never get there dead-letters it."""

    def __init__(
        self,
        database: Database,
        table: str,
        steps: Mapping[str, str | Iterable[str]],
        of: Callable[[Any], tuple[object, str]],
        *,
        key: str = "id",
        state: str = "state",
    ) -> None:
        self._database = database
        self._table, self._key, self._state = check_name(table), check_name(key), check_name(state)
        self._of = of
        self._next = {
            source: frozenset((targets,) if isinstance(targets, str) else targets) for source, targets in steps.items()
        }

    def prepare(self) -> None:
        """The table belongs to the application."""

    def _reaches(self, source: str, target: str) -> bool:
        """Whether steps lead from one state to the other."""
        seen: set[str] = set()
        open_states = set(self._next.get(source, ()))
        while open_states:
            state = open_states.pop()
            if state == target:
                return True
            if state not in seen:
                seen.add(state)
                open_states |= self._next.get(state, frozenset())
        return False

    def attempt(self, message: Any, work: Work) -> Outcome:
        key, target = self._of(message)
        sources = [source for source, targets in self._next.items() if target in targets]
        if not sources:
            raise GiveUp(f"no step leads to state {target!r}")
        marks = ", ".join("?" * len(sources))
        with self._database.transaction() as cursor:
            changed = cursor.execute(
                f"update {self._table} set {self._state} = ? where {self._key} = ? and {self._state} in ({marks})",
                target, key, *sources,
            )  # fmt: skip
            if changed:
                work(cursor)
                return Outcome.DONE
            found = cursor.row(f"select {self._state} from {self._table} where {self._key} = ?", key)
        if found is None:
            raise Retry(f"{self._table} {key!r} does not exist yet")
        current = found[0].decode() if isinstance(found[0], bytes) else str(found[0])
        if current == target or self._reaches(target, current):
            return Outcome.REPEAT
        if self._reaches(current, target):
            raise Retry(f"{self._table} {key!r} is in state {current!r}, from which no single step leads to {target!r}")
        raise GiveUp(f"{self._table} {key!r} is in state {current!r}, from which {target!r} cannot be reached")

    def close(self) -> None:
        self._database.close()
