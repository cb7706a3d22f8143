"""Participant of a two-phase commit whose change is a transaction that PostgreSQL keeps prepared."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from trimq.client.databases import POSTGRES, Cursor, check_id

log = logging.getLogger(__name__)


class PostgresParticipant:
    """`work(cursor, payload)` makes the change. Needs the extra `client-postgres` and a server with
    `max_prepared_transactions` above 0. `name` tells participants of one server apart."""

    def __init__(self, conninfo: str, name: str, work: Callable[[Cursor, Any], object]) -> None:
        try:
            self._psycopg = import_module("psycopg")
        except ImportError as error:
            raise ImportError("this needs psycopg: pip install 'trimq[client-postgres]'") from error
        self._conninfo = conninfo
        self._name = name
        self._work = work

    def _global_id(self, id: str) -> str:
        """PostgreSQL takes up to 199 bytes."""
        return f"{self._name}:{check_id(id)}"

    def prepare(self, id: str, payload: Any) -> None:
        connection = self._psycopg.connect(self._conninfo)
        try:
            connection.tpc_begin(self._global_id(id))
            self._work(Cursor(connection.cursor(), POSTGRES), payload)
            connection.tpc_prepare()
        finally:
            connection.close()  # rolls back what was not prepared

    def commit(self, id: str) -> None:
        self._end(id, "commit prepared")

    def rollback(self, id: str) -> None:
        self._end(id, "rollback prepared")

    def _end(self, id: str, verb: str) -> None:
        from_sql = import_module("psycopg.sql")
        with self._psycopg.connect(self._conninfo, autocommit=True) as connection:
            try:
                connection.execute(from_sql.SQL(verb + " {}").format(from_sql.Literal(self._global_id(id))))
            except self._psycopg.errors.UndefinedObject:
                log.info("change %s: nothing is prepared by %s: it was ended before", id, self._name)

    def prepared(self) -> list[str]:
        """Returns the ids of the changes that wait for a decision."""
        with self._psycopg.connect(self._conninfo) as connection:
            found = connection.execute("select gid from pg_prepared_xacts").fetchall()
        prefix = f"{self._name}:"
        return sorted(row[0].removeprefix(prefix) for row in found if row[0].startswith(prefix))
