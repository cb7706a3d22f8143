"""One branch of a TCC change at its participant: each phase has its effect once, in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.client.databases import Cursor, Database, check_id, check_name

_TRIED, _CONFIRMED, _CANCELLED = 1, 2, 3

Step = Callable[[Cursor, str, Any], object]


class LateTry(Exception):
    """The change was cancelled before its try arrived; the try did nothing."""


class NotTried(Exception):
    """A change is to be confirmed that was not tried here, or was cancelled."""


class TccBranch:
    """`try_`, `confirm` and `cancel` get a cursor, the id of the change and its payload. Each runs in one transaction
    with the mark of its phase. A cancel without a try is remembered, does nothing, and makes a later try fail."""

    def __init__(
        self, database: Database, name: str, try_: Step, confirm: Step, cancel: Step, table: str = "tcc_branches"
    ) -> None:
        self._database = database
        self._name = check_id(name)
        self._steps = {_TRIED: try_, _CONFIRMED: confirm, _CANCELLED: cancel}
        self._table = check_name(table)

    def prepare(self) -> None:
        """Creates the table of marks if it does not exist."""
        dialect = self._database.dialect
        self._database.create_table(
            self._table,
            f"change_id {dialect.id_type} not null, branch {dialect.id_type} not null, "
            f"phase {dialect.number_type} not null, primary key (change_id, branch)",
        )

    def try_(self, id: str, payload: Any) -> None:
        """Raises LateTry if the change was cancelled before."""
        with self._database.transaction() as cursor:
            if self._insert(cursor, id, _TRIED):
                self._steps[_TRIED](cursor, id, payload)
            elif self._phase(cursor, id) == _CANCELLED:
                raise LateTry(f"{self._name}: change {id!r} was cancelled before its try")

    def confirm(self, id: str, payload: Any) -> None:
        """Raises NotTried if there is nothing to confirm."""
        with self._database.transaction() as cursor:
            phase = self._phase(cursor, id)
            if phase == _CONFIRMED:
                return
            if phase != _TRIED:
                state = "was cancelled" if phase == _CANCELLED else "was not tried"
                raise NotTried(f"{self._name}: change {id!r} {state}")
            self._set(cursor, id, _CONFIRMED, payload)

    def cancel(self, id: str, payload: Any) -> None:
        """Raises NotTried if the change was confirmed."""
        with self._database.transaction() as cursor:
            if self._insert(cursor, id, _CANCELLED):
                return  # an empty cancel
            phase = self._phase(cursor, id)
            if phase == _CONFIRMED:
                raise NotTried(f"{self._name}: change {id!r} is confirmed and cannot be cancelled")
            if phase == _TRIED:
                self._set(cursor, id, _CANCELLED, payload)

    def _insert(self, cursor: Cursor, id: str, phase: int) -> bool:
        return cursor.insert_new(self._table, change_id=check_id(id), branch=self._name, phase=phase)

    def _phase(self, cursor: Cursor, id: str) -> int | None:
        """Returns the phase of the change, and locks its row."""
        found = cursor.row(
            f"select phase from {self._table} where change_id = ? and branch = ? {cursor.dialect.for_update}",
            id, self._name,
        )  # fmt: skip
        return None if found is None else int(found[0])

    def _set(self, cursor: Cursor, id: str, phase: int, payload: Any) -> None:
        self._steps[phase](cursor, id, payload)
        cursor.execute(f"update {self._table} set phase = ? where change_id = ? and branch = ?", phase, id, self._name)
