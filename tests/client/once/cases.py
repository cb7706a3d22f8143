"""Ways of idempotent consumption on one database each, for a message that pays an order. Run as a program, it handles
the message once and dies where it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimq.client.databases import Cursor, Database, redis_client
from trimq.client.once import (
    GlobalId,
    Guard,
    Outcome,
    RedisCache,
    RedisLock,
    RedisMarks,
    States,
    Token,
    UniqueTable,
    Versioned,
)

POINTS = ("before", "amid", "before mark", "after mark")
SQL_WAYS = ("unique", "version", "states", "global id")
REDIS_WAYS = ("marks", "fenced id", "token")
LEASE_S = 1.0

Spec = Mapping[str, Any]
"""`kind` and arguments of a database, and the address of a Redis."""


@dataclass(frozen=True)
class Paid:
    """What a guard reads of a message."""

    id: str = "order-42"
    order: int = 42
    version: int = 0
    state: str = "paid"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingDatabase(Database):
    """Dies at the commit after the work."""

    worked = False

    def commit(self, connection: Any) -> None:
        if self.worked:
            die()
        super().commit(connection)


class DyingMarks(RedisMarks):
    """Dies between the work and the mark."""

    def _finish(self, name: str, owner: str) -> None:
        die()


def open_database(spec: Spec, kind: type[Database] = Database) -> Database:
    if spec["kind"] == "sqlite":
        return kind.sqlite(spec["path"])
    if spec["kind"] == "postgres":
        return kind.postgres(spec["conninfo"])
    return kind.mysql(**spec["arguments"])


def make_tables(spec: Spec) -> None:
    """Drops what an earlier case left, and makes one order that is not paid."""
    database = open_database(spec)
    number, kind = database.dialect.number_type, database.dialect.id_type
    with database.transaction() as cursor:
        for table in ("payments", "orders", "consumed", "global_ids", "tokens"):
            cursor.execute(f"drop table if exists {table}")
        cursor.execute(f"create table payments (number {database.dialect.serial_type}, ord {number})")
        cursor.execute(f"create table orders (id {number} primary key, version {number}, state {kind})")
        cursor.execute("insert into orders (id, version, state) values (?, ?, ?)", 42, 0, "new")
    database.close()
    if "redis" in spec:
        redis = redis_client(spec["redis"])
        redis.flushall()
        redis.close()


def pay(cursor: Cursor) -> None:
    cursor.execute("insert into payments (ord) values (?)", 42)


def payments(spec: Spec) -> int:
    database = open_database(spec)
    with database.transaction() as cursor:
        found = cursor.row("select count(*) from payments")
    database.close()
    assert found is not None
    return int(found[0])


def make_guard(way: str, spec: Spec, database: Database, marks: type[RedisMarks] = RedisMarks) -> Guard:
    ways: dict[str, Callable[[], Guard]] = {
        "unique": lambda: UniqueTable(database),
        "version": lambda: Versioned(database, "orders", lambda paid: (paid.order, paid.version)),
        "states": lambda: States(
            database, "orders", {"new": "paid", "paid": "sent"}, lambda paid: (paid.order, paid.state)
        ),
        "global id": lambda: GlobalId(database),
        "fenced id": lambda: GlobalId(database, lock=RedisLock(spec["redis"], lease=LEASE_S)),
        "token": lambda: Token(RedisCache(spec["redis"]), database),
        "marks": lambda: marks(spec["redis"], lease=LEASE_S),
    }
    return ways[way]()


def handle(way: str, spec: Spec, point: str = "") -> Outcome:
    """Pays the order through the guard; dies at the point."""
    before_mark = point == "before mark"
    database = open_database(spec, DyingDatabase if before_mark and way != "marks" else Database)
    guard = make_guard(way, spec, database, DyingMarks if before_mark else RedisMarks)

    def work(given: Cursor | None) -> None:
        if point == "before":
            die()
        if given is None:
            with database.transaction() as cursor:
                pay(cursor)
        else:
            pay(given)
        if point == "amid":
            die()
        if isinstance(database, DyingDatabase):
            database.worked = True

    try:
        guard.prepare()
        outcome = guard.attempt(Paid(), work)
    finally:
        guard.close()
        database.close()
    if point == "after mark":
        die()
    return outcome


if __name__ == "__main__":
    print(handle(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]).value)
