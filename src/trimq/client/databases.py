"""SQL databases of applications: connections for threads, transactions, and what differs between the dialects."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

log = logging.getLogger(__name__)

_is_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?").fullmatch
LONGEST_ID = 255
_FOUND_ROWS = 2


@dataclass(frozen=True, slots=True)
class Dialect:
    """`mark`: placeholder of a parameter. `id_type`: column for texts of up to 255 characters that compare exactly.
    `if_new`: end of an insert that does nothing if the row exists. `skip_locked`: end of a select that locks rows and
    leaves out those that others hold."""

    name: str
    mark: str
    begin: str | None
    id_type: str
    bytes_type: str
    number_type: str
    serial_type: str
    if_new: str
    for_update: str
    skip_locked: str

    def sql(self, text: str) -> str:
        """Returns a statement with its `?` replaced by this dialect's placeholder."""
        return text if self.mark == "?" else text.replace("?", self.mark)


SQLITE = Dialect(
    "sqlite", "?", "begin immediate", "text", "blob", "integer", "integer primary key autoincrement",
    "on conflict do nothing", "", "",
)  # fmt: skip
POSTGRES = Dialect(
    "postgres", "%s", None, "text", "bytea", "bigint", "bigserial primary key",
    "on conflict do nothing", "for update", "for update skip locked",
)  # fmt: skip
MYSQL = Dialect(
    "mysql", "%s", None, "varbinary(1020)", "longblob", "bigint", "bigint auto_increment primary key",
    "on duplicate key update {key} = {key}", "for update", "for update skip locked",
)  # fmt: skip


class Cursor:
    """Statements of one transaction, with `?` for parameters in every dialect. `raw` is the cursor of the driver."""

    __slots__ = ("dialect", "raw")

    def __init__(self, raw: Any, dialect: Dialect) -> None:
        self.raw = raw
        self.dialect = dialect

    def execute(self, statement: str, *values: object) -> int:
        """Returns the number of rows that were changed."""
        self.raw.execute(self.dialect.sql(statement), values)
        count: int = self.raw.rowcount
        return count

    def row(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        self.raw.execute(self.dialect.sql(statement), values)
        found = self.raw.fetchone()
        return None if found is None else tuple(found)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        self.raw.execute(self.dialect.sql(statement), values)
        return [tuple(row) for row in self.raw.fetchall()]

    def insert_new(self, table: str, **columns: object) -> bool:
        """Inserts a row. Returns False if there is one with the same key; waits for a transaction that inserts it."""
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        end = self.dialect.if_new.format(key=next(iter(columns)))
        return self.execute(f"insert into {table} ({names}) values ({marks}) {end}", *columns.values()) == 1


class Database:
    """Database of an application. `connect` opens a connection of a DB-API 2.0 driver without autocommit; connections
    are kept and used by one thread at a time."""

    def __init__(self, connect: Callable[[], Any], dialect: Dialect) -> None:
        self.dialect = dialect
        self._connect = connect
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @classmethod
    def sqlite(cls, path: str, patience: float = 30.0) -> Database:
        """`patience`: seconds to wait for other writers."""
        sqlite3 = import_module("sqlite3")
        return cls(
            lambda: sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False), SQLITE
        )

    @classmethod
    def postgres(cls, conninfo: str) -> Database:
        """Needs the extra `client-postgres`."""
        psycopg = _driver("psycopg", "client-postgres")
        return cls(lambda: psycopg.connect(conninfo), POSTGRES)

    @classmethod
    def mysql(cls, **arguments: Any) -> Database:
        """MySQL 8 or MariaDB 10.6 and later; `arguments` are those of `pymysql.connect`. Needs the extra
        `client-mysql`."""
        pymysql = _driver("pymysql", "client-mysql")
        if arguments.get("client_flag", 0) & _FOUND_ROWS:
            raise ValueError("client_flag must not have FOUND_ROWS: it hides whether a row is new")
        return cls(lambda: pymysql.connect(**arguments), MYSQL)

    def create_table(self, table: str, columns: str) -> None:
        """Creates a table if it does not exist. Several processes may do so at the same time, of which PostgreSQL lets
        only one succeed."""
        try:
            with self.transaction() as cursor:
                cursor.execute(f"create table if not exists {table} ({columns})")
        except Exception:
            if not self._has_table(table):
                raise

    def _has_table(self, table: str) -> bool:
        try:
            with self.transaction() as cursor:
                cursor.rows(f"select 1 from {table} where 1 = 0")
        except Exception as error:
            log.info("table %s: not there (%s)", table, error)
            return False
        return True

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Commits at the end, or rolls back if an exception leaves the block."""
        connection = self._take()
        try:
            cursor = connection.cursor()
            if self.dialect.begin is not None:
                cursor.execute(self.dialect.begin)
            yield Cursor(cursor, self.dialect)
            self.commit(connection)
            cursor.close()
        except BaseException:
            self._undo(connection)
            raise
        self._give_back(connection)

    def commit(self, connection: Any) -> None:
        connection.commit()

    def _take(self) -> Any:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, connection: Any) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _undo(self, connection: Any) -> None:
        """Rolls back. A connection that cannot do that is closed."""
        try:
            connection.rollback()
        except Exception as error:
            log.info("%s: connection closed, since it could not roll back (%s)", self.dialect.name, error)
            _close(connection)
        else:
            self._give_back(connection)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception as error:
        log.info("connection not closed (%s)", error)


def _driver(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this needs {module}: pip install 'trimq[{extra}]'") from error


def redis_client(url: str) -> Any:
    """Returns a client of Redis or Valkey. Needs the extra `client-redis`."""
    return _driver("redis", "client-redis").Redis.from_url(url, decode_responses=True)


def check_name(name: str) -> str:
    """Returns a table or column name. Raises ValueError for one that would need quotes."""
    if not _is_name(name):
        raise ValueError(f"{name!r} is no plain SQL name: use letters, digits and _")
    return name


def check_id(id: str) -> str:
    if not 0 < len(id) <= LONGEST_ID:
        raise ValueError(f"the id must have 1 to {LONGEST_ID} characters, not {len(id)}: {id[:60]!r}")
    return id
