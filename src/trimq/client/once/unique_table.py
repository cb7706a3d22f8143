"""Unique table: the id of the message and the writes of the handler are committed together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from trimq.client.databases import Database, check_id, check_name
from trimq.client.once.guard import Outcome, Work, unique_id
from trimq.clock import Timeline, system_clock


class UniqueTable:
    """Inserts the id of a message in the transaction in which the handler writes. The handler gets the cursor of that
    transaction and must write through it."""

    def __init__(
        self,
        database: Database,
        table: str = "consumed",
        id: Callable[[Any], str] = unique_id,
        timeline: Timeline | None = None,
    ) -> None:
        self._database = database
        self._table = check_name(table)
        self._id = id
        self._timeline = timeline or system_clock().message

    def prepare(self) -> None:
        kind, number = self._database.dialect.id_type, self._database.dialect.number_type
        self._database.create_table(self._table, f"id {kind} not null primary key, at_ms {number} not null")

    def knows(self, id: str) -> bool:
        """Returns whether the work was done."""
        with self._database.transaction() as cursor:
            return cursor.row(f"select 1 from {self._table} where id = ?", id) is not None

    def attempt(self, message: Any, work: Work) -> Outcome:
        id = check_id(self._id(message))
        with self._database.transaction() as cursor:
            if not cursor.insert_new(self._table, id=id, at_ms=self._timeline.now_ms()):
                return Outcome.REPEAT
            work(cursor)
        return Outcome.DONE

    def forget(self, before: datetime) -> int:
        """Removes the marks set before a time, and returns their number. Messages that may still be delivered again
        must be younger."""
        with self._database.transaction() as cursor:
            return cursor.execute(f"delete from {self._table} where at_ms < ?", int(before.timestamp() * 1000))

    def close(self) -> None:
        self._database.close()
