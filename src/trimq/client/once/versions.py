"""Versions: a message changes a row only if the row still has the version that the message was made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.client.databases import Database, check_name
from trimq.client.errors import Retry
from trimq.client.once.guard import Outcome, Work


class Versioned:
    """Raises the version of a row by one in the transaction in which the handler writes. `of` returns the key of the
    row and the version that the message expects. An older row means that earlier messages are missing: the message is
    delivered again. A newer one means that this message was handled before."""

    def __init__(
        self,
        database: Database,
        table: str,
        of: Callable[[Any], tuple[object, int]],
        *,
        key: str = "id",
        version: str = "version",
    ) -> None:
        self._database = database
        self._table, self._key, self._version = check_name(table), check_name(key), check_name(version)
        self._of = of

    def prepare(self) -> None:
        """The table belongs to the application."""

    def attempt(self, message: Any, work: Work) -> Outcome:
        key, expected = self._of(message)
        table, version = self._table, self._version
        with self._database.transaction() as cursor:
            changed = cursor.execute(
                f"update {table} set {version} = {version} + 1 where {self._key} = ? and {version} = ?", key, expected
            )
            if changed:
                work(cursor)
                return Outcome.DONE
            found = cursor.row(f"select {version} from {table} where {self._key} = ?", key)
        if found is not None and found[0] > expected:
            return Outcome.REPEAT
        state = "does not exist" if found is None else f"has version {found[0]}"
        raise Retry(f"{table} {key!r} {state}, and the message needs version {expected}")

    def close(self) -> None:
        self._database.close()
