"""Journal of a coordinator: which changes are open, and what was decided about them."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from trimq.client.databases import Database, check_id, check_name


class Decision(Enum):
    """State of a change. `OPEN`: nothing was decided; a coordinator that finds it after a restart aborts it."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2


class Journal:
    """One row for each change that has not ended with all parties."""

    def __init__(self, database: Database, table: str) -> None:
        self._database = database
        self._table = check_name(table)

    def prepare(self) -> None:
        """Creates the table if it does not exist."""
        dialect = self._database.dialect
        self._database.create_table(
            self._table,
            f"id {dialect.id_type} not null primary key, "
            f"decision {dialect.number_type} not null, payload {dialect.bytes_type} not null",
        )

    def begin(self, id: str, payload: Any) -> bool:
        """Returns False if this change has begun before and not ended."""
        with self._database.transaction() as cursor:
            return cursor.insert_new(
                self._table, id=check_id(id), decision=Decision.OPEN.value, payload=msgspec.json.encode(payload)
            )

    def decide(self, id: str, decision: Decision) -> Decision:
        """Decides an open change. Returns what is decided, which may have been decided before."""
        with self._database.transaction() as cursor:
            cursor.execute(
                f"update {self._table} set decision = ? where id = ? and decision = ?",
                decision.value, id, Decision.OPEN.value,
            )  # fmt: skip
            found = cursor.row(f"select decision from {self._table} where id = ?", id)
        return decision if found is None else Decision(found[0])

    def end(self, id: str) -> None:
        """All parties have followed the decision."""
        with self._database.transaction() as cursor:
            cursor.execute(f"delete from {self._table} where id = ?", id)

    def unfinished(self) -> list[tuple[str, Decision, Any]]:
        """Returns id, decision and payload of the changes that have not ended."""
        with self._database.transaction() as cursor:
            found = cursor.rows(f"select id, decision, payload from {self._table} order by id")
        return [
            (id.decode() if isinstance(id, bytes) else id, Decision(decision), msgspec.json.decode(bytes(payload)))
            for id, decision, payload in found
        ]
